"""The process that the plugin starts: the editor on stdio, clients on sockets of ours."""

import asyncio
import gc
import hmac
import logging
import os
import secrets
import stat
import sys
from typing import TYPE_CHECKING, Any

from dovetail import Server
from dovetail.runtime.connection import Connection, Tap
from dovetail.servers.neovim import lockfile
from dovetail.servers.neovim.announce import Announcer
from dovetail.servers.neovim.editor import Editor, EditorError
from dovetail.servers.neovim.finder import Workplace
from dovetail.servers.neovim.ide import LIMITS, ide_server
from dovetail.servers.neovim.rpc import LinkClosed, text_of, value_of
from dovetail.transport import ending, stdio
from dovetail.transport.websocket import Listener, Refusal, SocketLimits, Upgrade, listen

if TYPE_CHECKING:
    from dovetail.servers.neovim.door import Door

__all__ = ["run"]

log = logging.getLogger("dovetail.neovim")

TOKEN_HEADER = "X-Claude-Code-Ide-Authorization"
PORTS = range(10000, 65536)  # where VS Code's extension listens
TRIES = 20
# The port of before is ours again after a crash, but perhaps not at once.
PORT_PATIENCE = 2.0

SOCKET_LIMITS = SocketLimits(
    max_handshake=8 * 1024,  # one token and the headers of a WebSocket
    max_handshakes=16,  # strangers have no business here at all
    max_clients=64,
    ping_seconds=30.0,
)


def run(tap: Tap | None) -> int:
    """Serve until Neovim is gone or a signal comes."""
    stdio.reserve("stdin and stdout belong to Neovim here")
    own_in, own_out = stdio.claim()
    if not (_is_channel(own_in) and _is_channel(own_out)):
        print("dovetail: --editor-stdio is for the plugin of Neovim, on pipes", file=sys.stderr)
        return 2
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_live(own_in, own_out, tap))
    except (EditorError, LinkClosed, OSError) as error:
        print(f"dovetail: {error}", file=sys.stderr, flush=True)
        return 2
    finally:
        loop.close()


