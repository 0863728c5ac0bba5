"""Raw CUDA cells as kernels: what is built without a GPU, and what is given to torch where there is one."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.build.cuda_tools import CudaCell, fake_driver, forget_driver
from tests.directives.cells import SCHEMAS
from tests.example_cells import CUDA as CELLS
from tests.tiers.raw_cuda_tools import cuda, define, fresh, installed, same, schema_of
from workbench import gpu, tiers
from workbench.build import launcher, nvrtc_library
from workbench.build.result import Build
from workbench.errors import BuildError, SchemaError
from workbench.source import Source
from workbench.tiers import RawCudaKernel

f32, f16, bf16, i32 = torch.float32, torch.float16, torch.bfloat16, torch.int32
SCALE = """\
//! n = x.numel()
//! out = empty_like(x)
//! grid = cdiv(n, 4)
//! block = 4
template <typename T> __global__ void scale(const T* x, T* out, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = T(float(x[i]) * by);
}
"""


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(gpu, "present", lambda: False)
    monkeypatch.setattr(gpu, "target", lambda: gpu.Target("sm_90", "the test says so"))


DTYPES = {
    "rmsnorm": [{"x": d, "w": d} for d in (f32, f16, bf16)],
    "rmsnorm.backward": [dict.fromkeys(("grad_y", "x", "w", "y"), d) | {"rstd": f32} for d in (f32, bf16)],
    "matmul": [{"a": d, "b": d} for d in (f32, f16)],
    "kv_write_": [
        dict.fromkeys(("k", "v", "k_cache", "v_cache", "k_scale", "v_scale"), bf16) | {"block_table": i32, "pos": i32}
    ],
    "quantise": [{"x": f32}, {"x": f16}],
    "dequantise": [{"q": torch.int8, "scale": f32}],
    "topk": [{"x": f32}],
}


@pytest.mark.parametrize("name", CELLS)
def test_every_cell_is_compiled_without_a_gpu(no_gpu, name):
    short, _, slot = name.partition(".")
    made = cuda(fresh(SCHEMAS[short]), CELLS[name], slot or "forward")
    assert isinstance(made, RawCudaKernel)
    assert (made.tier, made.device, made.arch, made.compiled_for, made.unrunnable) == (
        "raw",
        "cuda",
        "sm_90",
        "sm_90",
        "no GPU here",
    )
    assert made.build(DTYPES[name]) == [None] * len(DTYPES[name])
    kernels = len(made.declaration.launches)
    assert len(made.resources) == kernels * len(DTYPES[name])
    assert all(0 < r.registers <= 255 for r in made.resources)
    job = made.launch()
    assert [len(i.symbols) for i in job.instances] == [kernels] * len(DTYPES[name])
    assert all(i.library.endswith(".cubin") for i in job.instances)


def test_all_forms_are_compiled_in_one_run(no_gpu, monkeypatch):
    runs = []
    real = nvrtc_library.run
    monkeypatch.setattr(nvrtc_library, "run", lambda text, **more: runs.append(more["names"]) or real(text, **more))
    made = cuda(schema_of("Tensor x, float by -> Tensor"), SCALE.replace("* by", "* by * 1.25f"))
    assert made.build([{"x": f32}, {"x": torch.complex64}, {"x": bf16}])[::2] == [None, None]
    assert runs == [("scale<float>", "scale<__nv_bfloat16>")]
    assert [i.symbols for i in made.launch().instances] == [
        ("_Z5scaleIfEvPKT_PS0_fi",),
        ("_Z5scaleI13__nv_bfloat16EvPKT_PS1_fi",),
    ]
    assert [r.kernel for r in made.resources] == ["scale<float>", "scale<__nv_bfloat16>"]


def test_without_a_gpu_nothing_is_given_to_torch(no_gpu):
    schema = schema_of("Tensor x, float by -> Tensor")
    _, made = installed(schema, SCALE, dtypes=[{"x": f32}])
    made.refresh()
    made.remove()
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(schema.qualname, "CUDA")
    assert made._launcher is None


def test_an_edit_of_numbers_keeps_the_launcher(no_gpu):
    schema = schema_of("Tensor x, float by -> Tensor")
    first, edited, other = (
        cuda(schema, t) for t in (SCALE, SCALE.replace("block = 4", "block = 128"), SCALE.replace("cdiv(n, 4)", "n"))
    )
    for made in (first, edited, other):
        made.build([{"x": f32}])
    assert first.shares_launcher(edited)
    assert edited.launcher_build.cached
    assert not first.shares_launcher(other)
    assert first.digest != edited.digest


def test_another_architecture_is_another_build(no_gpu, monkeypatch):
    schema = schema_of("Tensor x, float by -> Tensor")
    first = cuda(schema, SCALE)
    first.build([{"x": f32}])
    monkeypatch.setattr(gpu, "target", lambda: gpu.Target("sm_80", "WORKBENCH_ARCH"))
    second = cuda(schema, SCALE)
    second.build([{"x": f32}])
    assert (first.compiled_for, second.compiled_for) == ("sm_90", "sm_80")
    assert first.digest != second.digest
    assert first.launch().instances[0].library != second.launch().instances[0].library


def test_mistakes_are_told_on_their_lines(no_gpu):
    schema = schema_of("Tensor x, float by -> Tensor")
    with pytest.raises(BuildError) as caught:
        cuda(schema, SCALE.replace("* by", "* bye")).build([{"x": f32}])
    assert (caught.value.diagnostics[0].line, caught.value.diagnostics[0].file) == (8, "cell [3]")
    assert "bye" in caught.value.diagnostics[0].message
    plain = SCALE.replace("template <typename T> ", "").replace("T(", "float(").replace("T* ", "float* ")
    refused = cuda(schema, plain).build([{"x": f32}, {"x": bf16}])
    assert refused[0] is None
    assert "scale has no form for bfloat16: its parameter 'const float* x' takes float32 alone" in refused[1].message
    with pytest.raises(SchemaError, match=r"the cell defines no function; write '__global__ void op\d+\(...\)'"):
        cuda(schema, "//! out = empty_like(x)\n")
    with pytest.raises(SchemaError, match="scale has no grid, nothing would be launched") as found:
        cuda(schema, SCALE.replace("//! grid = cdiv(n, 4)\n//! block = 4\n", ""))
    assert found.value.line == 4


def test_a_form_that_failed_is_no_form(no_gpu):
    made = cuda(schema_of("Tensor x, float by -> Tensor"), SCALE)
    made.build([{"x": f32}, {"x": f16}])
    made.forget({"x": f16})
    assert (made.forms_text(), len(made.resources)) == ("float32", 1)


# ------------------------------------------------------------ with a GPU that is not there


class OnTheHost(RawCudaKernel):
    """A raw CUDA kernel whose cubins hold host functions, behind the fake driver."""

    def _compiled(self, dtypes, key):
        cell = CudaCell(self.schema, self.source, self.declaration, self.slot)
        instance = cell.instance(dtypes)
        return instance, Build(f"key {key}", instance.library, "cubin", 0.0, cached=False, names=instance.symbols)


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(gpu, "present", lambda: True)
    monkeypatch.setattr(gpu, "target", lambda: gpu.Target("sm_90", "the test says so"))
    monkeypatch.setattr(tiers, "RawCudaKernel", OnTheHost)
    monkeypatch.setattr(launcher, "render", partial(launcher.render, key="CPU"))
    with fake_driver() as found:
        yield found


def test_with_a_gpu_the_kernel_is_torchs_until_it_is_removed(fake):
    run, made = installed(schema_of("Tensor x, float by -> Tensor"), SCALE, dtypes=[{"x": f32}])
    assert made.unrunnable == ""
    x = torch.randn(5, 3)
    torch.testing.assert_close(run(x, 2.5), 2.5 * x)
    assert [(r.grid[0], r.block[0]) for r in fake.launches()] == [(4, 4)]
    torch.testing.assert_close(run(x.half(), 2.0), 2 * x.half())  # built when it came
    assert made.forms_text() == "float16, float32"
    with pytest.raises(RuntimeError, match="scale has no form for complex64"):
        run(x.to(torch.complex64), 2.0)
    made.remove()
    with pytest.raises(NotImplementedError):
        run(x, 2.0)


def test_a_swap_goes_through_the_launcher_that_is_there(fake):
    schema = schema_of("Tensor x, float by -> Tensor")
    run, first = installed(schema, SCALE, dtypes=[{"x": f32}])
    second = cuda(schema, SCALE.replace("* by", "+ by").replace("= 4", "= 2").replace("(n, 4)", "(n, 2)"))
    second.build([{"x": f32}])
    assert second.shares_launcher(first)
    second.install(lambda dtypes: "not built")
    x = torch.randn(6)
    torch.testing.assert_close(run(x, 2.5), x + 2.5)
    assert second._launcher is first._launcher
    with pytest.raises(RuntimeError, match="not built"):
        run(x.half(), 1.0)


def test_a_backward_may_leave_gradients_out(fake):
    schema = schema_of("Tensor x, Tensor w -> Tensor")
    text = "//! n = x.numel()\n//! grad_w = empty_like(w)\n//! grid = n\n//! block = 1\n__global__ void b(const float* grad_out, const float* x, float* grad_w) { int i = blockIdx.x; grad_w[i] = grad_out[i] * x[i]; }"
    made = cuda(schema, text, "backward")
    assert (made.left_out, made.native_schema.name) == (("x",), f"{schema.name}_partial")
    run = define(made.native_schema, "backward")
    made.build([same(made, f32)])
    made.install(lambda dtypes: None)
    x, w, g = torch.randn(4), torch.randn(4), torch.randn(4)
    grad_x, grad_w = run(g, x, w, x * w)
    torch.testing.assert_close(grad_w, g * x)
    assert grad_x is None


@pytest.mark.parametrize(("here", "why"), [((9, 0), ""), ((8, 0), "compiled for sm_90, the GPU here is sm_80")])
def test_a_gpu_of_another_kind_cannot_run_it(fake, monkeypatch, here, why):
    fake.set(major=here[0], minor=here[1])
    forget_driver()
    made = cuda(schema_of("Tensor x, float by -> Tensor"), SCALE)
    assert made.unrunnable == why
    assert made.trial_device == ("" if why else "cuda")


def test_the_macros_of_a_header_beside_the_cell_are_read(no_gpu, tmp_path):
    (tmp_path / "marks.cuh").write_text("#pragma once\n#define KERNEL __global__ void\n")
    (tmp_path / "types.cuh").write_text('#include "marks.cuh"\n#define REAL float\n')
    text = """\
#include "types.cuh"
//! n = x.numel()
//! out = empty_like(x)
//! grid = 1
//! block = 32
KERNEL scale(const REAL* x, REAL* out, REAL k, int n) { if (threadIdx.x < n) out[threadIdx.x] = x[threadIdx.x] * k; }
"""
    made = tiers.kernel(
        Source(text, "cuda", "cell [3]", 2, str(tmp_path)), schema_of("Tensor x, float k -> Tensor"), "forward"
    )
    (scale,) = made.declaration.functions
    assert scale.is_global and [p.type for p in scale.parameters] == ["float", "float", "float", "int"]
    assert made.build([{"x": torch.float32}]) == [None]
    assert [r.kernel for r in made.resources] == ["scale"]
