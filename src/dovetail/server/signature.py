"""Turns a Python function into the codec of its arguments.

One prepared msgspec decoder per function does the whole work: it checks types
and constraints, refuses unknown names and fills in defaults in one C pass.
Everything slow happens at registration, or after a refusal (see ``exact``).
"""

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from os import PathLike
from typing import Any, Literal, Protocol

import msgspec

from dovetail.server.docstring import describe
from dovetail.server.exact import (
    ArgumentError,
    BrokenJson,
    integers,
    missing,
    not_object,
    read_plain,
    retry,
    show,
    subschemas,
    unknown,
)

__all__ = [
    "ArgCodec",
    "ArgumentError",
    "BrokenJson",
    "args_codec",
    "describe",
    "schema_codec",
]

_EMPTY = inspect.Parameter.empty
_COPIED = (list, dict, set, bytearray)
_asdict = msgspec.structs.asdict


class ArgCodec(Protocol):
    """What a tool knows about its arguments."""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema 2020-12 with an inline object root."""

    def decode(self, raw: bytes | msgspec.Raw, /) -> dict[str, Any]:
        """The keyword arguments; raises ArgumentError or BrokenJson."""


class StructCodec:
    """Arguments of a signature, decoded by msgspec."""

    __slots__ = ("_decode", "schema", "struct")

    def __init__(self, struct: type[msgspec.Struct], schema: dict[str, Any]) -> None:
        self.struct = struct
        self.struct = struct
        self._decode = msgspec.json.Decoder(struct, dec_hook=dec_hook).decode
        self.schema = schema

    def decode(self, raw: bytes | msgspec.Raw) -> dict[str, Any]:
        try:
            return _asdict(self._decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return _asdict(retry(self._decode, raw, self.schema, error))


def args_codec(
    fn: Callable[..., Any],
    *,
    skip: Collection[str] = (),
    names: Literal["kebab", "camel"] | None = None,
) -> ArgCodec:
    """The codec of every parameter of ``fn`` that is not in ``skip``; ``names`` is how
    clients write ``two_words``: as ``two-words`` or ``twoWords`` instead."""
    parameters = [p for p in inspect.signature(fn).parameters.values() if p.name not in skip]
    for parameter in parameters:
        _check_parameter(fn, parameter)
    hints = {p.name: hint(fn, f"parameter '{p.name}'", p.annotation) for p in parameters}
    defaults = {p.name: p.default for p in parameters if p.default is not _EMPTY}
    texts = describe(fn)[1]
    if any(map(needs_pydantic, [*hints.values(), *defaults.values()])):
        from dovetail.server.pydantic_bridge import model_codec

        if names is not None:
            raise TypeError(f"{label(fn)}: names={names!r} does not go with pydantic types")
        return model_codec(label(fn), hints, defaults, texts)
    fields = [_field(name, hint, defaults) for name, hint in hints.items()]
    struct = msgspec.defstruct(
        "Arguments", fields, kw_only=True, forbid_unknown_fields=True, rename=names
    )
    written = dict(zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True))
    schema = _arguments_schema(fn, hints, defaults, texts)
    return StructCodec(struct, _renamed(schema, written))


def _renamed(schema: dict[str, Any], written: dict[str, str]) -> dict[str, Any]:
    """The schema with its properties as clients write them."""
    properties = {written[name]: value for name, value in schema["properties"].items()}
    required = [written[name] for name in schema.get("required", ())]
    return {**schema, "properties": properties} | ({"required": required} if required else {})


def label(fn: Callable[..., Any]) -> str:
    return f"{getattr(fn, '__qualname__', None) or repr(fn)}()"


def _check_parameter(fn: Callable[..., Any], parameter: inspect.Parameter) -> None:
    name, kind = parameter.name, parameter.kind
    if kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise TypeError(
            f"{label(fn)}: parameter '{parameter}' is {kind.description}, "
            "but arguments come as a JSON object with fixed names"
        )
    if name.startswith("__"):
        # Struct fields are slots of a class: Python would mangle or reserve the name.
        raise TypeError(f"{label(fn)}: parameter '{name}' must not start with two underscores")


def _field(
    name: str, hint: Any, defaults: dict[str, Any]
) -> tuple[str, Any] | tuple[str, Any, Any]:
    if name not in defaults:
        return name, hint
    default = defaults[name]
    if type(default) in _COPIED and not default:
        return name, hint, default  # msgspec makes a new one per call, in C
    if isinstance(default, _COPIED) or _is_mutable_record(default):
        import copy

        factory = functools.partial(copy.deepcopy, default)
        return name, hint, msgspec.field(default_factory=factory)
    return name, hint, msgspec.field(default=default)


def _is_mutable_record(value: Any) -> bool:
    if isinstance(value, msgspec.Struct):
        return not value.__struct_config__.frozen
    parameters = getattr(type(value), "__dataclass_params__", None)
    return parameters is not None and not parameters.frozen


# --- schema ---------------------------------------------------------------------------------


def _arguments_schema(
    fn: Callable[..., Any], hints: dict[str, Any], defaults: dict[str, Any], texts: dict[str, str]
) -> dict[str, Any]:
    for name, hint in hints.items():
        check_type(f"{label(fn)}: parameter '{name}'", hint)
    schemas, defs = components(hints.values())
    properties = dict(zip(hints, schemas, strict=True))
    for name, schema in properties.items():
        text = schema.get("description") or note(hints[name]) or texts.get(name)
        if text:
            schema["description"] = text
        if name in defaults:
            schema.update(_shown_default(hints[name], defaults[name]))
    root: dict[str, Any] = {"type": "object", "properties": properties}
    if required := [name for name in hints if name not in defaults]:
        root["required"] = required
    root["additionalProperties"] = False
    if defs:
        root["$defs"] = defs
    _accept_what_msgspec_accepts(root)
    return root


def check_type(what: str, hint: Any) -> None:
    """TypeError if msgspec cannot decode or describe the type."""
    try:
        msgspec.json.Decoder(hint)
        components([hint])
    except Exception as error:  # NameError and others come from annotations inside classes
        reason = " ".join(str(error).split())
        raise TypeError(f"{what} has a type that JSON cannot express: {reason}") from error


def components(hints: Collection[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The schemas of some types, and the definitions they share."""
    schemas, defs = msgspec.json.schema_components(
        hints, schema_hook=_schema_hook, ref_template="#/$defs/{name}"
    )
    for definition in defs.values():
        definition.pop("title", None)  # always the class name, which the key repeats
    for schema in [*schemas, *defs.values()]:
        for node in subschemas(schema):
            node.pop("discriminator", None)  # OpenAPI; strict JSON Schema readers refuse it
    return [dict(schema) for schema in schemas], defs


