"""The stdio transport as its clients meet it: a process, its descriptors and its end."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from process import PATIENCE, SUBJECT, Process, call_line, line

PING = b'{"jsonrpc":"2.0","id":901,"method":"ping"}'
PIPE_SIZE = 65536


@pytest.fixture
def server() -> Iterator[Process]:
    """A server that has been greeted in 2025-11-25."""
    with Process() as process:
        process.initialize()
        yield process


def is_alive(pid: int) -> bool:
    """A zombie is dead, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def is_blocking(fd: int) -> bool:
    return not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK


def quiet_end(process: Process) -> bool:
    """Nothing on stderr that looks like a failure."""
    text = process.errors.decode()
    return "Traceback" not in text and "Exception" not in text and "never" not in text


def answers_of(data: bytes) -> dict[Any, Any]:
    """The answers in ``data`` by id; each must be there once."""
    messages = [msgspec.json.decode(one) for one in data.splitlines()]
    by_id = {message["id"]: message for message in messages}
    assert len(by_id) == len(messages)
    return by_id


# -- what user code prints, and what it reads ---------------------------------------------------


@pytest.mark.verifies("F-stdio-print", "R002-21", "S45", "R000-1", "R000-6", "R001-13")
def test_nothing_user_code_prints_reaches_the_wire(server: Process) -> None:
    assert server.text("noise") == "quiet"
    assert server.text("echo", text="still here") == "still here"
    assert server.finish() == 0
    # Every line on stdout was JSON, or the harness would have failed. All noise is on stderr:
    said = re.findall(r"^noise: (.*)$", server.errors.decode(), re.MULTILINE)
    kinds = ["import", "print", "sys.stdout", "buffer", "descriptor", "child", "C"]
    assert sorted(said) == sorted(kinds)
    assert b"jsonrpc" not in server.errors


@pytest.mark.verifies("F-stdio-stdin")
def test_user_code_that_reads_stdin_gets_nothing(server: Process) -> None:
    reading = server.call("read_stdin")
    after = server.start("ping")
    assert server.answer(reading)["result"]["content"] == [{"type": "text", "text": ""}]
    assert server.answer(after)["result"] == {}


@pytest.mark.verifies("E-handler-crash")
def test_a_crash_and_an_exit_end_the_call_only(server: Process) -> None:
    for tool in ("crash", "exit_now"):
        result = server.request("tools/call", {"name": tool})
        text = {"type": "text", "text": f"Internal error in tool '{tool}'"}
        assert result == {"content": [text], "isError": True}
    assert server.finish() == 0
    assert "a secret of the crash" in server.errors.decode()


@pytest.mark.verifies("F-no-logging-config")
def test_the_library_never_configures_logging(server: Process) -> None:
    server.request("tools/call", {"name": "crash"})  # something was logged
    assert json.loads(server.text("logging_state")) == {"touched": []}


HEAVY = {
    "pydantic",
    "jsonschema",
    "concurrent.futures",
    "email",
    "http",
    "importlib.metadata",
    "multiprocessing",
    "socketserver",
    "unittest",
    "urllib.request",
    "uuid",
    "xml",
}


@pytest.mark.verifies("F-import-light")
def test_the_import_loads_nothing_heavy() -> None:
    code = "import sys, asyncio, msgspec; base = set(sys.modules); import dovetail;"
    code += "print(*sorted(sys.modules)); print(*sorted(set(sys.modules) - base))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, ours = (set(names.split()) for names in run.stdout.splitlines())
    assert "dovetail.server.app" in loaded
    assert not loaded & {"pydantic", "jsonschema", "pydantic_core", "rpds", "attr"}
    # asyncio brings some of these itself; we must not bring any.
    assert not ours & HEAVY
    assert not {name for name in ours if name.startswith(("dovetail.testing", "dovetail.cli"))}


# -- where input comes from ---------------------------------------------------------------------


REQUESTS = (
    line("server/discover", id=1)
    + call_line(2, "echo", text="two")
    + call_line(3, "sleep_sync", seconds=0.2)
    + call_line(4, "sleep_async", seconds=0.2)
)


