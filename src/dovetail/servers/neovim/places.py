"""Paths and URIs as clients write them, and which paths they may name."""

import os
import stat
from collections.abc import Iterable
from urllib.parse import quote, unquote

__all__ = ["absolute", "inside", "is_file", "path_of", "raw_uri", "read_regular", "uri_of"]


def uri_of(path: str) -> str:
    """``file:///a%20b``: for URIs that a client parses."""
    return "file://" + quote(path, safe="/")


def raw_uri(path: str) -> str:
    """``file:///a b``: Claude Code cuts the scheme off its diagnostics and compares paths."""
    return "file://" + path


def path_of(uri: str) -> tuple[str, str]:
    """The path of a URI as it is written, and with its escapes resolved."""
    path = uri.removeprefix("file://")
    return path, unquote(path)


def absolute(path: str, directory: str) -> str:
    return os.path.normpath(os.path.join(directory, path))


def is_file(path: str) -> bool:
    return os.path.isfile(path)


def inside(path: str, folders: Iterable[str]) -> bool:
    """Whether a path, its symbolic links followed, lies in one of the folders."""
    real = os.path.realpath(path)
    for folder in folders:
        root = os.path.realpath(folder)
        if real == root or real.startswith(root.rstrip("/") + "/"):
            return True
    return False


def read_regular(path: str) -> bytes | None:
    """The bytes of a file, None if there is none; OSError for what is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read()
