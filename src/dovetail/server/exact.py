"""What happens when fast decoding of arguments fails: one exact retry, then a good message.

msgspec refuses ``1.0`` for ``int`` although JSON Schema calls it an integer.
Only after such a refusal are the arguments read again as plain JSON, integral
numbers written as integers where the schema asks for one, and decoded once
more. Fractions are kept as ``Decimal`` in between, so nothing is rounded.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

import msgspec

# A larger exponent would let ten bytes of input become a gigantic integer; it
# is the range of a double, beyond which most peers cannot write numbers anyway.
MAX_EXPONENT = 308
SHOWN = 80

_read = msgspec.json.Decoder(float_hook=Decimal).decode
_write = msgspec.json.Encoder(decimal_format="number").encode

# Patterns are compiled when first used: most servers never refuse an argument.
_MESSAGE = r"(?s)(.*?)(?: - at (?:`key` in )?`\$(.*)`)?\Z"
_STEP = r"\.([^.\[]+)|\[(\d+)\]|\[(\.\.\.)\]"
_EXPECTED = r"Expected (.*?)(?:, got `(.*)`)?\Z"
_FIELD = r"Object (missing required|contains unknown) field `(.*)`\Z"
_NAMES = {
    str: "str",
    bool: "bool",
    int: "int",
    Decimal: "float",
    float: "float",
    list: "array",
    dict: "object",
}
_NOTHING = object()

_MAPS = ("properties", "$defs", "patternProperties", "dependentSchemas", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = (
    "items",
    "additionalProperties",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
)


class BrokenJson(Exception):
    """The slice is not JSON at all (-32700), whatever the envelope pass thought."""


class ArgumentError(Exception):
    """An argument does not fit; the text is meant for the model that sent it.

    ``path`` is "" for the arguments as a whole; ``not_object`` says that they
    were no JSON object.
    """

    def __init__(
        self, path: str, want: str, got: str, *, text: str | None = None, not_object: bool = False
    ) -> None:
        self.path = path
        self.want = want
        self.got = got
        self.not_object = not_object
        super().__init__(text or invalid_text(path, want, got))


def invalid_text(path: str, want: str, got: str) -> str:
    where = f"Invalid argument '{path}'" if path else "Invalid arguments"
    return f"{where}: expected {want}" + (f", got {got}" if got else "")


def missing(path: str) -> ArgumentError:
    return ArgumentError(path, "a value", "nothing", text=f"Missing required argument '{path}'")


def unknown(path: str, names: Iterable[str]) -> ArgumentError:
    listed = ", ".join(f"'{name}'" for name in names)
    text = f"Unknown argument '{path}'; " + (f"known: {listed}" if listed else "none is known here")
    return ArgumentError(path, "no such argument", "one", text=text)


def not_object(value: Any) -> ArgumentError:
    got = show(value)
    return ArgumentError(
        "", "object", got, text=f"Arguments must be an object, got {got}", not_object=True
    )


def show(value: Any) -> str:
    """The type and the JSON text of a value, cut short."""
    text = short(value)
    return text if value is None else f"{_NAMES.get(type(value), 'value')} {text}"


def short(value: Any) -> str:
    try:
        text = _write(value).decode()
    except Exception:  # a lone surrogate, a type of the user's own: only a message is at stake
        text = ascii(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def read_plain(raw: bytes | msgspec.Raw, read: Callable[[Any], Any] = _read) -> Any:
    """Plain JSON, by default with fractions as ``Decimal``."""
    try:
        return read(raw)
    except msgspec.ValidationError as error:
        raise ArgumentError(
            "", "numbers in range", "", text=str(error).partition(" - at")[0]
        ) from None
    except ArithmeticError:
        raise ArgumentError("", "numbers in range", "", text="Number out of range") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # msgspec's text is not shown: it calls a lone surrogate "truncated".
        raise BrokenJson("the arguments are not valid JSON") from None


def retry(
    decode: Callable[[bytes], Any],
    raw: bytes | msgspec.Raw,
    schema: dict[str, Any],
    error: Exception,
) -> Any:
    """Decode once more with integral numbers as integers, or say what is wrong."""
    if not isinstance(error, msgspec.ValidationError):
        raise BrokenJson("the arguments are not valid JSON") from None
    value = read_plain(raw)
    try:
        return decode(_write(integers(schema, value)))
    except msgspec.ValidationError as again:
        raise explain(str(again), value, schema) from None
    except RecursionError:
        raise BrokenJson("the arguments are nested too deeply") from None


def rewrite(schema: dict[str, Any], value: Any) -> bytes:
    """``value`` as JSON, integral numbers as integers where the schema wants one."""
    return _write(integers(schema, value))


def integers(root: dict[str, Any], value: Any) -> Any:
    """A copy of ``value`` with integral numbers as ``int`` where ``root`` says integer."""
    return _walk([root], value, root)


def _walk(schemas: list[Any], value: Any, root: dict[str, Any]) -> Any:
    if not isinstance(value, (Decimal, float, list, dict)):
        return value
    arms = _arms(schemas, root)
    if not any(arms):
        return value  # Any: nothing below it has a schema either
    if isinstance(value, list):
        return [_walk(_children(arms, at), item, root) for at, item in enumerate(value)]
    if isinstance(value, dict):
        arms = [arm for arm in arms if _tag_fits(arm, value)]
        return {key: _walk(_children(arms, key), item, root) for key, item in value.items()}
    wanted = _is_integral(value) and any(_wants_int(arm, value) for arm in arms)
    return int(value) if wanted and not any("number" in _types(arm) for arm in arms) else value


def _arms(schemas: list[Any], root: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas with references and combinators opened, each one once.

    "Once" keeps the walk linear for recursive unions.
    """
    seen: dict[int, dict[str, Any]] = {}
    stack = list(schemas)
    while stack:
        node = stack.pop()
        if not isinstance(node, dict) or id(node) in seen:
            continue
        seen[id(node)] = node
        if "$ref" in node:
            stack.append(resolve(root, node["$ref"]))
        for key in ("anyOf", "oneOf", "allOf"):
            stack += node.get(key, ())
    return list(seen.values())


