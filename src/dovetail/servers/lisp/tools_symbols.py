"""Tools that look at symbols, macros, classes and methods."""

from typing import Annotated, Literal

from msgspec import Struct

from dovetail import Server
from dovetail.content import CallToolResult
from dovetail.servers.lisp.answers import answered, plural
from dovetail.servers.lisp.evaluate import SessionName
from dovetail.servers.lisp.render import schema
from dovetail.servers.lisp.sessions import DEFAULT, Lisp

__all__ = ["PackageName", "add_symbol_tools"]

PackageName = Annotated[str, "The package to look in, instead of the session's"]
Kind = Literal["function", "macro", "variable", "class", "generic-function"]


class Source(Struct):
    file: str
    offset: int | None = None

    def __str__(self) -> str:
        return self.file if self.offset is None else f"{self.file}, character {self.offset}"


class Documentation(Struct):
    kind: str
    text: str


class Described(Struct):
    name: str
    kinds: list[str]
    documentation: list[Documentation]
    arglist: str | None = None
    value: str | None = None
    source: Source | None = None

    def __str__(self) -> str:
        lines = [f"{self.name} [{', '.join(self.kinds).upper() or 'SYMBOL'}]"]
        lines += [f"Arguments: {self.arglist}"] if self.arglist is not None else []
        lines += [f"Value: {self.value}"] if self.value is not None else []
        lines += [f"Documentation ({doc.kind}): {doc.text}" for doc in self.documentation]
        lines += [f"Source: {self.source}"] if self.source is not None else []
        return "\n".join(lines)


class Symbol(Struct):
    name: str
    kinds: list[str]


class Found(Struct):
    total: int
    symbols: list[Symbol]

    def __str__(self) -> str:
        lines = [f"Found {plural(self.total, 'symbol')}"]
        lines += [f"{symbol.name} [{', '.join(symbol.kinds).upper()}]" for symbol in self.symbols]
        if self.total > len(self.symbols):
            lines.append(f"… and {self.total - len(self.symbols)} more: narrow the pattern.")
        return "\n".join(lines)


class Reference(Struct):
    name: str
    source: Source | None = None


class References(Struct):
    references: list[Reference]


class Expansion(Struct):
    original: str
    expanded: str

    def __str__(self) -> str:
        return f"Original:\n{self.original}\n\nExpanded:\n{self.expanded}"


class Slot(Struct):
    name: str
    direct: bool
    type: str
    initargs: list[str]
    allocation: str

    def __str__(self) -> str:
        rest = f", initargs {' '.join(self.initargs)}" if self.initargs else ""
        inherited = "" if self.direct else ", inherited"
        return f"  {self.name}: {self.type}{rest}, {self.allocation}{inherited}"


class ClassInfo(Struct):
    name: str
    metaclass: str
    superclasses: list[str]
    subclasses: list[str]
    precedence: list[str]
    slots: list[Slot]
    documentation: str | None = None

    def __str__(self) -> str:
        lines = [
            f"{self.name} [{self.metaclass}]",
            *([self.documentation] if self.documentation else []),
            f"Superclasses: {' '.join(self.superclasses) or 'none'}",
            f"Subclasses: {' '.join(self.subclasses) or 'none'}",
            f"Precedence: {' '.join(self.precedence)}",
            f"Slots: {len(self.slots)}",
            *map(str, self.slots),
        ]
        return "\n".join(lines)


class Method(Struct):
    generic: str
    qualifiers: list[str]
    specializers: list[str]

    def __str__(self) -> str:
        return " ".join([self.generic, *self.qualifiers, f"({' '.join(self.specializers)})"])


class Methods(Struct):
    methods: list[Method]

    def __str__(self) -> str:
        return "\n".join([plural(len(self.methods), "method"), *map(str, self.methods)])


def add_symbol_tools(server: Server, lisp: Lisp) -> None:
    _add_symbols(server, lisp)
    _add_references(server, lisp)
    _add_classes(server, lisp)


