"""One server over HTTP for all who want to talk to it, and the programs that do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from judge import ROOT, http_server


@pytest.fixture(scope="session")
def judges() -> None:
    """Install the suite and the clients; does nothing if they are there."""
    subprocess.run([ROOT / "scripts" / "peers"], check=True)


@pytest.fixture(scope="session")
def url(judges: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the server listens. In the end it must be alive and have complained of nothing."""
    errors = tmp_path_factory.mktemp("server") / "errors"
    with http_server(errors) as made:
        yield made
    assert errors.read_text() == ""
