"""What people met in the notebook (field report F54): nothing moves while a cell runs, and nothing stops it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests import live
from workbench import magic
from workbench.show import waiting

ROOT = str(Path(__file__).parents[2])
SETUP = """
import os, torch, workbench as wb
from torch import Tensor
%load_ext workbench
from workbench import magic
from workbench.show import waiting
waiting.EVERY_S = 0.3

@wb.op("lab::scale")
def scale(x: Tensor, k: float = 2.0) -> Tensor:
    return x * k

scale.cases(lambda t: iter([(t(4, 8),)]))
"""


class Recorder(NotebookClient):
    """Keeps what the kernel says below a cell, in order, updates too."""

    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] in ("display_data", "update_display_data"):
            self.told.append((time.monotonic(), msg["content"]["data"]["text/plain"]))
        return super().process_message(msg, cell, cell_index)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    client = Recorder(
        nbformat.v4.new_notebook(), kernel_name="python3", timeout=120, resources={"metadata": {"path": str(folder)}}
    )
    client.told = []
    with client.setup_kernel(env={**os.environ, "PYTHONPATH": ROOT}):
        run(client, SETUP)
        client.folder = folder
        client.pid = int("".join(o.text for o in run(client, "print(os.getpid())")))
        yield client


def run(client, text: str) -> list:
    client.told.clear()
    cell = nbformat.v4.new_code_cell(text)
    client.nb.cells.append(cell)
    try:
        client.execute_cell(cell, len(client.nb.cells) - 1)
    except CellExecutionError:
        pass
    return cell.outputs


def slow_compiler(client, name: str, seconds: float) -> Path:
    """A compiler that starts a process of its own and sleeps; the file that it writes both pids to."""
    mark, script = client.folder / f"{name}-pids", client.folder / f"{name}-cxx"
    script.write_text(
        f'#!/bin/sh\ncase " $* " in *" - "*) sleep {seconds} & echo $$ $! > {mark}.new; mv {mark}.new {mark}; wait;; esac\nexec g++ "$@"\n'
    )
    script.chmod(0o755)
    run(client, f"os.environ['WORKBENCH_CXX'] = {str(script)!r}")
    return mark


@pytest.mark.slow
def test_f54_a_long_build_says_what_it_does_while_it_does_it_and_leaves_its_line_alone(kernel):
    slow_compiler(kernel, "slow", 1.5)
    [shown] = [o for o in run(kernel, "%%cpp scale\n" + live.SCALE) if o.output_type == "display_data"]
    ended = time.monotonic()
    before = [(when, said) for when, said in kernel.told if said.startswith("scale: ")]
    assert len(before) >= 2 and before[0][0] < ended - 0.5  # while the cell runs
    assert any("slow-cxx runs, " in said and said.endswith("; an interrupt ends it") for _, said in before)
    assert shown.data["text/plain"].startswith("scale cpp v1 | ")  # in the very same place


def test_f54_an_interrupt_kills_the_compiler_and_what_it_started(kernel):
    look = "print(scale.runs().number, scale(torch.ones(1)).item())"
    former = "".join(o.text for o in run(kernel, look))
    mark = slow_compiler(kernel, "endless", 600)

    def interrupt() -> None:
        while not mark.exists():
            time.sleep(0.02)
        time.sleep(0.5)  # it has shown itself
        os.kill(kernel.pid, 2)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    began = time.monotonic()
    outputs = run(kernel, "%%cpp scale\n" + live.SCALE.replace("x[i] * k", "k * x[i]"))
    assert time.monotonic() - began < 30
    assert [o.ename for o in outputs if o.output_type == "error"] == ["KeyboardInterrupt"]
    assert [o.data["text/plain"] for o in outputs if o.output_type == "display_data"] == [""]  # nothing is left of it
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in mark.read_text().split()):
        assert time.monotonic() < deadline, "the compiler, or what it started, still runs"
        time.sleep(0.05)
    run(kernel, "os.environ.pop('WORKBENCH_CXX')")
    assert "".join(o.text for o in run(kernel, look)) == former and former.endswith(" 2.0\n")


def test_f54_what_is_quick_shows_nothing_but_its_line(monkeypatch):
    shown = []
    with waiting.told("scale", lambda: "g++", shown.append):
        pass
    assert not shown
    monkeypatch.setattr(waiting, "EVERY_S", 0.01)
    with waiting.told("scale", lambda: "g++", shown.append):
        while len(shown) < 2:
            time.sleep(0.005)
    count = len(shown)
    time.sleep(0.05)
    assert len(shown) == count and str(shown[0]).startswith("scale: g++ runs, ")


def test_f54_the_sentence_is_text_and_html_and_an_empty_one_is_nothing():
    assert waiting.sentence("rmsnorm", "g++", 3.2) == "rmsnorm: g++ runs, 3.2 s; an interrupt ends it"
    assert waiting.sentence("rmsnorm", "", 12.0) == "rmsnorm: built and tried, 12 s; an interrupt ends it"
    said = waiting.Doing("<script>: runs")._repr_mimebundle_()
    assert (
        said["text/plain"] == "<script>: runs"
        and "&lt;script&gt;" in said["text/html"]
        and "<script" not in said["text/html"]
    )
    assert waiting.Doing()._repr_mimebundle_() == {"text/plain": "", "text/html": ""}


def test_f54_after_a_line_nothing_is_shown_anew_until_something_takes_long_again(monkeypatch):
    """Else a tick between the line and the end of the cell leaves an empty place below it."""
    places = []
    monkeypatch.setattr(magic, "_place", lambda: places.append("place") or (lambda report: None))
    below = magic._Below()
    below.tell(waiting.Doing("its forward"))
    below.take()
    below.tell(waiting.Doing("its forward"))
    assert len(places) == 1
    monkeypatch.setattr(waiting, "EVERY_S", 0.0)
    below.tell(waiting.Doing("its backward"))
    assert len(places) == 2
