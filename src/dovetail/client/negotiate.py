"""Finding out which revision the server speaks (digest 8.7).

A server of 2026-07-28 answers ``server/discover``; one of the handshake does not know it
and answers with some error, or with silence. Which error is not looked at (C8), except for
the three codes that only the new revision has. What was found out is remembered per server
for the life of the process, and forgotten when it stops being true.
"""

import asyncio
from collections.abc import Hashable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw

from dovetail.client.capabilities import declared_in
from dovetail.client.options import Options
from dovetail.client.session import Session, Waits
from dovetail.errors import (
    HEADER_MISMATCH,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_VERSION,
    HttpError,
    McpError,
    ProtocolError,
    RemoteProtocolError,
)
from dovetail.spec.revisions import BY_ID, LATEST_HANDSHAKE, MODERN, Revision
from dovetail.spec.types import DiscoverResult, InitializeResult
from dovetail.wire.jsonrpc import BROKEN_JSON

__all__ = ["NoCommonRevision", "Verdicts", "negotiate", "verdicts"]

_MODERN_CODES = (HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_VERSION)
# Servers remembered; a host talks to dozens.
MAX_VERDICTS = 1024

T = TypeVar("T")


class NoCommonRevision(ProtocolError):
    """The server speaks no revision that we do, or not the one that was asked for."""


class Verdicts:
    """Whether a server is of the handshake, by its command or URL."""

    def __init__(self) -> None:
        self._known: dict[Hashable, bool] = {}

    def get(self, key: Hashable) -> bool | None:
        return self._known.get(key)

    def put(self, key: Hashable, modern: bool) -> None:
        if len(self._known) >= MAX_VERDICTS:
            del self._known[next(iter(self._known))]
        self._known[key] = modern

    def drop(self, key: Hashable) -> None:
        self._known.pop(key, None)


verdicts = Verdicts()


async def negotiate(session: Session, key: Hashable, known: Verdicts = verdicts) -> None:
    """Bring a fresh session to the point where requests can be sent."""
    modern = _wished(session.options)
    if modern is None:
        modern = known.get(key)
    if modern is None:
        modern = await _probe(session)
    elif modern:
        await _discover(session)
    else:
        await _initialize(session)
    known.put(key, modern)


def _wished(options: Options) -> bool | None:
    """Whether the caller leaves us a choice of eras."""
    if options.revision is not None:
        return options.revision.modern
    eras = {revision.modern for revision in options.revisions}
    return eras.pop() if len(eras) == 1 else None


# -- 2026-07-28 --------------------------------------------------------------------------


async def _discover(session: Session) -> None:
    """Ask, and ask again if our revision was refused but another one of ours is served."""
    session.speak(MODERN, declared_in(session.options, MODERN))
    waits = Waits(session.options.timeout, session.options.timeout)
    try:
        raw = await _send_discover(session, waits)
    except McpError as error:
        if error.code != UNSUPPORTED_VERSION or MODERN.id not in _supported(error):
            raise _refused(session, error) from error
        raw = await _send_discover(session, waits)  # it says that it does: digest C8
    _discovered(session, raw)


async def _send_discover(session: Session, waits: Waits) -> Raw:
    headers = {"mcp-method": "server/discover", "mcp-protocol-version": MODERN.id}
    return await session.request(
        "server/discover", {"_meta": session.meta()}, waits, headers=headers
    )


def _discovered(session: Session, raw: Raw) -> None:
    result = _decoded(raw, DiscoverResult, "server/discover")
    if MODERN.id not in result.supported_versions:
        raise NoCommonRevision(_no_common(result.supported_versions))
    session.connection.peer.adopt(MODERN)
    session.capabilities = result.capabilities
    session.instructions = None if result.instructions is UNSET else result.instructions
    session.learn(result.meta)


def _supported(error: McpError) -> list[str]:
    data = error.data if isinstance(error.data, dict) else {}
    supported = data.get("supported")
    return [v for v in supported if isinstance(v, str)] if isinstance(supported, list) else []


def _refused(session: Session, error: McpError) -> Exception:
    if error.code == UNSUPPORTED_VERSION:
        return NoCommonRevision(_no_common(_supported(error)))
    if session.options.revision is MODERN:
        return NoCommonRevision(f"The server does not speak {MODERN.id}: {error}")
    return error


def _no_common(theirs: list[str]) -> str:
    shown = ", ".join(theirs) or "something else"
    return f"The server speaks {shown}, and this client does not"


# -- the probe ---------------------------------------------------------------------------


async def _probe(session: Session) -> bool:
    """Ask as 2026-07-28 would; what does not sound like it means the handshake."""
    session.speak(MODERN, declared_in(session.options, MODERN))
    waits = Waits(session.options.timeout, session.options.timeout)
    probe = asyncio.ensure_future(_send_discover(session, waits))
    try:
        if await _in_time(session, probe):
            return await _judge(session, probe)
        return await _probe_late(session, probe)
    finally:
        if not probe.done():
            probe.cancel()
            await asyncio.wait([probe])


