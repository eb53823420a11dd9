"""Colours, a progress bar and questions, for people; scripts see none of it."""

import asyncio
import os
import sys
from typing import Any, TextIO

__all__ = ["ask", "bold", "dim", "progress_bar", "red"]

WIDTH = 30


def _styled(code: str, text: str, stream: TextIO) -> str:
    """https://no-color.org: a terminal gets colours unless its user does not want them."""
    if not stream.isatty() or "NO_COLOR" in os.environ:
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def bold(text: str) -> str:
    return _styled("1", text, sys.stdout)


def dim(text: str) -> str:
    return _styled("2", text, sys.stdout)


def red(text: str) -> str:
    return _styled("31", text, sys.stderr)


class _ProgressBar:
    """One line on stderr, rewritten in place."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, progress: Any) -> None:
        if not sys.stderr.isatty():
            return
        if progress.total:
            part = max(0.0, min(1.0, progress.done / progress.total))
            filled = round(part * WIDTH)
            bar = f"[{'█' * filled}{'·' * (WIDTH - filled)}] {part:4.0%}"
        else:
            bar = f"{progress.done:g}"
        sys.stderr.write(f"\r\x1b[K{bar} {_plain(progress.message or '')[:40]}")
        sys.stderr.flush()
        self._shown = True

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False


progress_bar = _ProgressBar()


def _plain(text: str) -> str:
    """A server's words must not move our cursor."""
    return "".join(c if c.isprintable() else " " for c in text)


async def ask(question: Any) -> Any:
    """Answer a server's question at the terminal: Enter takes the default, Ctrl-D cancels."""
    progress_bar.clear()
    try:
        return await asyncio.to_thread(_ask, question)
    except EOFError:
        return None


def _ask(question: Any) -> Any:
    print(f"The server asks: {_plain(question.message)}", file=sys.stderr)
    if question.mode == "url":
        print(f"It wants you to open this page: {_plain(question.url)}", file=sys.stderr)
        return _yes("Have you, or will you?")
    if not _yes("Answer?"):
        return False
    answers = {}
    for name, field in question.fields.items():
        value = _field(question, name, field)
        if value is not None:
            answers[name] = value
    return answers


def _yes(text: str) -> bool:
    return _line(f"{text} [y/N] ").strip().lower() in ("y", "yes")


def _line(prompt: str) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def _field(question: Any, name: str, field: dict[str, Any]) -> Any:
    from dovetail.cli.arguments import BadArgument, read_value

    choices = question.choices(name)
    title = _plain(str(field.get("title", name)))
    hint = f" ({'/'.join(map(_plain, choices))})" if choices else ""
    default = f" [{field['default']}]" if "default" in field else ""
    while True:
        text = _line(f"  {title}{hint}{default}: ").rstrip("\n")
        if not text:
            if "default" in field or name not in question.required:
                return field.get("default")
            continue
        try:
            many = field.get("type") == "array"
            return text.split(",") if many else read_value(name, text, field)
        except BadArgument as error:
            print(f"  {error}", file=sys.stderr)
