"""Mistakes of an author are found when something is registered, not when it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pydantic
import pytest

from dovetail import Context, Server

NETWORK = "https://example.org/schema.json"


def make() -> Server:
    return Server("s", version="1")


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.verifies("F-duplicate-name")
def test_a_name_can_be_taken_once() -> None:
    server = make()
    server.tool(name="a")(lambda: 1)
    server.prompt(name="a")(lambda: "")
    server.resource("x://a")(lambda: "")
    server.resource("x://{a}")(lambda a: a)
    with pytest.raises(ValueError, match="tool 'a' is already registered"):
        server.tool(name="a")(lambda: 2)
    with pytest.raises(ValueError, match="prompt 'a' is already registered"):
        server.prompt(name="a")(lambda: "")
    with pytest.raises(ValueError, match="resource 'x://a' is already registered"):
        server.resource("x://a")(lambda: "")
    with pytest.raises(ValueError, match=r"resource 'x://{a}' is already registered"):
        server.resource("x://{a}")(lambda a: a)
    assert server.tools["a"]() == 1, "the first one stays"
    assert [*server.tools, *server.prompts, *server.resources, *server.templates] == [
        "a",
        "a",
        "x://a",
        "x://{a}",
    ]


@pytest.mark.parametrize("name", ["a b", "a/b", "é", "a" * 129, "a\n", "<lambda>", "a$"])
def test_a_tool_name_that_clients_would_refuse(name: str) -> None:
    server = make()
    with pytest.raises(ValueError, match="must be 1 to 128 of"):
        server.tool(name=name)(lambda: 1)
    assert not server.tools


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "a" * 128, "evaluate-lisp"])
def test_a_tool_name_that_is_fine(name: str) -> None:
    server = make()
    server.tool(name=name)(lambda: 1)
    assert list(server.tools) == [name]


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(ValueError, match="'<lambda>'"):
        make().tool(lambda: 1)


# --- URIs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "no-scheme",
        "/path",
        "//host/path",
        "1x://digit",
        "x y://a",
        "x://a b",
        "x://é",
        "x://a\n",
        "x://%zz",
        "x://a%",
        "x://<a>",
        'x://"a"',
        "x://a|b",
        "x://a\\b",
        "x://a^b",
        "x://a`b",
    ],
)
@pytest.mark.verifies("S39")
def test_what_is_no_uri_cannot_be_registered(uri: str) -> None:
    server = make()
    with pytest.raises(ValueError, match="URI"):
        server.resource(uri)(lambda: "")
    assert not server.resources


@pytest.mark.parametrize(
    "uri",
    ["x:", "x://a", "urn:isbn:1", "a+b-c.d://x", "x://[::1]:80/a?b=c&d#e", "x://a%20b", "X://Y"],
)
@pytest.mark.verifies("S39")
def test_what_is_a_uri_can(uri: str) -> None:
    server = make()
    server.resource(uri)(lambda: "")
    assert list(server.resources) == [uri]


@pytest.mark.parametrize(
    ("template", "match"),
    [
        ("x://{a", "not a URI|never closed"),
        ("x://a}", "not a URI|unexpected"),
        ("x://{}", "no variable name"),
        ("x://{a b}", "no variable name"),
        ("x://{a*}", "level 4"),
        ("x://{a:3}", "level 4"),
        ("x://{a}/{a}", "appears twice"),
        ("{scheme}://a", "not a URI"),
        ("x://é/{a}", "not a URI"),
    ],
)
@pytest.mark.verifies("S39", "F-resource-template")
def test_a_template_that_does_not_parse(template: str, match: str) -> None:
    server = make()
    with pytest.raises(ValueError, match=match):
        server.resource(template)(lambda a: a)
    assert not server.templates


def test_variables_and_parameters_must_be_the_same() -> None:
    server = make()

    def read(a: str, b: str = "", *, ctx: Context) -> str:
        return a

    with pytest.raises(TypeError, match=r"lacks the variables \['c'\]"):
        server.resource("x://{a}/{c}")(read)
    with pytest.raises(TypeError, match=r"does not fill the parameters \['a'\]"):
        server.resource("x://{b}")(read)
    with pytest.raises(TypeError, match=r"does not fill the parameters \['a'\]"):
        server.resource("x://static")(read)
    assert not server.resources
    assert not server.templates
    server.resource("x://{a}")(read)
    server.resource("x://{a}/{b}")(read)
    assert list(server.templates) == ["x://{a}", "x://{a}/{b}"]


# --- signatures -----------------------------------------------------------------------------------


def variadic(*args: int) -> None: ...
def keywords(**kwargs: int) -> None: ...
def positional(a: int, /) -> None: ...
def strange(a: complex) -> None: ...
def unresolved(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("fn", [variadic, keywords, positional, strange, unresolved])
def test_a_signature_that_arguments_cannot_fill(fn: Callable[..., Any]) -> None:
    server = make()
    with pytest.raises(TypeError, match=fn.__name__):
        server.tool(fn)
    with pytest.raises(TypeError, match=fn.__name__):
        server.prompt(fn)
    assert not server.tools
    assert not server.prompts


def test_a_result_that_has_no_schema() -> None:
    def complicated() -> complex:
        return 1j

    with pytest.raises(TypeError, match="the return value"):
        make().tool(complicated)


def test_pydantic_is_for_tools() -> None:
    class Model(pydantic.BaseModel):
        a: int

    def prompt(model: Model) -> str:
        return ""

    with pytest.raises(TypeError, match="pydantic types are for the arguments of tools"):
        make().prompt(prompt)


def test_async_functions_do_not_run_inline() -> None:
    async def later(a: str = "") -> str:
        return ""

    server = make()
    with pytest.raises(TypeError, match="inline"):
        server.tool(inline=True)(later)
    with pytest.raises(TypeError, match="inline"):
        server.prompt(inline=True)(later)
    with pytest.raises(TypeError, match="inline"):
        server.resource("x://{a}", inline=True)(later)


def test_options_that_do_not_exist() -> None:
    server = make()
    with pytest.raises(TypeError):
        server.tool(name="t", polite=True)(lambda: 1)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        server.prompt(polite=True)(lambda: "")  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        server.resource("x://y", polite=True)(lambda: "")  # type: ignore[call-arg]


# --- hand-written schemas -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [{}, {"type": "array"}, {"type": ["object"]}, {"properties": {}}, [], True],
)
@pytest.mark.verifies("S34", "F-handwritten-schema")
def test_an_input_schema_describes_an_object(schema: Any) -> None:
    with pytest.raises(ValueError, match="at its root"):
        make().tool(name="t", input_schema=schema)(lambda arguments: None)


@pytest.mark.parametrize(
    "fn",
    [lambda: None, lambda a, b: None],
)
def test_a_function_with_an_input_schema_takes_one_dict(fn: Any) -> None:
    with pytest.raises(TypeError, match="must take one dict"):
        make().tool(name="t", input_schema={"type": "object"})(fn)


@pytest.mark.verifies("X29")
def test_a_schema_that_points_to_the_network_is_refused() -> None:
    inside: dict[str, Any] = {"type": "object", "properties": {"a": {"$ref": NETWORK}}}
    with pytest.raises(ValueError, match="may only refer to itself"):
        make().tool(name="t", input_schema=inside)(lambda arguments: None)
    with pytest.raises(ValueError, match="may only refer to itself"):
        make().tool(name="t", output_schema=inside)(lambda: None)


# --- completers -----------------------------------------------------------------------------------


def test_a_completer_belongs_to_one_argument() -> None:
    server = make()

    @server.prompt
    def review(language: str, ctx: Context) -> str:
        return language

    @server.resource("x://{a}")
    def read(a: str) -> str:
        return a

    review.complete("language")(lambda prefix: [])
    read.complete("a")(lambda prefix: [])
    with pytest.raises(ValueError, match="Prompt 'review' completes 'language' already"):
        review.complete("language")(lambda prefix: [])
    with pytest.raises(ValueError, match="Prompt 'review' has no argument 'ctx'"):
        review.complete("ctx")(lambda prefix: [])
    with pytest.raises(ValueError, match=r"Resource 'x://{a}' has no argument 'b'"):
        read.complete("b")(lambda prefix: [])


def test_a_server_says_who_it_is() -> None:
    server = Server("notes", version="1.2")
    assert server.name == "notes"
    assert repr(server) == "<Server 'notes' 1.2>"
