"""The five revisions of MCP and what tells them apart.

Hot code asks a precomputed flag (``revision.structured_output``); nothing ever
compares date strings, and a version that is not in the table is refused, not
sorted (digest 16.10).
"""

from msgspec import Struct

from dovetail.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CLIENT_CAPABILITY,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    URL_ELICITATION_REQUIRED,
    McpError,
)
from dovetail.spec import _surface

__all__ = ["ALL", "BY_ID", "HANDSHAKE", "LATEST_HANDSHAKE", "MODERN", "Revision"]


_MODERN_ONLY = frozenset({HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_VERSION})
_HANDSHAKE_ONLY = frozenset({URL_ELICITATION_REQUIRED})


class Revision(Struct, frozen=True, eq=False):
    """One revision. Compared by identity: there is one object for each."""

    id: str
    letter: str  # column of the generated tables, as in the digest
    http: bool = True  # the first revision had a transport of its own, which we leave out
    modern: bool = False  # every request carries its own envelope (digest 8.2)
    batches: bool = False  # arrays of messages must be received (digest X11)
    structured_output: bool = True
    any_output: bool = False  # structured content need not be an object
    progress_message: bool = True
    tasks: bool = False  # tasks as a part of the core
    polling: bool = False  # a stream begins with an event to resume it at (digest 10.3)
    null_error_id: bool = True  # an error without a readable id says "id": null
    not_found: int = RESOURCE_NOT_FOUND

    def error(self, error: McpError) -> McpError:
        """The error with a code this revision knows (digest X31, X32)."""
        if error.code == RESOURCE_NOT_FOUND:
            return McpError(self.not_found, error.message, error.data)
        foreign = _HANDSHAKE_ONLY if self.modern else _MODERN_ONLY
        if error.code in foreign:
            return McpError(INTERNAL_ERROR, error.message)
        return error

    @property
    def client_requests(self) -> frozenset[str]:
        return _surface.CLIENT_REQUESTS[self.id]

    def __repr__(self) -> str:
        return f"<Revision {self.id}>"


A = Revision("2024-11-05", "A", http=False, structured_output=False, progress_message=False)
B = Revision("2025-03-26", "B", batches=True, structured_output=False)
C = Revision("2025-06-18", "C")
D = Revision("2025-11-25", "D", tasks=True, polling=True, null_error_id=False)
E = Revision(
    "2026-07-28",
    "E",
    modern=True,
    any_output=True,
    null_error_id=False,
    not_found=INVALID_PARAMS,
)

ALL = (A, B, C, D, E)
HANDSHAKE = (A, B, C, D)
LATEST_HANDSHAKE = D
MODERN = E
BY_ID = {revision.id: revision for revision in ALL}
