"""kernels/identity_conv, live and as a package: run by test_classes in a process that has not loaded it before."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor

import workbench as wb

KERNELS = Path(__file__).parents[1] / "kernels"


@pytest.fixture
def identity_conv():
    [op] = wb.load(KERNELS / "identity_conv")
    return op


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_identity_conv(identity_conv, tmp_path):
    state, x = torch.classes.conv_lib.ConvState(3), torch.randn(2, 3, 5, 6, requires_grad=True)
    y = identity_conv(x, state)
    y.pow(2).sum().backward()
    assert torch.equal(y, x) and torch.equal(x.grad, 2 * x) and state.calls() == 1
    assert torch.equal(copy.deepcopy(state).weight(), state.weight()) and state.weight().sum() == 3
    with pytest.raises(RuntimeError, match=r"identity_conv: x is \[1, 4, 5, 5\], the object is for \[N, 3, H, W\]"):
        identity_conv(torch.zeros(1, 4, 5, 5), state)
    with pytest.raises(RuntimeError, match="the size odd"):
        torch.classes.conv_lib.ConvState(3, 4)
    check = identity_conv.check()
    assert check.ok, str(check)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.state = torch.classes.conv_lib.ConvState(3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.conv_lib.identity_conv(x, self.state) * 2

    x = x.detach()
    program = torch.export.export(Net(), (x,), strict=False)
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "net.pt2"))
    assert torch.equal(torch._inductor.aoti_load_package(path)(x), x * 2) and torch.equal(program.module()(x), x * 2)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_saved_class_in_a_fresh_environment(identity_conv, tmp_path):
    from tests.saving import test_install as install
    from workbench.saving import wheel

    wb.save(identity_conv, tmp_path / "conv_ops")
    built = wheel.build(tmp_path / "conv_ops", tmp_path / "dist")
    python = install.installed(built, tmp_path / "env")
    install.own_tests(python, tmp_path / "conv_ops")
    program = (
        "import torch, conv_ops; s = torch.classes.conv_lib.ConvState(3); x = torch.randn(1, 3, 4, 4);"
        "print(torch.equal(conv_ops.identity_conv(x, s), x), s.calls(), s._type().qualified_name())"
    )
    assert install.run([python, "-c", program]).strip() == "True 1 __torch__.torch.classes.conv_lib.ConvState"