def _accept_what_msgspec_accepts(root: dict[str, Any]) -> None:
    """Correct the schema where msgspec reads more than it says."""
    for node in subschemas(root):
        node.pop("uniqueItems", None)  # a repeated item of a set is dropped, not an error
        if node.get("format") == "decimal" and node.get("type") == "string":
            node["type"] = ["string", "number"]


def _schema_hook(hint: Any) -> dict[str, Any]:
    if isinstance(hint, type) and issubclass(hint, PathLike):
        return {"type": "string"}
    raise NotImplementedError


def dec_hook(hint: type, value: Any) -> Any:
    if issubclass(hint, PathLike) and isinstance(value, str):
        return hint(value)  # type: ignore[call-arg]
    raise ValueError(f"Expected `{hint.__name__}`, got `{type(value).__name__}`")


def enc_hook(value: Any) -> Any:
    """Common values msgspec does not know."""
    if isinstance(value, PathLike):
        return str(value)
    if hasattr(value, "model_dump"):  # a pydantic model below a type that is none
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (Sequence, Set)):
        return list(value)
    raise NotImplementedError(f"{type(value).__qualname__} has no JSON form")


def note(hint: Any) -> str | None:
    """The plain string of ``Annotated[int, "the first number"]``."""
    notes = getattr(hint, "__metadata__", ())
    return next((text for text in notes if isinstance(text, str)), None)


def _shown_default(hint: Any, default: Any) -> dict[str, Any]:
    """``{"default": ...}``, or nothing for a default JSON cannot express or the type refuses."""
    try:
        raw = msgspec.json.encode(default, enc_hook=enc_hook)
        msgspec.json.decode(raw, type=hint, dec_hook=dec_hook)
        return {"default": msgspec.json.decode(raw)}
    except Exception:  # any object may be a default; only the display is at stake
        return {}


# --- annotations ----------------------------------------------------------------------------


def hint(fn: Callable[..., Any], what: str, annotation: Any) -> Any:
    """One annotation of ``fn`` as a type; strings are evaluated.

    One at a time, so that an import under TYPE_CHECKING for a skipped
    parameter does no harm.
    """
    if annotation is _EMPTY:
        return Any
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    function = _function(fn)
    scope = getattr(function, "__globals__", {})
    try:
        found = typing.get_type_hints(holder, scope, _locals(function), include_extras=True)["it"]
        return Any if found is object else found
    except Exception as error:  # evaluating an annotation can raise anything
        raise TypeError(
            f"{label(fn)}: cannot resolve the annotation {annotation!r} of {what}: {error}"
        ) from error


def _function(fn: Any) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    if not inspect.isroutine(fn):
        fn = type(fn).__call__
    return getattr(fn, "__func__", fn)


def _locals(fn: Any) -> dict[str, Any]:
    """Names of the enclosing functions: frames still running, then the closure."""
    found: dict[str, Any] = {}
    name = getattr(fn, "__qualname__", "")
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if name.startswith(frame.f_code.co_qualname + ".") and "." in name:
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return {**found, **dict(_closure(fn))}


