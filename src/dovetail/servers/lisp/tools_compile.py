"""Tools for code as text: compile it, time it, check and match its parentheses."""

from typing import Annotated

from msgspec import Meta, Struct

from dovetail import Server, ToolError
from dovetail.content import CallToolResult, TextContent
from dovetail.servers.lisp.answers import answered, plural
from dovetail.servers.lisp.balance import imbalance, partner, place_of
from dovetail.servers.lisp.evaluate import SessionName, refusal
from dovetail.servers.lisp.render import Evaluated, Text, Timing, failed, printed, schema
from dovetail.servers.lisp.sessions import DEFAULT, Lisp
from dovetail.servers.lisp.tools_symbols import PackageName

__all__ = ["add_compile_tools"]

Code = Annotated[str, "Common Lisp code"]


class Diagnosis(Struct):
    """What the bridge tells; ``start`` is where its top-level form begins."""

    severity: str
    type: str
    message: str
    start: int
    form: str | None = None


class Compiled(Struct):
    forms: int
    diagnostics: list[Diagnosis]


class Diagnostic(Struct):
    severity: str
    type: str
    message: str
    line: int
    form: str | None = None

    def __str__(self) -> str:
        where = f"line {self.line}" + (f", in {self.form}" if self.form else "")
        return f"{self.severity} at {where}\n  {self.type}: {self.message}"


class Compilation(Struct):
    forms: int
    success: bool
    diagnostics: list[Diagnostic]

    def __str__(self) -> str:
        if not self.diagnostics:
            return f"Compilation successful: {plural(self.forms, 'form')}, nothing executed."
        counts = [
            plural(sum(one.severity == kind for one in self.diagnostics), kind)
            for kind in ("error", "warning", "style-warning", "note")
        ]
        told = ", ".join(count for count in counts if not count.startswith("0"))
        verdict = "successful" if self.success else "failed"
        return "\n".join([f"Compilation {verdict}: {told}.", *map(str, self.diagnostics)])


class Timed(Struct):
    timing: Timing
    values: list[str]


class Syntax(Struct):
    valid: bool
    forms: int = 0
    line: int | None = None
    column: int | None = None
    problem: str | None = None
    hint: str | None = None


class Match(Struct):
    line: int
    column: int
    context: str


def add_compile_tools(server: Server, lisp: Lisp) -> None:
    _add_compiling(server, lisp)
    _add_parentheses(server, lisp)


def _add_compiling(server: Server, lisp: Lisp) -> None:
    @server.tool(name="compile-form", title="Compile a form", output_schema=schema(Compilation))
    async def compile_form(
        code: Code, package: PackageName | None = None, session: SessionName = DEFAULT
    ) -> CallToolResult:
        """Compile code without running it, and show what the compiler says"""
        place = lisp.session(session)
        if (refused := await refusal(place, code)) is not None:
            return CallToolResult(content=refused.content, is_error=True)
        arguments = {"code": code, "package": package}
        told: list[Compilation] = []

        def text(found: Compiled) -> str:
            told.append(_compilation(code, found))
            return str(told[0])

        result = await answered(place, "compile-form", arguments, Compiled, text)
        if told:
            result.structured_content = told[0]
        return result

    @server.tool(name="time-execution", title="Time an evaluation", output_schema=schema(Timed))
    async def time_execution(
        code: Code, package: PackageName | None = None, session: SessionName = DEFAULT
    ) -> CallToolResult:
        """Evaluate code and tell how long it took and how much memory it used"""
        place = lisp.session(session)
        given = {"code": code} | ({} if package is None else {"package": package})
        outcome = await place.call("evaluate", given)
        if outcome.frame.status != "ok":
            return failed(place, outcome)
        done = outcome.frame.read(Evaluated)
        shown = Text(place, outcome.number)
        values = [shown.shown(f"value{n}", value) for n, value in enumerate(done.values)]
        time = done.timing
        lines = [
            f"Real time: {time.real_ms} ms",
            f"Run time: {time.run_ms} ms",
            f"GC time: {time.gc_ms} ms",
            f"Bytes consed: {time.bytes_consed}",
            *(f"=> {value}" for value in values),
        ]
        return CallToolResult(
            content=[TextContent(text=printed(place, outcome) + "\n".join(lines))],
            structured_content=Timed(time, values),
        )


def _compilation(code: str, found: Compiled) -> Compilation:
    diagnostics = [
        Diagnostic(one.severity, one.type, one.message, _line(code, one), one.form)
        for one in found.diagnostics
    ]
    success = all(one.severity in ("style-warning", "note") for one in diagnostics)
    return Compilation(found.forms, success, diagnostics)


def _line(code: str, one: Diagnosis) -> int:
    """Of the form the compiler means, if its beginning occurs once; else of the whole."""
    start = one.start
    operator = (one.form or "").partition(" ")[0].rstrip(")").lower()
    text = code.lower()
    if operator.startswith("(") and text.count(operator, one.start) == 1:
        start = text.index(operator, one.start)
    return place_of(code, start)[0]


def _add_parentheses(server: Server, lisp: Lisp) -> None:
    @server.tool(
        name="validate-syntax", title="Check syntax", read_only=True, output_schema=schema(Syntax)
    )
    async def validate_syntax(code: Code, session: SessionName = DEFAULT) -> CallToolResult:
        """Check that parentheses, strings and comments of code close; nothing is evaluated"""
        wrong = imbalance(code)
        if wrong is not None:
            found = Syntax(False, 0, wrong.line, wrong.column, wrong.problem, wrong.hint)
            text = f"✗ {wrong.problem}\n{wrong.hint}"
            return CallToolResult(content=[TextContent(text=text)], structured_content=found)
        place = lisp.session(session)
        outcome = await place.call("count-forms", {"code": code})
        if outcome.frame.status != "ok":
            return failed(place, outcome)
        count = outcome.frame.read(int)
        return CallToolResult(
            content=[TextContent(text=f"✓ Syntax valid: {plural(count, 'top-level form')}")],
            structured_content=Syntax(True, count),
        )

    @server.tool(name="match-paren", title="Match a parenthesis", read_only=True)
    async def match_paren(
        code: Code,
        line: Annotated[int, Meta(ge=1), "Line of a parenthesis, from 1"],
        column: Annotated[int, Meta(ge=0), "Column of it, from 0"],
    ) -> Match:
        """Find the parenthesis that belongs to another one"""
        lines = code.split("\n")
        if line > len(lines) or column >= len(lines[line - 1]):
            raise ToolError(f"There is no line {line}, column {column} in the code.")
        found = partner(code, sum(len(one) + 1 for one in lines[: line - 1]) + column)
        if found is None:
            raise ToolError(f"No parenthesis at line {line}, column {column} has a partner.")
        at_line, at_column = place_of(code, found)
        return Match(at_line, at_column - 1, lines[at_line - 1].strip())
