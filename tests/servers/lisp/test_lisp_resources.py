"""Resources of a session, completion, and news of what was redefined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lisp_support import Client, lisp

from dovetail.servers.lisp.sessions import Config
from support import ALL, MODERN, run

PROGRAM = """
(defpackage :shop (:use :cl) (:nicknames :sh) (:export #:price #:item) (:documentation "A shop."))
(in-package :shop)
(defvar *rate* 3 "Per hour.")
(defun price (hours) "What it costs." (* hours *rate*))
(defun invoice (hours) (list :total (price hours)))
(defclass item () ((name :initarg :name)) (:documentation "For sale."))
(defgeneric weight (it))
(in-package :cl-user)
"""


async def read(client: Client, path: str) -> Any:
    uri = f"lisp://{path}"
    (contents,) = (await client.raw.request("resources/read", {"uri": uri}))["contents"]
    assert contents["uri"] == uri
    assert contents["mimeType"] == "application/json"
    return json.loads(contents["text"])


async def missing(client: Client, path: str) -> None:
    answer = await client.raw.answer("resources/read", {"uri": f"lisp://{path}"})
    assert answer["error"]["code"] in (-32002, -32602), answer


@pytest.mark.parametrize("revision", ALL)
def test_what_there_is_in_a_session(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            await client.text(PROGRAM)
            packages = {one["name"]: one for one in await read(client, "default/packages")}
            assert packages["SHOP"] == {"name": "SHOP", "nicknames": ["SH"], "external": 2}
            assert packages["COMMON-LISP"]["external"] == 978
            shop = await read(client, "default/package/shop")
            assert shop == {
                "name": "SHOP",
                "nicknames": ["SH"],
                "documentation": "A shop.",
                "uses": ["COMMON-LISP"],
                "usedBy": [],
                "external": ["ITEM", "PRICE"],
                "internal": ["*RATE*", "INVOICE", "WEIGHT"],
            }
            price = await read(client, "default/symbol/SHOP/PRICE")
            assert price["name"] == "SHOP:PRICE"
            assert price["kinds"] == ["function"]
            assert price["arglist"] == "(HOURS)"
            assert price["documentation"] == [{"kind": "function", "text": "What it costs."}]
            assert [caller["name"] for caller in price["callers"]] == ["SHOP::INVOICE"]
            for path in ("shop/*rate*", "SH/%2ARATE%2A"):
                rate = await read(client, f"default/symbol/{path}")
                assert (rate["name"], rate["value"]) == ("SHOP::*RATE*", "3")
            item = await read(client, "default/class/shop/item")
            assert (item["name"], item["documentation"]) == ("SHOP:ITEM", "For sale.")
            assert [slot["name"] for slot in item["slots"]] == ["NAME"]
            threads = await read(client, "default/threads")
            assert [one["main"] for one in threads].count(True) == 1
            assert "mcp evaluation" in [one["name"] for one in threads]
            heap = await read(client, "default/heap")
            assert 0 < heap["used"] < heap["size"] == 512 << 20
            systems = await read(client, "default/systems")
            assert "asdf" in [one["name"] for one in systems["systems"]]
            for path in (
                "no/packages",
                "default/package/none",
                "default/symbol/shop/none",
                "default/symbol/none/car",
                "default/class/shop/price",
                "default/errors/99",
                "default/none",
            ):
                await missing(client, path)

    run(main())


@pytest.mark.parametrize("revision", ALL)
def test_history_and_errors(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            assert await read(client, "default/history") == []
            await client.text("(+ 1 2)")
            await client.error("(/ 1 0)")
            first, second = await read(client, "default/history")
            assert first == {"number": 1, "code": "(+ 1 2)", "isError": False, "text": "=> 3"}
            assert (second["number"], second["isError"]) == (2, True)
            assert await read(client, "default/errors") == [second]
            assert await read(client, "default/errors/2") == second
            assert second["error"]["type"] == "DIVISION-BY-ZERO"
            assert second["error"]["frames"][0] == "(/ 1 0)"
            await missing(client, "default/errors/1")

    run(main())


@pytest.mark.parametrize("revision", ALL)
def test_they_are_listed(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            listed = (await client.raw.request("resources/list"))["resources"]
            uris = [one["uri"] for one in listed]
            names = ("packages", "systems", "threads", "heap", "history", "errors")
            assert uris == [f"lisp://default/{name}" for name in names]
            templates = await client.raw.request("resources/templates/list")
            found = [one["uriTemplate"] for one in templates["resourceTemplates"]]
            assert "lisp://{session}/symbol/{package}/{name}" in found
            assert len(found) == 11

    run(main())


def test_looking_does_not_wait_for_an_evaluation() -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.text("(defvar *go* nil)")
            _, running = client.raw.start(
                "tools/call",
                {"name": "evaluate-lisp", "arguments": {"code": "(loop)", "timeout": 60}},
            )
            assert (await read(client, "default/heap"))["used"] > 0
            assert len(await read(client, "default/packages")) > 10
            assert (await read(client, "default/package/cl"))["name"] == "COMMON-LISP"
            assert await completed(client, "package", "common-lisp-u") == ["COMMON-LISP-USER"]
            assert not running.done()
            await client.tool("restart-session")

    run(main())


def test_without_a_lisp_there_is_an_error_that_helps() -> None:
    async def main() -> None:
        async with lisp(config=Config(sbcl="/no/sbcl")) as client:
            answer = await client.raw.answer("resources/read", {"uri": "lisp://default/heap"})
            assert "Install SBCL" in answer["error"]["data"]
            assert await completed(client, "package", "x") == []
            assert await read(client, "default/history") == []

    run(main())


# -- completion --------------------------------------------------------------------------------

SYMBOL = "lisp://{session}/symbol/{package}/{name}"


async def completed(
    client: Client, name: str, value: str, uri: str = SYMBOL, **given: str
) -> list[str]:
    params: dict[str, Any] = {
        "ref": {"type": "ref/resource", "uri": uri},
        "argument": {"name": name, "value": value},
    }
    if given:
        params["context"] = {"arguments": given}
    values: list[str] = (await client.raw.request("completion/complete", params))["completion"][
        "values"
    ]
    return values


@pytest.mark.parametrize("revision", [one for one in ALL if one >= "2025-06-18"])
def test_completion(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            await client.text(PROGRAM)
            assert await completed(client, "session", "def") == ["default"]
            assert await completed(client, "package", "sho") == ["SHOP"]
            assert await completed(client, "name", "prin1", package="shop") == [
                "PRIN1",
                "PRIN1-TO-STRING",
            ]
            # Where nothing starts with it: first letters of words, then letters in order.
            assert await completed(client, "name", "mvb", package="cl") == ["MULTIPLE-VALUE-BIND"]
            assert await completed(client, "name", "mulbind", package="cl") == [
                "MULTIPLE-VALUE-BIND"
            ]
            assert await completed(client, "name", "invoi", package="shop") == ["INVOICE"]
            assert await completed(client, "name", "invoi", package="none") == []
            uri = "lisp://{session}/class/{package}/{name}"
            assert await completed(client, "name", "it", uri=uri, package="shop") == ["ITEM"]
            await client.tool("create-session", session="b")
            assert await completed(client, "package", "shop", session="b") == []
            assert await completed(client, "package", "shop", session="c") == []

    run(main())


def test_completion_of_old_clients_is_in_the_package_of_the_session() -> None:
    async def main() -> None:
        async with lisp("2024-11-05") as client:
            await client.text(PROGRAM)
            assert "INVOICE" not in await completed(client, "name", "invoi")
            await client.text("(in-package :shop)")
            assert await completed(client, "name", "invoi") == ["INVOICE"]

    run(main())


# -- news --------------------------------------------------------------------------------------


MARKER = "lisp://default/symbol/CL-USER/MARKER"


async def subscribe(client: Client, revision: str, *uris: str) -> None:
    if revision == MODERN:
        wanted = {"resourceSubscriptions": [*uris, MARKER]}
        client.raw.start("subscriptions/listen", {"notifications": wanted})
        acknowledged = await client.raw.receive()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    else:
        for uri in (*uris, MARKER):
            await client.raw.request("resources/subscribe", {"uri": uri})


async def news(client: Client) -> list[str]:
    """The URIs that were told before that of the marker, which is redefined now."""
    await client.text("(defun marker () 1)")
    uris = []
    while (uri := (await client.raw.receive())["params"]["uri"]) != MARKER:
        uris.append(uri)
    return sorted(uris)


PRICE = "lisp://default/symbol/SHOP/PRICE"
WEIGHT = "lisp://default/symbol/shop/weight"
ITEM = "lisp://default/class/SHOP/ITEM"


@pytest.mark.parametrize("revision", ALL)
def test_subscribers_hear_of_redefinitions(revision: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            await client.text(PROGRAM)
            await subscribe(client, revision, PRICE, WEIGHT, ITEM)
            assert await news(client) == []
            await client.text("(defun shop:price (hours) (* 5 hours))")
            assert await news(client) == [PRICE]
            await client.text("(defmethod shop::weight ((it shop:item)) 1)")
            assert await news(client) == [WEIGHT]
            await client.text("(defclass shop:item () (name colour))")
            assert await news(client) == [ITEM]
            # However it was done, and also when the call failed in the end.
            await client.error("(setf (fdefinition 'shop:price) #'identity) (/ 1 0)")
            assert await news(client) == [PRICE]
            (tmp_path / "new.lisp").write_text("(defun shop:price () :loaded)")
            await client.tool("load-file", path=str(tmp_path / "new.lisp"))
            assert await news(client) == [PRICE]
            await client.text("(fmakunbound 'shop:price)")
            assert await news(client) == [PRICE]
            # Calling it is nothing new, nor is another definition.
            await client.text("(defun other () 1) (other)")
            assert await news(client) == []
            # A new process has none of it.
            await client.error("(sb-ext:exit)")
            told = {(await client.raw.receive())["params"]["uri"] for _ in range(4)}
            assert told == {ITEM, PRICE, WEIGHT, MARKER}
            assert await news(client) == []

    run(main())


@pytest.mark.parametrize("revision", ALL)
def test_a_subscription_before_there_is_a_lisp(revision: str) -> None:
    async def main() -> None:
        async with lisp(revision) as client:
            mine = "lisp://default/symbol/CL-USER/MINE"
            await subscribe(client, revision, mine, "lisp://default/symbol/CL/CAR")
            await client.text("(defun mine () 1)")
            assert await news(client) == [mine]

    run(main())


def test_nobody_hears_after_unsubscribing() -> None:
    async def main() -> None:
        async with lisp() as client:
            await client.text(PROGRAM)
            await subscribe(client, "2025-11-25", PRICE)
            await client.raw.request("resources/unsubscribe", {"uri": PRICE})
            await client.text("(defun shop:price () 1)")
            assert await news(client) == []
            answer = await client.raw.answer("resources/subscribe", {"uri": "lisp://default/none"})
            assert "error" in answer

    run(main())
