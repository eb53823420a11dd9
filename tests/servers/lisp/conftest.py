"""The tests of real processes share the driver of the stdio tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "stdio"))
