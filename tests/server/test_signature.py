from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import enum
import functools
import importlib.util
import json
import pathlib
import sys
import uuid
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Meta

from dovetail.server import exact
from dovetail.server.docstring import parse
from dovetail.server.signature import (
    ArgumentError,
    BrokenJson,
    args_codec,
    describe,
    schema_codec,
    validator,
)

if TYPE_CHECKING:
    from somewhere import Context

T = TypeVar("T")


class Point(msgspec.Struct):
    """A place."""

    x: int
    y: float = 0.0


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    n: int


class Node(msgspec.Struct):
    value: int
    children: list[Node] = []


class Circle(msgspec.Struct, tag=True):
    size: int


class Square(msgspec.Struct, tag=True):
    size: float


class Pair(msgspec.Struct, Generic[T]):
    left: T
    right: T


class Checked(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError("n is negative")


@dataclasses.dataclass
class Data:
    n: int
    m: int = 2


class Typed(TypedDict):
    a: int
    b: NotRequired[str]


class Named(NamedTuple):
    a: int
    b: str = "x"


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def taking(annotation: Any, **default: Any) -> Any:
    def function(a: Any) -> None: ...

    function.__annotations__ = {"a": annotation}
    if default:
        function.__defaults__ = (default["default"],)
    return args_codec(function)


def decode(annotation: Any, value: Any) -> Any:
    return taking(annotation).decode(json.dumps({"a": value}).encode())["a"]


def refusal(codec: Any, raw: bytes) -> ArgumentError:
    with pytest.raises(ArgumentError) as caught:
        codec.decode(raw)
    return caught.value


# --- schema -----------------------------------------------------------------------------------


def test_schema_of_a_signature() -> None:
    def fn(ctx: Context, a: int, b: Annotated[str, Meta(min_length=1)] = "x", *, c: Any = None):
        """Nothing."""

    assert args_codec(fn, skip={"ctx"}).schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string", "minLength": 1, "default": "x"},
            "c": {"default": None},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_no_parameters() -> None:
    codec = args_codec(lambda: None)
    assert codec.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert codec.decode(b"{}") == {}
    assert str(refusal(codec, b'{"a":1}')) == "Unknown argument 'a'; none is known here"


def test_nested_types_are_definitions_at_the_root() -> None:
    def fn(p: Point, n: Node, shape: Circle | Square, pair: Pair[int]) -> None: ...

    schema = args_codec(fn).schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["p"] == {"$ref": "#/$defs/Point"}
    assert set(schema["$defs"]) == {"Point", "Node", "Circle", "Square", "Pair_int_"}
    assert schema["$defs"]["Point"]["description"] == "A place."
    assert not any("title" in node or "discriminator" in node for node in exact.subschemas(schema))


def test_title_of_the_author_stays() -> None:
    schema = taking(Annotated[int, Meta(title="Mine")]).schema
    assert schema["properties"]["a"] == {"type": "integer", "title": "Mine"}


def test_descriptions_and_their_order_of_precedence() -> None:
    def fn(
        a: Annotated[int, Meta(description="meta a")],
        b: Annotated[int, "note b"],
        c: int,
        d: Annotated[Point, "note d"],
        e: int,
    ) -> None:
        """Adds.

        Args:
            a: doc a
            b: doc b
            c: doc c
        """

    found = args_codec(fn).schema["properties"]
    texts = {name: schema.get("description") for name, schema in found.items()}
    assert texts == {"a": "meta a", "b": "note b", "c": "doc c", "d": "note d", "e": None}


def test_schema_says_what_is_accepted_beyond_msgspec_s_own() -> None:
    assert taking(set[int]).schema["properties"]["a"] == {
        "type": "array",
        "items": {"type": "integer"},
    }
    assert taking(decimal.Decimal).schema["properties"]["a"]["type"] == ["string", "number"]
    assert decode(set[int], [1, 1]) == {1}
    assert decode(decimal.Decimal, 1.5) == decimal.Decimal("1.5")


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, 1, 1),
        (int, 2**70, 2**70),
        (float, 1, 1.0),
        (bool, True, True),
        (str, "ä", "ä"),
        (bytes, "aGk=", b"hi"),
        (datetime.date, "2026-01-02", datetime.date(2026, 1, 2)),
        (
            datetime.datetime,
            "2026-01-02T03:04:05Z",
            datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        ),
        (
            uuid.UUID,
            "12345678123456781234567812345678",
            uuid.UUID(int=0x12345678 * (2**96 + 2**64 + 2**32 + 1)),
        ),
        (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
        (pathlib.Path, "a/b", pathlib.Path("a/b")),
        (Point, {"x": 1}, Point(1)),
        (Data, {"n": 1}, Data(1)),
        (Typed, {"a": 1}, {"a": 1}),
        (Named, [1], Named(1)),
        (Color, "red", Color.RED),
        (Level, 2, Level.HIGH),
        (Literal["a", 1], 1, 1),
        (Optional[int], None, None),  # noqa: UP045
        (Union[int, str], "x", "x"),  # noqa: UP007
        (list[Point], [{"x": 1}], [Point(1)]),
        (dict[int, str], {"1": "x"}, {1: "x"}),
        (tuple[int, str], [1, "x"], (1, "x")),
        (frozenset[int], [1], frozenset({1})),
        (Any, [1.0, {"x": None}], [1.0, {"x": None}]),
        (object, 1, 1),
        (Circle | Square, {"type": "Square", "size": 1.5}, Square(1.5)),
        (msgspec.Raw, {"b": 1}, msgspec.Raw(b'{"b": 1}')),
    ],
)
def test_values(annotation: Any, value: Any, expected: Any) -> None:
    found = decode(annotation, value)
    assert found == expected
    assert type(found) is type(expected)


