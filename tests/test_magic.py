"""The cell magic: its line, and all that can happen to a cell, in a live kernel that must survive it."""

from __future__ import annotations

import inspect
import os
import re
import threading
import time

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import workbench as wb
from tests import live
from workbench import commands, magic

# ---------------------------------------------------------------- the line


@pytest.mark.parametrize(("line", "target", "options"), [
    ("rmsnorm", "rmsnorm", {}),
    ("lab::rmsnorm.backward --force", "lab::rmsnorm.backward", {"force": True}),
    ("--cases odd,even rmsnorm", "rmsnorm", {"cases": "odd,even"}),
    ("rmsnorm --cases=none --file 'my cell.cpp'", "rmsnorm", {"cases": "none", "file": "my cell.cpp"}),
    ("rmsnorm --entry=run", "rmsnorm", {"entry": "run"}),
])  # fmt: skip
def test_the_line_is_a_target_and_options(line, target, options):
    assert magic.parse(line) == (target, options)


@pytest.mark.parametrize(("line", "words"), [
    ("a b", "%%cpp takes one target, got 2: a b"),
    ("a --fast", "--fast is no option of %%cpp"),
    ("a --cases", "--cases needs a value"),
    ("a --file=", "--file needs a value"),
    ("a --entry ''", "--entry needs a value"),
    ("a 'b", "No closing quotation"),
])  # fmt: skip
def test_a_line_that_says_something_else(line, words):
    with pytest.raises(wb.SchemaError, match=re.escape(words)) as raised:
        magic.parse(line)
    assert raised.value.line == 1 and magic.USAGE in str(raised.value)


# ---------------------------------------------------------------- a live kernel

SETUP = """
import os, torch, workbench as wb
from torch import Tensor
%load_ext workbench
import workbench.judge.examine
workbench.judge.examine.LIMIT_S = 2.0
x = torch.linspace(-2, 3, 24).reshape(4, 6)

@wb.op("lab::scale")
def scale(x: Tensor, k: float = 2.0) -> Tensor:
    return x * k

@scale.cases
def _(t):
    yield t(4, 8), 3.0
    yield wb.case("odd", t(5, 3))
"""
PLAIN = live.SCALE.replace("template <typename T>\n", "").replace("T*", "float*").replace("T(", "float(")


class Notebook:
    """Cells run one after the other in one kernel."""

    def __init__(self, client: NotebookClient) -> None:
        self.client = client

    def run(self, text: str) -> list:
        """The cell's outputs; an error of the cell is one of them."""
        cell = nbformat.v4.new_code_cell(text)
        self.client.nb.cells.append(cell)
        try:
            self.client.execute_cell(cell, len(self.client.nb.cells) - 1)
        except CellExecutionError:
            pass
        self.number = cell.execution_count
        return cell.outputs

    def value(self, expression: str) -> str:
        outputs = self.run(f"print({expression})")
        assert {o.output_type for o in outputs} == {"stream"}, outputs
        return "".join(o.text for o in outputs).strip()  # a line may come in two parts


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    client = NotebookClient(
        nbformat.v4.new_notebook(), kernel_name="python3", timeout=120, resources={"metadata": {"path": str(folder)}}
    )
    root = os.path.dirname(os.path.dirname(os.path.abspath(wb.__file__)))
    with client.setup_kernel(env={**os.environ, "PYTHONPATH": root}):
        notebook = Notebook(client)
        assert not [o for o in notebook.run(SETUP) if o.output_type == "error"]
        notebook.folder = folder
        yield notebook


@pytest.fixture
def notebook(kernel):
    """The kernel with version 1 of the cell installed."""
    outputs = kernel.run("%%cpp scale\n" + live.SCALE)
    assert lines(outputs), outputs
    kernel.pid = kernel.value("os.getpid()")
    kernel.version = int(kernel.value("scale.runs().number"))
    yield kernel
    assert kernel.value("os.getpid()") == kernel.pid
    assert kernel.value("torch.equal(scale(x, 3.0), x * 3)") == "True"


def lines(outputs: list) -> list:
    """The outputs that hold a cell's line, as text and as html."""
    return [o for o in outputs if o.output_type == "display_data" and {"text/plain", "text/html"} <= set(o.data)]


def error(outputs: list):
    [found] = [o for o in outputs if o.output_type == "error"]
    assert "workbench/" not in "".join(found.traceback), "frames of this package help nobody"
    assert len("\n".join(found.traceback).splitlines()) <= 8
    return found


def test_the_help_of_a_magic_says_its_usage_and_every_command():
    cell, _, *lines = commands.USAGE.splitlines()
    doc = {name: inspect.getdoc(getattr(magic.Workbench, name)) for name in ("cpp", "cuda", "triton", "wb")}
    assert doc["wb"].splitlines()[2:] == lines
    assert cell in doc["cpp"] and cell.replace("cpp", "cuda") in doc["cuda"]
    assert cell.replace("cpp [TARGET]", "triton TARGET") + commands.INTERPRET in doc["triton"]


