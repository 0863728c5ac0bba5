"""Draws the pictures of the README from notebooks as they last ran: docs/card.png and docs/inspect.png, light and dark.

    make tour && for each in 02_cuda 05_measure; do .venv/bin/python tools/tour.py notebooks/$each.ipynb; done
    .venv/bin/python tools/readme_pictures.py

What is drawn is the html that the cells gave, one below the other; in an inspection a line is chosen, as a click would.
Needs a Chromium, as picture.py does. Times in them are of the machine that ran the notebooks: let it be a quiet one.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import nbformat
from picture import draw

ROOT = Path(__file__).resolve().parents[1]
TOUR, CUDA, MEASURE = "01_tour", "02_cuda", "05_measure"
# (the picture, what it shows as (notebook, step), the source line that is chosen, the width in CSS pixels)
PICTURES: tuple[tuple[str, tuple[tuple[str, str], ...], int, int], ...] = (
    ("card", ((TOUR, "The forward in C++"), (TOUR, "One line more"), (TOUR, "Off by one, on purpose"),
              (MEASURE, "On the card")), 0, 920),
    ("inspect", ((CUDA, "An edit: more threads, and shared memory"), (CUDA, "A mistake in CUDA"),
                 (CUDA, "What the compiler made of it")), 25, 1120),
)  # fmt: skip
PAGE = """<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<style>body { margin: 18px 22px; } .step { margin: 0 0 12px; } .wb .card { margin-top: 6px; }
@media (prefers-color-scheme: dark) { body { background: #12161d; } }</style>
"""


def shown(executed: Path) -> dict[str, str]:
    """The html that each step of a notebook gave, the last one that is any."""
    heading, found = "", {}
    for cell in nbformat.read(executed, as_version=4).cells:
        if cell.cell_type == "markdown":
            heading = (re.findall(r"^#+ (.*)$", cell.source, re.MULTILINE) or [heading])[-1]
        for output in cell.get("outputs", ()):
            found[heading] = output.get("data", {}).get("text/html") or found.get(heading, "")
    return found


def page(steps: tuple[tuple[str, str], ...], chosen: int) -> str:
    """The html of these steps, each under the class of its step."""
    given = {notebook: shown(ROOT / "out" / f"{notebook}.ipynb") for notebook, _ in steps}
    body = "".join(f'<div class="step">{given[notebook][name]}</div>' for notebook, name in steps)
    return PAGE + re.sub(rf'(id="wb-\w+-{chosen}")', r"\1 checked", body)


def main() -> None:
    (ROOT / "docs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder, "page.html")
        for picture, steps, chosen, width in PICTURES:
            html.write_text(page(steps, chosen), encoding="utf-8")
            for name, dark in ((picture, False), (f"{picture}-dark", True)):
                png = ROOT / "docs" / f"{name}.png"
                draw(html, png, dark=dark, width=width, scale=1.4)
                print(f"{png.relative_to(ROOT)}  {png.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
