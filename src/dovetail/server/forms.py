"""Forms to fill in: flat records of primitive fields, and what users answer to them.

A form is made from a type or written by hand. Either way it is one schema in the shape of
2025-11-25 and later, checked here once, cut down when it goes to a client of 2025-06-18, and
used again to check the answer. Digest 5 and 6 say what a form may contain.
"""

import copy
import dataclasses
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import NODEFAULT, Meta, inspect

from dovetail.errors import DovetailError
from dovetail.server.exact import ArgumentError, BrokenJson, read_plain, rewrite, show
from dovetail.server.signature import note
from dovetail.spec._surface import FIELDS
from dovetail.spec.revisions import Revision

__all__ = ["BadAnswer", "Choices", "Form", "form_of"]

T = TypeVar("T")
Schema = dict[str, Any]

_FORMATS: Final = ("email", "uri", "date", "date-time")
# Digest S75: a form passes through the client and often through its model.
_SECRETS: Final = frozenset(
    {"password", "passwd", "passphrase", "apikey", "secretkey", "privatekey", "accesstoken"}
)


class BadAnswer(DovetailError):
    """The client's answer does not fit the question it was asked."""


def Choices(options: Mapping[str, str]) -> Meta:
    """``Annotated[str, Choices({"r": "Red"})]``: a choice that is shown by its title."""
    titled = [{"const": value, "title": title} for value, title in options.items()]
    return Meta(extra_json_schema={"oneOf": titled})


class Form(Generic[T]):
    """A schema, and the type its answers become."""

    def __init__(self, schema: Schema, kind: Any) -> None:
        self.schema = schema
        self._kind = kind

    @property
    def multiple(self) -> bool:
        """True if some field takes several choices, which 2025-06-18 cannot show."""
        return any(field["type"] == "array" for field in self.schema["properties"].values())

    def shown(self, revision: Revision) -> Schema:
        """The ``requestedSchema`` for one revision."""
        if revision.letter in FIELDS["StringSchema"]["default"]:
            return self.schema
        schema = {key: value for key, value in self.schema.items() if key != "$schema"}
        fields = self.schema["properties"].items()
        return {**schema, "properties": {name: _first_shape(field) for name, field in fields}}

    def read(self, content: bytes | msgspec.Raw) -> T:
        """The filled-in form as its type; BadAnswer if it does not fit."""
        answer = self._answer(content)
        try:
            value: T = msgspec.convert(answer, self._kind)
        except msgspec.ValidationError as error:
            raise BadAnswer(str(error)) from None
        return value

    def _answer(self, content: bytes | msgspec.Raw) -> dict[str, Any]:
        given = _plain(self.schema, content)
        fields: dict[str, Schema] = self.schema["properties"]
        # The official Python SDK may send null for a field left empty; unknown members are legal.
        answer = {k: v for k, v in given.items() if k in fields and v is not None}
        for name in self.schema.get("required", ()):
            if name not in answer:
                raise BadAnswer(f"field '{name}': expected a value, got nothing")
        for name, value in answer.items():
            if want := _problem(fields[name], value):
                raise BadAnswer(f"field '{name}': expected {want}, got {show(value)}")
        return {**_defaults(fields), **answer}


def form_of(form: Any) -> Form[Any]:
    """The form of a type or of a hand-written schema; TypeError if it cannot be shown."""
    if isinstance(form, Mapping):
        schema = copy.deepcopy(dict(form))
        _check_root(schema)
        kind: Any = dict[str, Any]
    else:
        schema, kind = _schema(form), form
    for name, field in schema["properties"].items():
        _check_field(name, field)
    return Form(schema, kind)


# --- from a type to a schema --------------------------------------------------------------------