def test_a_cell_shows_its_line_as_text_and_html(notebook):
    [line] = lines(notebook.run("%%cpp scale\n" + live.SCALE.replace("x[i] * k", "k * x[i]")))
    assert line.data["text/plain"].startswith(f"scale cpp v{notebook.version + 1} | ")
    assert "2 cases agree" in line.data["text/plain"]
    assert "2 cases" in line.data["text/html"] and "<" in line.data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" not in line.data


def test_the_extension_may_be_loaded_again(notebook):
    notebook.run("%reload_ext workbench")
    notebook.run("%load_ext workbench")
    assert len(lines(notebook.run("%%cpp scale\n" + live.SCALE))) == 1  # still told once


BROKEN = {
    "a segmentation fault": ("*(volatile int*)8 = 1;", "null pointer"),
    "abort": ("abort();", "SIGABRT"),
    "exit": ("exit(0);", r"exit\(0\)"),
    "a division by zero": ("static volatile int z = 0, y; y = 7 / z;", "division by zero"),
    "a hang": ("for (volatile int i = 0;; i = 1) {}", r"did not end within 2 s"),
    "an overrun": ("out[n] = 1;", "past the end of out"),
    "a mismatch": ("out += 0; k += 1;", "differs on 4x8 float32"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_kernel_that_breaks(notebook, what):
    statement, words = BROKEN[what]
    outputs = notebook.run(
        "%%cpp scale\n#include <cstdlib>\n" + PLAIN.replace(") {\n", ") {\n  " + statement + "\n", 1)
    )
    [line] = lines(outputs)
    said = " ".join(line.data["text/plain"].split())
    assert re.search(words, said) and "not installed" in said and f"still v{notebook.version}" in said
    assert re.search(words.split(" on ")[0].replace("'", "."), line.data["text/html"])
    found = error(outputs)
    assert (
        found.ename == "TrialError"
        and re.search(words, found.evalue)
        and f"still runs v{notebook.version}" in found.evalue
    )
    assert notebook.value("scale.runs().number") == str(notebook.version)


def test_a_syntax_error_is_on_the_cells_line(notebook):
    outputs = notebook.run("%%cpp scale\n" + live.SCALE.replace(";\n}", "\n}"))
    found = error(outputs)
    assert found.ename == "BuildError" and found.evalue.startswith(
        f"cell [{notebook.number}], line 7: expected ‘;’ before ‘}}’"
    )
    [line] = lines(outputs)
    assert "expected" in line.data["text/plain"] and "expected" in line.data["text/html"]


def test_a_directive_that_is_wrong_is_on_the_cells_line(notebook):
    found = error(notebook.run("%%cpp scale\n" + live.SCALE.replace("x.numel()", "z.numel()")))
    assert found.ename == "SchemaError" and ", line 2: nothing is called 'z'; known here: x, k" in found.evalue


@pytest.mark.parametrize("magic", ["%%cpp", "%%cuda"])
def test_a_cell_that_does_not_say_what_it_defines(notebook, magic):
    found = error(notebook.run(f"{magic}\n{live.SCALE}"))
    assert ", line 2: nothing here says what it defines: name the op after the magic" in found.evalue


def test_what_a_kernel_prints_shows_under_its_cell(notebook):
    outputs = notebook.run(
        "%%cpp scale\n#include <cstdio>\n" + PLAIN.replace(") {\n", ') {\n  printf("n is %d\\n", (int)n);\n', 1)
    )
    printed = "".join(o.text for o in outputs if o.output_type == "stream")
    assert printed.splitlines() == ["n is 32", "n is 15"] and len(lines(outputs)) == 1


def test_what_a_kernel_printed_before_it_broke_shows_too(notebook):
    text = PLAIN.replace(") {\n", ') {\n  printf("about to fail\\n"); fflush(stdout); abort();\n', 1)
    outputs = notebook.run("%%cpp scale\n#include <cstdio>\n#include <cstdlib>\n" + text)
    assert "about to fail" in "".join(o.text for o in outputs if o.output_type == "stream")
    error(outputs)


def test_the_options_reach_the_cell(notebook):
    wrong = live.SCALE.replace("x[i] * k", "x[i] * k + (n == 15)")
    outputs = notebook.run("%%cpp scale --cases 4x8 --file kept.cpp\n" + wrong)
    assert len(lines(outputs)) == 1 and (notebook.folder / "kept.cpp").read_text() == wrong
    outputs = notebook.run("%%cpp scale --force\n" + wrong)
    assert "forced" in lines(outputs)[0].data["text/plain"]
    notebook.run("%%cpp scale\n" + live.SCALE)


def test_a_refused_version_can_be_called(notebook):
    notebook.run("%%cpp scale\n" + live.SCALE.replace("x[i] * k", "x[i] * k + 1"))
    assert notebook.value("torch.allclose(scale.versions[-1](x, 3.0), x * 3 + 1)") == "True"
    notebook.run("%%cpp scale\n#include <cstdlib>\n" + PLAIN.replace(") {\n", ") {\n abort();\n", 1))
    found = error(notebook.run("scale.versions[-1](x, 3.0)"))
    assert found.ename == "TrialError" and "SIGABRT" in found.evalue


def test_the_card_shows_in_a_notebook(notebook):
    still, view = notebook.run("scale")
    assert still.output_type == view.output_type == "display_data" and set(still.data) == {"text/plain", "text/html"}
    assert f"v{notebook.version}" in still.data["text/plain"] and "forward cpu" in still.data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in view.data and not view.data["text/html"]


@pytest.mark.parametrize("phase", ["compile", "trial"])
def test_an_interrupt_leaves_all_as_before(notebook, phase):
    """Ctrl-C while the compiler runs, or while the kernel is tried."""
    notebook.run("workbench.judge.examine.LIMIT_S = 60.0")
    mark = notebook.folder / f"{phase}-pid"
    if phase == "compile":
        script = notebook.folder / "slow-cxx"
        script.write_text(
            f'#!/bin/sh\ncase " $* " in *" - "*) echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 600;; esac\nexec g++ "$@"\n'
        )
        script.chmod(0o755)
        notebook.run(f"os.environ['WORKBENCH_CXX'] = {str(script)!r}")
        text = live.SCALE.replace("x[i] * k", "k * x[i] * 1")
    else:
        body = f') {{\n  FILE* f = fopen("{mark}", "w"); fprintf(f, "%d", (int)getpid()); fclose(f); for (volatile int i = 0;; i = 1) {{}}\n'
        text = "#include <cstdio>\n#include <unistd.h>\n" + PLAIN.replace(") {\n", body, 1)
    thread = threading.Thread(target=lambda: interrupt_with(notebook.pid, mark))
    thread.start()
    began = time.monotonic()
    outputs = notebook.run("%%cpp scale\n" + text)
    thread.join()
    took = time.monotonic() - began
    [found] = [o for o in outputs if o.output_type == "error"]
    assert found.ename == "KeyboardInterrupt" and took < 30
    assert found.traceback == [f"KeyboardInterrupt: stopped; scale forward still runs v{notebook.version}"]
    pid = int(mark.read_text())
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline, "what was interrupted still runs"
        time.sleep(0.05)
    notebook.run("os.environ.pop('WORKBENCH_CXX', None); workbench.judge.examine.LIMIT_S = 2.0")
    assert notebook.value("scale.runs().number") == str(notebook.version)
    assert lines(notebook.run("%%cpp scale\n" + live.SCALE.replace("x[i] * k", "k * x[i] * 1")))


def interrupt_with(pid: str, mark) -> None:
    """What the kernel manager's interrupt does: SIGINT to the kernel, once it has come to `mark`."""
    deadline = time.monotonic() + 60
    while not mark.exists() or not mark.read_text().strip():
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)
    os.kill(int(pid), 2)


# ---------------------------------------------------------------- Triton

TRITON = """\
%%triton scale{options}
@triton.jit
def scale_kernel(x, out, k, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {extra}tl.store(out + i, tl.load(x + i, i < n) * k, i < n)
def scale(x, k=2.0):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 64),)](x, out, k, x.numel(), BLOCK=64)
    return out
"""


def test_triton_cells(notebook):
    [line] = lines(notebook.run(TRITON.format(options="", extra="")))
    assert line.data["text/plain"].startswith(f"scale triton v{notebook.version + 1} | ")
    assert "2 cases agree" in line.data["text/plain"]
    notebook.run("WIDTH = 64")
    found = error(notebook.run(TRITON.format(options="", extra="").replace("BLOCK=64", "BLOCK=WIDTH")))
    assert "line 8: WIDTH is not defined in this cell" in found.evalue and "write 'WIDTH = 64' in it" in found.evalue
    outputs = notebook.run(TRITON.format(options=" --interpret", extra="print('at', k); "))
    assert any("at 3.0" in o.get("text", "") for o in outputs) and len(lines(outputs)) == 1
    assert magic.parse("scale --interpret", "triton") == ("scale", {"interpret": True})
    with pytest.raises(wb.SchemaError, match="--interpret is no option of %%cpp"):
        magic.parse("scale --interpret")
    assert lines(notebook.run("%%cpp scale\n" + live.SCALE))


def test_a_line_that_says_something_else_is_told_with_its_cell(notebook):
    found = error(notebook.run("%%cpp scale --fast\n" + live.SCALE))
    assert re.match(r"cell \[\d+\], line 1: --fast is no option of %%cpp; ", found.evalue), found.evalue


def test_a_new_op_is_at_hand_under_its_name(notebook):
    [line] = lines(notebook.run("%%cpp thrice\n" + live.SCALE.replace("scale", "thrice")))
    assert "new op lab::thrice: no reference, so it is compared with nothing; call it as thrice" in " ".join(
        line.data["text/plain"].split()
    )
    assert notebook.value("torch.equal(thrice(x, 3.0), x * 3)") == "True"
