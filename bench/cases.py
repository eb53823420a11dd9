"""Which servers are measured, and how each is started."""

from dataclasses import dataclass
from pathlib import Path

from messages import LEGACY, MODERN

ROOT = Path(__file__).resolve().parent.parent
SERVERS = ROOT / "bench" / "servers"
OURS = str(ROOT / ".peers" / "ours" / "bin" / "python")
PEERS = str(ROOT / ".peers" / "venv" / "bin" / "python")
NODE = str(ROOT / ".peers" / "bin" / "node")


@dataclass(frozen=True)
class Case:
    name: str
    runtime: str
    script: str
    options: tuple[str, ...] = ()
    revision: str = LEGACY
    official: str = "mcp"
    """The case of the official Python SDK that this one is compared with."""

    @property
    def command(self) -> list[str]:
        return [self.runtime, str(SERVERS / self.script), *self.options]


SYNC = ("--sync",)

CASES = [
    Case("dovetail", OURS, "dovetail_server.py"),
    Case("mcp", PEERS, "mcp_server.py"),
    Case("fastmcp", PEERS, "fastmcp_server.py"),
    Case("ts-v1", NODE, "ts_v1.mjs"),
    Case("ts-v2", NODE, "ts_v2.mjs"),
    Case("bare-asyncio", PEERS, "bare_asyncio.py"),
    Case("bare-blocking", PEERS, "bare_blocking.py"),
    Case("dovetail-1000-tools", OURS, "dovetail_server.py", ("--tools", "1000")),
    Case("dovetail-sync", OURS, "dovetail_server.py", SYNC, official="mcp-sync"),
    Case("mcp-sync", PEERS, "mcp_server.py", SYNC, official="mcp-sync"),
    Case("fastmcp-sync", PEERS, "fastmcp_server.py", SYNC, official="mcp-sync"),
    Case("dovetail-2026", OURS, "dovetail_server.py", (), MODERN, "mcp-2026"),
    Case("mcp-2026", PEERS, "mcp_server.py", (), MODERN, "mcp-2026"),
    Case("fastmcp-2026", PEERS, "fastmcp_server.py", (), MODERN, "mcp-2026"),
    Case("ts-v2-2026", NODE, "ts_v2.mjs", (), MODERN, "mcp-2026"),
]
