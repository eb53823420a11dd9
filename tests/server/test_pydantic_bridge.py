from __future__ import annotations

import dataclasses
import datetime
import json
import subprocess
import sys
from typing import Annotated, Any, Literal, NamedTuple

import jsonschema
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, PositiveInt
from typing_extensions import TypedDict

from dovetail.server import exact
from dovetail.server.exact import subschemas
from dovetail.server.output import OutputError, output_codec
from dovetail.server.pydantic_bridge import ModelCodec, ModelOutput
from dovetail.server.signature import ArgumentError, BrokenJson, StructCodec, args_codec


class Item(BaseModel):
    """A thing."""

    n: int
    title: str = ""
    inner: Item | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    size: int


class Dog(BaseModel):
    kind: Literal["dog"]
    size: float


class Closed(BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    n: int


class Even(BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("n is odd")
        return n


class Computed(BaseModel):
    n: int

    @pydantic.computed_field
    def double(self) -> int:
        return 2 * self.n


class Failing(BaseModel):
    n: int

    @pydantic.field_serializer("n")
    def fail(self, n: int) -> int:
        raise RuntimeError("no")


@dataclasses.dataclass
class Holder:
    item: Item


class Typed(TypedDict):
    item: Item


class Named(NamedTuple):
    item: Item


class Struct(msgspec.Struct):
    n: int


SENTINEL = object()


def tool(
    item: Item,
    copy: PositiveInt = 3,
    _hidden: Annotated[str, "a note"] = "x",
    either: int | list[Item] = 1,
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None,
    limit: int = Field(5, description="how many"),
    sentinel: Any = SENTINEL,
    numbers: list[int] = [1],  # noqa: B006
    closed: Closed | None = None,
    even: Even | None = None,
    day: datetime.date | None = None,
) -> list[Item]:
    """Works.

    Args:
        copy: how often
        limit: not this one
    """
    return [item] * copy


CODEC = args_codec(tool)


def refusal(codec: Any, arguments: Any) -> ArgumentError:
    with pytest.raises(ArgumentError) as caught:
        codec.decode(json.dumps(arguments).encode())
    return caught.value


def test_schema() -> None:
    schema = CODEC.schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert isinstance(CODEC, ModelCodec)
    assert schema["type"] == "object"
    assert schema["required"] == ["item"]
    assert schema["additionalProperties"] is False
    assert not any("title" in node or "discriminator" in node for node in subschemas(schema))
    assert "title" in schema["$defs"]["Item"]["properties"]
    properties = schema["properties"]
    assert properties["copy"]["description"] == "how often"
    assert properties["limit"]["description"] == "how many"
    assert properties["_hidden"]["description"] == "a note"
    assert properties["numbers"]["default"] == [1]
    assert "default" not in properties["sentinel"]


def test_values_and_defaults() -> None:
    raw = b'{"item":{"n":1,"inner":{"n":2}},"pet":{"kind":"dog","size":1},"day":"2026-01-02"}'
    found = CODEC.decode(msgspec.Raw(raw))
    assert found == {
        "item": Item(n=1, inner=Item(n=2)),
        "copy": 3,
        "_hidden": "x",
        "either": 1,
        "pet": Dog(kind="dog", size=1.0),
        "limit": 5,
        "sentinel": SENTINEL,
        "numbers": [1],
        "closed": None,
        "even": None,
        "day": datetime.date(2026, 1, 2),
    }
    assert found["sentinel"] is SENTINEL
    assert CODEC.decode(raw)["numbers"] is not found["numbers"]


def test_integral_numbers_are_integers() -> None:
    found = CODEC.decode(
        b'{"item":{"n":1.0},"copy":2e1,"either":[{"n":3.0}],"pet":{"kind":"cat","size":1.0},'
        b'"sentinel":1.0,"numbers":[9007199254740993.0]}'
    )
    assert found["item"] == Item(n=1)
    assert found["copy"] == 20
    assert found["either"] == [Item(n=3)]
    assert found["pet"] == Cat(kind="cat", size=1)
    assert repr(found["sentinel"]) == "1.0"
    assert found["numbers"] == [9007199254740993]


@pytest.mark.parametrize(
    ("more", "path", "text"),
    [
        ({"item": {}}, "item.n", "Missing required argument 'item.n'"),
        ({"zz": 1}, "zz", "Unknown argument 'zz'; known: 'item', 'copy', '_hidden'"),
        ({"closed": {"n": 1, "z": 1}}, "closed.z", "Unknown argument 'closed.z'; known: 'n'"),
        (
            {"item": {"n": "1"}},
            "item.n",
            "Invalid argument 'item.n': expected a valid integer, got str \"1\"",
        ),
        (
            {"item": {"n": True}},
            "item.n",
            "Invalid argument 'item.n': expected a valid integer, got bool true",
        ),
        ({"copy": -1}, "copy", "Invalid argument 'copy': expected greater than 0, got int -1"),
        (
            {"either": [{"n": "x"}]},
            "either[0].n",
            "Invalid argument 'either[0].n': expected a valid integer",
        ),
        ({"pet": {"kind": "cow"}}, "pet", "Invalid argument 'pet': Input tag 'cow'"),
        ({"pet": {"kind": "cat"}}, "pet.size", "Missing required argument 'pet.size'"),
        (
            {"even": {"n": 1}},
            "even.n",
            "Invalid argument 'even.n': Value error, n is odd, got int 1",
        ),
    ],
)
def test_refusals(more: dict[str, Any], path: str, text: str) -> None:
    error = refusal(CODEC, {"item": {"n": 1}} | more)
    assert str(error).startswith(text)
    assert error.path == path


def test_not_an_object() -> None:
    assert str(refusal(CODEC, {})) == "Missing required argument 'item'"
    assert refusal(CODEC, []).not_object


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b'{"item":"\xff"}',
        b'{"item":"\\ud800"}',
        b'{"item":' + b"[" * 250 + b"]" * 250 + b"}",
    ],
)
def test_broken_json(raw: bytes) -> None:
    with pytest.raises(BrokenJson):
        CODEC.decode(raw)