def check_all_answered(process: Process) -> None:
    by_id = {message["id"]: message for message in process.inbox}
    assert len(process.inbox) == len(by_id)
    assert sorted(by_id) == [1, 2, 3, 4]
    texts = [by_id[id]["result"]["content"][0]["text"] for id in (2, 3, 4)]
    assert texts == ["two", "slept", "slept"]
    assert quiet_end(process)


@pytest.mark.verifies("F-stdio-eof", "SH-stdin-eof", "E-no-newline")
@pytest.mark.parametrize("ending", [b"\n", b"", b"\r\n"])
def test_piped_input_is_answered_after_its_end(ending: bytes) -> None:
    """``echo '…' | server``"""
    with Process() as process:
        process.write(REQUESTS.removesuffix(b"\n") + ending)
        assert process.finish() == 0
        check_all_answered(process)


@pytest.mark.verifies("F-stdio-eof")
def test_input_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(REQUESTS)
    with path.open("rb") as file, Process(stdin=file.fileno()) as process:
        assert process.wait() == 0
        check_all_answered(process)


@pytest.mark.verifies("F-stdio-eof")
def test_input_from_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    count = 5000
    path.write_bytes(b"".join(call_line(id, "add", a=id, b=0) for id in range(count)))
    # Checking every answer makes this reader a slow one: see the test of slow readers below.
    patient = {"STOP_SECONDS": "60"}
    with path.open("rb") as file, Process(stdin=file.fileno(), env=patient) as process:
        assert process.wait() == 0
        assert sorted(message["id"] for message in process.inbox) == list(range(count))
        assert all("result" in message for message in process.inbox)


@pytest.mark.verifies("F-stdio-eof")
def test_input_from_a_named_pipe_whose_writer_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reading, True)
    writing = os.open(path, os.O_WRONLY)
    os.write(writing, REQUESTS)
    os.close(writing)
    with Process(stdin=reading) as process:
        os.close(reading)
        assert process.wait() == 0
        check_all_answered(process)


@pytest.mark.verifies("F-stdio-eof")
def test_input_from_the_null_device() -> None:
    with Process(stdin=subprocess.DEVNULL) as process:
        assert process.wait() == 0
        assert process.inbox == []
        assert quiet_end(process)


def shell(redirection: str) -> dict[str, Any]:
    """Start the server through a shell that closes descriptors; ``exec`` keeps the pid."""
    return {"command": ["-c", EXEC, redirection, str(SUBJECT)]}


EXEC = """
import os, sys
for number in sys.argv[1]:
    os.close(int(number))
os.execv(sys.executable, [sys.executable, sys.argv[2]])
"""


@pytest.mark.verifies("F-stdio-eof")
@pytest.mark.parametrize("closed", ["0", "02", "01", "012"])
def test_closed_stdin_is_the_end_of_input(closed: str) -> None:
    with Process(**shell(closed)) as process:
        assert process.wait() == 0
        assert process.inbox == []
        assert process.errors in (b"", b"noise: import\n")


@pytest.mark.verifies("F-broken-pipe")
@pytest.mark.parametrize("closed", ["1", "12"])
def test_answers_of_a_server_without_stdout_go_nowhere(closed: str) -> None:
    """Above all not to stderr, and not back into the pipe the input comes from."""
    with Process(**shell(closed)) as process:
        process.write(REQUESTS)
        assert process.finish() == 0
        assert process.inbox == []
        assert b"jsonrpc" not in process.errors
        assert quiet_end(process)


@pytest.mark.verifies("F-stdio-print")
def test_a_server_without_stderr_still_keeps_the_wire_clean() -> None:
    with Process(**shell("2")) as process:
        process.initialize()
        assert process.text("noise") == "quiet"
        assert process.finish() == 0