def _closure(fn: Any) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(_free_names(fn), getattr(fn, "__closure__", None) or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _free_names(fn: Any) -> tuple[str, ...]:
    code = getattr(fn, "__code__", None)
    return code.co_freevars if code else ()


_PYDANTIC = ("__get_pydantic_core_schema__", "__pydantic_core_schema__")


_RECORDS = (dict, tuple)


def needs_pydantic(hint: Any) -> bool:
    """True if pydantic must read this type (found without importing pydantic)."""
    return any(map(_is_pydantic, _parts(hint, set())))


def _is_pydantic(part: Any) -> bool:
    module = type(part).__module__.partition(".")[0]
    # annotated_types are constraints only pydantic enforces: msgspec would ignore them.
    return module in ("pydantic", "annotated_types") or any(hasattr(part, n) for n in _PYDANTIC)


def _parts(hint: Any, seen: set[int]) -> Iterator[Any]:
    """The type, its arguments, its metadata, and the fields of records, recursively."""
    if id(hint) in seen:
        return
    seen.add(id(hint))
    yield hint
    inner = [*typing.get_args(hint), *getattr(hint, "__metadata__", ())]
    # TypedDict (also that of typing_extensions) and NamedTuple are subclasses of builtins.
    if isinstance(hint, type) and (
        hasattr(hint, "__dataclass_fields__") or issubclass(hint, _RECORDS)
    ):
        inner += _field_types(hint)
    for part in inner:
        yield from _parts(part, seen)


def _field_types(record: Any) -> list[Any]:
    try:
        return list(typing.get_type_hints(record, include_extras=True).values())
    except Exception:  # msgspec reports an annotation that does not resolve, with the parameter
        return []


# --- hand-written schemas -------------------------------------------------------------------

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class SchemaCodec:
    """Arguments of a hand-written JSON Schema, given to the function as one dict."""

    __slots__ = ("_check", "schema")

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self._check: Callable[[Any], None] | None = None

    def decode(self, raw: bytes | msgspec.Raw) -> dict[str, Any]:
        value = integers(self.schema, read_plain(raw, msgspec.json.decode))
        if not isinstance(value, dict):
            raise not_object(value)
        if self._check is None:  # not at registration: jsonschema is slow to import
            self._check = validator(self.schema)
        self._check(value)
        return value


def schema_codec(schema: Any) -> ArgCodec:
    """The codec of a hand-written schema; ValueError if it cannot be an inputSchema."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError('an input schema must be an object with "type": "object" at its root')
    check_references(schema)
    return SchemaCodec(schema)


def check_references(schema: dict[str, Any]) -> None:
    """ValueError for a reference that leaves the schema: nothing is ever fetched."""
    for node in subschemas(schema):
        for key in ("$ref", "$dynamicRef"):
            ref = node.get(key, "#")
            if not isinstance(ref, str) or not ref.startswith("#"):
                raise ValueError(f"a schema may only refer to itself, not to {ref!r}")


def validator(schema: dict[str, Any]) -> Callable[[Any], None]:
    """A check that raises ArgumentError; only structural if jsonschema is not installed."""
    import importlib.util

    if importlib.util.find_spec("jsonschema") is None:
        return functools.partial(_check_structure, schema)
    return _jsonschema_check(schema)


def _check_structure(schema: dict[str, Any], value: Any) -> None:
    if not isinstance(value, dict):
        return
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise missing(name)
    for name, item in value.items():
        if name not in properties and schema.get("additionalProperties") is False:
            raise unknown(name, properties)
        want = properties.get(name, {})
        want = want.get("type", []) if isinstance(want, dict) else []
        wants = [want] if isinstance(want, str) else want
        if wants and not any(_is_type(item, one) for one in wants):
            raise ArgumentError(name, " or ".join(wants), show(item))


def _is_type(value: Any, name: str) -> bool:
    # bool is an int to Python, but not to JSON.
    return isinstance(value, _JSON_TYPES.get(name, (object,))) and (
        not isinstance(value, bool) or name == "boolean" or name not in _JSON_TYPES
    )


def _jsonschema_check(schema: dict[str, Any]) -> Callable[[Any], None]:
    import importlib

    jsonschema = importlib.import_module("jsonschema")
    registry = importlib.import_module("referencing").Registry()
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    kind.check_schema(schema)
    # Without a registry of our own, jsonschema would fetch references from the network.
    compiled = kind(schema, registry=registry)

    def check(value: Any) -> None:
        error = jsonschema.exceptions.best_match(compiled.iter_errors(value))
        if error is not None:
            raise _schema_error(error)

    return check


def _schema_error(error: Any) -> ArgumentError:
    path = join(error.absolute_path)
    if error.validator == "required":
        name = next(name for name in error.validator_value if name not in error.instance)
        return missing(join([*error.absolute_path, name]))
    if error.validator == "additionalProperties" and error.validator_value is False:
        known = error.schema.get("properties", {})
        name = next(name for name in error.instance if name not in known)
        return unknown(join([*error.absolute_path, name]), known)
    want = f"{error.validator} {show(error.validator_value).partition(' ')[2]}"
    return ArgumentError(path, want, show(error.instance))


def join(steps: Collection[str | int]) -> str:
    """``items[0].name`` from its parts."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return text.removeprefix(".")
