"""Files that are loaded again when they are saved: when, what is shown, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient

import workbench as wb
from tests import live
from tests.live import SCALE, SCALE_BACKWARD
from workbench import files, watch
from workbench.turn import turn

OP = """\
import torch
from torch import Tensor
import workbench as wb

@wb.op("live::scale")
def scale(x: Tensor, k: float = 2.0) -> Tensor:
    return x * k

@scale.cases
def _(t):
    yield t(4, 8), 3.0
"""
ONE = torch.zeros(1)


def adding(value: str) -> str:
    return SCALE.replace("x[i] * k", f"x[i] * k + {value}")


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """A watched folder with its op, a clock that only the test moves, and all that was shown."""

    def __init__(self, folder: Path, what: str = "") -> None:
        self.folder, self.shown, self.clock = folder, [], Clock()
        self.write("op.py", OP)
        self.write("scale.cpp", SCALE)
        self.watch = watch.Watch(folder / what, self.shown.append, clock=self.clock)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")
        self.moved = getattr(self, "moved", 0) + 1
        os.utime(self.folder / name, ns=(self.moved * 10**9, self.moved * 10**9))  # each save is later than the last

    def settle(self) -> bool:
        """Polls as time goes by; did that load anything?"""
        loaded = [self.watch.poll()]
        for _ in range(12):
            self.clock.now += 0.1
            loaded.append(self.watch.poll())
        return any(loaded)

    @property
    def op(self) -> wb.Op:
        return wb.ops["live::scale"]


@pytest.fixture
def desk(tmp_path):
    live.gone("live::scale")
    made = Desk(tmp_path)
    made.watch.load()
    return made


def test_a_save_is_loaded_once_it_has_settled(desk):
    [first] = desk.shown
    assert first.ok and [line.version for line in first.lines] == [1] and desk.op(ONE).item() == 0.0
    assert not desk.settle() and len(desk.shown) == 1
    desk.write("scale.cpp", adding("1e-30f"))
    assert not desk.watch.poll()  # seen, but it may not be whole yet
    desk.clock.now += 0.1
    assert not desk.watch.poll()
    desk.clock.now += 0.1
    assert desk.watch.poll() and desk.op(ONE).item() == pytest.approx(1e-30, rel=1e-3, abs=0)
    assert not desk.settle() and len(desk.shown) == 2
    assert [line.version for line in desk.shown[-1].lines] == [2] and str(desk.shown[-1]).startswith("scale cpp v2 | ")
    assert str(desk.shown[-1]).endswith(f"\nwatching {files.shown(desk.folder)}")


def test_a_file_that_is_still_written_is_waited_for(desk):
    for part in range(1, 5):
        desk.write("scale.cpp", adding("1e-30f")[: 40 * part])
        assert not desk.watch.poll()
        desk.clock.now += 0.1
    desk.write("scale.cpp", adding("1e-30f"))
    assert not desk.watch.poll()
    assert desk.settle() and len(desk.shown) == 2 and desk.shown[-1].ok


def test_an_empty_file_is_given_more_time(desk):
    desk.write("scale.cpp", "")
    desk.watch.poll()
    desk.clock.now += 0.5
    assert not desk.watch.poll()
    desk.write("scale.cpp", adding("1e-30f"))
    assert desk.settle() and len(desk.shown) == 2 and desk.shown[-1].ok


def test_deleting_and_writing_anew_is_how_editors_save(desk):
    (desk.folder / "scale.cpp").unlink()
    desk.watch.poll()
    desk.clock.now += 0.5
    assert not desk.watch.poll()
    desk.write("scale.cpp~", adding("1e-30f"))
    os.replace(desk.folder / "scale.cpp~", desk.folder / "scale.cpp")
    assert desk.settle() and len(desk.shown) == 2 and desk.op(ONE).item() == pytest.approx(1e-30, rel=1e-3, abs=0)


def test_a_file_that_is_gone_is_said_and_its_kernel_stays(desk):
    (desk.folder / "scale.cpp").unlink()
    assert not desk.settle()
    assert desk.shown[-1].notes == (
        f"{files.shown(desk.folder / 'scale.cpp')} is gone; what was built of it stays installed",
    )
    assert desk.op.runs().number == 1
    desk.write("scale.cpp", SCALE)
    desk.settle()
    assert desk.shown[-1].notes == () and len(desk.op.versions) == 2  # the same text as before: nothing to build


def test_one_file_alone(tmp_path):
    live.gone("live::scale")
    desk = Desk(tmp_path, "scale.cpp")
    wb.load(tmp_path / "op.py")
    desk.watch.load()
    (tmp_path / "scale.cpp").unlink()
    desk.settle()
    assert "is gone" in desk.shown[-1].notes[0]
    desk.write("scale.cpp", adding("1e-30f"))
    assert desk.settle() and desk.shown[-1].notes == () and desk.op(ONE).item() == pytest.approx(1e-30, rel=1e-3, abs=0)


def test_only_what_changed_is_built_again(desk):
    desk.write("scale.backward.cpp", SCALE_BACKWARD)  # a new file
    assert desk.settle() and set(desk.op.slots) == {("forward", "cpu"), ("backward", "cpu")}
    assert len(desk.op.versions) == 3
    desk.write("scale.backward.cpp", SCALE_BACKWARD.replace("grad_out[i] * k", "k * grad_out[i]"))
    assert desk.settle() and [(v.slot, v.number) for v in desk.op.versions[1:]] == [
        ("forward", 1),
        ("backward", 2),
        ("backward", 3),
    ]
    assert [(line.slot, line.version) for line in desk.shown[-1].lines] == [("forward", 1), ("backward", 3)]
    desk.write("scale.cpp", SCALE)  # saved, not changed
    assert not desk.settle() and len(desk.op.versions) == 4


def test_a_header_that_changes_rebuilds_and_is_named(desk):
    desk.write("more.h", "#define MORE 0.f\n")
    desk.write("scale.cpp", '#include "more.h"\n' + adding("MORE"))
    assert desk.settle() and desk.op(ONE).item() == 0.0
    desk.write("more.h", f"#define MORE 1e-30f  // {desk.op.qualname} {time.time_ns()}\n")  # never built before
    assert desk.settle() and desk.op(ONE).item() == pytest.approx(1e-30, rel=1e-3, abs=0)
    assert desk.shown[-1].lines[0].notes == ("rebuilt: more.h changed",)


def test_another_reference_judges_everything_again(desk, capsys):
    desk.write("op.py", OP.replace("return x * k", "return x * k + 1"))
    assert desk.settle()
    assert desk.op(ONE).item() == 1.0 and not desk.op.slots
    assert not desk.shown[-1].ok and "differs on" in str(desk.shown[-1])


@pytest.mark.parametrize(("name", "text", "words"), [
    ("scale.cpp", adding("+ nothing_of_that_name"), "line 6: ‘nothing_of_that_name’ was not declared"),
    ("scale.cpp", adding("1.f"), "not installed"),
    ("scale.cpp", SCALE.replace("//! out", "//! aus"), "scale.cpp, line "),
    ("op.py", OP + "1 / 0\n", "op.py, line 12: ZeroDivisionError: division by zero"),
    ("op.py", OP + "def f(:\n", "SyntaxError"),
])  # fmt: skip
def test_errors_are_shown_and_the_watch_goes_on(desk, name, text, words):
    desk.write(name, text)
    desk.settle()
    assert not desk.shown[-1].ok and words in str(desk.shown[-1])
    assert desk.op(ONE).item() == 0.0
    desk.write("op.py", OP)
    desk.write("scale.cpp", adding("1e-30f"))
    assert desk.settle() and desk.shown[-1].ok and desk.op(ONE).item() == pytest.approx(1e-30, rel=1e-3, abs=0)


def test_bytes_that_are_no_text(desk):
    (desk.folder / "scale.cpp").write_bytes(b"// caf\xe9\n" + SCALE.encode())
    desk.settle()
    assert "scale.cpp, line 1: the byte 0xe9 is no UTF-8" in desk.shown[-1].error


def test_what_a_cell_wrote_is_not_built_twice(desk):
    wb.cpp("live::scale", adding("1e-30f"), file=str(desk.folder / "scale.cpp"))
    assert not desk.settle() and len(desk.op.versions) == 3
    desk.write("scale.cpp", adding("2e-30f"))
    assert desk.settle() and desk.op(ONE).item() == pytest.approx(2e-30, rel=1e-3, abs=0)
    desk.write("scale.cpp", adding("1e-30f"))
    assert desk.settle() and desk.op(ONE).item() == pytest.approx(1e-30, rel=1e-3, abs=0)


def test_a_load_waits_for_the_cell_that_runs(desk):
    desk.write("scale.cpp", adding("1e-30f"))
    desk.watch.poll()
    desk.clock.now += 1
    thread = threading.Thread(target=desk.watch.poll)
    with turn:
        thread.start()
        thread.join(0.3)
        assert thread.is_alive() and desk.op(ONE).item() == 0.0
    thread.join(60)
    assert desk.op(ONE).item() == pytest.approx(1e-30, rel=1e-3, abs=0)


def wait_for(condition, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)


def test_the_thread_lives_as_long_as_something_is_watched(tmp_path):
    live.gone("live::scale")
    desk, shown = Desk(tmp_path), []
    watch.start(tmp_path, shown.append)
    assert [w.path for w in watch.listed()] == [tmp_path] and shown[0].ok
    desk.write("scale.cpp", adding("1e-30f"))
    wait_for(lambda: len(shown) == 2)
    assert desk.op(ONE).item() == pytest.approx(1e-30, rel=1e-3, abs=0)
    again = []
    watch.start(str(tmp_path), again.append)  # once more: the former ends
    assert shown[-1].state == "stopped" and len(watch.listed()) == 1
    [ended] = watch.stop(tmp_path)
    assert str(ended.report).endswith(f"stopped {files.shown(tmp_path)}") and watch.listed() == [] == watch.stop()
    wait_for(lambda: not any(t.name == "workbench-watch" for t in threading.enumerate()))
    desk.write("scale.cpp", adding("2e-30f"))
    time.sleep(0.6)
    assert desk.op(ONE).item() == pytest.approx(1e-30, rel=1e-3, abs=0) and len(shown) == 3


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(wb.SchemaError, match="there is no file or folder"):
        watch.start(tmp_path / "absent")
    assert watch.listed() == []


def test_a_process_ends_while_it_watches(tmp_path):
    """In the middle of a build, too: no compiler is left behind, and nothing is said."""
    (tmp_path / "op.py").write_text(OP)
    (tmp_path / "scale.cpp").write_text(SCALE)
    (tmp_path / "cxx").write_text(
        f'#!/bin/sh\nfor a in "$@"; do [ "$a" = - ] && {{ touch {tmp_path}/began; sleep 30; }}; done\nexec g++ "$@"\n'
    )
    (tmp_path / "cxx").chmod(0o755)
    program = f"""if True:
        import os, sys, time
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from workbench import watch
        watch.start({str(tmp_path)!r}, lambda report: None)
        os.environ["WORKBENCH_CXX"] = {str(tmp_path / "cxx")!r}
        text = open({str(tmp_path / "scale.cpp")!r}).read()
        open({str(tmp_path / "scale.cpp")!r}, "w").write(text.replace("* k", "* k + 0"))
        while not os.path.exists({str(tmp_path / "began")!r}): time.sleep(0.02)
    """
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "began").exists() and time.monotonic() - began < 60
    wait_for(
        lambda: (
            subprocess.run(["pgrep", "-f", str(tmp_path / "cxx")], capture_output=True, check=False).returncode == 1
        ),
        5,
    )


def cell(text: str):
    return nbformat.v4.new_code_cell(text)


@pytest.mark.slow
def test_in_a_notebook_the_line_is_replaced_in_place(tmp_path):
    (tmp_path / "op.py").write_text(OP)
    (tmp_path / "scale.cpp").write_text(SCALE)
    write = "from pathlib import Path\nfrom time import sleep\ntext = Path('scale.cpp').read_text()\nPath('scale.cpp').write_text("
    wait = "\nfor _ in range(600):\n    if scale.runs().number == {}: break\n    sleep(0.1)\nsleep(0.5)\nprint(scale(torch.zeros(1)).item())"
    book = nbformat.v4.new_notebook(cells=[
        cell("%load_ext workbench\nimport torch, workbench as wb"),
        cell("%wb watch .\nscale = wb.ops['live::scale']\n" + write + "text.replace('* k', '* k + 1e-30'))" + wait.format(2)),
        cell("%wb watch"),
        cell("%wb ops"),
        cell("%reload_ext workbench\n%wb watch"),
        cell(write + "text)\nsleep(1)\nprint(scale.runs().number)"),
        cell("%wb open scale.cpp"),
        cell("%wb"),
    ])  # fmt: skip
    environment = {**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    NotebookClient(book, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute(env=environment)
    shown = [o for o in book.cells[1].outputs if o.output_type == "display_data"]
    text = shown[0]["data"]["text/plain"]
    assert len(shown) == 1 and text.startswith("scale cpp v2 | ") and text.endswith("\nstopped .")
    assert '<div class="line">' in shown[0]["data"]["text/html"]
    said = ["".join(o.get("text", "") for o in c.outputs) for c in book.cells]
    assert float(said[1]) == pytest.approx(1e-30, rel=1e-3, abs=0)
    assert said[2] == ".  scale forward v2\n" and said[3] == "live::scale  forward cpu v2\n"
    assert said[4] == "nothing is watched: %wb watch PATH\n" and said[5] == "2\n"
    assert said[7].startswith("%%cpp [TARGET] ")
