"""Builds of more than one process: at once, killed half way, after a restart, in a cache that cannot be written to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests import live

ROOT = str(Path(__file__).parents[1])
SCRIPT = """
import sys, time
began = time.perf_counter()
import torch, workbench as wb
from torch import Tensor

@wb.op("lab::scale")
def scale(x: Tensor, k: float = 2.0) -> Tensor:
    return x * k

@scale.cases
def _(t):
    yield t(4, 8), 3.0
    yield wb.case("odd", t(5, 3))

{before}
wb.cpp("scale", TEXT)
x = torch.arange(6.0)
assert torch.equal(scale(x, 3.0), x * 3)
print(scale.runs().kernel.cached, scale.last_line.seconds)
{after}
"""


class Shell:
    """Scripts in processes of their own, with one cache and one counting compiler."""

    def __init__(self, folder: Path, sleep: float = 0.0) -> None:
        self.cache = folder / "cache"
        compiler, self.count = live.counting_compiler(folder, sleep=sleep)
        self.environment = {
            **os.environ,
            "WORKBENCH_CACHE": str(self.cache),
            "WORKBENCH_CXX": compiler,
            "PYTHONPATH": ROOT,
        }

    def start(self, text: str = live.SCALE, before: str = "", after: str = "") -> subprocess.Popen:
        script = f"TEXT = {text!r}\n" + SCRIPT.format(before=textwrap.dedent(before), after=textwrap.dedent(after))
        return subprocess.Popen([sys.executable, "-c", script], env=self.environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)  # fmt: skip

    def run(self, *args, **kwargs) -> str:
        return finished(self.start(*args, **kwargs))

    @property
    def compilations(self) -> list[str]:
        """What was compiled, in order: `["launcher.so", "body.so"]`."""
        return [line.split()[1] for line in self.count.read_text().splitlines()]

    @property
    def pids(self) -> list[int]:
        return [int(line.split()[0]) for line in self.count.read_text().splitlines()]


def finished(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path)


def test_a_restart_runs_no_compiler(shell):
    assert shell.run().startswith("False ")
    built = shell.compilations
    assert built.count("launcher.so") == built.count("body.so") == 1
    edit = "wb.cpp('scale', TEXT.replace('x[i] * k', 'k * x[i]')); print(scale.runs().kernel.cached)"
    assert shell.run(after=edit).split()[::2] == ["True", "False"]
    assert shell.compilations == [*built, "body.so"]  # the body alone
    assert shell.run(after=edit).split()[::2] == ["True", "True"]
    assert shell.compilations == [*built, "body.so"]


@pytest.mark.slow
def test_the_same_cell_in_two_processes_at_once_is_built_once(tmp_path):
    both = Shell(tmp_path, sleep=0.5)
    for process in [both.start() for _ in range(2)]:
        finished(process)
    assert both.compilations.count("launcher.so") == both.compilations.count("body.so") == 1


@pytest.mark.slow
def test_a_build_that_was_killed_half_way_is_built_again(tmp_path):
    slow = Shell(tmp_path, sleep=60)
    process = slow.start()
    deadline = time.monotonic() + 60
    while not slow.compilations:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.communicate(timeout=60)
    for pid in slow.pids:  # a SIGKILL leaves the compiler itself behind
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    quick = Shell(tmp_path)
    before = len(quick.compilations)
    assert quick.run().startswith("False ") and "body.so" in quick.compilations[before:]


@pytest.mark.slow
def test_an_interrupt_in_the_middle_of_a_build(tmp_path):
    slow = Shell(tmp_path, sleep=60)
    process = slow.start()
    deadline = time.monotonic() + 60
    while not slow.compilations:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in err
    for pid in slow.pids:
        assert not os.path.exists(f"/proc/{pid}"), "the compiler still runs"
    assert Shell(tmp_path).run().startswith("False ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_a_cache_that_can_only_be_read(shell):
    shell.run()
    for folder, _, _ in os.walk(shell.cache, topdown=False):
        os.chmod(folder, 0o500)
    try:
        assert shell.run().startswith("True ")
        assert shell.run(live.SCALE.replace("x[i] * k", "k * x[i]")).startswith("False ")
    finally:
        for folder, _, _ in os.walk(shell.cache):
            os.chmod(folder, 0o700)


def test_a_disk_that_is_full(shell):
    """What cannot be written to the cache is built elsewhere, and said."""
    before = """
        import errno, os, tempfile
        from workbench.build import store
        real = tempfile.mkdtemp
        def full(*args, dir=None, **kwargs):
            if dir is not None and "staging" in str(dir) and str(dir).startswith(os.environ["WORKBENCH_CACHE"]):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args, dir=dir, **kwargs)
        store.tempfile.mkdtemp = full
    """
    said = " ".join(
        shell.run(live.SCALE.replace("x[i] * k", "k * x[i]"), before=before, after="print(scale.last_line)").split()
    )
    assert "the cache cannot be written to (No space left on device)" in said


@pytest.mark.slow
def test_a_damaged_entry_is_built_again_after_a_restart(shell):
    shell.run()
    built = shell.compilations
    files = list((shell.cache / "objects").rglob("body.so"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:-1])
    assert shell.run().startswith("False ") and shell.compilations == [*built, *["body.so"] * len(files)]
