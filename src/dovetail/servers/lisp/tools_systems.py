"""Tools for files and ASDF systems: load, list, describe, test."""

import re
from contextlib import suppress
from typing import Annotated

from msgspec import Struct

from dovetail import Server, ToolError
from dovetail.content import CallToolResult, TextContent
from dovetail.servers.lisp.answers import answered, plural
from dovetail.servers.lisp.evaluate import SessionName, Timeout
from dovetail.servers.lisp.frames import Output
from dovetail.servers.lisp.render import Text, Timing, failed, printed, schema
from dovetail.servers.lisp.session import Outcome, Session
from dovetail.servers.lisp.sessions import DEFAULT, Lisp
from dovetail.servers.lisp.sexp import sexp
from dovetail.servers.lisp.tools_symbols import PackageName

__all__ = ["add_system_tools"]

# Compiling a system with its dependencies takes minutes where an evaluation takes seconds.
_SECONDS = 300.0
_TAIL = 20_000  # characters at the end of a long output, where the counts of tests are
SystemName = Annotated[str, "The name of an ASDF system"]


class LoadedSystem(Struct, omit_defaults=True):
    system: str
    timing: Timing
    version: str | None = None

    def __str__(self) -> str:
        version = f" {self.version}" if self.version else ""
        return f"System {self.system}{version} loaded successfully.\n{self.timing}"


class LoadedFile(Struct):
    path: str
    compiled: bool
    timing: Timing

    def __str__(self) -> str:
        how = "Compiled and loaded" if self.compiled else "Loaded"
        return f"{how} {self.path}.\n{self.timing}"


class LocalSystem(Struct, omit_defaults=True):
    name: str
    loaded: bool
    file: str | None = None

    def __str__(self) -> str:
        return f"{self.name}{' [LOADED]' * self.loaded} ({self.file or 'built in'})"


class LocalSystems(Struct):
    total: int
    systems: list[LocalSystem]

    def __str__(self) -> str:
        lines = [f"Found {plural(self.total, 'system')}", *map(str, self.systems)]
        if self.total > len(self.systems):
            lines.append(f"… and {self.total - len(self.systems)} more: narrow the pattern.")
        return "\n".join(lines)


class SystemInfo(Struct, rename="camel", omit_defaults=True):
    name: str
    loaded: bool
    depends_on: list[str]
    files: list[str]
    version: str | None = None
    description: str | None = None
    author: str | None = None
    license: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.name}{' [LOADED]' * self.loaded}"]
        for name in ("version", "description", "author", "license", "file"):
            value = getattr(self, name)
            lines += [f"{name.capitalize()}: {value}"] if value is not None else []
        lines.append(f"Depends on: {' '.join(self.depends_on) or 'nothing'}")
        return "\n".join([*lines, f"Files: {len(self.files)}", *(f"  {f}" for f in self.files)])


class _Ran(Struct):
    """The data of ``run-tests``."""

    values: list[Output]
    passed: bool
    timing: Timing


class TestRun(Struct, omit_defaults=True):
    """Counts only where the framework's own summary was understood."""

    passed: bool
    timing: Timing
    values: list[str]
    framework: str | None = None
    total: int | None = None
    failures: int | None = None

    def __str__(self) -> str:
        lines = [f"=> {value}" for value in self.values]
        if self.failures is not None:
            of = f" of {self.total}" if self.total is not None else ""
            counts = f"{self.failures}{of} failed ({self.framework})"
            lines.append(f"Tests {'passed' if self.passed else 'FAILED'}: {counts}")
            return "\n".join(lines)
        return "\n".join([*lines, "Tests passed." if self.passed else "Tests FAILED."])


# How frameworks sum up: groups "total" and "failed". What matches last counts.
_SUMMARIES = {
    "sb-rt": re.compile(r"(?P<failed>\d+|No) (?:out of (?P<total>\d+) total )?tests failed"),
    "FiveAM": re.compile(r"Did (?P<total>\d+) checks?\.(?:.*\n)+?.*Fail: (?P<failed>\d+)"),
}


def add_system_tools(server: Server, lisp: Lisp) -> None:
    _add_loading(server, lisp)
    _add_looking(server, lisp)
    _add_testing(server, lisp)