async def _in_time(session: Session, probe: "asyncio.Future[Raw]") -> bool:
    """Whether the answer came soon; while somebody signs in, the server cannot give it."""
    loop, patience = asyncio.get_running_loop(), session.options.probe_seconds
    end = loop.time() + patience
    while not probe.done() and (left := end - loop.time()) > 0:
        await asyncio.wait([probe], timeout=left)
        end = max(end, session.connection.held_until + patience)
    return probe.done()


async def _judge(session: Session, probe: "asyncio.Future[Raw]") -> bool:
    try:
        raw = probe.result()
        if not _is_legacy_only(raw):
            _discovered(session, raw)
            return True
    except McpError as error:
        if error.code in _MODERN_CODES:
            if error.code == UNSUPPORTED_VERSION and _speaks_handshake(_supported(error)):
                return await _fall_back(session)
            await _discover(session)
            return True
    except (RemoteProtocolError, TimeoutError):
        pass  # nonsense or silence: it does not know the question
    except HttpError as error:
        if error.status not in (400, 404, 405, 406, 415, 422, 500, 501):
            raise  # not a matter of revisions: no entry, overloaded, gone
    return await _fall_back(session)


async def _fall_back(session: Session) -> bool:
    await _initialize(session)
    return False


async def _probe_late(session: Session, probe: "asyncio.Future[Raw]") -> bool:
    """Silence so far: it may ignore what it does not know, or be slow to start. Try both."""
    shaking = asyncio.ensure_future(_initialize(session))
    try:
        both: list[asyncio.Future[Any]] = [probe, shaking]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if shaking.done() and shaking.exception() is not None:
            # Refused: the answer to the probe, if there will be one, is on its way.
            await asyncio.wait([probe], timeout=session.options.probe_seconds)
        if _is_late_yes(probe) and not _has_worked(shaking):
            session.speak(MODERN, declared_in(session.options, MODERN))
            _discovered(session, probe.result())
            return True
        await shaking
        return False
    finally:
        if not shaking.done():
            shaking.cancel()
            await asyncio.wait([shaking])


def _is_late_yes(probe: "asyncio.Future[Raw]") -> bool:
    answered = probe.done() and not probe.cancelled() and probe.exception() is None
    return answered and not _is_legacy_only(probe.result())


def _has_worked(shaking: "asyncio.Future[None]") -> bool:
    return shaking.done() and not shaking.cancelled() and shaking.exception() is None


def _is_legacy_only(raw: Raw) -> bool:
    """Some answer the question, and say that they are of the handshake (digest 8.7)."""
    try:
        versions = msgspec.json.decode(raw, type=DiscoverResult).supported_versions
    except BROKEN_JSON:
        return True
    return MODERN.id not in versions and _speaks_handshake(versions)


def _speaks_handshake(versions: list[str]) -> bool:
    return MODERN.id not in versions and any(version in BY_ID for version in versions)


# -- the handshake -----------------------------------------------------------------------


async def _initialize(session: Session) -> None:
    """``initialize``, then ``notifications/initialized`` (digest C1, C2)."""
    options = session.options
    offered = options.revision or _newest_handshake(options)
    capabilities = declared_in(options, offered)
    session.speak(offered, capabilities)
    params = {
        "protocolVersion": offered.id,
        "capabilities": capabilities,
        "clientInfo": _info(options, offered),
    }
    try:
        raw = await session.request(
            "initialize", params, Waits(options.timeout, options.timeout), headers={}
        )
    except McpError as error:
        if error.code == UNSUPPORTED_VERSION or _supported(error):
            raise NoCommonRevision(_no_common(_supported(error))) from error
        raise
    result = _decoded(raw, InitializeResult, "initialize")
    session.connection.peer.adopt(_accepted(options, offered, result.protocol_version))
    session.speak(_accepted(options, offered, result.protocol_version), capabilities)
    session.capabilities = result.capabilities
    session.server = result.server_info
    session.instructions = None if result.instructions is UNSET else result.instructions
    session.notify("notifications/initialized")


def _newest_handshake(options: Options) -> Revision:
    ours = [revision for revision in options.revisions if not revision.modern]
    return ours[-1] if ours else LATEST_HANDSHAKE


def _accepted(options: Options, offered: Revision, answered: str) -> Revision:
    """The revision that was agreed; NoCommonRevision ends the connection (digest C4)."""
    revision = BY_ID.get(answered)
    if revision is None or revision.modern or revision not in options.revisions:
        raise NoCommonRevision(_no_common([answered]))
    if options.pin and revision is not offered:
        raise NoCommonRevision(f"The server answered {answered} instead of {offered.id}")
    return revision


def _info(options: Options, revision: Revision) -> Any:
    from dovetail.spec.project import project

    return project(options.info, revision)


def _decoded(raw: Raw, kind: type[T], method: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except BROKEN_JSON as error:
        raise RemoteProtocolError.text(
            f"The answer to {method!r} makes no sense: {error}"
        ) from None