@pytest.mark.verifies("F-real-peers")
@pytest.mark.parametrize("pairs", [2, 1])
def test_socket_pairs_as_node_makes_them(pairs: int) -> None:
    """Two pairs from Node, one for both directions from inetd, socat or a supervisor."""
    made = [socket.socketpair() for _ in range(pairs)]
    (ours_in, theirs_in), (ours_out, theirs_out) = made[0], made[-1]
    with Process(stdin=theirs_in.fileno(), stdout=theirs_out.fileno()) as process:
        process.use("stdin", os.dup(ours_in.fileno()))
        process.use("stdout", os.dup(ours_out.fileno()))
        theirs_in.close()
        theirs_out.close()
        process.initialize()
        assert process.text("add", a=1, b=2) == "3"
        assert process.text("big", size=1_000_000) == "x" * 1_000_000
        slow = process.call("sleep_async", seconds=0.2)
        process.until(lambda: not process._unsent)
        ours_in.shutdown(socket.SHUT_WR)
        assert process.answer(slow)["result"]["content"][0]["text"] == "slept"
        ours_in.close()
        ours_out.close()
        process.close("stdin")
        assert process.wait() == 0
        assert quiet_end(process)


# -- terminals ------------------------------------------------------------------------------------


def raw_terminal() -> tuple[int, int]:
    """A pty that hands on bytes as they are."""
    ours, theirs = pty.openpty()
    mode = termios.tcgetattr(theirs)
    mode[1] &= ~termios.OPOST
    mode[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(theirs, termios.TCSANOW, mode)
    return ours, theirs


@pytest.mark.verifies("F-terminal-hint")
def test_a_terminal_gets_one_friendly_line() -> None:
    ours, theirs = pty.openpty()
    with Process(stdin=theirs, env={"QUIET": "1"}) as process:
        process.use("stdin", ours)
        process.says("Ctrl-D")
        process.initialize()
        process.send(b'{"jsonrpc": "2.0", "id": 7, "method": "ping"}')
        assert process.answer(7)["result"] == {}
        process.write(b"\x04")
        assert process.wait() == 0
        assert is_blocking(theirs)
        os.close(theirs)
        friendly = process.errors.decode()
        assert friendly.startswith("subject speaks MCP")
        assert friendly.count("\n") == 1


@pytest.mark.verifies("F-terminal-hint")
def test_no_friendly_line_without_a_terminal(server: Process) -> None:
    assert server.finish() == 0
    assert server.errors == b"noise: import\n"


def test_output_to_a_terminal() -> None:
    ours, theirs = raw_terminal()
    with Process(stdout=theirs, env={"QUIET": "1"}) as process:
        process.use("stdout", ours)
        process.initialize()
        assert process.text("big", size=300_000) == "x" * 300_000
        assert is_blocking(theirs)
        os.close(theirs)
        assert process.finish() == 0
        assert quiet_end(process)


@pytest.mark.verifies("F-broken-pipe")
def test_a_terminal_that_hangs_up_ends_the_server() -> None:
    ours, theirs = raw_terminal()
    with Process(stdin=theirs, stdout=theirs, env={"QUIET": "1"}) as process:
        os.close(theirs)
        process.use("stdin", os.dup(ours))
        process.use("stdout", ours)
        process.initialize()
        process.close("stdin")
        process.close("stdout")
        assert process.wait() == 0
        assert quiet_end(process)


# -- where output goes ----------------------------------------------------------------------------


def test_output_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with path.open("wb") as file, Process(stdout=file.fileno()) as process:
        process.write(REQUESTS + call_line(5, "big", size=2_000_000))
        assert process.finish() == 0
        assert quiet_end(process)
    answers = answers_of(path.read_bytes())
    assert sorted(answers) == [1, 2, 3, 4, 5]
    assert len(answers[5]["result"]["content"][0]["text"]) == 2_000_000


def test_output_appended_to_a_file_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b'{"id":0}\n')
    with path.open("ab") as file, Process(stdout=file.fileno()) as process:
        process.write(REQUESTS)
        assert process.finish() == 0
    assert sorted(answers_of(path.read_bytes())) == [0, 1, 2, 3, 4]


@pytest.mark.verifies("F-broken-pipe")
@pytest.mark.parametrize("device", ["/dev/null", "/dev/full"])
def test_output_to_a_device(device: str) -> None:
    with open(device, "wb") as file, Process(stdout=file.fileno()) as process:
        process.write(REQUESTS)
        process.until(lambda: not process._unsent)
        assert process.finish() == 0
        assert quiet_end(process)