def test_raw_input_and_missing_annotations() -> None:
    codec = args_codec(lambda a, b=2: None)
    assert codec.decode(msgspec.Raw(b'{"a":[1]}')) == {"a": [1], "b": 2}


def test_names_that_look_special() -> None:
    def fn(self, _hidden: int, tag: int, name: int, copy: int, type: int, é: int) -> None: ...

    names = {"self": 1, "_hidden": 2, "tag": 3, "name": 4, "copy": 5, "type": 6, "é": 7}
    assert args_codec(fn).decode(json.dumps(names).encode()) == names


def test_mutable_defaults_are_copied_and_others_are_identical() -> None:
    sentinel, numbers, frozen = object(), [[1]], frozenset({1})
    point, data = Point(1), Data(1)

    def fn(a=sentinel, b=numbers, c=frozen, d=[], e=point, f=data, g={"k": [1]}) -> None: ...  # noqa: B006

    codec = args_codec(fn)
    first, second = codec.decode(b"{}"), codec.decode(b"{}")
    assert first["a"] is sentinel
    assert first["c"] is frozen
    assert first == second
    for name in "bdefg":
        assert first[name] is not second[name]
    first["b"][0].append(2)
    first["g"]["k"].append(2)
    assert second["b"] == numbers == [[1]]
    assert codec.decode(b"{}")["g"] == {"k": [1]}


@pytest.mark.parametrize(
    ("annotation", "default", "shown"),
    [
        (int, None, {}),
        (Any, object(), {}),
        (float, float("nan"), {}),
        (int | msgspec.UnsetType, msgspec.UNSET, {}),
        (Point, Point(1), {"default": {"x": 1, "y": 0.0}}),
        (Color, Color.RED, {"default": "red"}),
        (pathlib.Path, pathlib.Path("x"), {"default": "x"}),
        (set[int], {1}, {"default": [1]}),
        (bytes, b"hi", {"default": "aGk="}),
    ],
)
def test_only_defaults_json_can_express_are_shown(
    annotation: Any, default: Any, shown: Any
) -> None:
    codec = taking(annotation, default=default)
    schema = codec.schema["properties"]["a"]
    assert {key: value for key, value in schema.items() if key == "default"} == shown
    assert "required" not in codec.schema
    found = codec.decode(b"{}")["a"]
    assert found is default or found == default


# --- registration errors ----------------------------------------------------------------------


def test_parameters_that_cannot_work() -> None:
    def star(*rest: int) -> None: ...
    def stars(**rest: int) -> None: ...
    def positional(a: int, /) -> None: ...
    def dunder(__a: int) -> None: ...

    for fn, part in [(star, "*rest"), (stars, "**rest"), (positional, "a"), (dunder, "__a")]:
        with pytest.raises(TypeError) as caught:
            args_codec(fn)
        assert f"{fn.__name__}()" in str(caught.value)
        assert f"'{part}" in str(caught.value)


