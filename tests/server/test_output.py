from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import sys
import types
import uuid
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.server.output import (
    OutputError,
    SchemaOutput,
    is_text_only,
    output_codec,
    unstructured,
)
from dovetail.spec.types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


class Node(msgspec.Struct):
    value: int
    children: list[Node] = []


class Circle(msgspec.Struct, tag=True):
    size: int


class Square(msgspec.Struct, tag=True):
    size: float


@dataclasses.dataclass
class Data:
    n: int


class Typed(TypedDict):
    a: int


class Named(NamedTuple):
    a: int


class Color(enum.Enum):
    RED = "red"


def returning(annotation: Any) -> Any:
    def function() -> Any: ...

    function.__annotations__ = {"return": annotation}
    return output_codec(function)


def test_a_struct_is_inline() -> None:
    codec = returning(Point)
    assert codec.schema == {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "number", "default": 0.0}},
        "required": ["x"],
    }
    assert codec.is_object
    assert codec.wrapped_schema is codec.schema
    assert codec.encode(Point(1)) == b'{"x":1,"y":0.0}'


def test_a_recursive_struct_keeps_its_definition() -> None:
    schema = returning(Node).schema
    assert schema["type"] == "object"
    assert set(schema["$defs"]) == {"Node"}
    jsonschema.Draft202012Validator(schema).validate({"value": 1, "children": [{"value": 2}]})


def test_a_scalar_is_wrapped() -> None:
    codec = returning(int)
    assert codec.schema == {"type": "integer"}
    assert not codec.is_object
    assert codec.wrapped_schema == {
        "type": "object",
        "properties": {"result": {"type": "integer"}},
        "required": ["result"],
    }


def test_definitions_of_a_wrapped_schema_are_hoisted() -> None:
    wrapped = returning(list[Point]).wrapped_schema
    assert wrapped["properties"]["result"] == {"type": "array", "items": {"$ref": "#/$defs/Point"}}
    assert set(wrapped["$defs"]) == {"Point"}
    jsonschema.Draft202012Validator(wrapped).validate({"result": [{"x": 1}]})


VALUES = [
    (int, 2**70),
    (float, 1.5),
    (bool, True),
    (str, "ä"),
    (bytes, b"hi"),
    (int | None, None),
    (int | str, "x"),
    (Literal["a"], "a"),
    (Color, Color.RED),
    (datetime.date, datetime.date(2026, 1, 2)),
    (uuid.UUID, uuid.UUID(int=1)),
    (decimal.Decimal, decimal.Decimal("1.50")),
    (pathlib.Path, pathlib.Path("a/b")),
    (Data, Data(1)),
    (Typed, {"a": 1}),
    (Named, Named(1)),
    (set[int], {1}),
    (tuple[int, str], (1, "x")),
    (dict[int, Point], {1: Point(1)}),
    (list[Circle | Square], [Circle(1), Square(1.5)]),
    (Annotated[int, msgspec.Meta(description="d")], 1),
]


@pytest.mark.parametrize(("annotation", "value"), VALUES)
def test_values_fit_their_schema_and_check(annotation: Any, value: Any) -> None:
    codec = returning(annotation)
    raw = codec.encode(value)
    assert codec.check(raw) is None
    assert jsonschema.Draft202012Validator(codec.schema).is_valid(json.loads(raw))
    whole = json.loads(raw) if codec.is_object else {"result": json.loads(raw)}
    assert jsonschema.Draft202012Validator(codec.wrapped_schema).is_valid(whole)


@given(st.lists(st.builds(Point, x=st.integers(), y=st.floats(-1e9, 1e9))))
def test_structs_always_fit(points: list[Point]) -> None:
    codec = returning(list[Point])
    raw = codec.encode(points)
    assert msgspec.json.decode(raw, type=list[Point]) == points
    assert jsonschema.Draft202012Validator(codec.schema).is_valid(json.loads(raw))


