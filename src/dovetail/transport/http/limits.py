"""Every limit of the HTTP transport: a name, a default and a reason.

The size of a body is `Limits.max_frame`, as for every transport.
"""

from msgspec import Struct

__all__ = ["HttpLimits"]


class HttpLimits(Struct, frozen=True, kw_only=True):
    # Seconds for a whole body: 4 MiB over a bad mobile link, but no drip of one byte a minute.
    body_seconds: float = 30.0
    # Seconds for a whole head, and its bytes. nginx gives 60 s and 32 KiB; a token with many
    # claims is 8 KiB.
    head_seconds: float = 10.0
    max_head: int = 64 * 1024
    # Seconds that an unused connection is kept for the client's next request.
    keep_open_seconds: float = 15.0
    # Connections to one process; each costs some 10 KB, and descriptors end at 1024 by default.
    max_connections: int = 10_000
    # Exchanges that a handler runs for at once, over all clients. Past it the answer is 503.
    max_in_flight: int = 4096
    # Sessions at once (some 5 KB each), and the seconds after which one that nobody uses ends:
    # clients rarely say goodbye, but they come back after lunch.
    max_sessions: int = 10_000
    idle_seconds: float = 1800.0
    # Event streams of one session that are open at once. A client needs one and its calls' own.
    max_streams: int = 64
    # Messages that wait for a client without an open stream; then the oldest notification goes.
    max_waiting: int = 256
    # Seconds of silence after which a stream says something. Proxies give up after 60.
    keep_alive_seconds: float = 15.0
    # Seconds after which a call that is still running answers as a stream: it can then be
    # resumed, and proxies see that it is alive.
    stream_after_seconds: float = 5.0
    # Unsent bytes of one stream, and seconds in which the client took none of them, after which
    # it is cut off: it does not read. What it missed it can ask for again (up to 2025-11-25).
    max_unsent: int = 4 * 1024 * 1024
    write_seconds: float = 30.0
    # Seconds that a handler may wait before its client is watched for hanging up; most are done.
    watch_after_seconds: float = 0.02
    # Seconds that a stream asks its client to wait before it comes back.
    retry_seconds: float = 1.0
    # Seconds that requests have to end when the server is stopped.
    drain_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, int | float) or value <= 0:
                raise ValueError(f"{name} must be a number above 0, not {value!r}")