def _add_symbols(server: Server, lisp: Lisp) -> None:
    @server.tool(name="describe-symbol", title="Describe a symbol", output_schema=schema(Described))
    async def describe_symbol(
        name: Annotated[str, "The symbol, with or without a package prefix"],
        package: PackageName | None = None,
        session: SessionName = DEFAULT,
    ) -> CallToolResult:
        """Describe a symbol: what it names, arguments, value, documentation, source"""
        arguments = {"name": name, "package": package}
        place = lisp.session(session)
        return await answered(place, "describe-symbol", arguments, Described, str)

    @server.tool(name="apropos-search", title="Search symbols", output_schema=schema(Found))
    async def apropos_search(
        pattern: Annotated[str, "Part of the name, in any case"],
        package: PackageName | None = None,
        type: Annotated[Kind, "Only symbols that name such a thing"] | None = None,
        session: SessionName = DEFAULT,
    ) -> CallToolResult:
        """Find symbols whose name contains a text"""
        arguments = {"pattern": pattern, "package": package, "type": type}
        return await answered(lisp.session(session), "apropos-search", arguments, Found, str)

    @server.tool(name="macroexpand-form", title="Expand a macro", output_schema=schema(Expansion))
    async def macroexpand_form(
        form: Annotated[str, "The form to expand"],
        full: Annotated[bool, "Expand inner forms as well"] = False,
        package: PackageName | None = None,
        session: SessionName = DEFAULT,
    ) -> CallToolResult:
        """Show what a macro form expands to"""
        arguments = {"form": form, "full": full, "package": package}
        return await answered(lisp.session(session), "macroexpand-form", arguments, Expansion, str)


def _add_references(server: Server, lisp: Lisp) -> None:
    async def references(
        operation: str, name: str, package: str | None, session: str, verb: str
    ) -> CallToolResult:
        def text(found: References) -> str:
            lines = [f"{plural(len(found.references), 'definition')} {verb} {name}"]
            lines += [
                f"{one.name} ({one.source or 'defined in this session'})"
                for one in found.references
            ]
            return "\n".join(lines)

        arguments = {"name": name, "package": package}
        return await answered(lisp.session(session), operation, arguments, References, text)

    @server.tool(name="who-calls", title="Who calls", output_schema=schema(References))
    async def who_calls(
        name: Annotated[str, "A function or macro"],
        package: PackageName | None = None,
        session: SessionName = DEFAULT,
    ) -> CallToolResult:
        """Find the compiled code that calls a function or expands a macro"""
        return await references("who-calls", name, package, session, "calling")

    @server.tool(name="who-references", title="Who references", output_schema=schema(References))
    async def who_references(
        name: Annotated[str, "A variable"],
        package: PackageName | None = None,
        session: SessionName = DEFAULT,
    ) -> CallToolResult:
        """Find the compiled code that reads, sets or binds a variable"""
        return await references("who-references", name, package, session, "referencing")


def _add_classes(server: Server, lisp: Lisp) -> None:
    ClassName = Annotated[str, "The name of the class"]

    @server.tool(
        name="class-info", title="Describe a class", names="kebab", output_schema=schema(ClassInfo)
    )
    async def class_info(
        class_: ClassName, package: PackageName | None = None, session: SessionName = DEFAULT
    ) -> CallToolResult:
        """Describe a class: superclasses, subclasses, slots with their initargs"""
        arguments = {"class": class_, "package": package}
        return await answered(lisp.session(session), "class-info", arguments, ClassInfo, str)

    @server.tool(
        name="find-methods", title="Find methods", names="kebab", output_schema=schema(Methods)
    )
    async def find_methods(
        class_: ClassName,
        package: PackageName | None = None,
        include_inherited: Annotated[bool, "Methods of its superclasses, too"] = False,
        session: SessionName = DEFAULT,
    ) -> CallToolResult:
        """Find the methods that are specialised on a class"""

        arguments = {
            "class": class_,
            "package": package,
            "include_inherited": include_inherited or None,
        }
        return await answered(lisp.session(session), "find-methods", arguments, Methods, str)
