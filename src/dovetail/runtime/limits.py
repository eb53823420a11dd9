"""Every limit of a connection: a name, a default and a reason."""

from msgspec import Struct

__all__ = ["Limits"]


class Limits(Struct, frozen=True, kw_only=True):
    # Longest message. 4 MiB is what the official SDKs accept over HTTP; an
    # image or a source file fits, a runaway writer does not fill the memory.
    max_frame: int = 4 * 1024 * 1024
    # Nesting of one message. Real schemas stay under 30; recursion in user code
    # that walks the arguments breaks near 1,000.
    max_depth: int = 128
    # Messages in one batch (2025-03-26). A frame of `1,1,1,...` would otherwise be
    # answered with two million errors.
    max_batch: int = 1000
    # Requests running at once on one connection. Above it they wait: enough to
    # keep any pool busy, few enough that a flood cannot start 100,000 tasks, nor
    # their answers fill the memory while nobody reads them.
    max_in_flight: int = 256
    # Requests waiting for a place, and their bytes. Past either the answer is
    # -32603 at once, because a silent queue looks like a hang.
    max_queued: int = 8192
    max_queued_bytes: int = 64 * 1024 * 1024
    # Unsent output above which no new request starts (the client is not reading).
    high_water: int = 1024 * 1024
    # Unsent output above which not even pings are read any more.
    max_buffered_output: int = 16 * 1024 * 1024
    # Handlers of notifications running at once; more notifications are dropped.
    max_background: int = 256
    # Threads for sync tools, shared by all connections of a server.
    max_threads: int = 32
    # Seconds given to running requests after the input has ended, so that
    # `echo '…' | server` is answered. A client that wants less sends SIGTERM.
    drain_seconds: float = 10.0
    # Seconds a cancelled handler has to clean up, and the last bytes to leave.
    stop_seconds: float = 1.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, int | float) or value <= 0:
                raise ValueError(f"{name} must be a number above 0, not {value!r}")
