"""The SBCL that is installed, and the bridge compiled for it."""

import asyncio
import hashlib
import os
import sys
from functools import cached_property
from pathlib import Path

from dovetail.servers.lisp.sexp import sexp

__all__ = ["BRIDGE", "PARTS", "NoLisp", "Sbcl", "bridge_hash"]

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
    "symbols",
    "compiling",
    "systems",
    "measure",
    "look",
    "serve",
    "tunnel",
)


class NoLisp(Exception):
    """There is no SBCL, or it does not start; the text says what to do."""


class Sbcl:
    """Where it is, and the arguments that load the bridge into it."""

    def __init__(self, program: str = "sbcl", cache: Path | None = None) -> None:
        self.program = program
        self._cache = cache or _cache_folder()
        self._building = asyncio.Lock()

    def path(self) -> str:
        found = _which(self.program)
        if found is None:
            raise NoLisp(
                f"There is no Lisp: {self.program!r} was not found. Install SBCL "
                f"({_install_command()}) or name it with --sbcl, then evaluate again."
            )
        return found

    def cached_arguments(self) -> list[str]:
        """The compiled bridge. SBCL fills in its version, so that nobody has to ask for it
        first; without the file it ends. Function calls and IF are evaluated without compiling."""
        load = f"(load {self.fasl_form()} :if-does-not-exist nil)"
        check = '(if (find-package "DOVETAIL-LISP") t (sb-ext:exit :code 75 :abort t))'
        return ["--eval", load, "--eval", check]

    def fasl_form(self) -> str:
        """Where it is: a form, for a Lisp that knows its version, in any package."""
        start, end = self._cache / "bridge-", f"-{self._hash}.fasl"
        version = "(cl:lisp-implementation-version)"
        return f"(cl:concatenate 'cl:string {sexp(str(start))} {version} {sexp(end)})"

    @cached_property
    def _hash(self) -> str:
        return bridge_hash()

    async def compiled_arguments(self) -> list[str]:
        """The same after compiling it, or from source where that cannot be."""
        async with self._building:
            try:
                self._cache.mkdir(parents=True, exist_ok=True)
                await self._compile()
            except OSError:
                return self.source_arguments()  # nowhere to keep it
        return self.cached_arguments()

    def source_arguments(self) -> list[str]:
        load = f"(load {sexp(str(BRIDGE / 'bridge.lisp'))})"
        return ["--eval", f"(handler-bind ((warning #'muffle-warning)) {load})"]

    async def _compile(self) -> None:
        """All parts into one file: SBCL lets compiled files be joined. Renamed at the end, so
        that another server sees all of it or nothing."""
        import tempfile  # loaded late: only the first start ever compiles

        with tempfile.TemporaryDirectory(dir=self._cache) as folder:
            parts = [Path(folder, f"{part}.fasl") for part in PARTS]
            forms = [
                f"(load (compile-file {sexp(str(BRIDGE / part) + '.lisp')}"
                f" :output-file {sexp(str(out))}))"
                for part, out in zip(PARTS, parts, strict=True)
            ]
            name = f"(format t {sexp(chr(10) + '~A')} {self.fasl_form()})"
            whole = "(handler-bind ((warning #'muffle-warning)) (with-compilation-unit () {}))"
            printed = await _run(
                *(self.path(), "--noinform", "--no-sysinit", "--no-userinit", "--non-interactive"),
                *("--eval", whole.format(" ".join(forms)), "--eval", name),
            )
            _join(parts, Path(printed.rpartition("\n")[2]))


def bridge_hash() -> str:
    """Names a version of the bridge."""
    return hashlib.sha256(b"".join(map(_source, PARTS))).hexdigest()[:16]


def _source(part: str) -> bytes:
    return (BRIDGE / f"{part}.lisp").read_bytes()


def _join(parts: list[Path], fasl: Path) -> None:
    if all(part.exists() for part in parts):
        whole = parts[0].with_name("whole.fasl")
        whole.write_bytes(b"".join(part.read_bytes() for part in parts))
        os.replace(whole, fasl)


def _which(program: str) -> str | None:
    """As shutil.which, which loads four compression libraries first."""
    folders = [""] if os.sep in program else os.environ.get("PATH", "").split(os.pathsep)
    for folder in folders:
        path = os.path.join(folder, program)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


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
