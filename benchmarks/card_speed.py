"""How long a large card takes to be shown, and how large it is in the notebook's file.

    python -m benchmarks.card_speed

The card is that of an op with 200 versions, each built from a text of its own, and a check of 40 rows. Kernel time is
from asking for the card to the last message of its widget handed over; page time, where Chromium is there, from
running the cell in JupyterLab to the card in sight, with the way through the server and the browser's own work.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import common
from benchmarks.common import Figure

WANTED_S, WANTED_KB = 0.3, 400
SETUP = '''\
%load_ext workbench
import contextlib, io, time, torch, workbench as wb
from workbench.reports.report import Check, Row

@wb.op("lab::rmsnorm")
def rmsnorm(x: torch.Tensor, w: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Scale each row of x by the reciprocal of its root mean square, then by w."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

@rmsnorm.cases
def _(t):
    yield t(24, 96), t(96)
    yield wb.case("llama", t(256, 1024), t(1024), bench=True)

CELL = """// try {i}: {j} at a time
//! flags -O1
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! require w.shape == (cols,)
//! out = empty(x.shape)
#include <cmath>
void rmsnorm(const float* x, const float* w, float* out, float eps, int64_t rows, int64_t cols) {{
  constexpr int64_t STEP = {j};
  for (int64_t r = 0; r < rows; ++r) {{
    const float* from = x + r * cols;
    float* to = out + r * cols;
    float sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += from[c] * from[c];
    const float scale = 1 / std::sqrt(sum / cols + eps);
    for (int64_t c = 0; c < cols{wrong}; ++c) to[c] = from[c] * scale * w[c] + 0 * STEP;
  }}
}}
"""
for i in range(1, VERSIONS + 1):
    with contextlib.suppress(wb.TrialError):
        wb.cpp("rmsnorm", CELL.format(i=i, j=i % 7 + 1, wrong=" - 1" if i % 10 == 0 else ""))
says = "values, shapes, dtypes and strides agree with the reference run in float64, number "
rows = [Row(f"check {i}", f"input {i} float32", "pass", f"{says}{i}") for i in range(40)]
rmsnorm.last_check = Check("lab::rmsnorm", tuple(rows), seconds=2.0)
len(rmsnorm.versions)
'''
TIMED = """\
begun = time.perf_counter()
rmsnorm._ipython_display_()
took = time.perf_counter() - begun"""


def cells(versions: int, count: int) -> list[str]:
    return [SETUP.replace("VERSIONS", str(versions)), *[TIMED, "print(took)"] * count, "rmsnorm"]


def in_kernel(versions: int, count: int) -> dict[str, list[float]]:
    """Seconds in the kernel, and kilobytes of the cell's outputs in the notebook's file."""
    import nbformat
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell, new_notebook

    notebook = new_notebook(cells=[new_code_cell(c) for c in cells(versions, count)])
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "card.ipynb")
        nbformat.write(notebook, file)
        saved = json.loads(file.read_text())
    shown = [c for c in saved["cells"] if c["source"] in (["rmsnorm"], "rmsnorm")]
    took = [float(c.outputs[0].text) for c in notebook.cells if c.source == "print(took)"]
    size = len(json.dumps(shown[0]["outputs"], indent=1).encode()) / 1000
    return {"kernel": took, "kilobytes": [size]}


def on_page(versions: int, count: int) -> dict[str, list[float]]:
    """Seconds from running a cell to the card in sight, and to the output of a cell that is a number."""
    from playwright.sync_api import sync_playwright

    from tests.browser.lab import FLAGS, Book, Lab, chromium

    found: dict[str, list[float]] = {"page": [], "page, a number": []}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, sync_playwright() as tools:
        lab = Lab(Path(folder))
        lab.start()
        try:
            browser = tools.chromium.launch(executable_path=chromium(), args=list(FLAGS))
            path = lab.write("card", [SETUP.replace("VERSIONS", str(versions)), *["rmsnorm", "1"] * count])
            book = Book(browser.new_page(viewport={"width": 1280, "height": 1400}), lab, path)
            book.ready()
            book.run(0)
            for i in range(1, 2 * count + 1):
                book.cell(i).scroll_into_view_if_needed()
                book.cell(i).locator(".jp-InputPrompt").first.click()
                begun = time.perf_counter()
                book.page.keyboard.press("Control+Enter")
                book.cell(i).locator(".wb-card .wb-tabs" if i % 2 else ".jp-RenderedText").wait_for()
                found["page" if i % 2 else "page, a number"].append(time.perf_counter() - begun)
            browser.close()
        finally:
            lab.stop()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=7, help="cards shown (default 7)")
    parser.add_argument("--versions", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="three cards of 30 versions, and no browser")
    asked = parser.parse_args()
    versions, count = (30, 3) if asked.quick else (asked.versions, asked.count)
    with common.empty_cache() as environment:
        os.environ.update(environment)
        samples = in_kernel(versions, count)
        if not asked.quick and _browser():
            samples |= on_page(versions, count)
    figures = [common.timed("card of 200 versions and 40 checks, in the kernel", samples["kernel"], WANTED_S)]
    if "page" in samples:
        figures.append(common.timed("the same, from Enter to sight in JupyterLab", samples["page"]))
        figures.append(common.timed("a cell that is a number, from Enter to sight", samples["page, a number"]))
    figures.append(Figure("its size in the notebook's file", samples["kilobytes"][0], "KB", WANTED_KB))
    print(common.table("The card of an op", figures))
    if not asked.quick:
        print(f"\nwritten to {os.path.relpath(common.write('card_speed', figures, samples))}")
    return 0 if all(f.holds for f in figures) else 1


def _browser() -> bool:
    try:
        import playwright.sync_api  # noqa: F401  is it there?

        from tests.browser.lab import chromium
    except ImportError:
        return False
    return bool(chromium())


if __name__ == "__main__":
    sys.exit(main())
