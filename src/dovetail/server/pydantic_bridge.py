"""Argument and output codecs for signatures that use pydantic types.

Imported only when such a signature is registered; the rest of the library
runs without pydantic.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pydantic
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from dovetail.server.exact import (
    ArgumentError,
    BrokenJson,
    known,
    missing,
    not_object,
    plain_text,
    read_plain,
    rewrite,
    schemas_at,
    show,
    subschemas,
    unknown,
)
from dovetail.server.output import OutCodec, OutputError, cannot_encode, inline, wrap
from dovetail.server.signature import ArgCodec, join, note

# The longer names come from dataclasses and named tuples.
_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


class _Schema(GenerateJsonSchema):
    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Silent: a default that JSON cannot express is left out, which is our rule too."""


class ModelCodec:
    """Arguments validated by one pydantic model."""

    __slots__ = ("_names", "_validate", "schema")

    def __init__(
        self, model: type[pydantic.BaseModel], names: dict[str, str], texts: dict[str, str]
    ) -> None:
        self._validate: Callable[..., pydantic.BaseModel] = model.model_validate_json
        self._names = names
        self.schema = tidy(model.model_json_schema(schema_generator=_Schema))
        for field, info in model.model_fields.items():
            if text := texts.get(names[field]):
                self.schema["properties"][info.alias].setdefault("description", text)

    def decode(self, raw: bytes | msgspec.Raw) -> dict[str, Any]:
        raw = bytes(raw)
        try:
            found = self._validate(raw, strict=True)
        except pydantic.ValidationError:
            found = self._retry(raw)
        values = found.__dict__
        return {name: values[field] for field, name in self._names.items()}

    def _retry(self, raw: bytes) -> pydantic.BaseModel:
        """The exact step of ``exact.retry``, with pydantic's errors."""
        value = read_plain(raw)
        if not isinstance(value, dict):
            raise not_object(value)
        try:
            return self._validate(rewrite(self.schema, value), strict=True)
        except pydantic.ValidationError as error:
            raise _explain(error, value, self.schema) from None
        except RecursionError:
            raise BrokenJson("the arguments are nested too deeply") from None


def model_codec(
    what: str, hints: dict[str, Any], defaults: dict[str, Any], texts: dict[str, str]
) -> ArgCodec:
    """The codec of a signature with at least one pydantic type."""
    # Field names of our own: pydantic refuses "_x" and warns about "copy" or "json".
    names = {f"p{at}": name for at, name in enumerate(hints)}
    fields = {
        field: (_named(hints[name], name), defaults.get(name, ...)) for field, name in names.items()
    }
    config = pydantic.ConfigDict(extra="forbid")
    create: Any = pydantic.create_model  # its overloads do not know computed field names
    try:
        return ModelCodec(create("Arguments", __config__=config, **fields), names, texts)
    except (pydantic.errors.PydanticUserError, TypeError) as error:
        raise TypeError(f"{what}: pydantic cannot read the signature: {error}") from error


def _named(hint: Any, name: str) -> Any:
    """The type with its name in JSON, and ``Annotated[T, "text"]`` as description.

    Ours comes first, so that a Field of the author wins. An alias generator
    would reach into the dataclasses below.
    """
    field = pydantic.Field(alias=name, description=note(hint))
    metadata = getattr(hint, "__metadata__", ())
    kind = hint.__origin__ if metadata else hint
    return Annotated[(kind, field, *metadata)]


def _explain(error: pydantic.ValidationError, value: Any, schema: dict[str, Any]) -> Exception:
    errors = error.errors(include_url=False, include_context=False)
    # The arms of a union all complain; the one that came furthest was meant.
    paths = [_steps(each["loc"], value, each["type"] in _MISSING) for each in errors]
    steps = max(paths, key=len)
    first = errors[paths.index(steps)]
    kind, message = first["type"], first["msg"]
    if kind == "json_invalid":  # legal JSON, but nested deeper than pydantic reads
        return BrokenJson("the arguments are nested too deeply")
    path = join(steps)
    if kind in _MISSING:
        return missing(path)
    if kind in _UNKNOWN:
        return unknown(path, known(schemas_at(schema, steps[:-1])))
    want = message.removeprefix("Input should be ")
    got = show(first["input"])
    text = None if want != message else plain_text(path, message, got)
    return ArgumentError(path, want, got, text=text)


def _steps(loc: tuple[str | int, ...], value: Any, is_missing: bool) -> list[str | int]:
    """pydantic's location without the names of union arms it puts in between."""
    steps: list[str | int] = []
    for at, step in enumerate(loc):
        try:
            value = value[step]
            steps.append(step)
        except (LookupError, TypeError):
            if is_missing and at == len(loc) - 1:
                steps.append(step)
    return steps


def tidy(schema: dict[str, Any]) -> dict[str, Any]:
    for node in subschemas(schema):
        node.pop("title", None)
        node.pop("discriminator", None)  # OpenAPI; strict JSON Schema readers refuse it
    return schema


class ModelOutput:
    """The result of a type that pydantic knows."""

    __slots__ = ("_adapter", "_checked", "is_object", "schema", "wrapped_schema")

    def __init__(self, kind: Any) -> None:
        self._adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
        self.schema = self._schema("serialization")
        # With computed fields or two sets of aliases, output is no legal input: nothing to check.
        self._checked = self.schema == self._schema("validation")
        self.is_object = self.schema.get("type") == "object"
        self.wrapped_schema = self.schema if self.is_object else wrap(self.schema)

    def _schema(self, mode: Literal["serialization", "validation"]) -> dict[str, Any]:
        schema = tidy(self._adapter.json_schema(mode=mode, schema_generator=_Schema))
        return inline(schema, schema.pop("$defs", {}))

    def encode(self, value: Any) -> bytes:
        try:
            # pydantic only warns about a value of another type; a wrong shape must not go out.
            return self._adapter.dump_json(value, by_alias=True, warnings="error")
        except Exception as error:  # serializers are the user's own code
            raise cannot_encode(value, error) from error

    def check(self, raw: bytes) -> None:
        try:
            if self._checked:
                self._adapter.validate_json(raw)
        except pydantic.ValidationError as error:
            raise OutputError(f"The result does not fit its annotation: {error}") from error


def model_output(what: str, kind: Any) -> OutCodec:
    """The codec of a return annotation with a pydantic type in it."""
    try:
        return ModelOutput(kind)
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(f"{what}: pydantic cannot read the return type: {error}") from error
