"""Python values as the s-expressions the bridge reads."""

from typing import Any

__all__ = ["Keyword", "sexp"]


class Keyword(str):
    """Written as ``:name``."""

    __slots__ = ()


def sexp(value: Any) -> str:
    """Strings, numbers, lists, and dicts as property lists; no symbols but keywords, T and NIL."""
    if type(value) is str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if value is None or value is False:
        return "NIL"
    if value is True:
        return "T"
    if isinstance(value, Keyword):
        return f":{value}"
    if isinstance(value, dict):
        return _list(f":{key.replace('_', '-')} {sexp(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return _list(map(sexp, value))
    return repr(value)


def _list(items: Any) -> str:
    return f"({' '.join(items)})"
