"""Derive the package's schema data from the official schemas.

    python tools/gen_surface.py [--source DIR] [--check]

Reads `<revision>/schema.json` of the five revisions and `ext-tasks/schema.json` below DIR
(`../shared/spec` beside the repository) and writes, below `src/dovetail/spec`:

    schema/<revision>.json   structure of the official schema, without prose, defects patched
    schema/PINNED.json       sha256 of every source file, and the patches with their reasons
    _surface.py              tables: methods, fields and content tags by revision

`--check` writes nothing; it fails when a source is not the pinned one or a file would change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src" / "dovetail" / "spec"
SOURCE = ROOT.parent / "shared" / "spec"

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
LETTERS = "ABCDE"
TASKS = "ext-tasks"

# Prose keywords; inside `properties` the same names are names of members and stay.
PROSE = frozenset({"description", "$comment", "title", "examples"})
# Keywords whose value maps names to schemas, and keywords whose value is data.
NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions"})
DATA = frozenset({"const", "enum", "default", "required", "type"})

# Members whose own members are nobody's business here.
OPEN = frozenset({"_meta", "inputSchema", "outputSchema", "requestedSchema"})

Schema = dict[str, Any]


class Patch(NamedTuple):
    """One correction of a known defect: the value at a JSON pointer, before and after."""

    file: str
    pointer: str
    old: Any
    new: Any
    reason: str


_NUMBER = "generated from a TypeScript `number`, but fractions are refused"
_VALUE = "JSONValue is any JSON value, but fractions and null are refused"
_SCALARS = ["string", "integer", "boolean"]
_CONTENT = "/$defs/ElicitResult/properties/content/additionalProperties/anyOf/1/type"
_JSON_VALUE = "/$defs/JSONValue/anyOf/2/type"

PATCHES = (
    Patch(
        "2025-06-18",
        "/definitions/ElicitResult/properties/content/additionalProperties/type",
        _SCALARS,
        ["string", "number", "boolean"],
        _NUMBER,
    ),
    *(
        Patch(file, _CONTENT, _SCALARS, ["string", "number", "boolean"], _NUMBER)
        for file in ("2025-11-25", "2026-07-28", TASKS)
    ),
    *(
        Patch(file, _JSON_VALUE, _SCALARS, ["string", "number", "boolean", "null"], _VALUE)
        for file in ("2026-07-28", TASKS)
    ),
)

# Concepts that a revision spells differently: (letter, where it is) -> name in the newest one.
RENAMED = {
    ("A", "Annotated.annotations"): "Annotations",
    ("A", "ResourceReference"): "ResourceTemplateReference",
    ("B", "ResourceReference"): "ResourceTemplateReference",
    ("X", "TaskSubscriptionNotifications"): "SubscriptionFilter",
}
# Official types that `types.py` holds in one Struct.
MERGED = {
    "TextResourceContents": "ResourceContents",
    "BlobResourceContents": "ResourceContents",
    "ElicitRequestFormParams": "ElicitRequestParams",
    "ElicitRequestURLParams": "ElicitRequestParams",
}


# --- the schema files ---------------------------------------------------------------------------


def strip(node: Any, *, root: bool = True) -> Any:
    """A copy of a schema without prose."""
    if isinstance(node, list):
        return [strip(item, root=False) for item in node]
    if not isinstance(node, dict):
        return node
    out: Schema = {}
    for key, value in node.items():
        if key in NAMED:
            out[key] = {name: strip(sub, root=False) for name, sub in value.items()}
        elif key in DATA:
            out[key] = value
        elif key not in PROSE and (root or key != "$schema"):
            out[key] = strip(value, root=False)
    return out


def apply_patches(file: str, schema: Schema) -> None:
    """Correct the known defects, and notice when upstream has corrected one."""
    for patch in PATCHES:
        if patch.file != file:
            continue
        *path, last = patch.pointer.lstrip("/").split("/")
        node: Any = schema
        for step in path:
            node = node[int(step)] if isinstance(node, list) else node[step]
        if node[last] != patch.old:
            raise SystemExit(f"{file}{patch.pointer}: expected {patch.old}, found {node[last]}")
        node[last] = patch.new


def definitions(schema: Schema) -> dict[str, Schema]:
    """The definitions, under either of their two names."""
    found: dict[str, Schema] = schema.get("$defs") or schema["definitions"]
    return found


# --- the tables ---------------------------------------------------------------------------------


def target(defs: dict[str, Schema], node: Schema) -> Schema:
    """Follow a reference."""
    while "$ref" in node:
        node = defs[node["$ref"].rpartition("/")[2]]
    return node


def arms(defs: dict[str, Schema], name: str) -> list[Schema]:
    """The members of a union definition; a union of one is written without `anyOf`."""
    node = defs.get(name)
    if node is None:
        return []
    return [target(defs, arm) for arm in node.get("anyOf", [node])]


def const(defs: dict[str, Schema], node: Schema, member: str) -> str | None:
    """The constant a member of this schema must have."""
    for part in (node, *(target(defs, arm) for arm in node.get("allOf", ()))):
        value = part.get("properties", {}).get(member, {}).get("const")
        if isinstance(value, str):
            return value
    return None


def methods(defs: dict[str, Schema], union: str) -> list[str]:
    """The methods of one direction."""
    found = {const(defs, arm, "method") for arm in arms(defs, union)}
    return sorted(name for name in found if name)


def tags(defs: dict[str, Schema], node: Schema) -> list[str]:
    """The `type` tags of a union of content blocks, single or in a list."""
    node = target(defs, node)
    if "anyOf" in node:
        return sorted({tag for arm in node["anyOf"] for tag in tags(defs, arm)})
    if node.get("type") == "array":
        return tags(defs, node["items"])
    return [node["properties"]["type"]["const"]]


def members(defs: dict[str, Schema], node: Schema) -> dict[str, Schema]:
    """The members an object may have; compositions are merged."""
    node = target(defs, node)
    found: dict[str, Schema] = dict(node.get("properties", {}))
    for arm in (*node.get("allOf", ()), *node.get("anyOf", ())):
        found.update(members(defs, arm))
    return found


class Fields:
    """Which revisions have which member of which type."""

    def __init__(self) -> None:
        self.table: dict[str, dict[str, str]] = {}

    def add(self, letter: str, name: str, found: dict[str, Schema]) -> None:
        name = RENAMED.get((letter, name), name)
        letter = "E" if letter == "X" else letter
        for type_name in {name, MERGED.get(name, name)}:
            fields = self.table.setdefault(type_name, {})
            for member in found:
                if letter not in fields.get(member, ""):
                    fields[member] = fields.get(member, "") + letter

    def add_definition(self, letter: str, defs: dict[str, Schema], name: str) -> None:
        node = defs[name]
        if "anyOf" in node and "allOf" not in node and name != "DetailedTask":
            return  # a union; its arms have names of their own
        found = members(defs, node)
        if "method" in found:  # a message: its params are what is of interest
            if "params" in found:
                self.add(letter, f"{name}Params", self._params(defs, found["params"]))
            return
        if "jsonrpc" in found:
            return
        self.add(letter, name, found)
        for member, sub in found.items():
            if sub.get("properties") and member not in OPEN:
                self.add(letter, f"{name}.{member}", sub["properties"])

    @staticmethod
    def _params(defs: dict[str, Schema], node: Schema) -> dict[str, Schema]:
        found = members(defs, node)
        if "$ref" not in node:
            # Inline params leave out what they inherit from Request and Notification.
            found.setdefault("_meta", {})
        return found


def field_table(schemas: dict[str, Schema]) -> dict[str, dict[str, str]]:
    """FIELDS: type name -> member -> letters of the revisions that have it."""
    fields = Fields()
    for letter, revision in zip(LETTERS, REVISIONS, strict=True):
        defs = definitions(schemas[revision])
        for name in defs:
            fields.add_definition(letter, defs, name)
    # The extension brings its own copies of core types; only what is new counts.
    core = definitions(schemas[REVISIONS[-1]])
    defs = definitions(schemas[TASKS])
    for name in defs:
        if name not in core:
            fields.add_definition("X", defs, name)
    return {
        name: dict(sorted(found.items())) for name, found in sorted(fields.table.items()) if found
    }


def surface(schemas: dict[str, Schema]) -> str:
    """The text of `_surface.py`."""
    lines = [
        '"""Which revision has which methods, members and content blocks.',
        "",
        "Generated by tools/gen_surface.py, do not edit. Letters: A 2024-11-05, B 2025-03-26,",
        "C 2025-06-18, D 2025-11-25, E 2026-07-28 (with the tasks extension).",
        '"""',
        "",
        "from typing import Final",
        "",
        "REVISIONS: Final = (",
        *(f'    "{revision}",' for revision in REVISIONS),
        ")",
    ]
    unions = {
        "CLIENT_REQUESTS": "ClientRequest",
        "SERVER_REQUESTS": "ServerRequest",
        "CLIENT_NOTIFICATIONS": "ClientNotification",
        "SERVER_NOTIFICATIONS": "ServerNotification",
    }
    all_defs = {revision: definitions(schemas[revision]) for revision in REVISIONS}
    for table, union in unions.items():
        rows = {revision: methods(defs, union) for revision, defs in all_defs.items()}
        lines += _sets(table, rows)
    tasks = definitions(schemas[TASKS])
    found = sorted(filter(None, (const(tasks, node, "method") for node in tasks.values())))
    own = [name for name in found if name.startswith(("tasks/", "notifications/tasks"))]
    lines += _set("TASKS_REQUESTS", [name for name in own if name.startswith("tasks/")])
    lines += _set("TASKS_NOTIFICATIONS", [name for name in own if not name.startswith("tasks/")])
    for table, type_name in {
        "CONTENT": "CallToolResult",
        "SAMPLING_CONTENT": "SamplingMessage",
    }.items():
        rows = {
            revision: tags(defs, defs[type_name]["properties"]["content"])
            for revision, defs in all_defs.items()
        }
        lines += _sets(table, rows)
    lines += ["", "FIELDS: Final[dict[str, dict[str, str]]] = {"]
    for name, members_ in field_table(schemas).items():
        lines.append(f'    "{name}": {{')
        lines += [f'        "{member}": "{letters}",' for member, letters in members_.items()]
        lines.append("    },")
    lines.append("}")
    return "\n".join(lines) + "\n"


