"""Tasks: the record, the machine of its status, and the stores.

``dovetail.server.tasks.sqlite`` has the store that survives a restart, and
``dovetail.server.tasks.redis`` the one that several nodes share. They are not imported here:
most servers need no database, and some Pythons have none.
"""

from dovetail.server.tasks.record import (
    STEPS,
    TERMINAL,
    IllegalTransition,
    InvalidPosition,
    RecordTooLarge,
    StoreAway,
    StoreError,
    StoreFull,
    TaskError,
    TaskRecord,
    answer,
    ask,
    new_task,
    transition,
)
from dovetail.server.tasks.store import Change, Clock, MemoryStore, TaskLimits, TaskStore

__all__ = [
    "STEPS",
    "TERMINAL",
    "Change",
    "Clock",
    "IllegalTransition",
    "InvalidPosition",
    "MemoryStore",
    "RecordTooLarge",
    "StoreAway",
    "StoreError",
    "StoreFull",
    "TaskError",
    "TaskLimits",
    "TaskRecord",
    "TaskStore",
    "answer",
    "ask",
    "new_task",
    "transition",
]
