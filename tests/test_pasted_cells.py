"""C++ of every shape in a live notebook: pasted, edited, broken and repaired, in one kernel that is never restarted."""

from __future__ import annotations

import os

import nbformat
import pytest
from nbclient import NotebookClient

import workbench as wb
from tests.test_magic import Notebook, error, lines

pytestmark = pytest.mark.slow

SETUP = """
import os, torch, workbench as wb
from torch import Tensor
%load_ext workbench
x = torch.linspace(-2, 3, 24).reshape(4, 6)

for name in ("host", "full"):
    @wb.op(f"pasted::{name}")
    def op(x: Tensor) -> Tensor:
        return x * 2

    @op.cases
    def _(t):
        yield t(5, 123)
"""
# (the magic's line, the cell with FACTOR in it, how it is called, does a reference forbid another factor?)
SHAPES = {
    "host": ("%%cpp pasted::host", """
Tensor host(const Tensor& x) {
  Tensor out = torch::stable::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) out.mutable_data_ptr<float>()[i] = FACTOR * x.const_data_ptr<float>()[i];
  return out;
}""", "torch.ops.pasted.host(x)", True),
    "full": ("%%cpp pasted::full", """
#include <torch/extension.h>
torch::Tensor full(torch::Tensor x) { return x * FACTOR; }
""", "torch.ops.pasted.full(x)", True),
    "library": ("%%cpp", """
#include <ATen/ATen.h>
#include <torch/library.h>
at::Tensor scaled(const at::Tensor& x) { return x * FACTOR; }
TORCH_LIBRARY(pasted_library, m) { m.def("scaled(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(pasted_library, CPU, m) { m.impl("scaled", &scaled); }
""", "torch.ops.pasted_library.scaled(x)", False),
    "pybind11": ("%%cpp", """
#include <torch/extension.h>
at::Tensor scaled(const at::Tensor& x) { return x * FACTOR; }
PYBIND11_MODULE(pasted_module, m) { m.def("scaled", &scaled); }
""", "torch.ops.pasted_module.scaled(x)", False),
}  # fmt: skip


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    folder = {"metadata": {"path": str(tmp_path_factory.mktemp("pasted"))}}
    client = NotebookClient(nbformat.v4.new_notebook(), kernel_name="python3", timeout=240, resources=folder)
    root = os.path.dirname(os.path.dirname(os.path.abspath(wb.__file__)))
    with client.setup_kernel(env={**os.environ, "PYTHONPATH": root}):
        notebook = Notebook(client)
        assert not [o for o in notebook.run(SETUP) if o.output_type == "error"]
        yield notebook


@pytest.mark.parametrize("shape", SHAPES)
def test_a_pasted_cell_is_edited_broken_and_repaired(kernel, shape):
    magic, text, call, has_reference = SHAPES[shape]
    pid = kernel.value("os.getpid()")

    def cell(factor: str) -> list:
        return kernel.run(f"{magic}\n{text.replace('FACTOR', factor)}")

    def gives(factor: int) -> bool:
        return kernel.value(f"torch.equal({call}, x * {factor})") == "True"

    assert lines(cell("2"))  # pasted
    assert gives(2)
    edited = cell("(1 + 2)")
    if has_reference:  # which it differs from
        assert error(edited).ename == "TrialError"
        assert gives(2)
    else:
        assert lines(edited)
        assert gives(3)
    broken = cell("oops")
    assert error(broken).ename == "BuildError"
    assert "oops" in error(broken).evalue
    assert gives(2 if has_reference else 3)  # nothing is lost
    assert lines(cell("(4 / 2)"))  # repaired
    assert gives(2)
    assert kernel.value("os.getpid()") == pid