@pytest.mark.verifies("F-broken-pipe")
@pytest.mark.parametrize("busy", ["idle", "async", "sync", "writing"])
def test_a_reader_that_is_gone_ends_the_server(busy: str) -> None:
    with Process() as process:
        process.initialize()
        if busy == "writing":
            process.reading = False
            process.call("big", size=10 * PIPE_SIZE)
            output = process._open["stdout"]
            process.until(lambda: select.select([output], [], [], 0.01)[0])
        elif busy != "idle":
            process.call(f"sleep_{busy}", seconds=3600)
            process.says(f"sleep_{busy}: started")
        process.close("stdout")
        assert process.wait() == 0
        assert quiet_end(process)
        if busy == "async":
            assert b"sleep_async: finally" in process.errors


def test_the_mode_of_a_shared_pipe_is_left_alone() -> None:
    """``server 2>&1 | …``: stderr must not become non-blocking for those who share it."""
    reading, writing = os.pipe()
    with Process(stdout=writing, stderr=writing) as process:
        process.write(line("server/discover") + call_line(2, "echo", text="x"))
        process.until(lambda: not process._unsent)
        seen = bytearray()
        while seen.count(b"\n") < 3:
            assert select.select([reading], [], [], PATIENCE)[0]
            seen += os.read(reading, PIPE_SIZE)
        assert is_blocking(writing)
        os.close(writing)
        assert process.finish() == 0
        assert os.read(reading, PIPE_SIZE) == b""
        os.close(reading)
        lines = bytes(seen).splitlines()
        assert lines.pop(lines.index(b"noise: import"))
        assert sorted(json.loads(one)["id"] for one in lines) == [1, 2]


def test_the_mode_of_a_shared_input_is_left_alone() -> None:
    reading, writing = os.pipe()
    with Process(stdin=reading) as process:
        process.use("stdin", writing)
        process.initialize()
        assert is_blocking(reading)
        os.close(reading)
        assert process.finish() == 0


# -- the end --------------------------------------------------------------------------------------


@pytest.mark.verifies("F-cancel", "SH-stop-work")
def test_a_cancelled_call_is_stopped_and_never_answered(server: Process) -> None:
    cancelled = server.call("sleep_async", seconds=3600)
    server.says("sleep_async: started")
    server.notify("notifications/cancelled", {"requestId": cancelled, "reason": "enough"})
    server.says("sleep_async: cancelled\nsleep_async: finally")
    assert server.text("echo", text="next") == "next"
    assert server.finish() == 0
    assert server.inbox == []


@pytest.mark.verifies("F-stdio-eof")
def test_waiting_for_running_calls_is_bounded() -> None:
    with Process(env={"DRAIN_SECONDS": "0.3"}) as process:
        process.initialize()
        ids = [process.call(f"sleep_{kind}", seconds=3600) for kind in ("sync", "async")]
        assert process.finish() == 0
        for id in ids:
            error = process.answer(id)["error"]
            assert (error["code"], error["message"]) == (-32603, "Internal error")
        assert b"sleep_async: finally" in process.errors
        assert quiet_end(process)


@pytest.mark.verifies("F-stdio-eof")
def test_a_slow_reader_gets_the_last_answers_whole() -> None:
    """Slow is not gone: as long as bytes leave, the server must not end."""
    with Process(env={"STOP_SECONDS": "0.3"}) as process:
        process.initialize()
        process.reading = False
        last = process.call("big", size=20 * PIPE_SIZE)
        process.end_input()
        process.reading = True
        while "stdout" in process._open:
            select.select([], [], [], 0.1)  # as slow as a reader may be, not to wait for anything
            process._turn(0.1)
        assert process.wait() == 0
        assert len(process.answer(last)["result"]["content"][0]["text"]) == 20 * PIPE_SIZE


def start_work(process: Process, work: str) -> int | None:
    if work == "idle":
        return None
    id = process.call(work, **({} if work == "stubborn" else {"seconds": 3600}))
    process.says(f"{work}: started")
    return id


