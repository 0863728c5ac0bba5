"""Extensions with CUDA sources: torch's ninja file for them, what is refused without torch's CUDA, and one build."""

from __future__ import annotations

import os
import shutil

import pytest
import torch

import workbench as wb
from workbench import gpu, settings
from workbench.adopt import plan
from workbench.build import extension, nvcc, reload, torch_ninja, wrappers
from workbench.errors import BuildError, ToolchainError
from workbench.schema import parse
from workbench.source import Source, functions

has_nvcc = pytest.mark.skipif(
    not shutil.which("nvcc", path=f"{settings.programs()}:/usr/local/cuda/bin"), reason="there is no nvcc here"
)
without_cuda = pytest.mark.skipif(torch.version.cuda is not None, reason="torch was built with CUDA here")
CUDA = """\
#include <torch/extension.h>
__global__ void times(const float* x, float* out, float k, int n) { int i = threadIdx.x; if (i < n) out[i] = x[i] * k; }
torch::Tensor scale(torch::Tensor x, double k) {
  auto out = torch::empty_like(x);
  times<<<1, x.numel()>>>(x.data_ptr<float>(), out.data_ptr<float>(), k, x.numel());
  return out;
}
"""


def rendered(**options) -> str:
    made = torch_ninja.Cuda("/opt/cuda", "sm_90a", ("-O3",))
    units = [torch_ninja.Unit("s0.cpp", ("-O1",)), torch_ninja.Unit("s1.cu", ("-Xptxas=-v",))]
    return torch_ninja.render(units, name="ext", compiler=["g++"], cuda=made, **options)


def test_nvccs_units_have_nvccs_rule_and_flags():
    text = rendered()
    assert "\nnvcc = /opt/cuda/bin/nvcc\n" in text
    assert "build s1.cuda.o: cuda_compile s1.cu\n  cuda_post_cflags = -Xptxas=-v" in text
    assert "build s0.o: compile s0.cpp\n  post_cflags = -O1" in text
    flags = next(row for row in text.splitlines() if row.startswith("cuda_cflags = ")).split()
    assert [f for f in flags if "gencode" in f] == ["-gencode=arch=compute_90a,code=sm_90a"], "its own arch alone"
    assert "-O3" in flags


@pytest.mark.parametrize("former", [None, "7.0;8.0+PTX"])
def test_what_torch_reads_is_as_it_was(monkeypatch, former):
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    if former:
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", former)
    import torch.utils.cpp_extension as torchs

    home = torchs.CUDA_HOME
    rendered()
    assert (os.environ.get("TORCH_CUDA_ARCH_LIST"), torchs.CUDA_HOME) == (former, home)


@pytest.mark.parametrize(
    ("more", "flags", "arch"),
    [
        ("", (), "sm_90"),
        ('asm volatile("tcgen05.fence; wgmma.fence.sync.aligned;");', (), "sm_90a"),
        ("", ("-O3 -gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_100,code=sm_100"), "sm_90"),
        ("", ("-arch=sm_100f",), "sm_100f"),
    ],
)
def test_the_architecture_of_an_extension_is_that_of_its_flags_and_texts(monkeypatch, more, flags, arch):
    monkeypatch.setattr(gpu, "present", lambda: False)
    monkeypatch.setattr(extension.nvcc, "find", lambda why="": nvcc.Nvcc("/opt/cuda/bin/nvcc", "13.0", "13.0"))
    monkeypatch.setenv("WORKBENCH_ARCH", "sm_90")
    made = extension._cuda("scale", [Source(CUDA.replace("int i =", f"{more} int i ="), "cuda")], flags)
    assert made is not None and made.arch == arch


def test_an_architecture_that_torch_does_not_know():
    with pytest.raises(ToolchainError, match=r"Unknown CUDA arch \(2\.0\).*Set WORKBENCH_ARCH to another one"):
        torch_ninja.render([torch_ninja.Unit("a.cu")], name="x", compiler=["g++"], cuda=torch_ninja.Cuda("/x", "sm_20"))


