"""Resources ``lisp://{session}/…``, their completion, and news of what was redefined."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from dovetail import ResourceNotFound, Server, ToolError
from dovetail.servers.lisp.calls import Entry
from dovetail.servers.lisp.frames import Failure, Frame
from dovetail.servers.lisp.image import Image, Lost
from dovetail.servers.lisp.session import Session
from dovetail.servers.lisp.sessions import DEFAULT, Lisp

__all__ = ["add_resources"]

_JSON = "application/json"
Pair = tuple[str, str]  # of a symbol: package and name, as the client wrote them


class Evaluated(Struct, rename="camel", omit_defaults=True):
    """A line of the history, or an error in full."""

    number: int
    code: str
    is_error: bool
    text: str
    error: Failure | None = None


class Place:
    """A session as resources see it: what cannot be read is an error of the protocol."""

    def __init__(self, lisp: Lisp, name: str, uri: str) -> None:
        found = lisp.sessions.get(name)
        if found is None:
            raise ResourceNotFound(uri)
        self.session = found
        self._uri = uri

    async def look(self, operation: str, **arguments: Any) -> Any:
        """An immediate operation: answered while an evaluation runs."""
        try:
            return self._data(await (await _living(self.session)).ask(operation, arguments))
        except Lost as error:
            raise ToolError(f"The Lisp is gone: {error}") from None

    async def run(self, operation: str, **arguments: Any) -> Any:
        """Any other, when it is its turn."""
        return self._data((await self.session.call(operation, arguments)).frame)

    def _data(self, frame: Frame) -> Any:
        if frame.status != "ok":
            raise ResourceNotFound(self._uri)
        return frame.read()

    async def symbol(self, package: str, name: str) -> tuple[str, str]:
        """Package and name, in the Lisp's own spelling, of a symbol that the client named."""
        found = await self.look("find-symbol", package=package, name=name)
        if found is None:
            raise ResourceNotFound(self._uri)
        return found["package"], f"|{found['name']}|"


async def _living(session: Session) -> Image:
    if session.image is None or session.image.lost is not None:
        await session.ready()
    assert session.image is not None
    return session.image


def add_resources(server: Server, lisp: Lisp) -> None:
    _add_lists(server, lisp)
    _add_history(server, lisp)
    _add_definitions(server, lisp)


# Lists of a session: the operation, whether it has to wait for its turn, and the description.
_LISTS = {
    "packages": ("packages", False, "All packages: nicknames, number of external symbols"),
    "systems": ("list-local-systems", True, "The ASDF systems that can be loaded, or are"),
    "threads": ("threads", False, "The threads of the Lisp"),
    "heap": ("heap", False, "How much memory is used, and what its collection takes"),
}


def _add_lists(server: Server, lisp: Lisp) -> None:
    def add(name: str, operation: str, waits: bool, description: str) -> None:
        async def read(session: str) -> Any:
            place = Place(lisp, session, f"lisp://{session}/{name}")
            return await (place.run(operation) if waits else place.look(operation))

        _add_for_sessions(server, lisp, name, description, read)

    for name, (operation, waits, description) in _LISTS.items():
        add(name, operation, waits, description)


def _add_for_sessions(
    server: Server, lisp: Lisp, name: str, description: str, read: Callable[[str], Any]
) -> None:
    """As a template, and for the default session by itself, where lists show it."""
    options: Any = {"description": description, "mime_type": _JSON}
    template = server.resource(f"lisp://{{session}}/{name}", name=name, **options)(read)
    template.complete("session")(_session_names(lisp))

    @server.resource(f"lisp://{DEFAULT}/{name}", name=f"{DEFAULT} {name}", **options)
    async def of_default() -> Any:
        return await read(DEFAULT)


def _session_names(lisp: Lisp) -> Callable[..., Any]:
    async def names(prefix: str) -> list[str]:
        return [name for name in lisp.sessions if name.startswith(prefix)]

    return names


def _add_history(server: Server, lisp: Lisp) -> None:
    async def history(session: str) -> Any:
        place = Place(lisp, session, f"lisp://{session}/history")
        return [_shown(entry) for entry in place.session.history]

    async def errors(session: str) -> Any:
        place = Place(lisp, session, f"lisp://{session}/errors")
        return [_shown(entry) for entry in place.session.history if entry.is_error]

    what = "The last evaluations: code, and the text of the answer"
    _add_for_sessions(server, lisp, "history", what, history)
    what = "Those of the last evaluations that failed, with frames and restarts"
    _add_for_sessions(server, lisp, "errors", what, errors)

    @server.resource("lisp://{session}/errors/{number}", name="error", mime_type=_JSON)
    async def error(session: str, number: int) -> Any:
        """An evaluation that failed, by its number"""
        uri = f"lisp://{session}/errors/{number}"
        for entry in Place(lisp, session, uri).session.history:
            if entry.number == number and entry.is_error:
                return _shown(entry)
        raise ResourceNotFound(uri)


