"""Run the tour notebook without a browser: what `make tour` does.

Shows each step while it runs, then a summary; writes the executed notebook and a page that needs no network.

A step is a code cell, called by the last heading above it. A cell may output a dict as `application/json`; of these the
summary uses `checks` ({"passed": 18, "total": 18}), `reference_us`, `kernel_us` and `on` (what was timed).
"""

from __future__ import annotations

import argparse
import copy
import os
import re
import shutil
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "notebooks" / "01_tour.ipynb"
ANSI = re.compile(r"\x1b\[[0-9;]*m")

# The page stands on its own: no script from elsewhere, and the html of a result in place of its live widget.
TEMPLATE = """{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
"""
SHOWN_FIRST = ["text/html", "image/svg+xml", "image/png", "text/markdown", "text/latex", "text/plain"]


@dataclass
class Step:
    """One code cell: its heading, how long it took, the line it ended in, and the data it gave for the summary."""

    title: str
    seconds: float = 0.0
    line: str = ""
    data: dict = field(default_factory=dict)
    error: str = ""
    source: str = ""


def titles(notebook) -> dict[int, str]:
    """The heading above each code cell that holds anything; a second cell under one heading is numbered."""
    found: dict[int, str] = {}
    heading, count = "start", 0
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            headings = re.findall(r"^#+\s+(.*)$", cell.source, re.MULTILINE)
            if headings:
                heading, count = re.sub(r"[*`_]", "", headings[-1]).strip(), 0
        elif cell.cell_type == "code" and cell.source.strip():
            count += 1
            found[index] = heading if count == 1 else f"{heading} ({count})"
    return found


def outputs_of(cell) -> tuple[str, dict]:
    """The first line of text that a cell's last result prints as, and the data it gave."""
    line, data = "", {}
    for output in cell.get("outputs", ()):
        bundle = output.get("data", {})
        given = bundle.get("application/json")
        if isinstance(given, dict):
            data.update(given)
        elif "text/plain" in bundle:
            lines = [text for text in bundle["text/plain"].splitlines() if text.strip()]
            line = lines[0].strip() if lines else line
    return line, data


def execute(path: Path, out: Path, show) -> tuple[list[Step], object]:
    """Run the notebook in a kernel of this environment; steps as far as it came. Saves what was run into `out`."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook = nbformat.read(path, as_version=4)
    names, steps, begun = titles(notebook), [], [0.0]

    def on_start(cell, cell_index):
        if cell_index in names:
            steps.append(Step(names[cell_index], source=cell.source))
            begun[0] = time.monotonic()
            show.begin(len(steps), len(names), steps[-1].title)

    def on_end(cell, cell_index, **_):
        if cell_index in names:
            steps[-1].seconds = time.monotonic() - begun[0]
            steps[-1].line, steps[-1].data = outputs_of(cell)
            show.end(steps[-1])

    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", store_widget_state=True, on_cell_start=on_start,
        on_cell_executed=on_end, resources={"metadata": {"path": str(path.parent)}},
        extra_arguments=["--log-level=ERROR"],  # the kernel of a run that nobody connects to warns of its open ports
    )  # fmt: skip
    failure = ""
    try:
        client.execute()
    except CellExecutionError as error:
        failure = f"{error.ename}: {error.evalue}\n\n{ANSI.sub('', error.traceback)}"
    except (CellTimeoutError, DeadKernelError) as error:
        failure = f"{type(error).__name__}: {error}"
    finally:
        nbformat.write(notebook, out)
    if failure:
        steps = steps or [Step("start")]
        steps[-1].error = failure
    return steps, notebook


def page(notebook, title: str) -> str:
    """The executed notebook as one HTML page."""
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    still = copy.deepcopy(notebook)
    still.metadata.pop("widgets", None)  # without their state the exporter takes the html beside them
    config = Config({"NbConvertBase": {"display_data_priority": SHOWN_FIRST}})
    exporter = HTMLExporter(config=config, raw_template=TEMPLATE)
    html, _ = exporter.from_notebook_node(still, resources={"metadata": {"name": title}})
    return html


def summary(steps: list[Step]) -> str:
    """The steps with their seconds and result lines, the checks, and the speed against the reference."""
    width = max((len(s.title) for s in steps), default=0)
    room = min(max(shutil.get_terminal_size((120, 24)).columns, 100), 120) - width - 14
    lines = [f"  {s.title:{width}}  {s.seconds:6.2f} s  {shorten(s.line, room)}".rstrip() for s in steps]
    data: dict = {}
    for step in steps:
        data.update(step.data)
    lines.append("")
    checks = data.get("checks")
    if checks:
        lines.append(f"  checks  {checks['passed']} of {checks['total']} passed")
    if data.get("reference_us") and data.get("kernel_us"):
        reference, kernel = data["reference_us"], data["kernel_us"]
        where = f" on {data['on']}" if data.get("on") else ""
        times = f"{reference / kernel:.2g} times"
        lines.append(f"  speed   {duration(kernel)}{where}, reference {duration(reference)}: {times}")
    lines.append(f"  total   {sum(s.seconds for s in steps):.1f} s")
    return "\n".join(lines)


def duration(us: float) -> str:
    """`duration(26630) == "26.6 ms"`, `duration(41.2) == "41.2 us"`."""
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.3g} us"


def shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


class Progress:
    """One line a step; on a terminal its seconds count while it runs."""

    def __init__(self, stream=None) -> None:
        self.stream = stream or sys.stdout
        self.live = self.stream.isatty()
        self.done: threading.Event | None = None

    def begin(self, number: int, total: int, title: str) -> None:
        self.text = f"  [{number}/{total}] {title}"
        print(self.text, end=" ... ", flush=True, file=self.stream)
        if self.live:
            self.done = threading.Event()
            threading.Thread(target=self.tick, args=(self.text, self.done, time.monotonic()), daemon=True).start()

    def tick(self, text: str, done: threading.Event, started: float) -> None:
        while not done.wait(0.5):
            shown = f"\r\x1b[K{text} ... {time.monotonic() - started:.0f} s"
            print(shown, end="", flush=True, file=self.stream)

    def end(self, step: Step) -> None:
        if self.done:
            self.done.set()
            print(f"\r\x1b[K{self.text} ... ", end="", file=self.stream)
        print(f"{step.seconds:.2f} s", flush=True, file=self.stream)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebook", nargs="?", type=Path, default=NOTEBOOK)
    parser.add_argument("--out", type=Path, default=ROOT / "out", help="folder for the executed notebook and the page")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    executed = options.out / options.notebook.name
    html = executed.with_suffix(".html")

    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # the kernel's debugger warns about nothing we use
    print(f"tour: running {shown(options.notebook)}", flush=True)
    steps, notebook = execute(options.notebook, executed, Progress())
    html.write_text(page(notebook, options.notebook.stem), encoding="utf-8")
    failed = steps[-1] if steps and steps[-1].error else None
    if failed:
        print(f"\n\ntour: the step {failed.title!r} failed; its cell was\n", file=sys.stderr)
        print("\n".join(f"    {line}" for line in failed.source.splitlines()), file=sys.stderr)
        print(f"\n{failed.error}\n\ntour: as far as it came: {shown(html)}", file=sys.stderr, flush=True)
        return 1
    print(f"\n{summary(steps)}\n\n  {shown(executed)}\n  {shown(html)}")
    print("\n`make lab` opens the same notebook in JupyterLab, to change its cells and run them yourself.", flush=True)
    return 0


def shown(path: Path) -> str:
    """A path as one would type it here."""
    return os.path.relpath(path)


if __name__ == "__main__":
    sys.exit(main())