def _schema(kind: Any) -> Schema:
    if not _is_record(kind):
        raise TypeError(
            f"a form is a Struct, a dataclass, a TypedDict or a schema, not {_name(kind)}"
        )
    fields = _fields(kind)
    texts = _notes(kind)
    schema: Schema = {"type": "object", "properties": {}}
    for field in fields:
        text = texts.get(field.name)
        described = {"description": text} if text else {}
        schema["properties"][field.encode_name] = {**described, **_field(field)}
    if required := [field.encode_name for field in fields if field.required]:
        schema["required"] = required
    return schema


def _is_record(kind: Any) -> bool:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        config = kind.__struct_config__
        # A tag would be one more field, an array has no names.
        return config.tag is None and not config.array_like
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or typing.is_typeddict(kind))


def _fields(kind: Any) -> tuple[inspect.Field, ...]:
    info: Any = inspect.type_info(kind)
    fields: tuple[inspect.Field, ...] = info.fields
    return fields


def _notes(kind: Any) -> dict[str, str | None]:
    """The plain strings of ``Annotated[int, "how many"]``."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name: note(hint) for name, hint in hints.items()}


def _field(field: inspect.Field) -> Schema:
    kind, extra, nullable = _unwrapped(field.type)
    if nullable and field.required:
        raise TypeError(f"field '{field.name}' may be None: give it the default None")
    build = _BUILD.get(type(kind))
    if build is None:
        raise _unfit(field.name, f"{_type_name(kind)} cannot be asked for in a form")
    schema = {**build(kind), **extra}
    default = _default(field)
    return schema if default is None else {**schema, "default": default}


def _unwrapped(kind: inspect.Type) -> tuple[inspect.Type, Schema, bool]:
    """The type inside ``Annotated`` and ``| None``, its extra members, and if it may be None."""
    extra: Schema = {}
    nullable = False
    while isinstance(kind, (inspect.Metadata, inspect.UnionType)):
        if isinstance(kind, inspect.Metadata):
            extra = {**(kind.extra_json_schema or {}), **extra}
            kind = kind.type
            continue
        rest = [part for part in kind.types if not isinstance(part, inspect.NoneType)]
        if len(rest) != 1:
            break
        kind, nullable = rest[0], True
    return kind, extra, nullable


def _default(field: inspect.Field) -> Any:
    """As JSON data; None if there is none."""
    default = field.default
    if field.default_factory is not NODEFAULT:
        default = field.default_factory()
    if default is NODEFAULT:
        return None
    try:
        return msgspec.to_builtins(default)
    except TypeError as error:
        raise _unfit(field.name, f"its default has no JSON form: {error}") from None


def _text(kind: Any) -> Schema:
    return _present(
        type="string", minLength=kind.min_length, maxLength=kind.max_length, pattern=kind.pattern
    )


def _integer(kind: Any) -> Schema:
    # Forms have no exclusive bounds, and integers do not need them.
    least = kind.ge if kind.gt is None else kind.gt + 1
    most = kind.le if kind.lt is None else kind.lt - 1
    return _present(type="integer", minimum=least, maximum=most, multipleOf=kind.multiple_of)


def _number(kind: Any) -> Schema:
    return _present(
        type="number",
        minimum=kind.ge,
        maximum=kind.le,
        exclusiveMinimum=kind.gt,
        exclusiveMaximum=kind.lt,
        multipleOf=kind.multiple_of,
    )


def _several(kind: Any) -> Schema:
    item, extra, _ = _unwrapped(kind.item_type)
    options = {**_BUILD.get(type(item), lambda _: {})(item), **extra}
    items = {"anyOf": options["oneOf"]} if "oneOf" in options else _named(options, "type", "enum")
    bounds = _present(minItems=kind.min_length, maxItems=kind.max_length)
    return {"type": "array", "items": items, **bounds}


def _present(**members: Any) -> Schema:
    return {name: value for name, value in members.items() if value is not None}


def _named(schema: Schema, *names: str) -> Schema:
    return {name: schema[name] for name in names if name in schema}


_BUILD: Final[dict[type[inspect.Type], Callable[[Any], Schema]]] = {
    inspect.StrType: _text,
    inspect.IntType: _integer,
    inspect.FloatType: _number,
    inspect.BoolType: lambda _: {"type": "boolean"},
    inspect.DateType: lambda _: {"type": "string", "format": "date"},
    inspect.DateTimeType: lambda _: {"type": "string", "format": "date-time"},
    inspect.LiteralType: lambda kind: {"type": "string", "enum": list(kind.values)},
    inspect.EnumType: lambda kind: {"type": "string", "enum": [one.value for one in kind.cls]},
    inspect.ListType: _several,
}


def _type_name(kind: inspect.Type) -> str:
    return type(kind).__name__.removesuffix("Type").lower()


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or repr(kind)


# --- what a schema may say ----------------------------------------------------------------------


def _unfit(name: str, text: str) -> TypeError:
    return TypeError(f"field '{name}': {text}")


def _check_root(schema: Schema) -> None:
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise TypeError('a form schema has "type": "object" and "properties"')
    if unknown := schema.keys() - {"$schema", "type", "properties", "required"}:
        raise TypeError(f"a form schema has no {_listed(unknown)}")
    if not isinstance(schema.get("$schema", ""), str):
        raise TypeError("`$schema` is a string")
    for name in schema.get("required", ()):
        if name not in schema["properties"]:
            raise _unfit(name, "required, but not among the properties")


def _check_field(name: str, schema: Any) -> None:
    kind = _definition(schema)
    if kind is None:
        raise _unfit(name, "not a string, number, integer, boolean or array of choices")
    if unknown := schema.keys() - FIELDS[kind].keys():
        raise _unfit(name, f"a form cannot say {_listed(unknown)} here")
    if name.replace("_", "").replace("-", "").lower() in _SECRETS:
        raise _unfit(name, "a form must not ask for secrets: use ElicitUrl (digest S75)")
    if text := _wrong_member(schema) or _wrong_choices(schema):
        raise _unfit(name, text)
    if "default" in schema and (want := _problem(schema, schema["default"])):
        raise _unfit(name, f"the default is not {want}")


def _definition(schema: Any) -> str | None:
    """The name of the official definition that a field follows."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "string" and "oneOf" in schema:
        return "TitledSingleSelectEnumSchema"
    if kind == "string" and "enum" in schema:
        return "LegacyTitledEnumSchema"
    return _DEFINITIONS.get(kind) if isinstance(kind, str) else None