def test_skipped_parameters_may_be_anything() -> None:
    def fn(ctx: Nowhere, /, *rest: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert args_codec(fn, skip=["ctx", "rest"]).decode(b"{}") == {}


@pytest.mark.parametrize("annotation", [complex, Point | Strict, "list[complex]", dict | Point])
def test_types_without_json_form(annotation: Any) -> None:
    with pytest.raises(TypeError, match="parameter 'a' has a type that JSON cannot express"):
        taking(annotation)


@pytest.mark.parametrize("annotation", ["Nowhere", "list[", "int.nope"])
def test_annotations_that_do_not_resolve(annotation: str) -> None:
    with pytest.raises(TypeError, match=r"function\(\): cannot resolve the annotation .* 'a'"):
        taking(annotation)


def test_an_unresolvable_field_of_a_dataclass_names_the_parameter() -> None:
    @dataclasses.dataclass
    class Broken:
        x: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match="parameter 'a' has a type"):
        taking(Broken)


# --- string annotations -----------------------------------------------------------------------


def test_local_names_resolve_while_the_enclosing_function_runs() -> None:
    class Local(msgspec.Struct):
        n: int

    def inner() -> Any:
        def fn(a: Local, b: list[Local]) -> None: ...

        return args_codec(fn)

    assert inner().decode(b'{"a":{"n":1},"b":[]}') == {"a": Local(1), "b": []}


def test_closure_names_resolve_afterwards() -> None:
    def make() -> Any:
        class Local(msgspec.Struct):
            n: int

        def fn(a: Local) -> Any:
            return Local, late

        fn_later = fn
        if False:
            late = None
        return fn_later, Local

    fn, local = make()
    assert args_codec(fn).decode(b'{"a":{"n":1}}') == {"a": local(1)}


def test_methods_partials_and_callable_objects() -> None:
    class Thing:
        def method(self, a: Point) -> None: ...
        def __call__(self, a: Point) -> None: ...

    def fn(a: Point, b: int) -> None: ...

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    for each in (Thing().method, Thing(), functools.partial(fn, b=1)):
        assert args_codec(each, skip=["b"]).decode(b'{"a":{"x":1}}') == {"a": Point(1)}
    assert args_codec(wrapper).decode(b'{"a":{"x":1},"b":2}') == {"a": Point(1), "b": 2}


# --- refusals ---------------------------------------------------------------------------------


def everything(
    a: int = 0,
    text: str = "",
    flag: bool = False,
    p: Point | None = None,
    points: list[Point] = [],  # noqa: B006
    by_name: dict[str, int] = {},  # noqa: B006
    by_number: dict[int, int] = {},  # noqa: B006
    choice: Literal["x", 1] = 1,
    color: Color = Color.RED,
    few: Annotated[int, Meta(ge=3)] = 3,
    pair: tuple[int, str] = (1, "x"),
    strict: Strict | None = None,
    when: datetime.datetime | None = None,
    path: pathlib.Path = pathlib.Path(),
    shape: Circle | Square | None = None,
    checked: Checked | None = None,
) -> None: ...


EVERYTHING = args_codec(everything)


