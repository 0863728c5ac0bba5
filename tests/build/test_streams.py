"""std::ostringstream in what is loaded beside torch, also where the compiler puts a C++ library of its own into it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from workbench import toolchain
from workbench.build import flags

TEXT = """\
#include <sstream>
#include <stdexcept>
#include <string>
extern "C" __attribute__((visibility("default"))) int probe(int n) {
  std::ostringstream m;
  m << "n is " << n << ", half " << n / 2.0;
  try {
    if (n == 7) throw std::runtime_error(m.str());
  } catch (const std::exception& error) {
    return std::string(error.what()) == "n is 7, half 3.5" ? 1 : -1;
  }
  return 0;
}
"""
RUN = """\
import ctypes, sys
{before}
library = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_LOCAL)
sys.exit(0 if library.probe(7) == 1 else 3)
"""


def built(folder: Path, kind: str, extra: Sequence[str]) -> Path:
    compiler, output = toolchain.compiler(), folder / "probe.so"
    text = ["-shared", "-x", "c++", "-", "-x", "none", "-o", str(output)]
    command = [
        *compiler.command,
        *flags.compiling(compiler, kind, ()),
        *text,
        *flags.linking(compiler, kind, extra),
        *extra,
    ]
    done = subprocess.run(command, input=TEXT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def ran(path: Path, before: str) -> str:
    """How a process that does `before` and then calls the probe ended: "works", "SIGSEGV", ..."""
    program = RUN.format(before=before)
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    return "works" if done.returncode == 0 else f"{done.returncode}: {done.stderr}"


@pytest.mark.parametrize("extra", [(), ("-static-libstdc++",)], ids=["torch's", "its own"])
@pytest.mark.parametrize("kind", ["host", "body"])
def test_a_stream_works_beside_torch(tmp_path, kind, extra):
    path = built(tmp_path, kind, extra)
    used = "import torch" + ("; torch.zeros(1, device='cuda')" if torch.cuda.is_available() else "")
    assert {before: ran(path, before) for before in ("", used)} == {"": "works", used: "works"}


@pytest.mark.gpu
def test_a_stream_works_beside_torch_on_a_gpu(tmp_path):
    """As the machine's own compiler is set up; and with CUDA's libraries in the process."""
    test_a_stream_works_beside_torch(tmp_path, "host", ())
