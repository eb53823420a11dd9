"""The bridge as a file: it compiles cleanly, is cached, and works from source."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lisp_support import lisp

from dovetail.servers.lisp.sbcl import BRIDGE, PARTS
from dovetail.servers.lisp.sessions import Config
from support import run


def only(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_every_part_is_listed_in_both_places() -> None:
    files = {path.stem for path in BRIDGE.glob("*.lisp")}
    assert files == {*PARTS, "bridge"}
    named = (BRIDGE / "bridge.lisp").read_text()
    positions = [named.index(f'"{part}"') for part in PARTS]
    assert positions == sorted(positions)


def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    loads = " ".join(
        f'(load (compile-file "{BRIDGE / part}.lisp" :output-file "{tmp_path / part}.fasl"))'
        for part in PARTS
    )
    form = (
        "(handler-bind ((sb-kernel:redefinition-warning #'muffle-warning)"
        ' (warning (lambda (w) (format t "~&WARNING ~A~%" w))))'
        f" (with-compilation-unit () {loads}))"
    )
    command = ["sbcl", "--noinform", "--no-sysinit", "--no-userinit", "--non-interactive"]
    ran = subprocess.run(
        [*command, "--eval", form], capture_output=True, text=True, timeout=60, check=True
    )
    assert "WARNING" not in ran.stdout, ran.stdout


def test_the_compiled_bridge_is_cached(tmp_path: Path) -> None:
    async def main() -> None:
        for _ in range(2):
            async with lisp(config=Config(cache=tmp_path)) as client:
                assert await client.text("(+ 1 2)") == "=> 3"
            file = only(tmp_path)
            stamps.append(file.stat().st_mtime_ns)

    stamps: list[int] = []
    run(main())
    assert stamps[0] == stamps[1]
    file = only(tmp_path)
    assert file.name.startswith("bridge-")
    assert file.suffix == ".fasl"


def test_without_a_place_for_the_cache_it_is_loaded_from_source(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    async def main() -> None:
        async with lisp(config=Config(cache=tmp_path / "file" / "cache")) as client:
            assert await client.text("(+ 1 2)") == "=> 3"

    run(main())


def test_a_broken_cache_is_made_anew(tmp_path: Path) -> None:
    async def main() -> None:
        async with lisp(config=Config(cache=tmp_path)) as client:
            await client.text("1")
        file = only(tmp_path)
        file.write_bytes(b"# FASL\nnot really")
        async with lisp(config=Config(cache=tmp_path)) as client:
            assert await client.text("(+ 1 2)") == "=> 3"

    run(main())


def test_without_sbcl_everything_but_lisp_is_served() -> None:
    async def main() -> None:
        async with lisp(config=Config(sbcl="no-such-sbcl")) as client:
            assert await client.raw.request("ping") == {}
            listed = await client.raw.request("tools/list")
            assert "evaluate-lisp" in [tool["name"] for tool in listed["tools"]]
            refused = await client.error("(+ 1 2)")
            assert "'no-such-sbcl' was not found" in refused
            assert "apt-get install sbcl" in refused

    run(main())
