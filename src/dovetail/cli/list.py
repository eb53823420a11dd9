"""List what a server offers: its tools, resources, templates and prompts."""

import argparse
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, to_builtins

from dovetail.cli import connect
from dovetail.cli.show import print_json
from dovetail.cli.terminal import bold, dim
from dovetail.client.client import Client

__all__ = ["add_arguments", "run"]

_KINDS = ("tools", "resources", "templates", "prompts")


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    parser.add_argument("kind", nargs="?", choices=_KINDS, help="only these")
    parser.add_argument("--json", action="store_true", help="everything, for scripts")
    parser.add_argument("--names", action="store_true", help="one name or URI a line")
    connect.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    return connect.run(options, lambda client: _list(client, options))


async def _list(client: Client, options: argparse.Namespace) -> int:
    found = {kind: await _items(client, kind) for kind in _wanted(options)}
    if options.json:
        print_json({"server": _about(client), **to_builtins(found)})
    elif options.names:
        for items in found.values():
            for item in items:
                print(_name(item))
    else:
        _show(client, found)
    return 0


def _wanted(options: argparse.Namespace) -> tuple[str, ...]:
    return _KINDS if options.kind is None else (options.kind,)


async def _items(client: Client, kind: str) -> list[Any]:
    area = "resources" if kind == "templates" else kind
    if getattr(client.capabilities, area) is UNSET:
        return []
    items: list[Any] = await getattr(client, kind).all()
    return items


def _about(client: Client) -> dict[str, Any]:
    info = {} if client.server is None else to_builtins(client.server)
    return {**info, "revision": client.revision}


def _name(item: Any) -> str:
    return str(getattr(item, "uri", None) or getattr(item, "uri_template", None) or item.name)


def _show(client: Client, found: dict[str, list[Any]]) -> None:
    about = _about(client)
    name = f"{about.get('name', 'a server without a name')} {about.get('version', '')}".strip()
    print(f"{bold(name)} {dim('speaks ' + client.revision)}")
    for kind, items in found.items():
        if items:
            print(f"\n{bold(kind)}")
        for item in items:
            print(f"  {_name(item)}{dim(_arguments(item))}")
            if item.description:
                print(f"      {item.description.strip().splitlines()[0]}")


def _arguments(item: Any) -> str:
    schema = getattr(item, "input_schema", None)
    if schema is not None:
        required = schema.get("required", ())
        names = [n if n in required else f"[{n}]" for n in schema.get("properties", {})]
    else:
        given = getattr(item, "arguments", UNSET)
        names = [] if given is UNSET else [a.name if a.required else f"[{a.name}]" for a in given]
    return f" {' '.join(names)}" if names else ""