_DEFINITIONS: Final = {
    "string": "StringSchema",
    "number": "NumberSchema",
    "integer": "NumberSchema",
    "boolean": "BooleanSchema",
    "array": "TitledMultiSelectEnumSchema",
}
_MEMBERS: Final[dict[str, tuple[type, ...]]] = {
    "title": (str,),
    "description": (str,),
    "minLength": (int,),
    "maxLength": (int,),
    "minItems": (int,),
    "maxItems": (int,),
    "minimum": (int, float),
    "maximum": (int, float),
}


def _wrong_member(schema: Schema) -> str:
    for name, kinds in _MEMBERS.items():
        if name in schema and (type(schema[name]) not in kinds):
            return f"`{name}` cannot be {schema[name]!r}"
    if schema.get("format", "uri") not in _FORMATS:
        return f"`format` is one of {', '.join(_FORMATS)}, not {schema['format']!r}"
    return ""


def _wrong_choices(schema: Schema) -> str:
    several = schema["type"] == "array"
    if several and not _is_choice(schema.get("items")):
        return "an array needs `items` with choices of strings"
    options = _choices(schema["items"] if several else schema)
    if options is not None and not (options and _all_text(options)):
        return "choices are strings, at least one"
    names = schema.get("enumNames", options)
    if names is not None and not (_all_text(names) and len(names) == len(options or ())):
        return "`enumNames` has one name for each choice"
    return ""


def _is_choice(items: Any) -> bool:
    if not isinstance(items, dict):
        return False
    return items.keys() == {"anyOf"} or (
        items.keys() == {"type", "enum"} and items["type"] == "string"
    )