@pytest.mark.parametrize(
    ("arguments", "path", "text"),
    [
        ({"a": "x"}, "a", "Invalid argument 'a': expected int, got str \"x\""),
        ({"a": "1"}, "a", "Invalid argument 'a': expected int, got str \"1\""),
        ({"a": True}, "a", "Invalid argument 'a': expected int, got bool true"),
        ({"a": None}, "a", "Invalid argument 'a': expected int, got null"),
        ({"a": 1.5}, "a", "Invalid argument 'a': expected int, got float 1.5"),
        ({"flag": 1}, "flag", "Invalid argument 'flag': expected bool, got int 1"),
        ({"text": 1}, "text", "Invalid argument 'text': expected str, got int 1"),
        (
            {"text": ["y" * 90]},
            "text",
            "Invalid argument 'text': expected str, got array [\"" + "y" * 75 + "...",
        ),
        ({"p": {}}, "p.x", "Missing required argument 'p.x'"),
        (
            {"points": [{"x": 1}, {"x": {}}]},
            "points[1].x",
            "Invalid argument 'points[1].x': expected int, got object {}",
        ),
        (
            {"by_name": {"k": "v"}},
            "by_name[...]",
            "Invalid argument 'by_name[...]': expected int, got str",
        ),
        (
            {"by_number": {"k": 1}},
            "by_number",
            "Invalid argument 'by_number': expected a key that is int, got str",
        ),
        (
            {"choice": "y"},
            "choice",
            'Invalid argument \'choice\': expected one of 1, "x", got str "y"',
        ),
        (
            {"color": "green"},
            "color",
            'Invalid argument \'color\': expected one of "blue", "red", got str "green"',
        ),
        ({"few": 1}, "few", "Invalid argument 'few': expected int >= 3, got int 1"),
        (
            {"pair": [1]},
            "pair",
            "Invalid argument 'pair': expected array of length 2, got array [1]",
        ),
        ({"strict": {"n": 1, "z": 2}}, "strict.z", "Unknown argument 'strict.z'; known: 'n'"),
        (
            {"when": "soon"},
            "when",
            "Invalid argument 'when': Invalid RFC3339 encoded datetime, got str \"soon\"",
        ),
        ({"path": 1}, "path", "Invalid argument 'path': expected Path, got int 1"),
        (
            {"shape": {"type": "Blob"}},
            "shape.type",
            "Invalid argument 'shape.type': expected one of",
        ),
        (
            {"checked": {"n": -1}},
            "checked",
            "Invalid argument 'checked': n is negative, got object {\"n\":-1}",
        ),
    ],
)
def test_refusals(arguments: dict[str, Any], path: str, text: str) -> None:
    error = refusal(EVERYTHING, json.dumps(arguments).encode())
    assert str(error).startswith(text)
    assert error.path == path
    assert not error.not_object


def test_missing_and_unknown_arguments() -> None:
    codec = args_codec(lambda a, b: None)
    assert str(refusal(codec, b'{"b":1}')) == "Missing required argument 'a'"
    error = refusal(codec, b'{"a":1,"b":1,"c":1}')
    assert str(error) == "Unknown argument 'c'; known: 'a', 'b'"
    assert (error.path, error.want, error.got) == ("c", "no such argument", "one")


@pytest.mark.parametrize("raw", [b"[]", b"1", b'"x"', b"null", b"true", b"1.5"])
def test_arguments_that_are_no_object(raw: bytes) -> None:
    for codec in (EVERYTHING, schema_codec({"type": "object"})):
        error = refusal(codec, raw)
        assert error.not_object
        assert error.path == ""
        assert str(error).startswith("Arguments must be an object, got ")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"a":NaN}',
        b'{"a":1}x',
        b'{"text":"\xff"}',
        b'{"unknown":"\xff"}',
        b'{"a":"\xff"}',
        b'{"\xff":1}',
        b'{"text":"\\ud800"}',
        b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"unknown":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_broken_json(raw: bytes) -> None:
    with pytest.raises(BrokenJson):
        EVERYTHING.decode(raw)


