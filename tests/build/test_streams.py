"""std::ostringstream in what is loaded beside torch: where its names are bound, and which flags decide whether it works.

In one process (torch 2.11 with CUDA, g++ 13) code of ours that used one crashed. This compiles it in several ways, runs
each in a process of its own, and tells which of them work and who owns the names: `pytest -s tests/build/test_streams.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

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
{torch}
library = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_LOCAL)
sys.exit(0 if library.probe(7) == 1 else 3)
"""
WAYS = {
    "as host cells are": ((), ()),
    "libstdc++ first": ((), ("FIRST",)),
    "without -fvisibility=hidden": (("-fvisibility=default",), ()),
    "without -fno-gnu-unique": (("-fgnu-unique",), ()),
    "with -std=c++17": (("-std=c++17",), ()),
    "not optimised": (("-O0",), ()),
    "the default linker": ((), ("DEFAULT",)),
    "not linked with torch": ((), ("ALONE",)),
    "-static-libstdc++": ((), ("-static-libstdc++",)),
    "-Bsymbolic": ((), ("-Wl,-Bsymbolic",)),
}


def built(folder: Path, name: str, compiling: Sequence[str], linking: Sequence[str]) -> Path:
    file = re.sub(r"\W", "_", name)
    compiler, output = toolchain.compiler(), folder / f"{file}.so"
    own = flags.compiling(compiler, "host", ())
    links = list(flags.linking(compiler, "body" if "ALONE" in linking else "host", ()))
    if "DEFAULT" in linking:
        links = [w for w in links if not w.startswith("-fuse-ld")]
    if "FIRST" in linking:
        links = ["-lstdc++", *links]
    extra = [w for w in linking if w.startswith("-")]
    command = [
        *compiler.command,
        *own,
        *compiling,
        "-shared",
        "-x",
        "c++",
        "-",
        "-x",
        "none",
        "-o",
        str(output),
        *links,
        *extra,
    ]
    done = subprocess.run(command, input=TEXT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def ran(path: Path, torch: str, bindings: Path | None = None) -> str:
    """How the process ended: "works", "SIGSEGV", ..."""
    environment = {**os.environ}
    if bindings:
        environment |= {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(bindings)}
    program = RUN.format(torch=torch)
    done = subprocess.run([sys.executable, "-c", program, str(path)], env=environment, capture_output=True, text=True,
                          timeout=200, check=False)  # fmt: skip
    if done.returncode < 0:
        import signal

        return signal.Signals(-done.returncode).name
    return "works" if done.returncode == 0 else f"fails: {done.stderr.strip().splitlines()[-1:]}"


def owners(path: Path, log: Path) -> list[str]:
    """Who the names of the C++ library in `path` were bound to, where that is not libstdc++.so.6 of the first such line."""
    found = set()
    for file in log.parent.glob(f"{log.name}.*"):
        for row in file.read_text(errors="replace").splitlines():
            m = re.search(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: normal symbol `(_ZN?K?S[tosid]\S*|_ZT\S*St\S*|__cxa\w*)'", row)
            if m and m[1] == str(path):
                found.add(f"{m[3]} -> {m[2]}")
    return sorted(found)


@pytest.mark.gpu
@pytest.mark.timeout(900)
def test_a_stream_works_beside_torch(tmp_path):
    told, first = [], None
    for name, (compiling, linking) in WAYS.items():
        path = built(tmp_path, name, compiling, linking)
        outcome = {"alone": ran(path, ""), "with torch": ran(path, "import torch")}
        outcome["with CUDA"] = ran(path, "import torch; torch.zeros(1, device='cuda')")
        told.append(f"{name:30} {outcome}")
        first = first or (path, outcome)
    path, outcome = first
    log = tmp_path / "bindings"
    ran(path, "import torch", log)
    told += ["names of the C++ library that it was bound to:", *owners(path, log)]
    maps = "import torch, re; print(sorted({l.split()[-1] for l in open('/proc/self/maps') if re.search('stdc|libgcc', l)}))"
    told.append(
        subprocess.run([sys.executable, "-c", maps], capture_output=True, text=True, check=False).stdout.strip()
    )
    told += [sys.version, toolchain.compiler().version, toolchain.torch().version]
    print("\n".join(told))
    assert set(outcome.values()) == {"works"}, "\n".join(told)


def test_the_probe_itself_works_here(tmp_path):
    path = built(tmp_path, "as host cells are", (), ())
    assert ran(path, "import torch", tmp_path / "bindings") == "works"
    bound = owners(path, tmp_path / "bindings")
    assert any("ostringstream" in row and "libstdc++" in row for row in bound), bound
