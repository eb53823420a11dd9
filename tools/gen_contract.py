"""The contract as files: one per revision, made from the rules of ``dovetail check``.

``python tools/gen_contract.py`` writes them, ``--check`` says whether they are current.
"""

import sys
from pathlib import Path

import dovetail.check.probes  # noqa: F401 - registers the rules
from dovetail.check.rules import REVISIONS, RULES, Rule

PLACE = Path(__file__).resolve().parent.parent / "src" / "dovetail" / "check" / "contract"
HEAD = """\
# What a server keeps in MCP {revision}, rule by rule, as `dovetail check` tries it.
# Made by tools/gen_contract.py from the rules in dovetail/check/probes: change those.

revision = "{revision}"
"""


def text(letter: str) -> str:
    rules = [rule for rule in RULES.values() if letter in rule.revisions]
    return HEAD.format(revision=REVISIONS[letter]) + "".join(entry(rule, letter) for rule in rules)


def entry(rule: Rule, letter: str) -> str:
    lines = {
        "id": quoted(rule.id),
        "level": quoted(rule.level_in(letter)),
        "side": quoted("server"),
        "transports": listed(rule.transports),
        "text": quoted(rule.text),
        "section": quoted(rule.section),
        "covers": listed(rule.covers),
        "probe" if rule.probe else "no_probe": quoted(rule.how),
    }
    if rule.fix:
        lines["fix"] = quoted(rule.fix)
    return "\n[[rule]]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items())


def quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def listed(values: tuple[str, ...]) -> str:
    return f"[{', '.join(map(quoted, values))}]"


def main() -> int:
    stale = []
    for letter, revision in REVISIONS.items():
        path = PLACE / f"{revision}.toml"
        if path.exists() and path.read_text() == text(letter):
            continue
        stale.append(path.name)
        if "--check" not in sys.argv:
            PLACE.mkdir(exist_ok=True)
            path.write_text(text(letter))
    if stale and "--check" in sys.argv:
        print(f"not current: {', '.join(stale)}; run python tools/gen_contract.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
