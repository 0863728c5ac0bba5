"""Libraries that define their ops themselves, in a package: all their sources, with what they were built with."""

from __future__ import annotations

import ast
import re

import pytest
import torch

import workbench as wb
from workbench.errors import SaveError

pytestmark = pytest.mark.slow  # each is compiled with torch's own headers
HEADERS = "#include <torch/extension.h>\n#include <torch/library.h>\n"
BLOCK = """at::Tensor times(const at::Tensor& x);
TORCH_LIBRARY({namespace}, m) {{ m.def("times(Tensor x) -> Tensor", &times); }}
"""
TIMES = "at::Tensor times(const at::Tensor& x) { return x * FACTOR; }\n"


def units(root) -> dict[str, list[str]]:
    return {
        p: ast.literal_eval(w) for p, w in re.findall(r'\("(csrc/[^"]+)", (\[.*\])\)', (root / "setup.py").read_text())
    }


def test_flags_of_a_cell_that_defines_its_ops(namespace, tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "factor.h").write_text("#pragma once\n#define FACTOR (WHOLE + 0.5)\n")
    monkeypatch.chdir(tmp_path)
    flags = "//! flags -DWHOLE=3 -Iinner -lm\n"
    wb.cpp(None, f"{flags}{HEADERS}#include <factor.h>\n{TIMES}{BLOCK.format(namespace=namespace)}")
    op = wb.ops[f"{namespace}::times"]
    assert op(torch.ones(2)).tolist() == [3.5, 3.5]
    op.cases(lambda t: iter([t(3)]))
    wb.save(op, tmp_path / "o")
    [words] = [w for p, w in units(tmp_path / "o").items() if "registration" not in p]
    assert words == ["-iquotecsrc/kernels", "-DWHOLE=3", "-Icsrc/kernels/inner"]
    assert "\"links\": ['-lm']" in (tmp_path / "o" / "setup.py").read_text()


def test_all_sources_go_along_with_their_options(namespace, tmp_path):
    sources = [HEADERS + BLOCK.format(namespace=namespace), HEADERS + TIMES]
    wb.load_inline(namespace, sources, extra_cflags=["-DFACTOR=3 -O2"])
    op = wb.ops[f"{namespace}::times"]
    op.cases(lambda t: iter([t(3)]))
    wb.save(op, tmp_path / "o")
    found = {p: w for p, w in units(tmp_path / "o").items() if "registration" not in p}
    texts = "".join((tmp_path / "o" / p.replace("csrc/", "csrc/kernels/")).read_text() for p in found)
    assert "TORCH_LIBRARY(" in texts and TIMES in texts
    assert all(words[-2:] == ["-DFACTOR=3", "-O2"] for words in found.values())


def test_an_op_that_no_block_defines_is_refused(namespace, tmp_path):
    """`load_inline` has registered the function; its text does not."""
    wb.load_inline(namespace, HEADERS + TIMES.replace("FACTOR", "3"), functions="times")
    op = wb.ops[f"{namespace}::times"]
    op.cases(lambda t: iter([t(3)]))
    with pytest.raises(SaveError, match=rf"no TORCH_LIBRARY\({namespace}, \.\.\.\) block of its source defines it"):
        wb.save(op, tmp_path / "o")


def test_openmp_and_folders_of_a_function_on_at_tensor(namespace, tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "factor.h").write_text("#pragma once\n#define FACTOR 3\n")
    monkeypatch.chdir(tmp_path)

    def times(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    op = wb.op(f"{namespace}::times")(times)
    op.cases(lambda t: iter([t(3)]))
    loop = "  volatile int n = 0;\n#pragma omp parallel for\n  for (int i = 0; i < 4; ++i) n = omp_get_max_threads();\n"
    text = TIMES.replace("{ return", f"{{\n{loop}  return")
    wb.cpp(op, f"//! flags -fopenmp -Iinner\n{HEADERS}#include <omp.h>\n#include <factor.h>\n{text}")
    assert op(torch.ones(2)).tolist() == [3.0, 3.0]
    wb.save(op, tmp_path / "o")
    assert "\"links\": ['-fopenmp']" in (tmp_path / "o" / "setup.py").read_text()
