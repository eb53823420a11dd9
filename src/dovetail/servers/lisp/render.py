"""The text of an answer, as requirement 001 writes it, and the same as data."""

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from dovetail.content import CallToolResult, TextContent
from dovetail.servers.lisp.frames import Failure, Frame, Output, Warned
from dovetail.servers.lisp.session import Outcome, Session, SessionLost

__all__ = [
    "Evaluated",
    "Evaluation",
    "Text",
    "Timing",
    "failed",
    "lost",
    "printed",
    "rendered",
    "schema",
]


class Timing(Struct, rename="camel"):
    real_ms: int
    run_ms: int
    gc_ms: int
    bytes_consed: int

    def __str__(self) -> str:
        return (
            f"; Timing: {self.real_ms}ms real, {self.run_ms}ms run, {self.gc_ms}ms GC, "
            f"{self.bytes_consed} bytes consed"
        )


class Evaluated(Struct):
    """The data of an ``evaluate`` that came to its end."""

    values: list[Output]
    timing: Timing


class Evaluation(Struct, rename="camel", omit_defaults=True):
    """The structured content of an evaluation."""

    status: str
    session: str
    package: str
    values: list[str] | UnsetType = UNSET
    stdout: str = ""
    stderr: str = ""
    process_stdout: str = ""
    process_stderr: str = ""
    warnings: list[Warned] = []
    error: Failure | UnsetType = UNSET
    timing: Timing | UnsetType = UNSET
    # Resources with the rest of what was truncated.
    truncated: list[str] = []
    # Names the evaluation for invoke-restart, frame-locals, eval-in-frame and abandon.
    suspended: str | UnsetType = UNSET
    note: str = ""


def schema(kind: type[Struct]) -> dict[str, Any]:
    """JSON Schema of a result, with an object at its root."""
    (root,), definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    inner = definitions.pop(root["$ref"].rpartition("/")[2])
    return {**inner, "$defs": definitions} if definitions else inner


_HINT_INPUT = (
    "Hint: the code reads input, which this client cannot be asked for. "
    "Pass it in the `input` argument."
)


class Text:
    """Sections of an answer, each omitted when empty."""

    def __init__(self, session: Session, number: int) -> None:
        self._session = session
        self._number = number
        self.parts: list[str] = []
        self.truncated: list[str] = []

    def section(self, name: str, text: str) -> None:
        if text:
            end = "\n" if text.endswith("\n") else "\n\n"
            self.parts.append(f"[{name}]\n{text}{end}")

    def shown(self, name: str, output: Output) -> str:
        """The text, and where the rest is if that is not all."""
        if output.total <= len(output.text):
            return output.text
        text = (
            f"{output.text}\n[Output truncated at {len(output.text)} of {output.total} characters"
        )
        if output.spool:
            self._session.keep_output(self._number, name, output)
            uri = f"lisp://{self._session.name}/output/{self._number}/{name}"
            self.truncated.append(uri)
            text += f"; {_kept(output)} in {uri}"
        return f"{text}]"

    def join(self, *last: str) -> str:
        return "".join(self.parts) + "\n".join(part for part in last if part)


def _kept(output: Output) -> str:
    if output.spooled >= output.total:
        return "all of it is"
    return f"the first {output.spooled} (the limit max-spool) are"


def rendered(
    session: Session, outcome: Outcome, *, timing: bool = False, more: str = ""
) -> CallToolResult:
    """What the client sees of an evaluation."""
    frame = outcome.frame
    text = Text(session, outcome.number)
    data = Evaluation(_status(outcome), session.name, session.package, note=outcome.note)
    if outcome.note:
        text.parts.append(f"{outcome.note}\n\n")
    _add_output(text, data, frame, outcome.raw)
    if frame.event == "done" and frame.status == "ok":
        last = _values(text, data, frame.read(Evaluated), timing)
    else:
        last = _not_ok(outcome, frame, data)
    data.truncated = text.truncated
    return CallToolResult(
        content=[TextContent(text=text.join(*last, more))],
        structured_content=data,
        is_error=data.status != "ok",
    )


def failed(session: Session, outcome: Outcome) -> CallToolResult:
    """The result of an operation that did not end well, as an evaluation would show it."""
    result = rendered(session, outcome)
    return CallToolResult(content=result.content, is_error=True)


