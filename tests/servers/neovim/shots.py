"""Draws the screenshots of docs/neovim.md: a real Neovim's grid, through Chromium.

python tests/servers/neovim/shots.py docs/images
"""

from __future__ import annotations

import asyncio
import html
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from nvim_process import Screen, diff_shown, editor

OLD = '''"""Prices and discounts."""

import math


def total(prices):
    sum = 0
    for p in prices:
        sum = sum + p
    return sum


def discount(price, percent):
    return price - price * percent / 100


def rounded(price):
    return math.floor(price)
'''
NEW = '''"""Prices and discounts."""

from collections.abc import Iterable


def total(prices: Iterable[float]) -> float:
    return sum(prices)


def discount(price: float, percent: float) -> float:
    if not 0 <= percent <= 100:
        raise ValueError(f"no such discount: {percent}")
    return price - price * percent / 100


def rounded(price: float) -> int:
    return round(price)
'''
CELL = (8, 18)


def colour(value: int) -> str:
    return f"#{value:06x}"


def page(screen: Screen) -> str:
    rows = []
    for row in screen.rows:
        cells = []
        for text, id in row:
            style = screen.highlights.get(id, {})
            front = style.get("foreground", screen.default[0])
            back = style.get("background", screen.default[1])
            if style.get("reverse"):
                front, back = back, front
            more = "font-weight:bold;" if style.get("bold") else ""
            look = f"color:{colour(front)};background:{colour(back)};{more}"
            cells.append(f'<span style="{look}">{html.escape(text or "")}</span>')
        rows.append("<div>" + "".join(cells) + "</div>")
    look = f"background:{colour(screen.default[1])};margin:0;font:15px/{CELL[1]}px DejaVu Sans Mono"
    spans = f"span{{display:inline-block;width:{CELL[0]}px;height:{CELL[1]}px;white-space:pre;"
    spans += "overflow:visible;vertical-align:top}div{height:18px;white-space:nowrap}"
    return f'<style>{spans}</style><body style="{look}">' + "".join(rows)


def draw(screen: Screen, target: Path) -> None:
    size = f"{len(screen.rows[0]) * CELL[0]},{len(screen.rows) * CELL[1]}"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "page.html"
        source.write_text(page(screen))
        words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        words += [f"--user-data-dir={folder}/profile", f"--window-size={size}"]
        subprocess.run(
            [*words, f"--screenshot={target}", source.as_uri()],
            check=True,
            capture_output=True,
            timeout=60,
        )


async def shoot(style: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        setting = f"diff = {{style = '{style}'}},"
        looks = "vim.cmd('syntax enable | set termguicolors laststatus=2')"
        async with editor(place, setup=setting, options=looks, columns=120) as nvim:
            path = nvim.write("shop/prices.py", OLD)
            await nvim.call("nvim_command", "edit shop/prices.py")
            async with nvim.client() as client:
                client.begin(
                    "openDiff",
                    old_file_path=path,
                    new_file_path=path,
                    new_file_contents=NEW,
                    tab_name="✻ [Claude Code] prices.py (a1b2c3) ⧉",
                )
                await diff_shown(nvim)
                await nvim.call("nvim_command", "redraw!")
                await asyncio.sleep(0.3)
                await asyncio.to_thread(draw, nvim.screen, target)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    for style in ("side", "inline"):
        asyncio.run(shoot(style, folder / f"neovim-{style}.png"))


if __name__ == "__main__":
    main()
