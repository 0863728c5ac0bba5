"""Programs as users run them, each a process of its own: how they end, how soon, and what they leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import live

ROOT = str(Path(__file__).parents[1])
OP = f"""
import os, sys, threading, time
import torch, workbench as wb
from torch import Tensor

@wb.op("lab::scale")
def scale(x: Tensor, k: float = 2.0) -> Tensor:
    return x * k

@scale.cases
def _(t):
    yield t(4, 8), 3.0

TEXT = {live.SCALE!r}
"""
TRITON = """
@triton.jit
def kernel(x, y, k, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) * k, mask=i < n)

def scale(x, k=2.0):
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 256),)](x, y, k, x.numel(), B=256)
    return y
"""


class Shell:
    """Runs programs with one cache, in a folder of their own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder, self.cache = folder, folder / "cache"
        self.environment = {**os.environ, "WORKBENCH_CACHE": str(self.cache), "PYTHONPATH": ROOT, **environment}

    def run(self, text: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        script = self.folder / "script" / "script.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text(OP + text)
        return self.command([sys.executable, str(script)], cwd)

    def command(self, words: list[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=self.environment,
            cwd=cwd or self.folder,
        )


def test_a_program_that_ends_early_leaves_no_compiler_and_no_half_of_a_header(tmp_path):
    """The headers that the first op has made in the background: the one at hand is ended, the next is not begun."""
    compiler, begun = tmp_path / "slow-cxx", tmp_path / "begun"
    compiler.write_text(
        '#!/bin/sh\nlast=""\nfor a in "$@"; do [ "$last" = -o ] && made="$a"; last="$a"; done\n'
        f'case "$*" in *c++-header*) echo half > "$made"; echo $$ >> {begun}; exec sleep 60;; esac\nexec g++ "$@"\n'
    )
    compiler.chmod(0o755)
    shell = Shell(tmp_path, WORKBENCH_CXX=str(compiler))
    done = shell.run(f"while not os.path.exists({str(begun)!r}): time.sleep(0.01)\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    time.sleep(0.3)  # so long a thread would go on
    [pid] = begun.read_text().split()
    assert not os.path.exists(f"/proc/{pid}"), "a compiler still runs"
    assert [str(p) for p in shell.cache.rglob("staging/*")] == []


@pytest.mark.slow
def test_a_build_or_a_check_after_the_end_of_the_main_thread_is_refused_in_a_sentence(tmp_path):
    done = Shell(tmp_path).run(
        "def late():\n"
        "    threading.main_thread().join()\n"
        "    for verb in (lambda: wb.cpp('scale', TEXT), lambda: wb.triton('scale', TRITON), scale.check):\n"
        "        try: verb()\n"
        "        except wb.WorkbenchError as error: print(str(error).splitlines()[0])\n"
        "    print(scale(torch.ones(2), 3.0).tolist())\n"
        f"TRITON = {TRITON!r}\n"
        "threading.Thread(target=late).start()\n"
    )
    said = (
        "this program is ending, and nothing is built or checked any more: let the main thread wait for this one, by "
        "thread.join()"
    )
    assert done.stdout.splitlines() == [said, said, said, "[3.0, 3.0]"]
    assert (done.returncode, done.stderr) == (0, "")


def test_modules_that_lie_where_a_script_is_started_are_not_the_workers(tmp_path):
    """`python scripts/train.py` does not look into the folder that it is started from; `python -m` does."""
    started_from = tmp_path / "from"
    started_from.mkdir()
    for name in ("random", "socket", "select", "queue"):
        (started_from / f"{name}.py").write_text("raise RuntimeError('not this one')\n")
    done = Shell(tmp_path).run(
        "wb.cpp('scale', TEXT)\nprint(scale.last_line.installed, scale(torch.ones(2), 3.0).tolist())\n", started_from
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True [3.0, 3.0]\n", "")


@pytest.mark.slow
def test_an_op_of_a_program_on_standard_input_is_complete(tmp_path):
    shell = Shell(tmp_path)
    text = OP + (
        "wb.cpp('scale', TEXT)\nx = torch.ones(2, requires_grad=True)\nscale(x, 3.0).sum().backward()\n"
        "print(x.grad.tolist(), scale.check().ok)\n"
        "try: wb.save([scale], 'saved')\n"
        "except wb.WorkbenchError as error: print(str(error).splitlines()[0])\n"
    )
    done = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True, timeout=120, check=False,
                          env=shell.environment, cwd=tmp_path)  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "[3.0, 3.0] True",
        "lab::scale: the source of scale cannot be found; define it in a cell or a file, and run that again",
    ]


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_command_whose_reader_has_gone_ends_quietly_with_its_own_code(tmp_path, json):
    shell = Shell(tmp_path)
    words = [sys.executable, "-m", "workbench", "cache", "list", *json]
    near, far = os.pipe()
    os.close(near)
    try:
        done = subprocess.run(words, stdout=far, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
                              env=shell.environment)  # fmt: skip
    finally:
        os.close(far)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_a_command_whose_output_cannot_be_written_says_so(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "workbench", "cache", "list"], stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=120, check=False, env=Shell(tmp_path).environment)  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "the output cannot be written: No space left on device\n")


@pytest.mark.slow
def test_a_fork_builds_while_a_thread_of_its_parent_was_building(tmp_path):
    done = Shell(tmp_path).run(
        "from workbench.turn import turn\n"
        "wb.cpp('scale', TEXT)\nheld, over = threading.Event(), threading.Event()\n"
        "def hold():\n"
        "    with turn: held.set(); over.wait(60)\n"
        "threading.Thread(target=hold).start(); held.wait()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    wb.cpp('scale', TEXT)\n"
        "    print(scale(torch.ones(2), 3.0).tolist(), scale.last_line.installed, flush=True)\n"
        "    os._exit(0)\n"
        "until = time.monotonic() + 20\n"
        "while not (ended := os.waitpid(child, os.WNOHANG)[0]) and time.monotonic() < until: time.sleep(0.02)\n"
        "over.set()\n"
        "if not ended: os.kill(child, 9); print('it hangs')\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[3.0, 3.0] True\n", "")
