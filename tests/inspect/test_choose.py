import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench.errors import SchemaError, ToolchainError
from workbench.inspect import tools

CELL = """//! n = x.numel()
//! out = empty_like(x)
void one(const float* x, float* out, int64_t n) { for (int64_t i = 0; i < n; ++i) out[i] = x[i] + %d; }
"""


def made(namespace):
    @wb.op(f"{namespace}::one")
    def one(x: Tensor) -> Tensor:
        return x + 1

    one.cases(lambda t: iter([(t(4),)]))
    return one


def test_there_is_nothing_of_the_reference_to_look_at(namespace):
    op = made(namespace)
    with pytest.raises(
        SchemaError, match="one forward runs the reference, which no compiler made: write a %%cpp, %%cuda or"
    ):
        op.inspect()
    wb.cpp(op, CELL % 1)
    with pytest.raises(SchemaError, match="v0 of one is the reference, in Python.*choose one of v1"):
        op.inspect(0)
    with pytest.raises(SchemaError, match="one backward runs the reference's vjp"):
        op.inspect(slot="backward")


def test_nor_of_a_python_function(namespace):
    op = made(namespace)
    op.kernel("cpu")(lambda x: x + 1)
    with pytest.raises(SchemaError, match=r"v1 of one is a Python function, .* look at: write its kernels in a %%cpp"):
        op.inspect()


def test_versions_slots_and_dtypes_that_do_not_exist(namespace):
    op = made(namespace)
    wb.cpp(op, CELL % 1)
    with pytest.raises(SchemaError, match="one has no version 7; the last one is 1"):
        op.inspect(7)
    with pytest.raises(SchemaError, match="slots forward and backward, not 'sideways'"):
        op.inspect(slot="sideways")
    with pytest.raises(SchemaError, match="'half-ish' is no dtype of torch"):
        op.inspect(dtype="half-ish")
    with pytest.raises(SchemaError, match="has no form for float64.*takes float32 alone"):
        op.inspect(dtype=torch.float64)
    with pytest.raises(SchemaError, match="raw C.. has no stage 'sass'; it has remarks, assembly"):
        op.inspect().stage("sass")


def test_a_refused_build_can_be_looked_at_and_says_so(namespace):
    op = made(namespace)
    with pytest.raises(wb.TrialError):
        wb.cpp(op, CELL % 2)
    report = op.inspect()
    assert report.version == 1
    assert report.notes[0].startswith("v1 is not installed: it ")
    wb.cpp(op, CELL % 1)
    assert op.inspect().version == 2
    assert op.inspect(-2).version == 1
    assert op.inspect(op.versions[1]).version == 1


def test_a_missing_tool_says_which_package_to_install(namespace, monkeypatch):
    op = made(namespace)
    wb.cpp(op, CELL % 1)
    monkeypatch.setattr(tools, "_find", lambda name, path: None)
    with pytest.raises(ToolchainError, match="objdump is not installed.*binutils"):
        op.inspect()
    with pytest.raises(ToolchainError, match="nvdisasm is not installed.*pip install triton"):
        tools.find("nvdisasm")


def test_tools_of_tritons_wheel_come_first():
    pytest.importorskip("triton")
    assert "triton/backends/nvidia/bin" in tools.find("nvdisasm")
    assert tools.find("objdump").endswith("objdump")