def test_a_recursive_type_nested_too_deeply(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(schema: Any, value: Any) -> Any:
        raise RecursionError  # how deep that is depends on the interpreter

    monkeypatch.setattr(exact, "integers", too_deep)
    with pytest.raises(BrokenJson, match="nested too deeply"):
        taking(Node).decode(b'{"a":{"value":1.0}}')


@pytest.mark.parametrize("number", [b"1e400", b"1e99999999999999999999999", b"1" * 5000])
def test_numbers_out_of_range(number: bytes) -> None:
    error = refusal(EVERYTHING, b'{"a":' + number + b"}")
    assert "out of range" in str(error)
    error = refusal(schema_codec({"type": "object"}), b'{"a":' + number + b"}")
    assert "out of range" in str(error)


def test_a_message_nobody_foresaw_is_passed_on() -> None:
    error = exact.explain("Something else", {}, {})
    assert str(error) == "Invalid arguments: Something else, got object {}"
    assert str(exact.ArgumentError("", "x", "")) == "Invalid arguments: expected x"
    assert exact.explain("Invalid enum value 1 - at `$.b`", {}, {}).want == "another value"
    assert exact.show("\ud800") == "str '\\ud800'"


# --- the exact step ---------------------------------------------------------------------------

TINY = "0.1000000000000000000001"  # more digits than a float holds


@pytest.mark.parametrize(
    ("annotation", "text", "expected"),
    [
        (int, "1.0", 1),
        (int, "1e2", 100),
        (int, "-0.0", 0),
        (int, "0e99999", 0),
        (int, "9007199254740993.0", 9007199254740993),
        (int, "1e30", 10**30),
        (int, "120e-1", 12),
        (int | None, "1.0", 1),
        (int | str, "1.0", 1),
        (Literal[1, "a"], "1.0", 1),
        (Level, "2.0", Level.HIGH),
        (Annotated[int, Meta(ge=3)], "3.0", 3),
        (list[int], "[1.0,2]", [1, 2]),
        (tuple[float, int], "[1.0,2.0]", (1.0, 2)),
        (tuple[int, ...], "[1.0]", (1,)),
        (dict[str, int], '{"k":1.0}', {"k": 1}),
        (dict[int, int], '{"1":1.0}', {1: 1}),
        (Node, '{"value":1.0,"children":[{"value":2.0}]}', Node(1, [Node(2)])),
        (Data, '{"n":1.0}', Data(1)),
        (Typed, '{"a":1.0}', {"a": 1}),
        (Named, "[1.0]", Named(1)),
        (Pair[int], '{"left":1.0,"right":2}', Pair(1, 2)),
        (Circle | Square, '{"type":"Circle","size":1.0}', Circle(1)),
        (
            list[Circle | Square],
            '[{"type":"Circle","size":1.0},{"type":"Square","size":1.0}]',
            [Circle(1), Square(1.0)],
        ),
        (tuple[int, Any], '[1.0,{"k":[1.0]}]', (1, {"k": [1.0]})),
        (tuple[int, int | float], "[1.0,1.0]", (1, 1.0)),
        (tuple[int, decimal.Decimal], f"[1.0,{TINY}]", (1, decimal.Decimal(TINY))),
    ],
)
def test_integral_numbers_are_integers(annotation: Any, text: str, expected: Any) -> None:
    found = taking(annotation).decode(b'{"a":' + text.encode() + b"}")["a"]
    assert found == expected
    assert repr(found) == repr(expected)


def test_deep_values_without_a_schema_are_no_obstacle() -> None:
    deep = b"[" * 600 + b"]" * 600
    found = taking(tuple[int, Any]).decode(b'{"a":[1.0,' + deep + b"]}")["a"]
    assert found[0] == 1
    assert msgspec.json.encode(found[1]) == deep


def test_raw_arguments_survive_the_exact_step() -> None:
    found = taking(tuple[int, msgspec.Raw]).decode(b'{"a":[1.0,"x"]}')["a"]
    assert (found[0], bytes(found[1])) == (1, b'"x"')


def test_a_long_fraction_is_cheap() -> None:
    zeros = b"0" * 200_000
    codec = args_codec(lambda a, b: None)
    assert taking(int).decode(b'{"a":1.' + zeros + b"}") == {"a": 1}
    assert refusal(taking(int), b'{"a":1.' + zeros + b"1}").path == "a"
    assert codec.decode(b'{"a":1,"b":2}') == {"a": 1, "b": 2}


def test_an_unresolvable_reference_is_open() -> None:
    assert exact.resolve({"$defs": {"a/b": {"type": "integer"}}}, "#/$defs/a~1b") == {
        "type": "integer"
    }
    assert exact.resolve({}, "#/$defs/nope") == {}


# --- one property: decode accepts what the schema accepts ------------------------------------

CLASSES = [Point, Strict, Node, Data, Typed, Named, Color, Level, Circle | Square, Pair[int]]
SIMPLE = [
    int,
    float,
    bool,
    str,
    None,
    Any,
    Literal["a", 1, None],
    Literal[1, 2],
    Annotated[int, Meta(ge=0, le=10)],
    Annotated[float, Meta(gt=0)],
    Annotated[str, Meta(min_length=1, max_length=2)],
    Annotated[str, Meta(pattern="^a")],
    int | str,
    int | None,
    float | None,
    int | float,
    bool | str | None,
    list[int] | int,
    dict[str, int] | None,
    set[int],
    *CLASSES,
]
ANNOTATIONS = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.one_of(
        inner.map(lambda t: list[t]),
        inner.map(lambda t: Annotated[list[t], Meta(max_length=2)]),
        inner.map(lambda t: dict[str, t]),
        inner.map(lambda t: tuple[t, ...]),
        st.tuples(inner, inner).map(lambda ts: tuple[ts]),
        inner.map(lambda t: Optional[t]),  # noqa: UP045
        inner.map(lambda t: Pair[t]),
    ),
    max_leaves=4,
)
NUMBERS = st.one_of(
    st.integers(-3, 12),
    st.integers(-(2**80), 2**80),
    st.integers(-3, 12).map(float),
    st.floats(allow_nan=False, allow_infinity=False),
)
SCALARS = st.one_of(
    NUMBERS,
    st.booleans(),
    st.none(),
    st.sampled_from(["", "a", "ab", "abc", "red", "1", "Circle"]),
    st.text(max_size=3),
)
KEYS = st.sampled_from(["x", "y", "n", "m", "a", "b", "value", "type", "size", "left", "right"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def near(schema: Any, root: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that mostly fit a schema, so that acceptance is really tried."""
    if "$ref" in schema:
        return st.deferred(lambda: near(exact.resolve(root, schema["$ref"]), root))
    if "anyOf" in schema:
        return st.one_of([near(arm, root) for arm in schema["anyOf"]])
    if "enum" in schema:
        choices = schema["enum"]
        return st.sampled_from(choices + [float(c) for c in choices if type(c) is int])
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return NUMBERS
    if kind == "array" and "prefixItems" in schema:
        items = [near(item, root) for item in schema["prefixItems"]]
        return st.tuples(*items).map(list)
    if kind == "array":
        return st.lists(near(schema.get("items", {}), root), max_size=3)
    if kind == "object" and "properties" in schema:
        required = {
            k: near(v, root) for k, v in schema["properties"].items() if k in schema["required"]
        }
        optional = {
            k: near(v, root) for k, v in schema["properties"].items() if k not in schema["required"]
        }
        return st.fixed_dictionaries(required, optional=optional)
    if kind == "object":
        return st.dictionaries(KEYS, near(schema.get("additionalProperties", {}), root), max_size=2)
    return SCALARS


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(ANNOTATIONS, st.data())
def test_decode_accepts_exactly_what_the_schema_accepts(
    annotation: Any, data: st.DataObject
) -> None:
    codec = taking(annotation)
    jsonschema.Draft202012Validator.check_schema(codec.schema)
    inner = codec.schema["properties"]["a"]
    value = data.draw(near(inner, codec.schema) | VALUES)
    arguments = data.draw(st.sampled_from([{"a": value}, {"a": value}, {"a": value, "b": 1}, {}]))
    valid = jsonschema.Draft202012Validator(codec.schema).is_valid(arguments)
    try:
        codec.decode(json.dumps(arguments).encode())
        accepted = True
    except ArgumentError:
        accepted = False
    assert accepted == valid


@given(st.binary(max_size=40) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_nothing_but_the_two_errors_ever_comes_out(raw: bytes) -> None:
    for codec in (EVERYTHING, HAND):
        outcome: Any
        try:
            outcome = codec.decode(raw)
        except (ArgumentError, BrokenJson) as error:
            outcome = str(error)
        assert isinstance(outcome, dict) or outcome


# --- hand-written schemas ---------------------------------------------------------------------

HAND_SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1},
        "s": {"type": ["string", "null"]},
        "o": {"type": "object", "properties": {"k": {"$ref": "#/$defs/k"}}, "required": ["k"]},
        "any": True,
    },
    "required": ["n"],
    "additionalProperties": False,
    "$defs": {"k": {"type": "integer"}},
}
HAND = schema_codec(HAND_SCHEMA)


def test_hand_written_schema() -> None:
    before = copy.deepcopy(HAND_SCHEMA)
    assert HAND.schema is HAND_SCHEMA
    found = HAND.decode(b'{"n":1.0,"s":null,"o":{"k":2.0},"any":1.0}')
    assert repr(found) == "{'n': 1, 's': None, 'o': {'k': 2}, 'any': 1.0}"
    assert before == HAND_SCHEMA


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"{}", "Missing required argument 'n'"),
        (b'{"n":1,"z":2}', "Unknown argument 'z'; known: 'n', 's', 'o', 'any'"),
        (b'{"n":"x"}', 'Invalid argument \'n\': expected type "integer", got str "x"'),
        (b'{"n":true}', "Invalid argument 'n': expected type \"integer\", got bool true"),
        (b'{"n":0}', "Invalid argument 'n': expected minimum 1, got int 0"),
        (b'{"n":1,"o":{}}', "Missing required argument 'o.k'"),
        (b'{"n":1,"s":1}', 'Invalid argument \'s\': expected type ["string","null"], got int 1'),
    ],
)
def test_hand_written_schema_refuses(raw: bytes, text: str) -> None:
    assert str(refusal(HAND, raw)) == text


def test_without_jsonschema_the_structure_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    codec = schema_codec(HAND_SCHEMA)
    assert codec.decode(b'{"n":0,"o":{},"any":[]}') == {"n": 0, "o": {}, "any": []}
    assert str(refusal(codec, b"{}")) == "Missing required argument 'n'"
    assert refusal(codec, b'{"n":1,"z":2}').path == "z"
    assert refusal(codec, b'{"n":true}').want == "integer"
    assert refusal(codec, b'{"n":1,"s":1}').want == "string or null"
    assert validator({"type": "array"})([]) is None


@pytest.mark.parametrize("schema", [None, True, {}, {"type": "array"}, {"type": ["object"]}])
def test_hand_written_schema_must_be_an_object(schema: Any) -> None:
    with pytest.raises(ValueError, match="must be an object"):
        schema_codec(schema)


@pytest.mark.parametrize("ref", ["https://example.com/s.json", "other.json", "file:///x", 1])
def test_references_never_leave_the_schema(ref: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"items": {"$ref": ref}}}}
    with pytest.raises(ValueError, match="may only refer to itself"):
        schema_codec(schema)
    data = {"type": "object", "properties": {"$ref": {"const": {"$ref": ref}}}}
    assert schema_codec(data).decode(b"{}") == {}


# --- docstrings -------------------------------------------------------------------------------


def test_google_style() -> None:
    doc = """Adds.

Two lines
of it.

Args:
    a: the first
        number
    b (int, optional): the second: one
    **rest: more

Returns:
    The sum.

Example:
    add(1, 2)"""
    text, names = parse(doc)
    assert text == "Adds.\n\nTwo lines\nof it.\n\nExample:\n    add(1, 2)"
    assert names == {"a": "the first number", "b": "the second: one", "rest": "more"}


def test_numpy_style() -> None:
    doc = """Adds.

Parameters
----------
a : int
    The first
    number.
b, c
    Others.
d : int

Returns
-------
int
    The sum.

Notes
-----
Slow."""
    text, names = parse(doc)
    assert text == "Adds.\n\nNotes\n-----\nSlow."
    assert names == {"a": "The first number.", "b": "Others.", "c": "Others."}


def test_rest_style() -> None:
    doc = """Adds.

:param a: the first
    number
:param int b: the second
:type a: int
:param: nameless
:returns: the sum

See: nothing"""
    assert parse(doc) == ("Adds.\n\nSee: nothing", {"a": "the first number", "b": "the second"})


def test_docstrings_without_sections() -> None:
    assert parse("Args:") == ("Args:", {})
    assert parse("Args:\n    a: x") == (None, {"a": "x"})
    assert describe(lambda: None) == (None, {})
    assert describe(functools.partial(taking, int)) == (None, {})

    class Thing:
        """Of the class."""

        def __call__(self) -> None: ...

    assert describe(Thing()) == (None, {})
    assert describe(Thing.__call__) == (None, {})


# --- cost -------------------------------------------------------------------------------------


def test_decoding_is_one_python_call() -> None:
    def fn(a: int, b: str = "x", p: Point | None = None, items: list[int] = []) -> None: ...  # noqa: B006

    decode_arguments = args_codec(fn).decode
    calls: list[str] = []
    sys.setprofile(lambda frame, event, arg: calls.append(event))
    decode_arguments(b'{"a":1,"p":{"x":2}}')
    sys.setprofile(None)
    assert calls.count("call") == 1
