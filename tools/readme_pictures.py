"""Draws the pictures of the README from notebooks as they last ran: docs/card.png and docs/inspect.png, light and dark.

    make tour && .venv/bin/python tools/tour.py notebooks/02_cuda.ipynb && .venv/bin/python tools/readme_pictures.py

What is drawn is the html that the cells gave, one below the other; in an inspection a line is chosen, as a click would.
Needs a Chromium, as picture.py does.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import nbformat
from picture import draw

ROOT = Path(__file__).resolve().parents[1]
# (the picture, the notebook, the steps that it shows, the source line that is chosen, the width in CSS pixels)
PICTURES: tuple[tuple[str, str, tuple[str, ...], int, int], ...] = (
    ("card", "01_tour", ("The forward in C++", "One line more", "Off by one, on purpose", "The card"), 0, 920),
    ("inspect", "02_cuda", ("An edit: more threads, and shared memory", "A mistake in CUDA",
                            "What the compiler made of it"), 25, 1120),
)  # fmt: skip
PAGE = """<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<style>body { margin: 18px 22px; } .step { margin: 0 0 12px; } .wb .card { margin-top: 6px; }
@media (prefers-color-scheme: dark) { body { background: #12161d; } }</style>
"""


def page(executed: Path, shown: tuple[str, ...], chosen: int) -> str:
    """The html of these steps, each under the class of its step."""
    heading, found = "", {}
    for cell in nbformat.read(executed, as_version=4).cells:
        if cell.cell_type == "markdown":
            heading = (re.findall(r"^#+ (.*)$", cell.source, re.MULTILINE) or [heading])[-1]
        for output in cell.get("outputs", ()):
            found[heading] = output.get("data", {}).get("text/html", found.get(heading, ""))
    steps = "".join(f'<div class="step">{found[name]}</div>' for name in shown)
    return PAGE + re.sub(rf'(id="wb-\w+-{chosen}")', r"\1 checked", steps)


def main() -> None:
    (ROOT / "docs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder, "page.html")
        for picture, notebook, shown, chosen, width in PICTURES:
            html.write_text(page(ROOT / "out" / f"{notebook}.ipynb", shown, chosen), encoding="utf-8")
            for name, dark in ((picture, False), (f"{picture}-dark", True)):
                png = ROOT / "docs" / f"{name}.png"
                draw(html, png, dark=dark, width=width, scale=1.4)
                print(f"{png.relative_to(ROOT)}  {png.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
