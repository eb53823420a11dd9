"""Questions to the client: exact in every revision, and no answer believed unchecked."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType, field

from dovetail.errors import DovetailError, LocalProtocolError, ToolError
from dovetail.server.questions import (
    Answer,
    BadAnswer,
    Choices,
    Elicit,
    ElicitUrl,
    NotAccepted,
    Question,
    Roots,
    Sample,
    Sampled,
)
from dovetail.spec.revisions import ALL, BY_ID, Revision
from dovetail.spec.types import (
    Annotations,
    AudioContent,
    ClientCapabilities,
    ImageContent,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolExecution,
    ToolResultContent,
    ToolUseContent,
)
from dovetail.testing.schema import check_definition, check_message

A, B, C, D, E = ALL
IDS = [revision.id for revision in ALL]


class Color(enum.Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


class Size(enum.StrEnum):
    S = "s"
    L = "l"


Titled = Annotated[str, Choices({"r": "Red", "b": "Blue"})]


class Everything(Struct, rename="camel"):
    """Every field a form of 2025-06-18 can show."""

    full_name: Annotated[str, Meta(min_length=1, max_length=9, title="Name", description="Who?")]
    mail: Annotated[str, Meta(extra_json_schema={"format": "email"})]
    home: Annotated[str, Meta(extra_json_schema={"format": "uri"})]
    born: datetime.date
    at: datetime.datetime
    age: Annotated[int, Meta(ge=0, lt=150), "in years"]
    height: Annotated[float, Meta(ge=0.5, le=2.5)]
    sure: bool
    color: Color
    size: Size
    kind: Literal["a", "b"]
    titled: Titled
    nick: str = "none"
    more: int = 3
    ratio: float = 0.5
    ok: bool = True
    shade: Color = Color.BLUE
    letter: Literal["x", "y"] = "y"
    tone: Titled = "b"
    since: datetime.date = datetime.date(2020, 1, 2)
    maybe: str | None = None
    perhaps: Annotated[int, Meta(ge=1)] | None = None
    unset: bool | UnsetType = UNSET


class Several(Struct):
    """Fields with several choices, since 2025-11-25."""

    plain: list[Literal["a", "b"]]
    enums: Annotated[list[Color], Meta(min_length=1, max_length=2)]
    titled: list[Titled]
    some: list[Literal["a", "b"]] = []
    chosen: list[Size] = field(default_factory=lambda: [Size.L])


ANSWER: dict[str, Any] = {
    "fullName": "Ann",
    "mail": "a@b.c",
    "home": "https://a.b",
    "born": "2000-02-03",
    "at": "2026-01-01T10:00:00Z",
    "age": 44,
    "height": 1.7,
    "sure": False,
    "color": "red",
    "size": "s",
    "kind": "a",
    "titled": "r",
}
WRITTEN: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1, "default": 7},
        "x": {"type": "number"},
        "s": {"type": "string", "format": "date", "title": "S"},
        "b": {"type": "boolean", "default": False},
        "old": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
        "new": {"type": "string", "oneOf": [{"const": "a", "title": "A"}], "default": "a"},
    },
    "required": ["s"],
}


def accept(content: Any) -> bytes:
    return json.dumps({"action": "accept", "content": content}).encode()


def user(*blocks: Any) -> SamplingMessage:
    return SamplingMessage(role="user", content=list(blocks))


def model(*blocks: Any) -> SamplingMessage:
    return SamplingMessage(role="assistant", content=list(blocks))


def text(value: str) -> TextContent:
    return TextContent(text=value)


def use(id: str) -> ToolUseContent:
    return ToolUseContent(id=id, name="add", input={"a": 1})


def result(id: str, **rest: Any) -> ToolResultContent:
    return ToolResultContent(tool_use_id=id, content=[text("2")], **rest)


TOOL = Tool(
    name="add",
    title="Add",
    input_schema={"type": "object"},
    output_schema={"type": "integer"},
    execution=ToolExecution(task_support="optional"),
)
AUDIO = AudioContent.of(b"..", "audio/wav", annotations=Annotations(last_modified="2026-01-01"))

QUESTIONS: dict[str, Question[Any]] = {
    "form": Elicit("Who are you?", Everything),
    "empty": Elicit("Go on?", {"type": "object", "properties": {}}),
    "several": Elicit("Which?", Several),
    "written": Elicit("Which?", WRITTEN),
    "url": ElicitUrl("Sign in", "https://example.com/login?x=1#y"),
    "text": Sample("Hello", max_tokens=10),
    "full": Sample(
        [user(text("a"), ImageContent.of(b".", "image/png"), AUDIO), model(text("b")), "c"],
        max_tokens=5,
        system_prompt="Be short",
        temperature=0.5,
        stop_sequences=["."],
        model_preferences=ModelPreferences(hints=[ModelHint(name="x")], cost_priority=0.1),
        include_context="thisServer",
        metadata={"a": [1.5, None]},
    ),
    "tools": Sample(
        [
            "1 + 1?",
            model(text("I add"), use("1"), use("2")),
            user(result("2", structured_content=2), result("1", structured_content={"n": 2})),
        ],
        max_tokens=5,
        tools=[TOOL],
        tool_choice="auto",
    ),
    "history": Sample(SamplingMessage(role="user", content=text("x"), meta={"a": 1}), max_tokens=1),
    "roots": Roots(),
}
SUPPORTED = {
    "form": "CDE",
    "empty": "CDE",
    "several": "DE",
    "written": "CDE",
    "url": "DE",
    "text": "ABCDE",
    "full": "ABCDE",
    "tools": "DE",
    "history": "ABCDE",
    "roots": "ABCDE",
}


# --- params in each revision --------------------------------------------------------------------


@pytest.mark.parametrize("revision", ALL, ids=IDS)
@pytest.mark.parametrize("name", QUESTIONS)
def test_params_are_what_the_revision_defines(name: str, revision: Revision) -> None:
    # shows: S17, S77, S78 (elicitationId), X28
    question = QUESTIONS[name]
    supported = revision.letter in SUPPORTED[name]
    assert question.supported_in(revision) is supported
    if not supported:
        with pytest.raises(LocalProtocolError, match=revision.id):
            question.params(revision)
        return
    params = json.loads(msgspec.json.encode(question.params(revision)))
    check_request(question.method, params, revision)
    # The closed check leaves the inside of a form alone.
    for property in params.get("requestedSchema", {}).get("properties", {}).values():
        check_definition(property, revision.id, "PrimitiveSchemaDefinition")


def check_request(method: str, params: dict[str, Any], revision: Revision) -> None:
    if not revision.modern:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        check_message(request, revision.id, "server")
        return
    wanted = {"resultType": "input_required", "inputRequests": {"q": {"method": method}}}
    wanted["inputRequests"]["q"]["params"] = params  # type: ignore[index]
    check_message(
        {"jsonrpc": "2.0", "id": 1, "result": wanted}, revision.id, "server", "tools/call"
    )


def test_form_of_2025_06_18() -> None:
    params = Elicit("?", Everything).params(C)
    assert params.keys() == {"message", "requestedSchema"}
    properties = params["requestedSchema"]["properties"]
    assert [name for name, one in properties.items() if "default" in one] == ["ok"]
    assert properties["titled"] == {
        "type": "string",
        "enum": ["r", "b"],
        "enumNames": ["Red", "Blue"],
    }
    assert "$schema" not in Elicit("?", WRITTEN).params(C)["requestedSchema"]


@pytest.mark.parametrize("revision", [D, E], ids=["D", "E"])
def test_form_since_2025_11_25(revision: Revision) -> None:
    params = Elicit("Who?", Everything).params(revision)
    assert params["mode"] == "form"
    schema = params["requestedSchema"]
    assert schema["required"] == list(ANSWER)
    assert schema["properties"] == {
        "fullName": {
            "type": "string",
            "minLength": 1,
            "maxLength": 9,
            "title": "Name",
            "description": "Who?",
        },
        "mail": {"type": "string", "format": "email"},
        "home": {"type": "string", "format": "uri"},
        "born": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "age": {"type": "integer", "minimum": 0, "maximum": 149, "description": "in years"},
        "height": {"type": "number", "minimum": 0.5, "maximum": 2.5},
        "sure": {"type": "boolean"},
        "color": {"type": "string", "enum": ["red", "blue"]},
        "size": {"type": "string", "enum": ["s", "l"]},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "titled": {
            "type": "string",
            "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}],
        },
        "nick": {"type": "string", "default": "none"},
        "more": {"type": "integer", "default": 3},
        "ratio": {"type": "number", "default": 0.5},
        "ok": {"type": "boolean", "default": True},
        "shade": {"type": "string", "enum": ["red", "blue"], "default": "blue"},
        "letter": {"type": "string", "enum": ["x", "y"], "default": "y"},
        "tone": {
            "type": "string",
            "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}],
            "default": "b",
        },
        "since": {"type": "string", "format": "date", "default": "2020-01-02"},
        "maybe": {"type": "string"},
        "perhaps": {"type": "integer", "minimum": 1},
        "unset": {"type": "boolean"},
    }


def test_several_choices() -> None:
    titled = {"anyOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]}
    colors = {"type": "string", "enum": ["red", "blue"]}
    assert Elicit("?", Several).params(E)["requestedSchema"]["properties"] == {
        "plain": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        "enums": {"type": "array", "items": colors, "minItems": 1, "maxItems": 2},
        "titled": {"type": "array", "items": titled},
        "some": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": []},
        "chosen": {
            "type": "array",
            "items": {"type": "string", "enum": ["s", "l"]},
            "default": ["l"],
        },
    }


def test_a_written_form_is_sent_as_it_is() -> None:
    written = json.loads(json.dumps(WRITTEN))
    question = Elicit("?", written)
    written["properties"].clear()
    assert question.params(D)["requestedSchema"] == WRITTEN == question.params(E)["requestedSchema"]


def test_url_params() -> None:
    # shows: S77, C37
    question = ElicitUrl("Sign in", "https://example.com")
    same = {"mode": "url", "message": "Sign in", "url": "https://example.com"}
    assert question.params(E) == same
    assert question.params(D) == {**same, "elicitationId": question.elicitation_id}
    assert question.params(D) == question.params(D)
    others = {ElicitUrl("?", "https://example.com").elicitation_id for _ in range(100)}
    assert len(others) == 100
    assert min(map(len, others)) >= 32


def test_sampling_content_before_2025_11_25() -> None:
    old = QUESTIONS["full"].params(A)["messages"]
    assert [message["role"] for message in old] == ["user", "user", "user", "assistant", "user"]
    assert [message["content"]["type"] for message in old] == [
        "text",
        "image",
        "text",  # audio came with 2025-03-26
        "text",
        "text",
    ]
    assert QUESTIONS["full"].params(B)["messages"][2]["content"] == {
        "type": "audio",
        "data": "Li4=",
        "mimeType": "audio/wav",
        "annotations": {},
    }
    assert QUESTIONS["history"].params(C)["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "x"}}
    ]


def test_sampling_tools_of_2025_11_25_speak_in_objects() -> None:
    old, new = QUESTIONS["tools"].params(D), QUESTIONS["tools"].params(E)
    assert "outputSchema" not in old["tools"][0]
    assert new["tools"][0]["outputSchema"] == {"type": "integer"}
    assert "execution" in old["tools"][0]
    assert "execution" not in new["tools"][0]
    results = [message["content"] for message in (old["messages"][2], new["messages"][2])]
    assert "structuredContent" not in results[0][0]
    assert results[0][1]["structuredContent"] == {"n": 2}
    assert results[1][0]["structuredContent"] == 2
    assert old["toolChoice"] == new["toolChoice"] == {"mode": "auto"}


def test_sampling_with_an_object_output_keeps_it() -> None:
    tool = Tool(name="t", input_schema={"type": "object"}, output_schema={"type": "object"})
    question = Sample("?", max_tokens=1, tools=[tool], tool_choice=ToolChoice(mode="none"))
    assert question.params(D)["tools"][0]["outputSchema"] == {"type": "object"}
    assert question.params(D)["toolChoice"] == {"mode": "none"}
    assert "tools" not in Sample("?", max_tokens=1, tool_choice="none").params(D)


# --- capabilities -------------------------------------------------------------------------------

FORM, URL = Elicit("?", {"type": "object", "properties": {}}), QUESTIONS["url"]
PLAIN, TOOLS, CONTEXT = QUESTIONS["text"], QUESTIONS["tools"], QUESTIONS["full"]


@pytest.mark.parametrize(
    ("question", "capabilities", "revision", "declared"),
    [
        (FORM, {}, "2025-06-18", False),
        (FORM, {"elicitation": {}}, "2025-06-18", True),
        (FORM, {"elicitation": {"url": {}}}, "2025-06-18", True),
        (FORM, {"elicitation": {}}, "2025-11-25", True),
        (FORM, {"elicitation": {"form": {}}}, "2025-11-25", True),
        (FORM, {"elicitation": {"form": {}, "url": {}}}, "2026-07-28", True),
        (FORM, {"elicitation": {"url": {}}}, "2025-11-25", False),
        (FORM, {"elicitation": {"url": {}}}, "2026-07-28", False),
        (URL, {}, "2025-11-25", False),
        (URL, {"elicitation": {}}, "2025-11-25", False),
        (URL, {"elicitation": {"form": {}}}, "2026-07-28", False),
        (URL, {"elicitation": {"url": {}}}, "2025-11-25", True),
        (URL, {"elicitation": {"form": {}, "url": {}}}, "2026-07-28", True),
        (PLAIN, {}, "2024-11-05", False),
        (PLAIN, {"sampling": {}}, "2024-11-05", True),
        (PLAIN, {"sampling": {}}, "2026-07-28", True),
        (TOOLS, {}, "2026-07-28", False),
        (TOOLS, {"sampling": {}}, "2025-11-25", False),
        (TOOLS, {"sampling": {"context": {}}}, "2025-11-25", False),
        (TOOLS, {"sampling": {"tools": {}}}, "2025-11-25", True),
        (CONTEXT, {"sampling": {}}, "2025-06-18", True),
        (CONTEXT, {"sampling": {}}, "2025-11-25", False),
        (CONTEXT, {"sampling": {"tools": {}}}, "2026-07-28", False),
        (CONTEXT, {"sampling": {"context": {}}}, "2026-07-28", True),
        (QUESTIONS["roots"], {}, "2024-11-05", False),
        (QUESTIONS["roots"], {"roots": {}}, "2026-07-28", True),
        (QUESTIONS["roots"], {"roots": {"listChanged": True}}, "2024-11-05", True),
    ],
)
def test_who_can_be_asked(
    question: Question[Any], capabilities: dict[str, Any], revision: str, declared: bool
) -> None:
    # shows: S6, S18, S76, S86, X14
    given = msgspec.convert(capabilities, ClientCapabilities)
    assert question.declared_by(given, BY_ID[revision]) is declared


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("form", {"elicitation": {}}),
        ("url", {"elicitation": {"url": {}}}),
        ("text", {"sampling": {}}),
        ("tools", {"sampling": {"tools": {}}}),
        ("full", {"sampling": {"context": {}}}),
        ("roots", {"roots": {}}),
    ],
)
def test_needs(name: str, needs: dict[str, Any]) -> None:
    # shows: S6, S18: whoever declares what is needed can be asked
    question = QUESTIONS[name]
    assert question.needs() == needs
    check_definition(needs, "2026-07-28", "ClientCapabilities")
    assert question.declared_by(msgspec.convert(needs, ClientCapabilities))


def test_include_context_none_needs_nothing() -> None:
    assert Sample("?", max_tokens=1, include_context="none").needs() == {"sampling": {}}


def test_tool_blocks_need_tools_even_without_tools() -> None:
    question = Sample(["?", model(use("1")), user(result("1"))], max_tokens=1)
    assert question.needs() == {"sampling": {"tools": {}}}
    assert not question.supported_in(C)


# --- forms that cannot be shown -----------------------------------------------------------------


class Point(NamedTuple):
    x: int


class Tagged(Struct, tag=True):
    x: int


class Listed(Struct, array_like=True):
    x: int


@pytest.mark.parametrize("form", [int, str, "text", None, Point, Tagged, Listed, list[int], Color])
def test_only_records_are_forms(form: Any) -> None:
    with pytest.raises(TypeError, match="Struct, a dataclass, a TypedDict or a schema"):
        Elicit("?", form)


class Inner(Struct):
    x: int


class Numbers(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    "kind",
    [
        Inner,
        bytes,
        Any,
        dict[str, int],
        list[str],
        list[int],
        list[Inner],
        list[Numbers],
        set[Literal["a"]],
        tuple[str, str],
        str | int,
        int | str | None,
        None,
        complex,
        datetime.time,
        Literal[1, 2],
        Literal["a", 1],
        Numbers,
        Annotated[str, Meta(pattern="a+")],
        Annotated[str, Meta(examples=["a"])],
        Annotated[str, Meta(extra_json_schema={"format": "password"})],
        Annotated[str, Meta(extra_json_schema={"title": 1})],
        Annotated[int, Meta(multiple_of=2)],
        Annotated[float, Meta(gt=0)],
        Annotated[float, Meta(lt=0)],
        Annotated[Literal["a"], Meta(extra_json_schema={"oneOf": []})],
        Annotated[str, Choices({})],
        list[Annotated[str, Choices({})]],
    ],
    ids=repr,
)
def test_a_field_that_cannot_be_shown_is_named(kind: Any) -> None:
    form = msgspec.defstruct("F", [("good", str), ("odd_one", kind)])
    with pytest.raises(TypeError, match="field 'odd_one'"):
        Elicit("?", form)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (int, "x"),
        (str, object()),
        (Annotated[int, Meta(ge=5)], 1),
        (Literal["a", "b"], "c"),
        (bool, 1),
    ],
)
def test_a_default_must_fit(kind: Any, default: Any) -> None:
    form = msgspec.defstruct("F", [("odd_one", kind, default)])
    with pytest.raises(TypeError, match="field 'odd_one'"):
        Elicit("?", form)


def test_none_needs_a_default() -> None:
    with pytest.raises(TypeError, match="field 'x' may be None: give it the default None"):
        Elicit("?", msgspec.defstruct("F", [("x", str | None)]))


@pytest.mark.parametrize("name", ["password", "api_key", "Private-Key", "passPhrase"])
def test_a_form_does_not_ask_for_secrets(name: str) -> None:
    # shows: S75
    schema = {"type": "object", "properties": {name: {"type": "string"}}}
    with pytest.raises(TypeError, match="ElicitUrl"):
        Elicit("?", schema)


STRING = {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "array", "properties": {}},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {}, "additionalProperties": False},
        {"type": "object", "properties": {}, "$schema": 1},
        {"type": "object", "properties": {}, "required": ["x"]},
        {"type": "object", "properties": {}, "required": 1},
    ],
)
def test_a_written_form_with_a_wrong_root(schema: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Elicit("?", schema)


@pytest.mark.parametrize(
    "field",
    [
        None,
        "string",
        {},
        {"type": "null"},
        {"type": ["string"]},
        {"type": "object", "properties": {}},
        {"$ref": "#/x"},
        {"type": "string", "pattern": "a"},
        {"type": "string", "format": "time"},
        {"type": "string", "minLength": 1.5},
        {"type": "string", "minLength": True},
        {"type": "string", "title": None},
        {"type": "string", "default": 1},
        {"type": "string", "enum": []},
        {"type": "string", "enum": "ab"},
        {"type": "string", "enum": [1]},
        {"type": "string", "enum": ["a"], "enumNames": []},
        {"type": "string", "enum": ["a"], "enumNames": "A"},
        {"type": "string", "enum": ["a"], "enumNames": [1]},
        {"type": "string", "enum": ["a"], "minLength": 1},
        {"type": "string", "enumNames": ["a"]},
        {"type": "string", "oneOf": {}},
        {"type": "string", "oneOf": ["a"]},
        {"type": "string", "oneOf": [{"const": "a"}]},
        {"type": "string", "oneOf": [{"const": "a", "title": 1}]},
        {"type": "string", "oneOf": [{"const": 1, "title": "a"}]},
        {"type": "string", "oneOf": [{"const": "a", "title": "A", "x": 1}]},
        {"type": "integer", "minimum": "1"},
        {"type": "boolean", "default": "true"},
        {"type": "array"},
        {"type": "array", "items": STRING},
        {"type": "array", "items": {"enum": ["a"]}},
        {"type": "array", "items": {"type": "integer", "enum": ["a"]}},
        {"type": "array", "items": {"anyOf": []}},
        {"type": "array", "items": {"type": "string", "enum": ["a"]}, "uniqueItems": True},
        {"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": ["b"]},
    ],
    ids=json.dumps,
)
def test_a_written_form_with_a_wrong_field(field: Any) -> None:
    with pytest.raises(TypeError, match="field 'odd'"):
        Elicit("?", {"type": "object", "properties": {"ok": STRING, "odd": field}})


# --- answers to forms ---------------------------------------------------------------------------


def test_accepted() -> None:
    answer = Elicit("?", Everything).parse(accept(ANSWER))
    assert answer.accepted
    assert answer.action == "accept"
    assert answer.value == Everything(
        full_name="Ann",
        mail="a@b.c",
        home="https://a.b",
        born=datetime.date(2000, 2, 3),
        at=datetime.datetime(2026, 1, 1, 10, tzinfo=datetime.UTC),
        age=44,
        height=1.7,
        sure=False,
        color=Color.RED,
        size=Size.S,
        kind="a",
        titled="r",
    )


@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("rest", [{}, {"content": {}}, {"content": None}, {"content": {"x": 1}}])
def test_not_accepted(action: str, rest: dict[str, Any]) -> None:
    # shows: S85
    answer = Elicit("?", Everything).parse(json.dumps({"action": action, **rest}).encode())
    assert not answer.accepted
    assert answer.action == action
    with pytest.raises(NotAccepted, match=f"The user {action}"):
        _ = answer.value
    assert issubclass(NotAccepted, ToolError)


def test_numbers() -> None:
    question = Elicit("?", msgspec.defstruct("N", [("n", int), ("x", float)]))
    for raw, n, x in [
        (b'{"n":3.0,"x":2}', 3, 2.0),
        (b'{"n":1e2,"x":1.5}', 100, 1.5),
        (b'{"n":9007199254740993.0,"x":0}', 9007199254740993, 0.0),
        (b'{"n":-0,"x":-0.0}', 0, 0.0),
    ]:
        value: Any = question.parse(b'{"action":"accept","content":' + raw + b"}").value
        assert (value.n, value.x) == (n, x)
        assert (type(value.n), type(value.x)) == (int, float)


def test_optional_fields_get_their_defaults() -> None:
    value = Elicit("?", Everything).parse(accept({**ANSWER, "more": 4, "perhaps": None})).value
    assert (value.more, value.nick, value.shade, value.since) == (
        4,
        "none",
        Color.BLUE,
        datetime.date(2020, 1, 2),
    )
    assert (value.maybe, value.perhaps, value.unset) == (None, None, UNSET)


def test_several_answers() -> None:
    content = {"plain": ["b", "a"], "enums": ["red"], "titled": []}
    value = Elicit("?", Several).parse(accept(content)).value
    assert value == Several(["b", "a"], [Color.RED], [], [], [Size.L])


@dataclasses.dataclass
class Data:
    n: int
    when: datetime.date = datetime.date(2020, 1, 1)
    tags: list[Literal["a", "b"]] = dataclasses.field(default_factory=lambda: ["b"])

    def __post_init__(self) -> None:
        if self.n == 13:
            raise ValueError("not thirteen")


class Typed(TypedDict):
    n: Annotated[int, Meta(title="N")]
    s: NotRequired[str]


def test_dataclass_and_typed_dict() -> None:
    data = Elicit("?", Data)
    assert data.parse(accept({"n": 1})).value == Data(1)
    with pytest.raises(BadAnswer, match="not thirteen"):
        data.parse(accept({"n": 13}))
    typed = Elicit("?", Typed)
    assert typed.params(E)["requestedSchema"] == {
        "type": "object",
        "properties": {"n": {"type": "integer", "title": "N"}, "s": {"type": "string"}},
        "required": ["n"],
    }
    assert typed.parse(accept({"n": 1})).value == {"n": 1}
    assert typed.parse(accept({"n": 1, "s": "x", "other": 1})).value == {"n": 1, "s": "x"}


def test_a_written_form_answers_with_a_dict() -> None:
    question = Elicit("?", WRITTEN)
    answer = question.parse(accept({"s": "2026-01-01", "n": 2.0, "x": 1, "more": "unasked"}))
    assert answer.value == {"s": "2026-01-01", "n": 2, "x": 1, "b": False, "new": "a"}
    assert type(answer.value["n"]) is int
    for content in ({}, {"s": "soon"}, {"s": "2026-01-01", "old": "c"}):
        with pytest.raises(BadAnswer):
            question.parse(accept(content))


@pytest.mark.parametrize("raw", [b'{"action":"accept"}', b'{"action":"accept","content":null}'])
def test_accepted_without_content(raw: bytes) -> None:
    assert FORM.parse(raw).value == {}
    with pytest.raises(BadAnswer, match="field 'fullName': expected a value, got nothing"):
        Elicit("?", Everything).parse(raw)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fullName": ""}, "field 'fullName': expected at least 1 characters"),
        ({"fullName": "0123456789"}, "at most 9 characters"),
        ({"fullName": 1}, "field 'fullName': expected a string, got int 1"),
        ({"fullName": None}, "expected a value, got nothing"),
        ({"mail": "nobody"}, "format email"),
        ({"mail": "a b@c"}, "format email"),
        ({"mail": "@c"}, "format email"),
        ({"home": "here"}, "format uri"),
        ({"home": "http://[::1"}, "format uri"),
        ({"home": "http://a b"}, "format uri"),
        ({"born": "yesterday"}, "format date"),
        ({"born": "2000-02-31"}, "format date"),
        ({"at": "2000-02-03"}, "format date-time"),
        ({"age": 1.5}, "field 'age': expected an integer"),
        ({"age": "1"}, "an integer"),
        ({"age": True}, "an integer"),
        ({"age": -1}, "at least 0"),
        ({"age": 150}, "at most 149"),
        ({"height": "1"}, "a number"),
        ({"height": False}, "a number"),
        ({"height": 3}, "at most 2.5"),
        ({"sure": 1}, "a boolean"),
        ({"sure": "true"}, "a boolean"),
        ({"color": "green"}, "one of 'red', 'blue'"),
        ({"color": ["red"]}, "a string"),
        ({"kind": "A"}, "one of 'a', 'b'"),
        ({"titled": "Red"}, "one of 'r', 'b'"),
        ({"maybe": 1}, "field 'maybe': expected a string"),
        ({"perhaps": 0}, "at least 1"),
    ],
)
def test_a_wrong_answer_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadAnswer) as caught:
        Elicit("?", Everything).parse(accept({**ANSWER, **change}))
    assert message in str(caught.value)
    assert issubclass(BadAnswer, DovetailError)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"plain": "a"}, "a list of 'a', 'b'"),
        ({"plain": ["c"]}, "a list of 'a', 'b'"),
        ({"plain": [["a"]]}, "a list of"),
        ({"enums": []}, "at least 1 choices"),
        ({"enums": ["red", "blue", "red"]}, "at most 2 choices"),
    ],
)
def test_a_wrong_choice_is_refused(change: dict[str, Any], message: str) -> None:
    content = {"plain": [], "enums": ["red"], "titled": ["r"], **change}
    with pytest.raises(BadAnswer) as caught:
        Elicit("?", Several).parse(accept(content))
    assert message in str(caught.value)


BROKEN = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b"{",
    b"\xff",
    b'{"action":"yes"}',
    b'{"action":1}',
    b'{"action":"accept","content":[]}',
    b'{"action":"accept","content":"x"}',
    b'{"action":"accept","content":{"n":1e999}}',
    b'{"action":"accept","content":{"n":1e99999999999999999999}}',
    b'{"action":"accept","content":{"n":"\xff"}}',
    b'{"action":"accept","content":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"action":"accept","content":{"n":' + b"[" * 500 + b"]" * 500 + b"}}",
]


@pytest.mark.parametrize("raw", BROKEN, ids=lambda raw: raw[:40].decode(errors="replace"))
def test_a_broken_answer_is_refused(raw: bytes) -> None:
    number = Elicit("?", msgspec.defstruct("N", [("n", float)]))
    for question in (number, Elicit("?", Typed), Elicit("?", WRITTEN), Roots(), PLAIN):
        with pytest.raises(BadAnswer):
            question.parse(raw)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from([*ANSWER, "maybe", "more", "x"]), JSON))
def test_any_content_is_read_or_refused(content: dict[str, Any]) -> None:
    for form in (Everything, Several, WRITTEN):
        try:
            Elicit("?", form).parse(accept({**ANSWER, **content}))
        except BadAnswer:
            continue


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    for name in ("form", "url", "text", "roots"):
        try:
            QUESTIONS[name].parse(raw)
        except BadAnswer:
            continue


# --- pages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com:8443/a?b=c#d",
        "http://localhost:8000/x",
        "http://app.localhost/",
        "http://127.0.0.1/",
        "http://127.1.2.3:1/",
        "http://[::1]:8000/",
    ],
)
def test_urls_to_open(url: str) -> None:
    assert ElicitUrl("?", url).url == url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "https://"),
        ("example.com", "https://"),
        ("ftp://example.com", "https://"),
        ("javascript:alert(1)", "https://"),
        ("file:///etc/passwd", "https://"),
        ("https://", "host"),
        ("https:///path", "host"),
        ("http://example.com", "must be https"),
        ("http://10.0.0.1", "must be https"),
        ("http://localhost.example.com", "must be https"),
        ("https://ann@example.com", "credentials"),
        ("https://ann:pw@example.com", "credentials"),
        ("https://:pw@example.com", "credentials"),
        ("https://exa mple.com", "characters"),
        ("https://example.com/\n", "characters"),
        ("https://exämple.com", "characters"),
        ("https://example.com:x", "ort"),
        ("https://[::1", "IPv6"),
    ],
)
def test_urls_not_to_open(url: str, message: str) -> None:
    # shows: S77, S82
    with pytest.raises(ValueError, match=message):
        ElicitUrl("?", url)


@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
def test_url_answers(action: str) -> None:
    # shows: S85
    answer = ElicitUrl("?", "https://a.b").parse(json.dumps({"action": action}).encode())
    assert answer == Answer(action)  # type: ignore[arg-type]
    assert answer.accepted is (action == "accept")
    if answer.accepted:
        assert answer.value is None
    else:
        with pytest.raises(NotAccepted):
            _ = answer.value


def test_a_bad_url_answer() -> None:
    with pytest.raises(BadAnswer):
        ElicitUrl("?", "https://a.b").parse(b'{"action":"open"}')


# --- sampling -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "at least one message"),
        ([user()], "at least one message"),
        ([model(use("1")), user(result("1"), text("x"))], "no other blocks"),
        ([model(use("1")), model(result("1"))], "message of the user"),
        ([user(use("1")), user(result("1"))], "message of the assistant"),
        ([model(use("1"), use("1")), user(result("1"), result("1"))], "same id"),
        ([model(use("1"))], "no tool results"),
        ([model(use("1")), "go on"], "must answer"),
        ([model(use("1")), "go on", user(result("1"))], "must answer"),
        ([model(use("1"), use("2")), user(result("1"))], "must answer"),
        ([model(use("1")), user(result("2"))], "must answer"),
        ([model(use("1")), user(result("1"), result("1"))], "must answer"),
        ([user(result("1"))], "must answer"),
        ([model(use("1")), user(result("1")), user(result("1"))], "must answer"),
    ],
)
def test_the_order_of_tool_use(messages: list[Any], message: str) -> None:
    # shows: X39, X40, S87
    with pytest.raises(ValueError, match=message):
        Sample(messages, max_tokens=1)


def test_tool_use_in_order() -> None:
    # shows: X39, X40
    one = SamplingMessage(role="assistant", content=use("1"))
    other = SamplingMessage(role="user", content=result("1"))
    messages = ["?", one, other, model(text("x"), use("1"), use("2"))]
    question = Sample([*messages, user(result("2"), result("1")), "go on"], max_tokens=1)
    assert question.params(D)["messages"][1]["content"]["type"] == "tool_use"
    check_request(question.method, question.params(D), D)


def test_max_tokens() -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        Sample("?", max_tokens=0)


def sampled(**members: Any) -> bytes:
    one = {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m"}
    return json.dumps({**one, **members}).encode()


def test_sampled() -> None:
    answer = PLAIN.parse(sampled(stopReason="endTurn", resultType="complete"))
    assert isinstance(answer, Sampled)
    assert (answer.text, answer.model, answer.stop_reason) == ("Hi", "m", "endTurn")
    assert answer.blocks == [text("Hi")]
    assert answer.tool_uses == []


def test_sampled_blocks() -> None:
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"type": "tool_use", "id": "1", "name": "add", "input": {}},
        {"type": "text", "text": "b"},
    ]
    answer = TOOLS.parse(sampled(content=blocks, stopReason="toolUse"))
    assert answer.text == "ab"
    assert [one.id for one in answer.tool_uses] == ["1"]
    with pytest.raises(BadAnswer, match="none was offered"):
        PLAIN.parse(sampled(content=blocks))


@pytest.mark.parametrize(
    "members",
    [
        {"role": "system"},
        {"model": None},
        {"content": "Hi"},
        {"content": {"type": "resource"}},
        {"content": [{"type": "text"}]},
    ],
)
def test_a_bad_sample_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        PLAIN.parse(sampled(**members))


# --- roots --------------------------------------------------------------------------------------


def test_roots() -> None:
    raw = b'{"roots":[{"uri":"file:///a","name":"A"},{"uri":"file:///b"}]}'
    assert [root.uri for root in Roots().parse(raw)] == ["file:///a", "file:///b"]
    assert Roots().parse(b'{"roots":[]}') == []


@pytest.mark.parametrize("uri", ["https://a.b", "/etc", "file:/a", "FILE:///a", ""])
def test_roots_are_files(uri: str) -> None:
    # shows: C32 (seen from the server)
    with pytest.raises(BadAnswer, match="file://"):
        Roots().parse(json.dumps({"roots": [{"uri": uri}]}).encode())
