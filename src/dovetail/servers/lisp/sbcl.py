"""The SBCL that is installed, and the bridge compiled for it."""

import asyncio
import hashlib
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["BRIDGE", "PARTS", "NoLisp", "Sbcl"]

BRIDGE = Path(__file__).parent / "bridge"
# In the order they are loaded; bridge.lisp loads the same for an attached image.
PARTS = (
    "package",
    "wire",
    "output",
    "jobs",
    "frames",
    "debugger",
    "evaluate",
    "readonly",
    "serve",
)


class NoLisp(Exception):
    """There is no SBCL, or it does not start; the text says what to do."""


class Sbcl:
    """Where it is, which version, and the arguments that load the bridge into it."""

    def __init__(self, program: str = "sbcl", cache: Path | None = None) -> None:
        self.program = program
        self._cache = cache or _cache_folder()
        self._fasl: Path | None = None
        self._building = asyncio.Lock()

    def path(self) -> str:
        found = shutil.which(self.program)
        if found is None:
            raise NoLisp(
                f"There is no Lisp: {self.program!r} was not found. Install SBCL "
                f"({_install_command()}) or name it with --sbcl, then evaluate again."
            )
        return found

    async def load_arguments(self) -> list[str]:
        """From the cache, which is filled first; from source where that cannot be."""
        async with self._building:
            if self._fasl is None or not self._fasl.exists():
                self._fasl = await self._cached()
        if self._fasl is None:
            return self.source_arguments()
        return ["--load", str(self._fasl)]

    def source_arguments(self) -> list[str]:
        load = f'(load "{BRIDGE / "bridge.lisp"}")'
        return ["--eval", f"(handler-bind ((warning #'muffle-warning)) {load})"]

    def distrust(self) -> None:
        """A process did not start with the compiled bridge: compile it again."""
        if self._fasl is not None:
            with suppress(OSError):
                self._fasl.unlink()
            self._fasl = None

    async def _cached(self) -> Path | None:
        program = self.path()
        version = (await _run(program, "--version")).strip() or "unknown"
        name = hashlib.sha256(version.encode() + b"".join(map(_source, PARTS))).hexdigest()[:16]
        fasl = self._cache / f"bridge-{version.split()[-1]}-{name}.fasl"
        if fasl.exists():
            return fasl
        try:
            self._cache.mkdir(parents=True, exist_ok=True)
            return await _compile(program, fasl)
        except OSError:
            return None  # nowhere to keep it


def _source(part: str) -> bytes:
    return (BRIDGE / f"{part}.lisp").read_bytes()


async def _compile(program: str, fasl: Path) -> Path | None:
    """All parts into one file: SBCL lets compiled files be joined. Renamed at the end, so that
    another server sees all of it or nothing."""
    with tempfile.TemporaryDirectory(dir=fasl.parent) as folder:
        parts = [Path(folder, f"{part}.fasl") for part in PARTS]
        forms = [
            f'(load (compile-file "{BRIDGE / part}.lisp" :output-file "{out}"))'
            for part, out in zip(PARTS, parts, strict=True)
        ]
        whole = "(handler-bind ((warning #'muffle-warning)) (with-compilation-unit () {}))"
        await _run(
            *(program, "--noinform", "--no-sysinit", "--no-userinit", "--non-interactive"),
            *("--eval", whole.format(" ".join(forms))),
        )
        return _joined(parts, fasl)


def _joined(parts: list[Path], fasl: Path) -> Path | None:
    if not all(part.exists() for part in parts):
        return None
    whole = parts[0].with_name("whole.fasl")
    whole.write_bytes(b"".join(part.read_bytes() for part in parts))
    os.replace(whole, fasl)
    return fasl


async def _run(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    out, _ = await process.communicate()
    return out.decode(errors="replace")


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dovetail" / "lisp"


def _install_command() -> str:
    return "brew install sbcl" if sys.platform == "darwin" else "apt-get install sbcl"
