"""Golden transcripts against a real SBCL.

The files of ``tests/transcripts/requirement-001`` hold every message of the requirement; here
the real product answers them. ``transcripts/`` beside this file holds one conversation per
revision, written by ``DOVETAIL_UPDATE=1`` and compared byte for byte, times masked.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import dovetail
from dovetail.servers.lisp.product import lisp_server
from dovetail.testing import connect, envelope
from support import ALL, run

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "transcripts" / "requirement-001"
UPDATE = bool(os.environ.get("DOVETAIL_UPDATE"))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


async def replay(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same lines with the answers that came."""
    out: list[dict[str, Any]] = []
    async with connect(lisp_server(), handshake=False) as client:
        for line in lines:
            if "<" in line:
                continue
            out.append(line)
            if "#" not in line:
                frame = line[">raw"] if ">raw" in line else json.dumps(line[">"])
                client.send(frame.encode("utf-8", "surrogateescape"))
                out += [{"<": message} for message in await client.settle()]
    return out


# -- requirement 001 ---------------------------------------------------------------------------


def shows(shown: Any, sent: Any, key: str = "") -> bool:
    """Whether ``sent`` has all the document shows of it; ``...`` is what it leaves out."""
    if key == "version":
        return bool(sent == dovetail.__version__)  # versions are the package's own
    if isinstance(shown, str) and isinstance(sent, str):
        return text_shows(shown, sent)
    if isinstance(shown, dict) and isinstance(sent, dict):
        return all(name in sent and shows(shown[name], sent[name], name) for name in shown)
    if isinstance(shown, list) and isinstance(sent, list):
        # Our product lists more tools than the one of the document.
        if key == "tools":
            return all(any(shows(one, other) for other in sent) for one in shown)
        return len(shown) == len(sent) and all(map(shows, shown, sent))
    return type(shown) is type(sent) and bool(shown == sent)


def text_shows(shown: str, sent: str) -> bool:
    """The condition's own text is SBCL's, and its type the program's: the shape is exact."""
    if not shown.startswith("[ERROR]"):
        return shown in ("...", sent)
    shape = r"\[ERROR\] (\S+)\n.+?\n\n\[Backtrace\]\n0: \(.+"
    found = re.fullmatch(shape, sent, re.DOTALL)
    if "DIVISION" in shown:
        start = "[ERROR] DIVISION-BY-ZERO\n"
        return found is not None and sent.startswith(start) and "\n0: (/ 1 0)" in sent
    return found is not None


@pytest.mark.verifies("R000-16", "R001-16", "D-lisp-name", "D-lisp-lists")
@pytest.mark.parametrize("path", sorted(DOCUMENT.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_message_of_requirement_001(path: Path) -> None:
    wanted = read(path)
    found = run(replay(wanted))
    assert [list(line) for line in found] == [list(line) for line in wanted], found
    method = ""
    for shown, sent in zip(wanted, found, strict=True):
        method = shown.get(">", {}).get("method", method)
        if "<" in shown and method == "resources/list":
            # Planned there, built here. What an unknown method gets is shown by another.
            assert isinstance(sent["<"]["result"]["resources"], list)
        else:
            assert "<" not in shown or shows(shown, sent), sent


def test_what_the_document_shows_is_compared() -> None:
    shown = "[ERROR] DIVISION-BY-ZERO\nArithmetic error signalled.\n\n[Backtrace]\n0: (/ 1 0)\n..."
    assert text_shows(shown, "[ERROR] DIVISION-BY-ZERO\nx\n\n[Backtrace]\n0: (/ 1 0)")
    assert not text_shows(shown, "[ERROR] TYPE-ERROR\nx\n\n[Backtrace]\n0: (/ 1 0)")
    assert not text_shows(shown, "[ERROR] DIVISION-BY-ZERO\nx\n[Backtrace]\n0: (/ 1 0)")
    assert not shows({"tools": [{"name": "a"}]}, {"tools": [{"name": "b"}]})
    assert not text_shows("=> 6", "=> 6\n")


# -- a conversation per revision -----------------------------------------------------------------

CALLS: list[dict[str, Any]] = [
    {"code": "(+ 1 2 3)"},
    {"code": "(floor 17 5)"},
    {"code": '(format t "hello~%") (warn "careful") (values 1 "two")'},
    {"code": "(defun half (n) (/ n 2)) (half 7)"},
    {"code": "(half :seven)"},
    {"code": "(+ 1 (* 2 3)"},
    {"code": "(no-such-function)"},
    {"code": "(list * (half 10))", "package": "cl-user", "capture-time": True},
    {"code": "(read-line)", "input": "a line\n"},
    {"code": "(+ 1 2)", "session": "nowhere"},
    {"code": "(exit :code 3)"},
    {"code": "1", "unknown": True},
    {"code": 5},
    {},
]


def messages(revision: str) -> list[dict[str, Any]]:
    modern = revision == "2026-07-28"
    info = {"name": "golden", "version": "1"}
    start: list[dict[str, Any]] = []
    if not modern:
        params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": info}
        start = [
            {"id": 0, "method": "initialize", "params": params},
            {"method": "notifications/initialized"},
        ]
    calls = [
        {
            "id": number,
            "method": "tools/call",
            "params": {"name": "evaluate-lisp", "arguments": arguments}
            | ({"_meta": envelope()} if modern else {}),
        }
        for number, arguments in enumerate(CALLS, 1)
    ]
    return [{">": {"jsonrpc": "2.0", **message}} for message in (*start, *calls)]


def masked(lines: list[dict[str, Any]]) -> str:
    """As text, without what differs from run to run."""
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n"
    text = re.sub(r"started in \d+ ms", "started in N ms", text)
    text = re.sub(r"\d+ms (real|run|GC)", r"Nms \1", text)
    text = re.sub(r"\d+ bytes consed", "N bytes consed", text)
    return re.sub(r'("(?:realMs|runMs|gcMs|bytesConsed)": )\d+', r"\1 0", text)


@pytest.mark.verifies("R001-16")
@pytest.mark.parametrize("revision", ALL)
def test_a_conversation_goes_as_written(revision: str) -> None:
    path = HERE / "transcripts" / f"{revision}.jsonl"
    found = masked(
        [one for one in run(replay(messages(revision))) if one.get("<", {}).get("id") != 0]
    )
    if UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, "utf-8")
    assert found == path.read_text("utf-8")