def _add_loading(server: Server, lisp: Lisp) -> None:
    @server.tool(
        name="load-system",
        title="Load a system",
        names="kebab",
        task="optional",
        output_schema=schema(LoadedSystem),
    )
    async def load_system(
        system_name: SystemName,
        force: Annotated[bool, "Compile it again even if nothing has changed"] = False,
        session: SessionName = DEFAULT,
        timeout: Timeout = _SECONDS,  # noqa: ASYNC109 - of the client
    ) -> CallToolResult:
        """Compile and load an ASDF system with what it depends on"""
        again = f"(dovetail-lisp::load-one-system {sexp(system_name)} nil)"
        arguments = {"system": system_name, "force": force, "code": again}
        place = lisp.session(session)
        return await answered(place, "load-system", arguments, LoadedSystem, str, seconds=timeout)

    @server.tool(
        name="load-file", title="Load a file", task="optional", output_schema=schema(LoadedFile)
    )
    async def load_file(
        path: Annotated[str, "The file; relative ones to the folder of the session"],
        compile: Annotated[bool, "Compile it first, which finds more mistakes"] = False,
        package: PackageName | None = None,
        session: SessionName = DEFAULT,
        timeout: Timeout = _SECONDS,  # noqa: ASYNC109 - of the client
    ) -> CallToolResult:
        """Load a file of Lisp code"""
        again = f"(load (sb-ext:native-pathname {sexp(path)}))"
        arguments = {"path": path, "compile": compile, "package": package, "code": again}
        place = lisp.session(session)
        return await answered(place, "load-file", arguments, LoadedFile, str, seconds=timeout)


def _add_looking(server: Server, lisp: Lisp) -> None:
    @server.tool(
        name="list-local-systems",
        title="List systems",
        read_only=True,
        output_schema=schema(LocalSystems),
    )
    async def list_local_systems(
        pattern: Annotated[str, "Only those whose name contains it"] | None = None,
        session: SessionName = DEFAULT,
    ) -> CallToolResult:
        """List the ASDF systems that can be loaded: in the folder of the session, in the source
        registry, and those that are loaded already"""
        place = lisp.session(session)
        arguments = {"pattern": pattern}
        return await answered(place, "list-local-systems", arguments, LocalSystems, str)

    @server.tool(
        name="describe-system",
        title="Describe a system",
        read_only=True,
        output_schema=schema(SystemInfo),
    )
    async def describe_system(system: SystemName, session: SessionName = DEFAULT) -> CallToolResult:
        """Describe an ASDF system: version, description, dependencies, files"""
        place = lisp.session(session)
        return await answered(place, "describe-system", {"system": system}, SystemInfo, str)


def _add_testing(server: Server, lisp: Lisp) -> None:
    @server.tool(
        name="run-tests", title="Run tests", task="optional", output_schema=schema(TestRun)
    )
    async def run_tests(
        system: Annotated[str, "The ASDF system whose test-op is to run"] | None = None,
        code: Annotated[str, "Or code that runs tests and returns true if they passed"]
        | None = None,
        session: SessionName = DEFAULT,
        timeout: Timeout = _SECONDS,  # noqa: ASYNC109 - of the client
    ) -> CallToolResult:
        """Run the tests of a system; an error or a failed test makes the result an error"""
        if (system is None) == (code is None):
            raise ToolError("Name a system, or give code: one of them.")
        place = lisp.session(session)
        chosen = {"system": system} if code is None else {"code": code}
        outcome = await place.call("run-tests", chosen, seconds=timeout)
        if outcome.frame.status != "ok":
            return failed(place, outcome)
        ran = _test_run(place, outcome)
        return CallToolResult(
            content=[TextContent(text=printed(place, outcome) + str(ran))],
            structured_content=ran,
            is_error=not ran.passed,
        )


def _test_run(place: Session, outcome: Outcome) -> TestRun:
    data = outcome.frame.read(_Ran)
    text = Text(place, outcome.number)
    values = [text.shown(f"value{n}", value) for n, value in enumerate(data.values)]
    run = TestRun(data.passed, data.timing, values)
    for framework, pattern in _SUMMARIES.items():
        if found := list(pattern.finditer(_ending(outcome.frame.stdout))):
            last = found[-1]
            run.framework = framework
            run.failures = 0 if last["failed"] == "No" else int(last["failed"])
            run.total = int(last["total"]) if last["total"] else None
            run.passed = run.passed and run.failures == 0
    return run


def _ending(output: Output) -> str:
    """The last part of what was printed, from its file if that is where it is."""
    if output.spool is None:
        return output.text
    with suppress(OSError), open(output.spool, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - _TAIL))
        return file.read().decode(errors="replace")
    return output.text