@pytest.mark.parametrize(
    ("arch", "wanted"), [("sm_90", "9.0"), ("sm_90a", "9.0a"), ("sm_75", "7.5"), ("sm_120", "12.0")]
)
def test_an_architecture_as_torch_writes_it(arch, wanted):
    assert torch_ninja.Cuda("/x", arch).arch_list == wanted


def test_no_nvcc_says_what_to_install(monkeypatch):
    monkeypatch.setattr(nvcc.shutil, "which", lambda *_, **__: None)
    with pytest.raises(
        ToolchainError, match="CUDA code on torch::Tensor needs nvcc, and there is none: .*Install the CUDA toolkit"
    ):
        extension.build([Source(CUDA, "cuda", "k.cu")], name="ext")


@without_cuda
@pytest.mark.parametrize("needs", ["#include <ATen/cuda/CUDAContext.h>", "auto s = at::cuda::getCurrentCUDAStream();"])
def test_what_needs_torchs_own_cuda_is_refused_without(needs):
    with pytest.raises(ToolchainError, match="was built without CUDA, and ext needs .*: install a torch with CUDA"):
        extension.build([Source(needs + CUDA, "cuda", "k.cu")], name="ext")


@without_cuda
def test_load_inline_with_cuda_sources_is_refused_without_torchs_cuda(namespace):
    with pytest.raises(ToolchainError, match=r"was built without CUDA, and cuda_sources\[0\] needs it"):
        wb.load_inline(namespace, "torch::Tensor scale(torch::Tensor x, double k);", CUDA, functions=["scale"])


def test_the_wrappers_of_cuda_sources_serve_both_devices_and_guard_them():
    schema = parse("lab::scale(Tensor x, float k) -> Tensor")
    function = next(f for f in functions(CUDA, "cuda") if f.name == "scale")
    text = wrappers.render([(schema, function)], ("CPU", "CUDA"))
    assert text.count('m.impl("scale"') == 2
    assert "std::make_optional(c10::DispatchKey::CUDA)" in text
    assert 'c10::OptionalDeviceGuard device(wb::one_device(v, 2, "lab::scale"));' in text
    assert "OptionalDeviceGuard" not in wrappers.render([(schema, function)])


def test_launches_of_an_extension_are_flagged(monkeypatch):
    monkeypatch.setattr(extension, "build", lambda *_, **__: plan.NOTHING)
    wanted = plan.Wanted((Source("", "cpp"), Source(CUDA, "cuda", "k.cu")), "ext", ("scale",))
    built = plan.built(wanted, plan.planned(wanted)[0], "")
    said = [(d.file, d.line, d.message.partition(":")[0]) for d in built.diagnostics]
    assert said == [
        ("k.cu", 5, "times is launched on the default stream"),
        ("k.cu", 5, "times is launched on the current device, which need not be the tensors'"),
    ]


@has_nvcc
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_cpp_and_cuda_sources_in_one_object():
    schema = parse("cuext::scale(Tensor x, float k) -> Tensor")
    function = next(f for f in functions(CUDA, "cuda") if f.name == "scale")
    after = "\n".join([wrappers.render([(schema, function)], ("CPU", "CUDA")), reload.EXPORTS])
    declared = Source("torch::Tensor scale(torch::Tensor x, double k);", "cpp", "cpp_sources")
    blocks = CUDA + 'TORCH_LIBRARY_FRAGMENT(cuext, m) { m.def("two(Tensor x) -> Tensor"); }\n'
    options = {"name": "cuext", "macros": reload.MACROS, "after": after}
    made = extension.build([declared, Source(blocks, "cuda", "cuda_sources[0]")], **options)
    assert made.note == "compiled 2 of 2"
    assert [r.kernel for r in made.resources] == ["times"]
    with pytest.raises(BuildError) as caught:
        extension.build(
            [declared, Source(blocks.replace("x[i] * k", "y[i] * k"), "cuda", "cuda_sources[0]")], **options
        )
    assert (caught.value.file, caught.value.line) == ("cuda_sources[0]", 2)
    assert 'identifier "y" is undefined' in caught.value.message
