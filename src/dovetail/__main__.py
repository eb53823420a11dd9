"""``python -m dovetail`` is the ``dovetail`` command."""

import sys

from dovetail.cli.main import main

sys.exit(main())
