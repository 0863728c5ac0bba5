"""A notebook without a browser: cells run in an IPython shell and are timed. What the others' edits are followed by."""

from __future__ import annotations

import os
import sys
import time

from benchmarks.texts import CELL, REFERENCE

SHAPES = ((4, 128), (5, 123), (3, 7, 11))


class Notebook:
    """An IPython shell that runs cells and times them; `compilers` counts the compilers started."""

    def __init__(self) -> None:
        from IPython.core.interactiveshell import InteractiveShell

        self.shell = InteractiveShell.instance()
        self.compilers = 0
        sys.addaudithook(self._hear)
        self.run("%load_ext workbench\nimport torch, workbench as wb\nfrom torch import Tensor")

    def _hear(self, event: str, arguments: tuple) -> None:
        if event == "subprocess.Popen":
            executable, command, folder = arguments[:3]
            words = [os.fsdecode(w) for w in command] if isinstance(command, (list, tuple)) else [str(command)]
            name = os.path.basename(os.fsdecode(executable or words[0]))
            if name == "ninja" and os.path.isfile(file := os.path.join(folder or "", "build.ninja")):
                with open(file, encoding="utf-8", errors="replace") as text:
                    self.compilers += compiled(text.read())
            self.compilers += "-o" in words and any(c in name for c in ("g++", "c++", "gcc", "clang", "cc1plus"))

    def run(self, cell: str) -> float:
        """Seconds that a cell took; a cell that raises ends the benchmark."""
        from IPython.utils.capture import capture_output

        begun = time.perf_counter()
        with capture_output() as shown:
            result = self.shell.run_cell(cell, store_history=True)
        seconds = time.perf_counter() - begun
        if not result.success:
            raise SystemExit(f"{cell}\n{shown.stdout}\n{result.error_in_exec or result.error_before_exec}")
        return seconds

    def define(self, name: str, space: str = "bench") -> float:
        return self.run(REFERENCE.format(name=name, space=space, shapes=SHAPES))

    def edit(self, name: str, edit: int, cell: str = CELL) -> float:
        return self.run(cell.format(name=name, edit=edit))


def compiled(ninja: str) -> int:
    """How many objects the text of a build.ninja has compiled.

    >>> compiled("rule compile\\n  command = g++\\nbuild s0.o: compile s0.cpp\\nbuild lab.so: link s0.o\\n")
    1
    """
    return sum(line.startswith("build ") and ": compile " in line for line in ninja.splitlines())


def quiet(limit_s: float = 120.0) -> None:
    """Wait until no compiler runs below this process: headers that are precompiled in the background are done."""
    import psutil

    still, deadline = 0, time.monotonic() + limit_s
    while still < 10 and time.monotonic() < deadline:
        names = []
        for process in psutil.Process().children(recursive=True):
            try:
                names.append(process.name())
            except psutil.NoSuchProcess:
                pass
        still = 0 if any(n.startswith(("cc1plus", "g++", "c++", "clang", "ld", "as")) for n in names) else still + 1
        time.sleep(0.1)


def compare(call) -> None:
    """What the others' edits are followed by, so that a result was seen to be right: three cases, as in the trial."""
    import torch

    for shape in SHAPES:
        x = torch.randn(shape)
        torch.testing.assert_close(call(x, 0.5), torch.where(x > 0, x, 0.5 * x))
