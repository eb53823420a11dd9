"""Shell completion. For bash: eval "$(dovetail completion bash)"; zsh and fish likewise."""

import argparse
import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout

__all__ = ["add_arguments", "run", "words"]

_SCRIPTS = {
    "bash": """\
_dovetail() {
    local IFS=$'\\n'
    COMPREPLY=($(dovetail completion words "$COMP_CWORD" -- "${COMP_WORDS[@]}" 2>/dev/null))
}
complete -o default -F _dovetail dovetail""",
    "zsh": """\
_dovetail() {
    local -a found
    found=("${(@f)$(dovetail completion words $((CURRENT - 1)) -- "${words[@]}" 2>/dev/null)}")
    compadd -a found
}
compdef _dovetail dovetail""",
    "fish": """\
function __dovetail
    set -l line (commandline -opc) (commandline -ct)
    dovetail completion words (math (count $line) - 1) -- $line 2>/dev/null
end
complete -c dovetail -f -a '(__dovetail)'""",
}

# Which list has the names that a command takes first.
_FIRST = {"call": "tools", "read": "resources", "prompt": "prompts", "complete": "prompts"}


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    parser.add_argument("shell", choices=[*_SCRIPTS, "words"])
    parser.add_argument("position", nargs="?", type=int, default=0, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    if options.shell != "words":
        print(_SCRIPTS[options.shell])
        return 0
    for word in words(options.position, options.command):
        print(word)
    return 0


def words(position: int, line: Sequence[str]) -> list[str]:
    """What the word at ``position`` could be. ``line[0]`` is ``dovetail`` itself."""
    from dovetail.cli.main import _COMMANDS

    typed = line[position] if position < len(line) else ""
    if position <= 1:
        return [name for name in _COMMANDS if name.startswith(typed)]
    if typed.startswith("-") or line[1] not in _FIRST or _has_name(position, line):
        return []
    # The rest of the line names the server, after `--` or by options.
    rest = [word for number, word in enumerate(line) if number > 1 and number != position]
    names = _names(["list", _FIRST[line[1]], "--names", "--quiet", "--timeout", "5", *rest])
    return [name for name in names if name.startswith(typed)]


def _has_name(position: int, line: Sequence[str]) -> bool:
    """Whether an earlier word is the name already: one that is neither an option nor its value."""
    taken = False
    for word in line[2:position]:
        if not taken and not word.startswith("-"):
            return True
        taken = word.startswith("--") and "=" not in word and word not in ("--json", "--quiet")
    return False


def _names(arguments: list[str]) -> list[str]:
    from dovetail.cli.main import main

    output = io.StringIO()
    try:
        with redirect_stdout(output), redirect_stderr(io.StringIO()):
            code = main(arguments)
    except SystemExit:  # argparse does not understand the line yet
        return []
    return output.getvalue().splitlines() if code == 0 else []
