"""Looks at what the CPU's side needs: Python, torch, what reads signatures, compiler, OpenMP, headers, ninja."""

from __future__ import annotations

import platform
import shutil
import sys
import sysconfig
from pathlib import Path

from .. import settings, toolchain
from ..errors import ToolchainError
from ..source import functions
from .trying import PIP, Found, compiled, first_line, missing, ran, told, works

OLDEST_TORCH = (2, 11)
ADDS = '#include <cmath>\nextern "C" int probe(int n) { return n + int(std::sqrt(4.0)); }\n'
PARALLEL = """#include <omp.h>
extern "C" int probe(int n) {
  int sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int i = 0; i < n; ++i) sum += 1;
  return sum;
}
"""


def python() -> Found:
    said = f"{platform.python_version()}, {sys.executable}"
    header = Path(sysconfig.get_path("include"), "Python.h")
    if header.exists():
        return works(f"{said}, with headers")
    cure = "Install them where cells use pybind11 (Debian, Ubuntu: `apt install python3-dev`)"
    return missing(f"{said}; Python.h is not in {header.parent}", cure)


def torch_() -> Found:
    import torch

    found = toolchain.torch()
    numbers = tuple(int(n) for n in found.version.split("+")[0].split(".")[:2])
    if numbers < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        return (
            "fail",
            f"torch {found.version} is too old: {oldest} or later is needed",
            f"Type `{PIP} 'torch>={oldest}'`",
        )
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU alone"
    return works(f"{found.version}, built for {built}; {torch.get_num_threads()} threads; its headers are there")


def reader() -> Found:
    for language in ("cpp", "cuda"):
        (found,) = functions("void probe(const float* x, int64_t n) {}", language)
        if [p.name for p in found.parameters] != ["x", "n"]:
            return "fail", f"a signature is misread: {found}", f"Type `{PIP} -U tree-sitter tree-sitter-{language}`"
    return works("tree-sitter reads signatures of C++ and CUDA")


def compiler() -> Found:
    found = toolchain.compiler()
    took = compiled(found, ADDS, (), 5, 7)
    linker = f", linked by {found.linker}" if found.linker else ""
    return works(f"{found.version}; a function is compiled, loaded and called in {took * 1e3:.0f} ms{linker}")


def openmp() -> Found:
    try:
        compiled(toolchain.compiler(), PARALLEL, ("-fopenmp",), 9, 9)
    except (ToolchainError, OSError) as error:
        cure = "Install the compiler's OpenMP library (clang: `apt install libomp-dev`)"
        return missing(f"`-fopenmp` does not work: {first_line(error)}", cure)
    return works("`-fopenmp` compiles and runs")


def headers() -> Found:
    found, compiler = toolchain.torch(), toolchain.compiler()
    text = "#include <torch/csrc/stable/library.h>\n#include <torch/csrc/stable/tensor.h>\n"
    include = [word for folder in found.include for word in ("-isystem", folder)]
    done = ran([*compiler.command, "-std=c++20", "-fsyntax-only", *include, "-x", "c++", "-"], text)
    if done.returncode:
        return (
            "fail",
            f"torch's stable headers do not compile: {told(done.stdout)}",
            f"Type `{PIP} --force-reinstall torch`",
        )
    return works(f"torch's stable headers compile with {compiler.family} {compiler.major}")


def ninja() -> Found:
    path = shutil.which("ninja", path=settings.programs())
    if path is None:
        return missing("not here: cells of the full tier cannot be built", f"Type `{PIP} ninja`")
    done = ran([path, "--version"])
    if done.returncode:
        return "fail", f"{path} does not run: {told(done.stdout)}", f"Type `{PIP} --force-reinstall ninja`"
    return works(f"{done.stdout.strip()}, {path}")
