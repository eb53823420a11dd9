"""Tools that measure and look inside: profiles, memory, objects by handle."""

import re
from typing import Annotated, Literal

from msgspec import Meta, Struct

from dovetail import Server, ToolError
from dovetail.content import CallToolResult, TextContent
from dovetail.servers.lisp.answers import answered
from dovetail.servers.lisp.evaluate import SessionName, Timeout
from dovetail.servers.lisp.frames import Output
from dovetail.servers.lisp.render import Text, Timing, failed, printed, schema
from dovetail.servers.lisp.session import Outcome, Session
from dovetail.servers.lisp.sessions import DEFAULT, Lisp
from dovetail.servers.lisp.tools_symbols import PackageName

__all__ = ["Heap", "add_measure_tools"]

_MB = 1024 * 1024
# A line of the flat report of sb-sprof: rank, samples of its own, and the function.
_LINE = re.compile(
    r"^ *\d+ +(?P<self>\d+) +(?P<percent>[\d.]+) +(?P<total>\d+) +[\d.]+ +\d+ +[\d.]+ +"
    r"(?:-|\d+) +(?P<function>.+)$",
    re.MULTILINE,
)


class _Profiled(Struct):
    values: list[Output]
    timing: Timing
    report: Output


class Hot(Struct):
    """A function, and how often the profiler met it: itself, and with what it called."""

    function: str
    samples: int
    percent: float
    total: int


class Profile(Struct):
    values: list[str]
    timing: Timing
    report: str
    functions: list[Hot]


class Heap(Struct, rename="camel"):
    used: int
    size: int
    gc_ms: int
    bytes_consed: int
    bytes_between_gcs: int
    threads: int

    def __str__(self) -> str:
        return (
            f"Heap: {self.used / _MB:.1f} of {self.size / _MB:.0f} MB used; "
            f"{self.bytes_consed / _MB:.1f} MB consed so far, {self.gc_ms} ms of collections, "
            f"one every {self.bytes_between_gcs / _MB:.0f} MB; threads: {self.threads}"
        )


class _Room(Struct):
    heap: Heap
    report: Output


class Memory(Struct):
    heap: Heap
    report: str


class Part(Struct, omit_defaults=True):
    label: str
    value: str
    handle: int | None = None

    def __str__(self) -> str:
        return f"  {self.label}: {self.value}" + (f"  [#{self.handle}]" if self.handle else "")


class Inspected(Struct, omit_defaults=True):
    type: str
    value: str
    total: int
    start: int
    parts: list[Part]
    handle: int | None = None

    def __str__(self) -> str:
        name = f"#{self.handle} " if self.handle else ""
        lines = [f"{name}[{self.type}]", self.value, f"Parts: {self.total}", *map(str, self.parts)]
        shown = self.start + len(self.parts)
        if shown < self.total:
            lines.append(f"… and {self.total - shown} more from start {shown} on")
        return "\n".join(lines)


def add_measure_tools(server: Server, lisp: Lisp) -> None:
    _add_profile(server, lisp)
    _add_memory(server, lisp)
    _add_inspector(server, lisp)


def _add_profile(server: Server, lisp: Lisp) -> None:
    @server.tool(
        name="profile-code",
        title="Profile code",
        names="kebab",
        task="optional",
        destructive=True,
        output_schema=schema(Profile),
    )
    async def profile_code(
        code: Annotated[str, "The code to run; it should take a second or so"],
        mode: Annotated[Literal["cpu", "time", "alloc"], "What is sampled"] = "cpu",
        max_samples: Annotated[int, Meta(ge=1, le=1_000_000), "Samples at most"] = 40_000,
        sample_interval: Annotated[float, Meta(ge=0.0005, le=10), "Seconds between them"] = 0.01,
        report_type: Annotated[Literal["flat", "graph"], "The form of the report"] = "flat",
        package: PackageName | None = None,
        session: SessionName = DEFAULT,
        timeout: Timeout | None = None,  # noqa: ASYNC109 - of the client
    ) -> CallToolResult:
        """Run code under the statistical profiler and show where it spends its time"""
        place = lisp.session(session)
        arguments = {
            "code": code,
            "mode": mode,
            "max_samples": max_samples,
            "sample_interval": sample_interval,
            "report_type": report_type,
            **({"package": package} if package else {}),
        }
        seconds = place.limits.timeout if timeout is None else timeout
        outcome = await place.call("profile-code", arguments, seconds=seconds)
        return _profile(place, outcome)


def _profile(place: Session, outcome: Outcome) -> CallToolResult:
    if outcome.frame.status != "ok":
        return failed(place, outcome)
    data = outcome.frame.read(_Profiled)
    text = Text(place, outcome.number)
    report = text.shown("report", data.report)
    values = [text.shown(f"value{n}", value) for n, value in enumerate(data.values)]
    found = [
        Hot(line["function"], int(line["self"]), float(line["percent"]), int(line["total"]))
        for line in _LINE.finditer(data.report.text)
    ]
    lines = [*(f"=> {value}" for value in values), str(data.timing), "", report.strip("\n")]
    return CallToolResult(
        content=[TextContent(text=printed(place, outcome) + "\n".join(lines))],
        structured_content=Profile(values, data.timing, report, found),
    )


def _add_memory(server: Server, lisp: Lisp) -> None:
    @server.tool(
        name="memory-report", title="Report memory", names="kebab", output_schema=schema(Memory)
    )
    async def memory_report(
        verbosity: Annotated[Literal["minimal", "default", "full"], "How much"] = "default",
        gc_first: Annotated[bool, "Collect all garbage before"] = False,
        session: SessionName = DEFAULT,
    ) -> CallToolResult:
        """Report how the memory of the Lisp is used"""
        place = lisp.session(session)
        arguments = {"verbosity": verbosity, "gc_first": gc_first}
        outcome = await place.call("memory-report", arguments)
        if outcome.frame.status != "ok":
            return failed(place, outcome)
        room = outcome.frame.read(_Room)
        report = Text(place, outcome.number).shown("report", room.report)
        return CallToolResult(
            content=[TextContent(text=f"{printed(place, outcome)}{room.heap}\n\n{report}")],
            structured_content=Memory(room.heap, report),
        )


def _add_inspector(server: Server, lisp: Lisp) -> None:
    @server.tool(name="inspect-object", title="Inspect an object", output_schema=schema(Inspected))
    async def inspect_object(
        code: Annotated[str, "Code whose value is looked into"] | None = None,
        handle: Annotated[int, "Or the number of an object that was shown before"] | None = None,
        start: Annotated[int, Meta(ge=0), "The first part to show"] = 0,
        count: Annotated[int, Meta(ge=0, le=1000), "How many parts"] = 50,
        package: PackageName | None = None,
        session: SessionName = DEFAULT,
    ) -> CallToolResult:
        """Look into an object. Each part has a handle to go on with; code has it as
        (mcp:object HANDLE)"""
        if (code is None) == (handle is None):
            raise ToolError("Give code, or a handle: one of them.")
        arguments = {
            "code": code,
            "handle": handle,
            "start": start,
            "count": count,
            "package": package,
        }
        return await answered(lisp.session(session), "inspect-object", arguments, Inspected, str)