@pytest.mark.parametrize("work", ["idle", "sleep_async", "sleep_sync"])
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, marks=pytest.mark.verifies("F-sigterm")),
        pytest.param(signal.SIGINT, marks=pytest.mark.verifies("F-sigint")),
    ],
)
def test_a_signal_ends_the_server_in_order(server: Process, number: int, work: str) -> None:
    running = start_work(server, work)
    server.signal(number)
    assert server.wait() == 0
    if running is not None:
        assert server.answer(running)["error"]["code"] == -32603
    if work == "sleep_async":
        assert b"sleep_async: cancelled\nsleep_async: finally" in server.errors
    assert quiet_end(server)
    assert not is_alive(server.pid)


@pytest.mark.verifies("F-sigterm")
def test_a_signal_ends_a_server_whose_handler_refuses_to_stop(server: Process) -> None:
    running = start_work(server, "stubborn")
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert server.answer(running or 0)["error"]["code"] == -32603


@pytest.mark.verifies("F-stdio-eof")
def test_the_end_of_input_ends_a_server_whose_handler_refuses_to_stop() -> None:
    with Process(env={"DRAIN_SECONDS": "0.3"}) as process:
        process.initialize()
        running = start_work(process, "stubborn")
        assert process.finish() == 0
        assert process.answer(running or 0)["error"]["code"] == -32603


@pytest.mark.verifies("F-sigterm")
def test_a_signal_ends_a_server_with_tasks_that_refuse_to_stop(server: Process) -> None:
    assert server.text("leave_task") == "left"
    server.says("stubborn: started")
    server.signal(signal.SIGTERM)
    assert server.wait() == 0


@pytest.mark.verifies("F-sigterm", "F-sigint")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_server_at_once(server: Process, number: int) -> None:
    start_work(server, "stubborn")
    server.signal(signal.SIGTERM)
    server.says("stubborn: no")
    server.signal(number)
    assert server.wait() in (-number, 0)  # 0: it was just done with the first


@pytest.mark.verifies("F-sigterm")
def test_a_signal_while_the_client_does_not_read(server: Process) -> None:
    """The answers that fit nowhere must not hold the process."""
    server.reading = False
    server.call("big", size=40 * PIPE_SIZE)
    output = server._open["stdout"]
    server.until(lambda: select.select([output], [], [], 0.01)[0])
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    assert quiet_end(server)


@pytest.mark.verifies("F-sigterm", "F-stdio-print")
def test_a_child_process_does_not_hold_the_pipe_open(server: Process) -> None:
    child = int(server.text("leave_child"))
    assert is_alive(child)
    server.end_input()
    # The client sees the end of the output when the server ends, not when the child does. The
    # child may have stderr, so only stdout counts.
    server.until(lambda: "stdout" not in server._open, "the end of the output")
    assert is_alive(child)
    os.kill(child, signal.SIGKILL)
    assert server.wait() == 0


# -- malformed frames -----------------------------------------------------------------------------

MAX_DEPTH = 128


def deep(levels: int) -> bytes:
    nested = b"[" * levels + b"]" * levels
    return b'{"jsonrpc":"2.0","id":901,"method":"ping","params":{"x":%b}}' % nested