def resolve(root: dict[str, Any], ref: str) -> Any:
    """The schema a local JSON pointer names; an open schema if there is none."""
    node: Any = root
    for part in ref.lstrip("#").split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or part not in node:
            return {}
        node = node[part]
    return node


def _children(arms: list[dict[str, Any]], key: str | int) -> list[Any]:
    if isinstance(key, str):
        return [arm.get("properties", {}).get(key, arm.get("additionalProperties")) for arm in arms]
    prefixes = ((arm, arm.get("prefixItems", ())) for arm in arms)
    return [prefix[key] if key < len(prefix) else arm.get("items") for arm, prefix in prefixes]


def _tag_fits(arm: dict[str, Any], value: dict[str, Any]) -> bool:
    """False for an arm of a tagged union that carries another tag."""
    return all(
        value[name] in _choices(sub)
        for name, sub in arm.get("properties", {}).items()
        if name in value and isinstance(sub, dict) and _choices(sub)
    )


def _choices(schema: dict[str, Any]) -> list[Any]:
    return [schema["const"]] if "const" in schema else schema.get("enum", [])


def _types(schema: dict[str, Any]) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else types


def _wants_int(schema: dict[str, Any], value: Any) -> bool:
    choices = (choice for choice in _choices(schema) if type(choice) is int)
    return "integer" in _types(schema) or value in choices


def _is_integral(value: Decimal | float) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    _, digits, exponent = value.as_tuple()
    if not value or not isinstance(exponent, int) or value.adjusted() > MAX_EXPONENT:
        return not value
    # By digits: to_integral_value() rounds, and a ratio is quadratic in a long text.
    return exponent >= 0 or (value.adjusted() >= 0 and not any(digits[exponent:]))


def explain(message: str, value: Any, schema: dict[str, Any]) -> ArgumentError:
    """msgspec's message as an ArgumentError with path, expectation and value."""
    found = re.match(_MESSAGE, message)
    text, where = (found[1], found[2] or "") if found else (message, "")
    steps = [_step(*step) for step in re.findall(_STEP, where)]
    path = where.removeprefix(".")
    if field := re.match(_FIELD, text):
        return _field_error(field[1], f"{path}.{field[2]}".lstrip("."), schemas_at(schema, steps))
    if not path and not isinstance(value, dict):
        return not_object(value)
    at = _follow(value, steps)
    got = "" if at is _NOTHING else show(at)
    if text.startswith(("Invalid enum value", "Invalid value")):
        return ArgumentError(path, _one_of(schemas_at(schema, steps)), got)
    if expected := re.match(_EXPECTED, text):
        key = "a key that is " if "`key`" in message else ""
        want = key + expected[1].replace("`", "")
        return ArgumentError(path, want, expected[2] or "" if key or not got else got)
    return ArgumentError(path, "a valid value", got, text=plain_text(path, text, got))


def plain_text(path: str, text: str, got: str) -> str:
    where = f"Invalid argument '{path}'" if path else "Invalid arguments"
    return f"{where}: {text}" + (f", got {got}" if got else "")


def _field_error(kind: str, path: str, arms: list[dict[str, Any]]) -> ArgumentError:
    return missing(path) if kind == "missing required" else unknown(path, known(arms))


def known(arms: list[dict[str, Any]]) -> Iterable[str]:
    return dict.fromkeys(name for arm in arms for name in arm.get("properties", ()))


def _one_of(arms: list[dict[str, Any]]) -> str:
    choices = [short(choice) for arm in arms for choice in _choices(arm)]
    return "one of " + ", ".join(choices) if choices else "another value"


def _step(name: str, index: str, dots: str) -> str | int:
    # "[...]" stands for some key of a dict; no property can have that name here.
    return int(index) if index else name or f"[{dots}]"


def schemas_at(root: dict[str, Any], steps: list[str | int]) -> list[dict[str, Any]]:
    """Every schema that applies to the value at a path."""
    arms = _arms([root], root)
    for step in steps:
        arms = _arms(_children(arms, step), root)
    return arms


def _follow(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return _NOTHING
    return value


def subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every schema object below (and with) this one; never plain data such as defaults."""
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            for key in _MAPS:
                stack += _values(node.get(key))
            for key in _LISTS:
                stack += _items(node.get(key))
            stack += [node[key] for key in _SINGLE if key in node]


def _values(node: Any) -> list[Any]:
    return list(node.values()) if isinstance(node, dict) else []


def _items(node: Any) -> list[Any]:
    return node if isinstance(node, list) else []
