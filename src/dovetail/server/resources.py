"""Resources: what ``@server.resource`` makes of a function, and how a URI finds it."""

from typing import Any, Generic, ParamSpec, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from dovetail.server.completion import Completable, Completers
from dovetail.server.function import Function
from dovetail.server.signature import enc_hook, label
from dovetail.server.strings import StringCodec
from dovetail.spec import types
from dovetail.spec.types import ResourceContents

__all__ = ["Resource", "is_traversal"]

P = ParamSpec("P")
R = TypeVar("R")


class Resource(Completable, Generic[P, R]):
    """A registered resource or template. Calling it calls the function it was made from."""

    def __init__(
        self,
        function: Function,
        definition: types.Resource | types.ResourceTemplate,
        *,
        ttl_ms: int | None,
    ) -> None:
        self.function = function
        self.definition = definition
        self.ttl_ms = ttl_ms
        self.codec = StringCodec(function.fn, function.skipped)
        self.template = None
        if isinstance(definition, types.ResourceTemplate):
            from dovetail.spec.uritemplate import UriTemplate  # brings urllib: only when needed

            self.template = UriTemplate(definition.uri_template)
        self.completers = Completers(
            f"Resource '{self.uri}'", self.codec.properties, function.owner
        )
        self._check_names()

    @property
    def uri(self) -> str:
        """The URI, or the template of URIs."""
        if isinstance(self.definition, types.ResourceTemplate):
            return self.definition.uri_template
        return self.definition.uri

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.function.fn(*args, **kwargs)
        return result

    def copied(self) -> "Resource[P, R]":
        """The same resource, for the server it is mounted on."""
        copy = Resource[P, R](self.function, self.definition, ttl_ms=self.ttl_ms)
        copy.completers = self.completers
        return copy

    def _check_names(self) -> None:
        """Variables and parameters must be the same, or the function could not be called."""
        variables = set(self.template.names) if self.template else set()
        if missing := variables - self.codec.properties.keys():
            raise TypeError(f"{label(self.function.fn)} lacks the variables {sorted(missing)}")
        if extra := set(self.codec.required) - variables:
            raise TypeError(f"'{self.uri}' does not fill the parameters {sorted(extra)}")

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables, if the URI belongs to this template."""
        assert self.template is not None
        found = self.template.match(uri)
        if found is None or uri[:5].lower() != "file:":
            return found
        # An escaped separator has no honest use in a file URI: decoded, it would turn
        # a name into a path of the sender's choosing.
        escaped = "%2f" in uri.lower() or "%5c" in uri.lower()
        # Below a directory an absolute path would leave it: `root / "/etc"` is "/etc".
        rooted = not self.uri.lower().startswith("file://{") and any(
            value.startswith(("/", "\\")) or value[1:2] == ":" for value in found.values()
        )
        climbs = any(map(is_traversal, found.values()))
        return None if escaped or rooted or climbs else found

    async def read(self, uri: str, arguments: dict[str, Any]) -> list[ResourceContents]:
        value = self.function.call(**arguments)
        if not self.function.inline:
            value = await value
        return contents(uri, value, self.definition.mime_type)


def is_traversal(value: str) -> bool:
    """Whether a variable climbs out of its directory (digest S37)."""
    return "\0" in value or ".." in value.replace("\\", "/").split("/")


def contents(uri: str, value: Any, mime_type: str | UnsetType) -> list[ResourceContents]:
    """What a resource function returned, as contents: text, bytes, data, or made by hand."""
    if isinstance(value, ResourceContents):
        return [value]
    if isinstance(value, list) and any(isinstance(item, ResourceContents) for item in value):
        if not all(isinstance(item, ResourceContents) for item in value):
            raise TypeError("a list of resource contents holds nothing else")
        return value
    if isinstance(value, str):
        return [ResourceContents.of(uri, value, mime_type)]
    if isinstance(value, bytes | bytearray | memoryview):
        return [ResourceContents.of(uri, bytes(value), mime_type)]
    text = msgspec.json.encode(value, enc_hook=enc_hook).decode()
    return [ResourceContents.of(uri, text, "application/json" if mime_type is UNSET else mime_type)]
