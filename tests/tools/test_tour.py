import io
import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import tour

TOOL = Path(tour.__file__)


def write(tmp_path, *cells):
    path = tmp_path / "small.ipynb"
    nbformat.write(new_notebook(cells=list(cells)), path)
    return path


def run(path, out):
    command = [sys.executable, str(TOOL), str(path), "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=path.parent)


def test_steps_are_called_by_the_heading_above_them():
    notebook = new_notebook(
        cells=[
            new_code_cell("%load_ext workbench"),
            new_markdown_cell("# Tour\ntext\n## `1` An *op*"),
            new_code_cell("a"),
            new_code_cell("   "),
            new_code_cell("b"),
        ]
    )
    assert tour.titles(notebook) == {0: "start", 2: "1 An op", 4: "1 An op (2)"}


def test_a_cell_gives_its_line_and_its_data():
    data = {"checks": {"passed": 3, "total": 3}}
    cell = new_code_cell(
        "x",
        outputs=[
            new_output("stream", text="noise"),
            new_output("display_data", data={"text/plain": "\n  rmsnorm cpp v1 | 52 ms \nmore"}),
            new_output("display_data", data={"application/json": data, "text/plain": "<JSON object>"}),
        ],
    )
    assert tour.outputs_of(cell) == ("rmsnorm cpp v1 | 52 ms", data)


def test_summary_states_steps_checks_and_speed():
    steps = [
        tour.Step("Write the op", 0.5, "rmsnorm"),
        tour.Step("Check", 1.25, "", {"checks": {"passed": 17, "total": 18}}),
        tour.Step("Speed", 0.1, "x" * 200, {"reference_us": 300.0, "kernel_us": 100.0, "on": "llama"}),
    ]
    lines = tour.summary(steps).splitlines()
    assert lines[0] == "  Write the op    0.50 s  rmsnorm"
    assert lines[2].endswith("xxx...") and len(lines[2]) <= 120
    assert lines[4:] == [
        "  checks  17 of 18 passed",
        "  speed   100 us on llama, reference 300 us: 3 times",
        "  total   1.9 s",
    ]


def test_summary_without_data_claims_nothing():
    assert "checks" not in tour.summary([tour.Step("a", 1.0)])
    assert "speed" not in tour.summary([tour.Step("a", 1.0)])


def test_progress_off_a_terminal_is_one_line_a_step():
    stream = io.StringIO()
    progress = tour.Progress(stream)
    progress.begin(2, 9, "Check")
    progress.end(tour.Step("Check", 0.5))
    assert stream.getvalue() == "  [2/9] Check ... 0.50 s\n"


def test_the_page_needs_no_network():
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/html": "<b>numbers</b>"}
    state = {"application/vnd.jupyter.widget-state+json": {"state": {"1": {}}, "version_major": 2, "version_minor": 0}}
    cell = new_code_cell("x", execution_count=1, outputs=[new_output("display_data", data=widget)])
    html = tour.page(new_notebook(cells=[cell], metadata={"widgets": state}), "small")
    assert "<b>numbers</b>" in html
    assert "<title>small</title>" in html
    assert "<script src" not in html
    assert "cdn" not in html.lower()


@pytest.mark.slow
def test_a_notebook_runs_and_is_kept(tmp_path):
    data = {"checks": {"passed": 2, "total": 2}, "reference_us": 10, "kernel_us": 5}
    path = write(
        tmp_path,
        new_markdown_cell("# First"),
        new_code_cell("6 * 7"),
        new_markdown_cell("# Last"),
        new_code_cell(f"from IPython.display import display\ndisplay({{'application/json': {data!r}}}, raw=True)"),
    )
    done = run(path, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "[1/2] First" in done.stdout
    assert "2 of 2 passed" in done.stdout
    assert "2 times" in done.stdout
    assert "make lab" in done.stdout
    kept = json.loads((tmp_path / "out" / "small.ipynb").read_text())
    assert kept["cells"][1]["outputs"][0]["data"]["text/plain"] == ["42"] or "42" in str(kept["cells"][1]["outputs"])
    assert "42" in (tmp_path / "out" / "small.html").read_text()


@pytest.mark.slow
def test_a_failing_step_says_which_and_why(tmp_path):
    path = write(tmp_path, new_markdown_cell("# Break it"), new_code_cell("1 // 0"), new_code_cell("print('never')"))
    done = run(path, tmp_path / "out")
    assert done.returncode == 1
    assert "'Break it' failed" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert "1 // 0" in done.stderr
    assert "make lab" not in done.stdout
    assert (tmp_path / "out" / "small.html").exists()