INITIALIZE = (
    b'{"jsonrpc":"2.0","id":901,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
    b'"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}'
)
verifies = pytest.mark.verifies
MALFORMED = [
    pytest.param(b'{"jsonrpc":"2.0","id":901,', -32700, None, marks=verifies("E-bad-json")),
    pytest.param(b"GET / HTTP/1.1", -32700, None, marks=verifies("E-bad-json")),
    pytest.param(PING + PING, -32700, None, marks=verifies("E-bad-json")),
    pytest.param(b"\xef\xbb\xbf" + PING, -32700, None, marks=verifies("E-bad-json")),
    pytest.param(b"\0", -32700, None, marks=verifies("E-bad-json")),
    pytest.param(
        b'{"jsonrpc":"2.0","id":901,"method":"ping","params":{"x":"\xff"}}',
        -32700,
        None,
        marks=verifies("E-bad-utf8"),
    ),
    pytest.param(
        b'{"jsonrpc":"2.0","id":901,"method":"\xc3\x28"}',
        -32700,
        None,
        marks=verifies("E-bad-utf8"),
    ),
    pytest.param(
        b'{"jsonrpc":"2.0","id":901,"method":"ping","params":{"x":NaN}}',
        -32700,
        None,
        marks=verifies("E-nan"),
    ),
    pytest.param(
        b'{"jsonrpc":"2.0","id":901,"method":"ping","params":{"x":-Infinity}}',
        -32700,
        None,
        marks=verifies("E-nan"),
    ),
    pytest.param(b"42", -32600, None, marks=verifies("E-not-object")),
    pytest.param(b"null", -32600, None, marks=verifies("E-not-object")),
    pytest.param(b'"ping"', -32600, None, marks=verifies("E-not-object")),
    pytest.param(b"{}", -32600, None, marks=verifies("E-jsonrpc-missing")),
    pytest.param(b'{"id":901,"method":"ping"}', -32600, 901, marks=verifies("E-jsonrpc-missing")),
    pytest.param(
        b'{"jsonrpc":"1.0","id":901,"method":"ping"}',
        -32600,
        901,
        marks=verifies("E-jsonrpc-wrong"),
    ),
    pytest.param(
        b'{"jsonrpc":2.0,"id":901,"method":"ping"}', -32600, 901, marks=verifies("E-jsonrpc-wrong")
    ),
    pytest.param(b'{"jsonrpc":"2.0","id":901}', -32600, 901, marks=verifies("E-method-missing")),
    pytest.param(
        b'{"jsonrpc":"2.0","id":901,"method":7}', -32600, 901, marks=verifies("E-method-wrong")
    ),
    pytest.param(
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None, marks=verifies("E-id-null")
    ),
    pytest.param(
        b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None, marks=verifies("E-id-true")
    ),
    pytest.param(
        b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, None, marks=verifies("E-id-true")
    ),
    pytest.param(
        b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None, marks=verifies("E-id-float")
    ),
    pytest.param(
        b'{"jsonrpc":"2.0","id":901,"method":"ping","params":[1]}',
        (-32600, -32602),
        901,
        marks=verifies("E-params-list"),
    ),
    pytest.param(
        b'{"jsonrpc":"2.0","id":901,"method":"ping","params":"x"}',
        (-32600, -32602),
        901,
        marks=verifies("E-params-string"),
    ),
    pytest.param(
        b'{"jsonrpc":"2.0","id":901,"result":{},"error":{"code":1,"message":"x"}}',
        -32600,
        None,
        marks=verifies("E-result-and-error"),
    ),
    pytest.param(b"[]", -32600, None, marks=verifies("D-batches")),
    pytest.param(b"[" + PING + b"]", -32600, None, marks=verifies("D-batches")),
    pytest.param(INITIALIZE, -32600, 901, marks=verifies("E-second-initialize")),
    pytest.param(
        b'{"jsonrpc":"2.0","id":901,"method":"no/such"}',
        -32601,
        901,
        marks=verifies("E-unknown-method"),
    ),
    pytest.param(
        b'{"jsonrpc":"2.0","id":901,"method":"tools/call","params":{"name":"nobody"}}',
        -32602,
        901,
        marks=verifies("D-unknown-tool"),
    ),
    pytest.param(deep(MAX_DEPTH), -32600, 901, marks=verifies("E-overdeep")),
    pytest.param(deep(100_000), (-32600, -32700), ..., marks=verifies("E-overdeep")),
]


@pytest.fixture(scope="module")
def survivor() -> Iterator[Process]:
    """One process meets them all: it must live through everything."""
    with Process() as process:
        process.initialize()
        yield process
        assert process.finish() == 0
        assert quiet_end(process)


@pytest.mark.parametrize(("frame", "code", "id"), MALFORMED)
def test_a_malformed_frame_is_answered_and_survived(
    survivor: Process, frame: bytes, code: Any, id: Any
) -> None:
    survivor.send(frame)
    message = survivor.receive()
    assert message["error"]["code"] in (code if isinstance(code, tuple) else (code,))
    if id is not ...:
        assert message.get("id", None) == id
        assert ("id" in message) == (id is not None)  # 2025-11-25 leaves it out
    assert survivor.text("echo", text="next") == "next"
    assert survivor.inbox == []