def _shown(entry: Entry) -> Evaluated:
    return Evaluated(entry.number, entry.code, entry.is_error, entry.text, entry.failure)


def _add_definitions(server: Server, lisp: Lisp) -> None:
    @server.resource("lisp://{session}/package/{package}", name="package", mime_type=_JSON)
    async def package(session: str, package: str) -> Any:
        """A package: what it uses, its external symbols, and what is defined in it"""
        place = Place(lisp, session, f"lisp://{session}/package/{package}")
        return await place.look("package", package=package)

    @server.resource("lisp://{session}/symbol/{package}/{name}", name="symbol", mime_type=_JSON)
    async def symbol(session: str, package: str, name: str) -> Any:
        """A symbol: what it names, arguments, value, documentation, source, callers"""
        place = Place(lisp, session, f"lisp://{session}/symbol/{package}/{name}")
        home, exact = await place.symbol(package, name)
        described = await place.run("describe-symbol", name=exact, package=home)
        callers = await place.run("who-calls", name=f"|{home}|::{exact}")
        return {**described, "callers": callers["references"]}

    @server.resource("lisp://{session}/class/{package}/{name}", name="class", mime_type=_JSON)
    async def class_(session: str, package: str, name: str) -> Any:
        """A class: superclasses, subclasses, precedence, slots"""
        place = Place(lisp, session, f"lisp://{session}/class/{package}/{name}")
        home, exact = await place.symbol(package, name)
        return await place.run("class-info", **{"class": exact, "package": home})

    async def completed(operation: str, given: dict[str, str], **arguments: Any) -> list[str]:
        """Nothing, where there is nothing to ask: a completion is no place for errors."""
        try:
            place = Place(lisp, given.get("session", DEFAULT), "")
            names: list[str] = await place.look(operation, **arguments)
        except (ToolError, ResourceNotFound):
            return []
        return names

    async def package_names(prefix: str, given: dict[str, str]) -> list[str]:
        return await completed("complete-package", given, text=prefix)

    def symbol_names(only_classes: bool) -> Callable[..., Any]:
        async def names(prefix: str, given: dict[str, str]) -> list[str]:
            options = {"package": given.get("package"), "class": only_classes}
            return await completed("complete-symbol", given, text=prefix, **options)

        return names

    for template in (package, symbol, class_):
        template.complete("session")(_session_names(lisp))
        template.complete("package")(package_names)
    symbol.complete("name")(symbol_names(False))
    class_.complete("name")(symbol_names(True))
    Watcher(server, lisp, (symbol, class_))


class Watcher:
    """Tells the subscribers of a symbol or a class when it was defined anew.

    The Lisp compares what the symbols name with what they named before, after each call of the
    session, so it does not matter how the redefinition was done. What others do to an attached
    Lisp is seen after the next call.
    """

    def __init__(self, server: Server, lisp: Lisp, templates: tuple[Any, ...]) -> None:
        self._server = server
        self._lisp = lisp
        self._templates = templates
        self._images: dict[str, Image] = {}
        lisp.on_session(lambda session: session.on_answer(self._answered))
        server.on_subscribe(self._subscribed)

    def _watched(self, session: str) -> dict[Pair, list[str]]:
        """The subscribed URIs of a session, by symbol."""
        watched: dict[Pair, list[str]] = {}
        for uri in self._server.subscribed:
            found = self._parsed(uri)
            if found is not None and found["session"] == session:
                watched.setdefault((found["package"], found["name"]), []).append(uri)
        return watched

    def _parsed(self, uri: str) -> dict[str, str] | None:
        if not uri.startswith("lisp://"):
            return None
        for template in self._templates:
            if (found := template.match(uri)) is not None:
                return dict(found)
        return None

    def _subscribed(self, uri: str) -> None:
        """How it is now, so that a change can be seen. Without a Lisp, its start asks."""
        found = self._parsed(uri)
        session = self._lisp.sessions.get(found["session"]) if found else None
        if session is not None:
            self._ask(session)

    def _answered(self, session: Session, frame: Frame) -> None:
        self._ask(session)

    def _ask(self, session: Session) -> None:
        image = session.image
        watched = self._watched(session.name)
        if not watched or image is None or image.lost is not None:
            return
        before = self._images.get(session.name, image)
        self._images[session.name] = image
        if before is not image:
            self._tell(watched, set(watched))  # a new process has nothing of the old one
        call = image.start("watch", {"symbols": [list(pair) for pair in watched]})
        call.future.add_done_callback(
            lambda future: self._tell(watched, _changed(future)) if _is_ok(future) else None
        )

    def _tell(self, watched: dict[Pair, list[str]], changed: set[Pair]) -> None:
        for pair in changed:
            for uri in watched[pair]:
                self._server.updated(uri)


def _changed(future: Any) -> set[Pair]:
    return {(package, name) for package, name in future.result().read()}


def _is_ok(future: Any) -> bool:
    if future.cancelled() or future.exception() is not None:
        return False
    return bool(future.result().status == "ok")