def test_nested_too_deeply_for_the_exact_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(schema: Any, value: Any) -> Any:
        raise RecursionError  # how deep that is depends on the interpreter

    monkeypatch.setattr(exact, "integers", too_deep)
    with pytest.raises(BrokenJson, match="nested too deeply"):
        CODEC.decode(b'{"item":{"n":1.0}}')


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.integers(-5, 5).map(float)
    | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["item", "n", "kind", "size", "title"]), inner, max_size=3
        )
    ),
    max_leaves=5,
)


@given(
    st.fixed_dictionaries(
        {"item": st.fixed_dictionaries({"n": JSON}) | JSON},
        optional={"either": JSON, "numbers": JSON},
    )
)
def test_accepts_exactly_what_the_schema_accepts(arguments: dict[str, Any]) -> None:
    valid = jsonschema.Draft202012Validator(CODEC.schema).is_valid(arguments)
    try:
        CODEC.decode(json.dumps(arguments).encode())
        accepted = True
    except ArgumentError:
        accepted = False
    assert accepted == valid


@pytest.mark.parametrize(
    "annotation",
    [
        Item,
        list[Item],
        Item | None,
        Holder,
        Typed,
        Named,
        Annotated[int, Field(gt=1)],
        PositiveInt,
        pydantic.SecretStr,
        "dict[str, Item]",
    ],
)
def test_what_needs_pydantic(annotation: Any) -> None:
    def fn(a: Any) -> None: ...

    fn.__annotations__ = {"a": annotation}
    assert isinstance(args_codec(fn), ModelCodec)


def test_records_of_the_standard_library() -> None:
    def fn(p0: Holder, b: Annotated[int, Field(alias="c", gt=1)] = 2) -> None: ...

    codec = args_codec(fn)
    assert codec.decode(b'{"p0":{"item":{"n":1.0}},"c":3}') == {"p0": Holder(Item(n=1)), "b": 3}
    assert refusal(codec, {"p0": {"item": {"n": 1}}, "b": 3}).path == "b"
    extra = {"p0": {"item": {"n": 1}, "z": 1}}
    assert not jsonschema.Draft202012Validator(codec.schema).is_valid(extra)
    assert str(refusal(codec, extra)) == "Unknown argument 'p0.z'; known: 'item'"


def test_what_does_not() -> None:
    def fn(a: int, b: Struct, c: list[Annotated[str, "note"]]) -> None: ...

    assert isinstance(args_codec(fn), StructCodec)


def test_structs_and_models_do_not_mix() -> None:
    def fn(a: Struct, b: Item) -> Struct | Item: ...  # type: ignore[empty-body]

    with pytest.raises(TypeError, match=r"fn\(\): pydantic cannot read the signature"):
        args_codec(fn)
    with pytest.raises(TypeError, match=r"fn\(\): pydantic cannot read the return type"):
        output_codec(fn)


def test_output_of_a_list() -> None:
    codec = output_codec(tool)
    assert isinstance(codec, ModelOutput)
    assert not codec.is_object
    raw = codec.encode([Item(n=1)])
    assert raw == b'[{"n":1,"title":"","inner":null}]'
    assert codec.check(raw) is None
    assert jsonschema.Draft202012Validator(codec.schema).is_valid(json.loads(raw))
    assert jsonschema.Draft202012Validator(codec.wrapped_schema).is_valid(
        {"result": json.loads(raw)}
    )
    with pytest.raises(OutputError, match="does not fit its annotation"):
        codec.check(b'[{"n":"x"}]')


def returning(annotation: Any) -> Any:
    def fn() -> Any: ...

    fn.__annotations__ = {"return": annotation}
    return output_codec(fn)


def test_output_of_a_model() -> None:
    codec = returning(Item)
    assert codec.is_object
    assert codec.wrapped_schema is codec.schema
    assert codec.schema["properties"]["n"] == {"type": "integer"}
    jsonschema.Draft202012Validator(codec.schema).validate({"n": 1, "inner": {"n": 2}})


def test_output_of_another_type_is_refused() -> None:
    with pytest.raises(OutputError, match=r"The result \(dict\) cannot be encoded"):
        returning(Item).encode({"n": "x"})
    with pytest.raises(OutputError, match="no"):
        returning(Failing).encode(Failing(n=1))


def test_computed_fields_are_not_checked_as_input() -> None:
    codec = returning(Computed)
    raw = codec.encode(Computed(n=1))
    assert json.loads(raw) == {"n": 1, "double": 2}
    assert codec.check(raw) is None
    assert codec.check(b'{"n":"not looked at"}') is None


def test_a_model_below_a_plain_type_is_encoded() -> None:
    codec = returning(dict[str, Any])
    assert codec.encode({"item": Item(n=1)}) == b'{"item":{"n":1,"title":"","inner":null}}'


def test_pydantic_is_not_imported_without_need() -> None:
    code = (
        "import sys\n"
        "from dovetail.server.signature import args_codec\n"
        "from dovetail.server.output import output_codec\n"
        "def fn(a: int) -> list[str]: ...\n"
        "args_codec(fn).decode(b'{\"a\":1.0}'), output_codec(fn)\n"
        "print([name for name in ('pydantic', 'jsonschema') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