@pytest.mark.verifies("E-oversize")
@pytest.mark.parametrize("length", [4 * 1024 * 1024, 4 * 1024 * 1024 + 1, 40 * 1024 * 1024])
def test_a_huge_frame_is_answered_and_not_kept(survivor: Process, length: int) -> None:
    before = survivor.resident()
    id = 910
    head = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo",' % id
    head += b'"arguments":{"text":"'
    frame = head + b"x" * (length - len(head) - 4) + b'"}}}'
    assert len(frame) == length
    survivor.write(frame + b"\n")
    survivor.recorder.sent("client", head + b'"}}}', check=False)
    message = survivor.answer(id)
    if length > 4 * 1024 * 1024:
        assert message["error"]["code"] == -32600
        assert "4194304" in message["error"]["data"]
        assert survivor.resident() < before + 40 * 1024 * 1024
    else:
        assert message["result"]["isError"] is False
    assert survivor.text("echo", text="next") == "next"


@pytest.mark.verifies("E-lone-surrogate")
def test_half_a_surrogate_pair_is_refused(survivor: Process) -> None:
    survivor.send(
        b'{"jsonrpc":"2.0","id":920,"method":"tools/call",'
        b'"params":{"name":"echo","arguments":{"text":"\\ud800"}}}'
    )
    message = survivor.receive()
    assert message["error"]["code"] == -32700
    assert survivor.text("echo", text="next") == "next"


@pytest.mark.verifies("E-duplicate-id")
def test_an_id_in_flight_cannot_be_used_again(server: Process) -> None:
    first = server.call("sleep_async", seconds=0.5)
    server.says("sleep_async: started")
    again = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % first
    server.write(again + b"\n")
    refused, answered = server.receive(), server.receive()
    assert (refused["id"], refused["error"]["code"]) == (first, -32600)
    assert (answered["id"], answered["result"]["isError"]) == (first, False)
    server.send(again, check=True)  # free again
    assert server.answer(first)["result"] == {}


@pytest.mark.verifies("E-crlf", "E-empty-line", "E-unknown-notification", "E-stray-response")
def test_what_is_to_be_ignored_is_ignored(server: Process) -> None:
    server.write(b"\n\r\n   \n\t\n")
    server.send(b'{"jsonrpc":"2.0","method":"notifications/no/such"}')
    server.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}')
    server.send(b'{"jsonrpc":"2.0","id":555,"result":{}}')
    server.send(PING + b"\r")
    assert server.receive() == {"jsonrpc": "2.0", "id": 901, "result": {}}
    assert server.finish() == 0
    assert server.inbox == []


@pytest.mark.verifies("E-second-initialize")
def test_a_second_initialize_leaves_the_session_as_it_was() -> None:
    with Process() as process:
        assert process.initialize("2025-03-26")["protocolVersion"] == "2025-03-26"
        process.write(INITIALIZE + b"\n")
        assert process.receive()["error"]["code"] == -32600
        # Still 2025-03-26: batches are taken, and there is no structured content.
        process.send(b"[" + PING + b"]", check=True)
        process.until(lambda: process.inbox)
        assert process.inbox.pop() == [{"jsonrpc": "2.0", "id": 901, "result": {}}]
        result = process.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        assert "structuredContent" not in result


@pytest.mark.verifies("D-error-id")
def test_errors_before_any_revision_say_id_null() -> None:
    with Process() as process:
        process.send(b"nonsense")
        message = process.receive()
        assert message["error"]["code"] == -32700
        assert message["id"] is None
        assert process.finish() == 0


@pytest.mark.verifies("F-one-pipe")
def test_probe_first_then_handshake_on_one_pipe() -> None:
    with Process() as process:
        process.send(line("server/discover", id=100).strip(), check=True)
        found = process.answer(100)["result"]
        assert found["supportedVersions"] == ["2026-07-28"]
        assert process.initialize("2025-11-25")["protocolVersion"] == "2025-11-25"
        assert process.text("add", a=1, b=2) == "3"
        process.send(call_line(101, "add", a=2, b=2).strip(), check=True)
        assert process.answer(101)["result"]["structuredContent"] == 4


