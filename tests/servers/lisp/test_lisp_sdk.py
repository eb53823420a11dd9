"""A whole programming session with the official Python SDK's client."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PEERS = ROOT / ".peers" / "venv" / "bin" / "python"
DOVETAIL = Path(sys.executable).with_name("dovetail")


@pytest.mark.verifies("R001-18", "R001-19", "R001-20", "R001-22")
@pytest.mark.parametrize(("mode", "revision"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
def test_define_redefine_err_restart_cancel_lose_replay(mode: str, revision: str) -> None:
    command = [PEERS, HERE / "sdk_session.py", mode, DOVETAIL, "serve", "lisp"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen["revision"] == revision
    assert seen["define"] == ["=> AREA", False]
    assert seen["use"] == ["=> 12", False]
    again = "STYLE-WARNING: redefining COMMON-LISP-USER::AREA in DEFUN"
    assert seen["redefine"] == [f"[warnings]\n{again}\n\n=> AREA", False]
    assert seen["use again"] == ["=> 154", False]
    text, is_error = seen["error"]
    assert is_error
    assert text.startswith("[ERROR] TYPE-ERROR\n")
    assert "\n[Backtrace]\n0: (AREA :ROUND)" in text
    assert seen["restart"] == ["=> 42", False]
    assert seen["input"] == ['=> "ADA"', False]
    assert seen["asked"][0] == "UNBOUND-VARIABLE: The variable MISSING is unbound."
    assert len(seen["asked"]) == 2
    assert seen["progress"] == ["=> :DONE", False]
    assert [one[0] for one in seen["heard"]][:3] == [0, 1, 2]
    assert seen["cancelled"] is True
    assert seen["after cancel"] == ["=> 154", False]
    text, is_error = seen["lose"]
    assert is_error
    assert text.startswith('[SESSION LOST] The Lisp process of session "default" ended (exit code')
    assert "UNDEFINED-FUNCTION" in seen["gone"][0]
    assert seen["replay"] == ["Evaluated 1 recorded definition form again.", False]
    assert seen["back"] == ["=> 154", False]
    assert seen["elsewhere"] == ["=> NIL", False]
    assert seen["close"] == ["Session 'second' closed.", False]