def _all_text(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _choices(schema: Schema) -> list[Any] | None:
    """The values to choose from; None if anything can be written."""
    listed = schema.get("enum", schema.get("oneOf", schema.get("anyOf")))
    if listed is None:
        return None
    if not isinstance(listed, list):
        return []
    return listed if "enum" in schema else [_value(one) for one in listed]


def _value(titled: Any) -> Any:
    """The value of a titled choice; None if it is not one."""
    if not isinstance(titled, dict) or titled.keys() != {"const", "title"}:
        return None
    return titled["const"] if isinstance(titled["title"], str) else None


def _first_shape(schema: Schema) -> Schema:
    """A field as 2025-06-18 knows it: defaults for booleans only, titles in ``enumNames``."""
    shape = {k: v for k, v in schema.items() if k != "default" or schema["type"] == "boolean"}
    titled = shape.pop("oneOf", None)
    if titled is not None:
        shape["enum"] = [one["const"] for one in titled]
        shape["enumNames"] = [one["title"] for one in titled]
    return shape


# --- answers ------------------------------------------------------------------------------------


def _plain(schema: Schema, content: bytes | msgspec.Raw) -> dict[str, Any]:
    """The content as JSON data, 3.0 as 3 where the form asks for an integer."""
    try:
        value = msgspec.json.decode(rewrite(schema, read_plain(content)))
    except (ArgumentError, BrokenJson, msgspec.DecodeError) as error:
        raise BadAnswer(f"unreadable content: {error}") from None
    if not isinstance(value, dict):
        raise BadAnswer(f"expected an object as content, got {show(value)}")
    return value


def _defaults(fields: dict[str, Schema]) -> dict[str, Any]:
    return {name: field["default"] for name, field in fields.items() if "default" in field}


def _problem(schema: Schema, value: Any) -> str:
    """What the field wants instead of ``value``; empty if it fits."""
    return _PROBLEMS[schema["type"]](schema, value)


def _string_problem(schema: Schema, value: Any) -> str:
    if not isinstance(value, str):
        return "a string"
    options = _choices(schema)
    if options is not None:
        return "" if value in options else f"one of {_listed(options)}"
    if text := _bounds(schema, len(value), "minLength", "maxLength", " characters"):
        return text
    form = schema.get("format")
    return "" if form is None or _has_format(form, value) else f"a string of format {form}"


def _number_problem(schema: Schema, value: Any) -> str:
    integer = schema["type"] == "integer"
    # bool is an int to Python, but not to JSON.
    if isinstance(value, bool) or not isinstance(value, int if integer else (int, float)):
        return "an integer" if integer else "a number"
    return _bounds(schema, value, "minimum", "maximum", "")


def _array_problem(schema: Schema, value: Any) -> str:
    options = _choices(schema["items"]) or []
    if not isinstance(value, list) or any(item not in options for item in value):
        return f"a list of {_listed(options)}"
    return _bounds(schema, len(value), "minItems", "maxItems", " choices")


def _bounds(schema: Schema, size: float, least: str, most: str, unit: str) -> str:
    if size < schema.get(least, size):
        return f"at least {schema[least]}{unit}"
    if size > schema.get(most, size):
        return f"at most {schema[most]}{unit}"
    return ""


def _has_format(form: str, value: str) -> bool:
    try:
        if form == "uri":
            return bool(urlsplit(value).scheme) and not any(map(str.isspace, value))
        if form == "email":
            name, _, host = value.rpartition("@")
            return bool(name and host) and not any(map(str.isspace, value))
        msgspec.convert(value, date if form == "date" else datetime)
    except (ValueError, msgspec.ValidationError):
        return False
    return True


_PROBLEMS: Final[dict[str, Callable[[Schema, Any], str]]] = {
    "string": _string_problem,
    "number": _number_problem,
    "integer": _number_problem,
    "boolean": lambda _, value: "" if isinstance(value, bool) else "a boolean",
    "array": _array_problem,
}


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(f"'{name}'" for name in names)