# -- amounts --------------------------------------------------------------------------------------


@pytest.mark.verifies("F-split-input")
def test_a_frame_split_at_every_byte(server: Process) -> None:
    frame = PING.replace(b"ping", b"tools/call").replace(
        b"}", ',"params":{"name":"echo","arguments":{"text":"zwölf 🦆"}}}'.encode()
    )
    for position in range(len(frame) + 1):
        server.recorder.sent("client", frame)
        server.write(frame[:position])
        server.until(lambda: not server._unsent)
        # A ping in between would break the frame, so that it was read is seen from outside.
        server.until(lambda: pending(server) == 0)
        server.write(frame[position:] + b"\n")
        text = server.answer(901)["result"]["content"][0]["text"]
        assert text == "zwölf 🦆"


def pending(process: Process) -> int:
    """Bytes in the pipe that the server has not read yet."""
    size = fcntl.ioctl(process._open["stdin"], termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(size, sys.byteorder)


@pytest.mark.verifies("F-split-input")
def test_a_conversation_byte_by_byte() -> None:
    with Process() as process:
        for byte in REQUESTS:
            process.write(bytes([byte]))
            process.until(lambda: not process._unsent)
        assert process.finish() == 0
        check_all_answered(process)


@pytest.mark.verifies("INV-001")
def test_ten_thousand_pipelined_calls_are_answered_once_each(server: Process) -> None:
    count = 10_000
    sums = {server.call("add", a=number, b=1): number + 1 for number in range(count)}
    server.until(lambda: len(server.inbox) >= count, "all the answers")
    answers = {message["id"]: message["result"] for message in server.inbox}
    assert len(server.inbox) == count
    assert {id: result["structuredContent"]["result"] for id, result in answers.items()} == sums
    server.inbox.clear()
    assert server.finish() == 0
    assert server.inbox == []


@pytest.mark.verifies("INV-001", "F-sync-thread")
def test_pipelined_calls_in_threads_are_answered_once_each(server: Process) -> None:
    count = 5_000
    ids = [server.call("big", size=number) for number in range(count)]
    server.until(lambda: len(server.inbox) >= count, "all the answers")
    sizes = {one["id"]: len(one["result"]["content"][0]["text"]) for one in server.inbox}
    assert [sizes[id] for id in ids] == list(range(count))
    assert len(server.inbox) == count


@pytest.mark.verifies("F-limit-output", "F-limit-in-flight")
@pytest.mark.parametrize(
    ("tool", "in_flight", "allowed"),
    [("big_async", 1024, 40_000_000), ("big_async", 32, 15_000_000), ("big", 32, 15_000_000)],
)
def test_a_slow_reader_gets_everything_and_costs_little(
    tool: str, in_flight: int, allowed: int
) -> None:
    """50 MB of answers that nobody reads at first."""
    count, size = 8_000, 6_250
    with Process(env={"MAX_IN_FLIGHT": str(in_flight)}) as server:
        server.initialize()
        server.text("add", a=1, b=2)
        before = server.resident()
        server.reading = False
        ids = [server.call(tool, size=size) for _ in range(count)]
        server.until(lambda: not server._unsent, "room for the requests")
        server.reading = True
        peak = server.resident()

        def all_there() -> bool:
            nonlocal peak
            peak = max(peak, server.resident())
            return len(server.inbox) >= count

        server.until(all_there, "all the answers")
        assert sorted(message["id"] for message in server.inbox) == ids
        lengths = {len(message["result"]["content"][0]["text"]) for message in server.inbox}
        assert lengths == {size}
        assert peak - before < allowed
        assert server.finish() == 0


@pytest.mark.verifies("F-limit-output")
def test_a_client_that_does_not_read_still_gets_its_ping(server: Process) -> None:
    server.reading = False
    server.call("big", size=3_000_000)
    ping = server.start("ping")
    late = server.call("add", a=1, b=2)
    server.until(lambda: not server._unsent)
    server.reading = True
    assert server.answer(ping)["result"] == {}
    assert server.answer(late)["result"]["isError"] is False
