"""Draws the pictures of the README from the tour as it last ran: docs/card.png and docs/card-dark.png.

    make tour && .venv/bin/python tools/readme_pictures.py

What is drawn is the html that the cells gave, untouched, one below the other. Needs a Chromium, as picture.py does.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import nbformat
from picture import draw

ROOT = Path(__file__).resolve().parents[1]
SHOWN = ("The forward in C++", "One line more", "Off by one, on purpose", "The card")
PAGE = """<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<style>body { margin: 18px 22px; } .step { margin: 0 0 12px; } .wb .card { margin-top: 6px; }
@media (prefers-color-scheme: dark) { body { background: #12161d; } }</style>
"""


def page(executed: Path) -> str:
    """The html of the steps in SHOWN, each under the class of its step."""
    heading, found = "", {}
    for cell in nbformat.read(executed, as_version=4).cells:
        if cell.cell_type == "markdown":
            heading = (re.findall(r"^#+ (.*)$", cell.source, re.MULTILINE) or [heading])[-1]
        for output in cell.get("outputs", ()):
            found[heading] = output.get("data", {}).get("text/html", found.get(heading, ""))
    return PAGE + "".join(f'<div class="step">{found[name]}</div>' for name in SHOWN)


def main() -> None:
    (ROOT / "docs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder, "page.html")
        html.write_text(page(ROOT / "out" / "01_tour.ipynb"), encoding="utf-8")
        for name, dark in (("card", False), ("card-dark", True)):
            png = ROOT / "docs" / f"{name}.png"
            draw(html, png, dark=dark, width=920, scale=1.4)
            print(f"{png.relative_to(ROOT)}  {png.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
