"""Good frames made bad, reproducibly: the same seed gives the same frames."""

import json
import random
from typing import Any

__all__ = ["mutate"]

_ODD_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 2**63, 1e308, 0.5),
    *("", "x", "\u0000", "☃" * 50, "../../etc/passwd", "a" * 5000),
    *([], {}, [[]], {"": {}}),
]
_ODD_BYTES = (
    b"\x00",
    b"\xff",
    b"\xc3",
    b"\\",
    b'"',
    b"{",
    b"}",
    b"[",
    b",",
    b"\r",
    b"\xef\xbb\xbf",
)


def mutate(frame: bytes, rng: random.Random) -> bytes:
    """One frame, changed in one to three places."""
    for _ in range(rng.randint(1, 3)):
        frame = rng.choice((_change_member, _change_member, _change_bytes))(frame, rng)
    return frame.replace(b"\n", b" ")


def _change_bytes(frame: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(frame) + 1)
    kind = rng.randrange(4)
    if kind == 0:
        return frame[:at]
    if kind == 1:
        return frame[:at] + rng.choice(_ODD_BYTES) + frame[at:]
    if kind == 2:
        return frame[:at] + frame[at + rng.randint(1, 8) :]
    return frame[:at] + frame[at : at + 20] * rng.randint(2, 50) + frame[at:]


def _change_member(frame: bytes, rng: random.Random) -> bytes:
    """Change the JSON inside; bytes that are none any more are changed as bytes."""
    try:
        value = json.loads(frame)
    except (ValueError, RecursionError):
        return _change_bytes(frame, rng)
    places = list(_places(value))
    if not places:
        return json.dumps(rng.choice(_ODD_VALUES)).encode()
    parent, key = rng.choice(places)
    kind = rng.randrange(4)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[f"{key}x"] = parent.pop(key)
    elif kind == 2:
        parent[key] = [parent[key]] * rng.randint(1, 3)
    else:
        parent[key] = rng.choice(_ODD_VALUES)
    return json.dumps(value, separators=(",", ":")).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every member of every object and array, as (parent, key)."""
    found: list[tuple[Any, Any]] = []
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in list(items):
        found.append((value, key))
        found += _places(child)
    return found
