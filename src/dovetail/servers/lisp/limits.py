"""Every limit of the Lisp product: a name, a default and a reason."""

from msgspec import Struct

__all__ = ["LispLimits"]


class LispLimits(Struct, frozen=True, kw_only=True):
    # Seconds an evaluation may take; 0 means any time. Clients give up after a minute or so.
    timeout: float = 30.0
    # Characters of stdout and of stderr that are shown; the rest is in a spool file. What
    # is more fills a model's context without telling it more.
    max_output: int = 100_000
    # Characters of one printed value that are shown; the rest is in a spool file.
    max_value: int = 20_000
    # Characters that a spool file takes. What is printed after that is counted only.
    max_spool: int = 64 * 1024 * 1024
    # Spool files kept per session, the newest.
    max_spools: int = 32
    # Heap and control stack of a process, in megabytes. The heap is address space until it is
    # used; 8 MB of stack are a recursion 260,000 deep.
    heap_mb: int = 512
    stack_mb: int = 8
    # Seconds that an interrupt has before the thread is ended, and that before the process is.
    grace: float = 2.0
    # Seconds for a process to start; the first one ever compiles the bridge.
    start: float = 60.0
    # Sessions at once. An idle one costs 11 MB.
    max_sessions: int = 16
    # Evaluations of one session that wait in the debugger, and for how many seconds.
    max_suspended: int = 16
    suspended_seconds: float = 300.0
    # After this many losses within so many seconds the next start waits.
    max_losses: int = 3
    loss_window: float = 60.0
    max_delay: float = 5.0
    # Definitions that the journal of a session keeps for replay, the newest.
    max_journal: int = 5_000
    # Evaluations and errors of a session that are remembered, the newest.
    max_history: int = 100
    # Bytes of the process's own stdout and stderr kept until the next answer, the newest.
    max_raw: int = 20_000