def _set(name: str, values: list[str]) -> list[str]:
    items = "".join(f'"{value}", ' for value in values).rstrip(", ")
    return ["", f"{name}: Final[frozenset[str]] = frozenset({{{items}}})"]


def _sets(name: str, rows: dict[str, list[str]]) -> list[str]:
    lines = ["", f"{name}: Final[dict[str, frozenset[str]]] = {{"]
    for revision, values in rows.items():
        if not values:
            lines.append(f'    "{revision}": frozenset(),')
            continue
        lines.append(f'    "{revision}": frozenset(')
        lines += ["        {", *(f'            "{value}",' for value in values), "        }"]
        lines.append("    ),")
    return [*lines, "}"]


# --- files --------------------------------------------------------------------------------------


def as_json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def generate(source: Path) -> dict[str, str]:
    """The text of every generated file, by its path below `src/dovetail/spec`."""
    schemas: dict[str, Schema] = {}
    pins: dict[str, str] = {}
    for name in (*REVISIONS, TASKS):
        data = (source / name / "schema.json").read_bytes()
        pins[f"{name}/schema.json"] = hashlib.sha256(data).hexdigest()
        schemas[name] = strip(json.loads(data))
        apply_patches(name, schemas[name])
    files = {f"schema/{name}.json": as_json(schema) for name, schema in schemas.items()}
    patches = [patch._asdict() for patch in PATCHES]
    files["schema/PINNED.json"] = as_json({"patches": patches, "sha256": pins})
    files["_surface.py"] = surface(schemas)
    return files


def drift(source: Path, into: Path = TARGET) -> list[str]:
    """What is wrong with the committed files, one line each; empty when all is well."""
    files = generate(source)
    problems = []
    pinned = into / "schema" / "PINNED.json"
    if pinned.exists():
        have = json.loads(files["schema/PINNED.json"])["sha256"]
        want = json.loads(pinned.read_text("utf-8"))["sha256"]
        problems += [
            f"{name}: not the pinned file" for name in have if have[name] != want.get(name)
        ]
    for name, text in files.items():
        path = into / name
        if not path.exists():
            problems.append(f"{name}: missing")
        elif path.read_text("utf-8") != text:
            problems.append(f"{name}: differs from what the sources give")
    return problems


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Derive schema data from the official schemas.")
    parser.add_argument("--source", type=Path, default=SOURCE, help="directory of the schemas")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on drift")
    options = parser.parse_args(argv)
    if options.check:
        problems = drift(options.source)
        for problem in problems:
            print(problem, file=sys.stderr)
        return 1 if problems else 0
    for name, text in generate(options.source).items():
        path = TARGET / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
