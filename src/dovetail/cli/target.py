"""What ``dovetail serve TARGET`` names: a file or a module, and the server in it."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from dovetail.server.app import Server

__all__ = ["TargetError", "address", "load"]

_DEFAULT_NAME = "server"


class TargetError(Exception):
    """The target cannot be served; the text says why and what would help."""


def load(target: str) -> Server:
    """``file.py[:name]`` or ``module:name``; the name is ``server`` unless given."""
    place, colon, name = target.rpartition(":")
    if not colon or name.endswith(".py") or os.sep in name:
        place, name = target, _DEFAULT_NAME
    is_file = place.endswith(".py")
    if not is_file and not colon and "." not in place:
        raise TargetError(f"{target!r} is neither a file.py nor a module:name")
    namespace = vars(_load_file(place) if is_file else _load_module(place))
    return _server(namespace, place, name)


def _server(namespace: dict[str, Any], place: str, name: str) -> Server:
    found = namespace.get(name)
    if isinstance(found, Server):
        return found
    servers = [key for key, value in namespace.items() if isinstance(value, Server)]
    hint = f"; it has {', '.join(servers)}" if servers else "; it has no dovetail.Server at all"
    raise TargetError(f"{place} has no Server named {name!r}{hint}")


def _load_file(place: str) -> Any:
    path = Path(place)
    if not path.is_file():
        raise TargetError(f"there is no file {place}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # annotations in it are looked up there
    sys.path.insert(0, str(path.parent.resolve()))  # as `python file.py` does
    spec.loader.exec_module(module)
    return module


def _load_module(place: str) -> Any:
    sys.path.insert(0, "")  # as `python -m module` does
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not (place + ".").startswith(error.name + "."):
            raise  # something the module itself needs
        raise TargetError(f"there is no module {place!r}") from None


def address(written: str) -> tuple[str, int]:
    """``HOST:PORT``; an IPv6 host is in brackets."""
    host, colon, port = written.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise TargetError(f"{written!r} is not HOST:PORT, such as 127.0.0.1:8000")
    return host.removeprefix("[").removesuffix("]"), int(port)
