"""Every exception of the library, as one tree.

    DovetailError
    ├── McpError              an error answer: code, message, data
    │   ├── ResourceNotFound      there is nothing at this URI
    │   └── Unavailable           what the request needs cannot be reached now
    ├── ToolError             a tool failed; its text is shown to the model
    │   └── ClientError           a question to the client failed, or cannot be asked
    ├── ProtocolError
    │   ├── LocalProtocolError    our own caller broke the protocol
    │   └── RemoteProtocolError   the peer broke it; carries the error to answer with
    ├── ConnectionClosed      the other side is gone
    └── TargetError           what a command is to serve cannot be served
    └── AuthorizationError    no token could be had for a server

Registration mistakes (a duplicate name, a signature without a schema) are
plain ``ValueError`` and ``TypeError``: they are bugs of the program, found at
import, and nobody catches them.
"""

from typing import Any

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
HEADER_MISMATCH = -32020
MISSING_CLIENT_CAPABILITY = -32021
URL_ELICITATION_REQUIRED = -32042
UNSUPPORTED_VERSION = -32022

# Requirement 001 fixes these texts; MCP leaves them open.
MESSAGES = {
    PARSE_ERROR: "Parse error",
    INVALID_REQUEST: "Invalid Request",
    METHOD_NOT_FOUND: "Method not found",
    INVALID_PARAMS: "Invalid params",
    INTERNAL_ERROR: "Internal error",
    RESOURCE_NOT_FOUND: "Resource not found",
    HEADER_MISMATCH: "Header mismatch",
    MISSING_CLIENT_CAPABILITY: "Missing required client capability",
    UNSUPPORTED_VERSION: "Unsupported protocol version",
    URL_ELICITATION_REQUIRED: "URL elicitation required",
}


class DovetailError(Exception):
    """Base of everything this library raises on purpose."""


class McpError(DovetailError):
    """An error answer, raised by a handler or received from the peer."""

    def __init__(self, code: int, message: str | None = None, data: Any = None) -> None:
        if type(code) is not int:
            raise TypeError(f"the code of an error is an integer, not {code!r}")
        self.code = code
        self.message = MESSAGES.get(code, "Error") if message is None else message
        self.data = data
        super().__init__(code, self.message, data)

    def __str__(self) -> str:
        text = f"{self.message} ({self.code})"
        return text if self.data is None else f"{text}: {self.data}"


class ResourceNotFound(McpError):
    """Raise it in a resource function: there is nothing at this URI.

    Which code says so depends on the revision; the connection knows.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(RESOURCE_NOT_FOUND, data={"uri": uri})


class Unavailable(McpError):
    """What the request needs cannot be reached now; over HTTP that is 503 with Retry-After."""

    def __init__(self, text: str, retry_after: int = 1) -> None:
        super().__init__(INTERNAL_ERROR, data=text)
        self.retry_after = retry_after


class ToolError(DovetailError):
    """Raise it in a tool: the text becomes an ``isError`` result the model can read."""


class ClientError(ToolError):
    """The client refused a question, answered nonsense, or cannot be asked.

    ``code`` is that of the client's error answer, if it gave one.
    """

    def __init__(self, text: str, code: int | None = None) -> None:
        self.code = code
        super().__init__(text)


class ProtocolError(DovetailError):
    """Somebody broke the protocol."""


class LocalProtocolError(ProtocolError):
    """Our own caller asked for something the protocol forbids."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something the protocol forbids; ``error`` is what to answer.

    ``id`` is that of the peer's request, ``answers`` that of the request of ours
    which a broken answer was meant for.
    """

    def __init__(
        self,
        error: McpError,
        id: int | str | None = None,
        answers: int | str | None = None,
    ) -> None:
        self.error = error
        self.id = id
        self.answers = answers
        super().__init__(str(error))

    @classmethod
    def text(cls, why: str) -> "RemoteProtocolError":
        """For a fault that nobody is told about but our own caller."""
        return cls(McpError(INVALID_REQUEST, data=why))


class ConnectionClosed(DovetailError):
    """The connection ended before the answer came."""


class TargetError(DovetailError):
    """What a command names cannot be used; one line says why and what would help."""


class HttpError(DovetailError):
    """An HTTP status that is no answer to the request: 401, 404, 500 …"""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(f"HTTP {status}: {text}" if text else f"HTTP {status}")


class SessionLost(HttpError):
    """The server does not know our session any more; a new handshake makes a new one."""


class ToolFailed(DovetailError):
    """A tool's result says that it failed; ``result`` is all of it."""

    def __init__(self, text: str, result: Any) -> None:
        self.result = result
        super().__init__(text)


class AuthorizationError(DovetailError):
    """No token could be had for a server, or it would not have been safe to try.

    ``error`` is the code of OAuth if somebody gave one, such as ``access_denied``.
    """

    def __init__(self, text: str, error: str | None = None) -> None:
        self.error = error
        super().__init__(text)


class TaskCancelled(DovetailError):
    """A task that somebody waits for was cancelled, by us or by the server."""