def _is_channel(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def _live(own_in: int, own_out: int, tap: Tap | None) -> int:
    editor = await Editor.on_pipes(own_in, own_out)
    host = Host(editor, tap)
    stopped = asyncio.Event()
    restore = ending.stop_on_signals(asyncio.get_running_loop(), stopped.set, 5.0)
    editor.link.closed.add_done_callback(lambda _: stopped.set())
    try:
        await host.start()
        await stopped.wait()
    finally:
        await host.close()
        editor.close()
        await ending.end_tasks(1.0)
        restore()
    return 0


class _Here:
    """The desk of the host's own editor."""

    def __init__(self, place: Workplace) -> None:
        self._place = place

    async def workplace(self) -> Workplace:
        return self._place


class Host:
    """One editor, its IDE socket, and what belongs to it."""

    def __init__(self, editor: Editor, tap: Tap | None = None) -> None:
        self.editor = editor
        self.place = Workplace(editor)
        self.model = self.place.model
        self.diffs = self.place.diffs
        self._tap = tap
        self._token = ""
        self._listener: Listener | None = None
        self._lock: lockfile.LockFile | None = None
        self._door: Door | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: set[Connection] = set()
        self._told: int | None = None  # how many clients the editor knows of

    async def start(self) -> None:
        settings = await self.editor.ask("process", "hello", self.editor.channel)
        self._token = settings["token"]
        await self.model.follow_folders()
        await self.model.start()
        self.server: Server = ide_server(self.editor, self.model, self.diffs, self.place.confirm)
        self.announcer = Announcer(self.server, self.model)
        self.announcer.on_mention_dropped = self._mention_dropped
        self.diffs.on_end.append(self._diff_ended)
        self.editor.on("mention", self._mention)
        self.model.on_folders.append(self._folders_changed)
        self._listener = await self._listen(settings["port"] or 0)
        self._write_lock(self._listener.port)
        await self._watch()
        if self.model.settings.get("http"):
            self._open_door(settings["http_token"], settings["http_port"] or 0)
        await self._started(self._listener.port)

    def _open_door(self, token: str, port: int) -> None:
        settings = self.model.settings
        try:
            from dovetail.servers.neovim.agent import agent_server
            from dovetail.servers.neovim.door import open_door

            desk = _Here(self.place)
            agents = agent_server(desk, write=settings["write"], execute=settings["exec"])
            self._door = open_door(agents, token, port)
        except (ImportError, OSError) as error:
            log.error("HTTP is not served: %s", error)

    async def _started(self, port: int) -> None:
        lock = "" if self._lock is None else str(self._lock.path)
        http_port = 0 if self._door is None else self._door.port
        news = {"port": port, "lock": lock, "http_port": http_port}
        await self.editor.ask("process", "started", news)

    async def close(self) -> None:
        """In order: diffs are answered, then clients go, then nobody finds us any more."""
        self.diffs.close_all()
        await asyncio.sleep(0.01)
        if self._listener is not None:
            await self._listener.close()
        if self._lock is not None:
            self._lock.remove()
        if self._door is not None:
            await self._door.close()

    # -- the socket ----------------------------------------------------------------------

    async def _listen(self, wanted: int) -> Listener:
        """On the port of before if there is one, else on any; IPv4 loopback only."""
        deadline = asyncio.get_running_loop().time() + PORT_PATIENCE
        while wanted:
            try:
                return await self._listen_on(wanted)
            except OSError:
                if asyncio.get_running_loop().time() > deadline:
                    log.warning("port %d is taken: clients must connect anew", wanted)
                    break
                await asyncio.sleep(0.05)
        for _ in range(TRIES):
            try:
                return await self._listen_on(secrets.choice(PORTS))
            except OSError:
                continue
        return await self._listen_on(0)

    async def _listen_on(self, port: int) -> Listener:
        return await listen(
            self._connect,
            "127.0.0.1",
            port,
            judge=self._judge,
            max_frame=LIMITS.max_frame,
            limits=SOCKET_LIMITS,
            subprotocol_needed=False,
        )

    async def _judge(self, upgrade: Upgrade) -> Refusal | str | None:
        """Before anything else happens: no page of a browser, and only with the token."""
        if upgrade.headers.get_all("Origin"):
            return Refusal(403, "Not for web pages")
        given = upgrade.headers.get_all(TOKEN_HEADER)
        if len(given) != 1 or not hmac.compare_digest(given[0].encode(), self._token.encode()):
            return Refusal(401, "The token of the lock file is needed")
        return None

    def _connect(self, principal: str | None) -> Connection:
        if self.model.settings.get("single_client"):
            for other in list(self._clients):
                other.stop()
        connection = self.server.connection(tap=self._tap)
        self._clients.add(connection)
        connection.at_end(lambda: self._left(connection))
        self._clients_changed()
        return connection

    def _left(self, connection: Connection) -> None:
        self._clients.discard(connection)
        self.diffs.close(connection.session)
        self._clients_changed()

    def _clients_changed(self) -> None:
        self._spawn(self._tell_clients())

    async def _tell_clients(self) -> None:
        """Neovim is watched only while somebody wants to know."""
        count = len(self._clients)
        if count != self._told and not self.editor.gone:
            before, self._told = self._told or 0, count
            await self.editor.ask("process", "set_clients", count)
            if (count > 0) != (before > 0):
                await self._watch()

    async def _watch(self) -> None:
        await self.place.listen("ide", {"ide": True} if self._clients else None)

    # -- the lock file ---------------------------------------------------------------------

    def _write_lock(self, port: int) -> None:
        try:
            lockfile.remove_stale()
            self._lock = lockfile.LockFile(port, self.editor.pid, self._token)
            self._lock.write(self.model.known_folders)
        except OSError as error:
            log.error("no lock file, so clients will not find this editor: %s", error)
            self._lock = None

    def _folders_changed(self) -> None:
        self._spawn(self._rewrite_lock())

    async def _rewrite_lock(self) -> None:
        folders = (await self.model.folders()).value
        if self._lock is not None:
            self._lock.write(folders)

    # -- from the editor -------------------------------------------------------------------

    def _mention(self, path: Any, first: Any, last: Any) -> None:
        place = text_of(path).decode(errors="replace")
        self.announcer.mention(place, value_of(first), value_of(last))

    def _diff_ended(self, path: str, accepted: bool) -> None:
        name = "diff_accepted" if accepted else "diff_rejected"
        self.announcer.log_event(name, {"path": path})

    def _mention_dropped(self) -> None:
        self._spawn(self.editor.ask("process", "mention_dropped"))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)

    def _spawned(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(task.exception(), Exception):
            log.debug("left undone: %s", task.exception())