def printed(session: Session, outcome: Outcome) -> str:
    """What an operation printed and warned of, as sections before its text."""
    text = Text(session, outcome.number)
    if outcome.note:
        text.parts.append(f"{outcome.note}\n\n")
    _add_output(text, Evaluation("ok", session.name, session.package), outcome.frame, outcome.raw)
    return text.join()


def lost(session: Session, error: SessionLost) -> CallToolResult:
    """The Lisp died of it: what it had printed, and what that means."""
    text = Text(session, session.last_number)
    data = Evaluation("lost", session.name, session.package)
    if error.partial is not None:
        _add_output(text, data, error.partial, ("", ""))
    timeout = _timeout(error.expired, Failure())[0] if error.expired else ""
    data.note = str(error)
    return CallToolResult(
        content=[TextContent(text=text.join(timeout, str(error)))],
        structured_content=data,
        is_error=True,
    )


def _status(outcome: Outcome) -> str:
    if outcome.frame.event == "suspended":
        return "suspended"
    if outcome.expired and outcome.frame.status in ("interrupted", "stuck", "killed"):
        return "timeout"
    return outcome.frame.status


def _add_output(text: Text, data: Evaluation, frame: Frame, raw: tuple[str, str]) -> None:
    text.section("stdout", text.shown("stdout", frame.stdout))
    text.section("stderr", text.shown("stderr", frame.stderr))
    text.section("process stdout", raw[0])
    text.section("process stderr", raw[1])
    text.section("warnings", _warnings(frame))
    data.stdout, data.stderr = frame.stdout.text, frame.stderr.text
    data.process_stdout, data.process_stderr = raw
    data.warnings = frame.warnings


def _warnings(frame: Frame) -> str:
    lines = [f"{warned.type}: {warned.message}" for warned in frame.warnings]
    if frame.warning_count > len(lines):
        lines.append(f"… and {frame.warning_count - len(lines)} more")
    return "\n".join(lines)


def _values(text: Text, data: Evaluation, result: Evaluated, timing: bool) -> list[str]:
    values = [text.shown(f"value{n}", value) for n, value in enumerate(result.values)]
    data.values = values
    lines = [f"=> {value}" for value in values] or ["; No values"]
    if timing:
        data.timing = result.timing
        lines.append(str(result.timing))
    return lines


def _not_ok(outcome: Outcome, frame: Frame, data: Evaluation) -> list[str]:
    failure = frame.failure or Failure()
    if data.status == "timeout":
        return _timeout(outcome.expired, failure)
    if data.status == "suspended":
        data.suspended = outcome.token
    if data.status in ("interrupted", "killed", "stuck"):
        return [_ENDINGS[data.status], *_backtrace(failure.frames)]
    if frame.reason == "input":
        return [f"[INPUT] {frame.prompt}".rstrip()]
    data.error = failure
    lines = [f"[ERROR] {failure.type}", failure.message]
    if outcome.token:
        lines += _restarts(failure)
    lines += _backtrace(failure.frames)
    if outcome.token:
        lines.append(_SUSPENDED.format(outcome.token))
    return [*lines, f"\n{_HINT_INPUT}"] if _lacks_input(frame, failure) else lines


_SUSPENDED = (
    "\n[SUSPENDED] {}: choose with invoke-restart, look with frame-locals and eval-in-frame, "
    "or give up with abandon."
)


def _restarts(failure: Failure) -> list[str]:
    lines = [
        f"{restart.number}: [{restart.name}] {restart.text}"
        + (" (wants a value)" if restart.interactive else "")
        for restart in failure.restarts
    ]
    return ["\n[Restarts]", *lines] if lines else []


def _lacks_input(frame: Frame, failure: Failure) -> bool:
    return frame.wanted_input and failure.type == "END-OF-FILE"


_ENDINGS: dict[str, Any] = {
    "interrupted": "[INTERRUPTED] The evaluation was interrupted",
    "killed": "[KILLED] The thread of the evaluation was ended by the code itself",
    "stuck": "[STUCK] The evaluation does not react and goes on in the attached Lisp",
}


def _timeout(seconds: float, failure: Failure) -> list[str]:
    return [
        f"[TIMEOUT] Evaluation exceeded {seconds:g} seconds",
        "Hint: raise the limit with the timeout argument or with configure-limits.",
        *_backtrace(failure.frames),
    ]


def _backtrace(frames: list[str]) -> list[str]:
    lines = [f"{number}: {frame}" for number, frame in enumerate(frames)]
    return ["\n[Backtrace]", *lines] if lines else []
