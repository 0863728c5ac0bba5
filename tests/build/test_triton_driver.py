"""What a cell is told of the GPU where there is none: Triton's driver and torch.cuda describe what is compiled for."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from workbench import gpu
from workbench.build import triton_launches, triton_module
from workbench.build.triton_driver import standing_in
from workbench.build.triton_interpret import interpreting
from workbench.source import Source

pytestmark = pytest.mark.skipif(gpu.present(), reason="what is told where no GPU is")

TUTORIAL = """\
DEVICE = triton.runtime.driver.active.get_active_torch_device()
IS_CUDA = triton.runtime.driver.active.get_current_target().backend == "cuda"
properties = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)

@triton.jit
def kernel(x, out, n, B: tl.constexpr):
    for start in range(tl.program_id(0) * B, n, tl.num_programs(0) * B):
        i = start + tl.arange(0, B)
        tl.store(out + i, tl.load(x + i, i < n) + 1, i < n)

def plus(x):
    assert x.device == DEVICE and IS_CUDA
    out = torch.empty_like(x)
    count = torch.cuda.get_device_properties(x.device).multi_processor_count
    assert count == properties["multiprocessor_count"] and torch.cuda.get_device_capability()[0] >= 9
    assert x.data_ptr() >= 0 and torch.cuda.current_device() == 0
    torch.cuda.synchronize()
    with torch.cuda.device(x.device.index), torch.cuda.device_of(x), torch.cuda.device(x.device):
        kernel[(min(count, triton.cdiv(x.numel(), 16)),)](x, out, x.numel(), B=16)
    return out
"""


def load(interpreted: bool):
    return triton_module.load(Source(TUTORIAL, "triton", file="cell [3]", first_line=2), interpreted=interpreted)


@pytest.mark.filterwarnings("error:Accessing the data pointer")
def test_a_tutorials_first_lines_are_interpreted_and_compiled(monkeypatch):
    monkeypatch.setenv("WORKBENCH_ARCH", "sm_90")
    x = torch.arange(40.0)
    with interpreting():
        assert torch.equal(load(True).plus(x), x + 1)
    [seen] = triton_launches.launches(load(False), "plus", {"x": x}, device="cuda:0")
    assert seen.args[2] == 40 and seen.args[0].device == torch.device("cuda:0")
    assert triton_launches.without_kernels(load(True), "plus")(x).shape == x.shape


NAMED = """\
@triton.jit
def kernel(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, i < n) + 1, i < n)

def plus(x):
    assert x.is_cuda and x.device == torch.device('cuda', 0) and x.to("cuda").is_cuda
    out = torch.empty(x.shape, dtype=x.dtype, device="cuda")
    x = x.cuda() + torch.zeros(1, device=torch.device("cuda", 0)).to(device="cuda:0")
    kernel[(triton.cdiv(x.numel(), 16),)](x, out, x.numel(), B=16)
    return out
"""


def test_a_launcher_that_names_the_device_is_interpreted_on_the_cpu_and_compiled():
    source, x = Source(NAMED, "triton", file="cell [3]", first_line=2), torch.arange(40.0)
    with interpreting():
        made = triton_module.load(source, interpreted=True).plus(x)
    assert torch.equal(made, x + 1) and made.device.type == "cpu" and not made.is_cuda
    [seen] = triton_launches.launches(triton_module.load(source), "plus", {"x": x})
    assert seen.args[1].shape == (40,) and seen.args[1].device.type == "cpu"


def test_torch_and_triton_are_as_before_afterwards():
    from triton.runtime.driver import driver

    before = dict(vars(driver)), torch.cuda.get_device_properties, torch.cuda.current_device
    with pytest.raises(ZeroDivisionError), standing_in("cpu"):
        assert driver.active.get_active_torch_device() == torch.device("cpu")
        raise ZeroDivisionError
    assert (dict(vars(driver)), torch.cuda.get_device_properties, torch.cuda.current_device) == before


def test_torchs_tracer_keeps_torchs_own_functions():
    """Its tables are made once, of what torch.cuda holds when it is first imported."""
    code = """if True:
        from workbench.build.triton_driver import standing_in
        with standing_in("cpu"):
            import torch._dynamo.trace_rules as rules
            rules.get_torch_obj_rule_map()
        import torch
        assert rules.lookup(torch.cuda.synchronize) is not None
        assert all(f in rules.get_torch_obj_rule_map() for f in (torch.cuda.current_device, torch.cuda.synchronize))
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize(("arch", "capability", "count"), [("sm_80", (8, 0), 108), ("sm_120", (12, 0), 188)])
def test_it_is_the_architecture_that_is_compiled_for(monkeypatch, arch, capability, count):
    monkeypatch.setattr(gpu, "target", lambda: gpu.Target(arch, "the test"))
    with standing_in("cpu"):
        told = torch.cuda.get_device_properties(0)
        assert torch.cuda.get_device_capability() == (told.major, told.minor) == capability
        assert told.multi_processor_count == count
        assert told.shared_memory_per_block_optin == gpu.shared_bytes(gpu.target().number)