def test_common_leftovers_are_encoded() -> None:
    encode = returning(dict[str, Any]).encode
    value = {
        "path": pathlib.PurePosixPath("a"),
        "deque": collections.deque([1]),
        "range": range(2),
        "keys": {"k": 1}.keys(),
        "mapping": types.MappingProxyType({"k": 1}),
        "set": {1},
        "decimal": decimal.Decimal("1.5"),
    }
    assert json.loads(encode(value)) == {
        "path": "a",
        "deque": [1],
        "range": [0, 1],
        "keys": ["k"],
        "mapping": {"k": 1},
        "set": [1],
        "decimal": "1.5",
    }


def test_what_cannot_be_encoded() -> None:
    encode = returning(dict[str, Any]).encode
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    for value in ({"a": 1j}, {"a": "\ud800"}, {(): 1}, loop):
        with pytest.raises(OutputError, match=r"The result \(dict\) cannot be encoded: "):
            encode(value)


def test_check_finds_a_value_of_another_type() -> None:
    codec = returning(list[Point])
    with pytest.raises(
        OutputError, match=r"does not fit its annotation: Expected `int`, got `str`"
    ):
        codec.encode([{"x": "1"}])


@pytest.mark.verifies("S33")
@pytest.mark.parametrize(
    ("annotation", "value"), [(int, "1"), (int, True), (float, float("nan")), (str, None)]
)
def test_a_value_of_another_type_is_no_result(annotation: Any, value: Any) -> None:
    with pytest.raises(OutputError, match="does not fit its annotation"):
        returning(annotation).encode(value)


@pytest.mark.parametrize(
    "annotation",
    [
        None,
        Any,
        TextContent,
        ImageContent,
        AudioContent,
        ResourceLink,
        EmbeddedResource,
        CallToolResult,
        list[TextContent],
        list[TextContent | ImageContent],
        tuple[TextContent, ...],
        TextContent | None,
        TextContent | str,
        Annotated[TextContent, "note"],
        Annotated[int, unstructured],
        "Annotated[int, unstructured]",
        "list[TextContent]",
    ],
)
def test_no_structured_output(annotation: Any) -> None:
    assert returning(annotation) is None


def test_no_annotation() -> None:
    assert output_codec(lambda: 1) is None
    assert not is_text_only(lambda: 1)


def test_the_marker() -> None:
    def marked() -> Annotated[Point, unstructured]: ...  # type: ignore[empty-body]
    def plain() -> Annotated[Point, "a point"]: ...  # type: ignore[empty-body]

    assert is_text_only(marked)
    assert not is_text_only(plain)
    assert repr(unstructured) == "unstructured"


def test_registration_errors_name_the_function() -> None:
    with pytest.raises(TypeError, match=r"function\(\): the return value .*unstructured"):
        returning(complex)
    with pytest.raises(TypeError, match=r"cannot resolve the annotation 'Nowhere' of the return"):
        returning("Nowhere")


def test_hand_written_output() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    codec = SchemaOutput(schema)
    assert codec.schema is codec.wrapped_schema is schema
    raw = codec.encode({"n": 1})
    assert codec.check(raw) is None
    with pytest.raises(OutputError, match=r"at 'n': expected type \"integer\", got str \"x\""):
        codec.check(codec.encode({"n": "x"}))
    with pytest.raises(OutputError, match=r"expected type \"object\", got array"):
        codec.check(b"[]")
    assert SchemaOutput({"type": "array"}).wrapped_schema["required"] == ["result"]
    with pytest.raises(ValueError, match="may only refer to itself"):
        SchemaOutput({"$ref": "https://example.com"})


def test_encoding_is_one_python_call() -> None:
    encode = returning(int).encode
    value, calls = 1, list[str]()
    sys.setprofile(lambda frame, event, arg: calls.append(event))
    encode(value)
    sys.setprofile(None)
    assert calls.count("call") == 1
