import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench.errors import SchemaError, ToolchainError
from workbench.inspect import cuda, tools

pytest.importorskip("cuda.bindings")

CELL = """//! *_, cols = x.shape
//! tune BLOCK = 256, 128
//! out = empty(x.shape)
__device__ float squared(float v) {
  return __fmul_rn(v, v);
}
//! grid = prod(x.shape[:-1])
//! block = BLOCK
template <typename T, int BLOCK>
__global__ void summed(const T* x, T* out, int cols) {
  __shared__ float part[BLOCK];
  float s = 0;
  for (int c = threadIdx.x; c < cols; c += BLOCK)
    s += squared(float(x[blockIdx.x * cols + c]));
  part[threadIdx.x] = s;
  __syncthreads();
  for (int c = threadIdx.x; c < cols; c += BLOCK) {
    float all = 0;
    for (int k = 0; k < BLOCK; ++k) all += part[k];
    out[blockIdx.x * cols + c] = T(all);
  }
}
"""
SPILLS = """//! n = x.numel()
//! out = empty_like(x)
//! flags -maxrregcount=16
//! grid = cdiv(n, 256)
//! block = 256
__global__ void spilling(const float* x, float* out, int n) {
  float v[40];
  for (int k = 0; k < 40; ++k) v[k] = x[(threadIdx.x * 41 + k * 7) % n];
  float s = 0;
  for (int i = 0; i < 40; ++i)
    for (int k = 0; k < 40; ++k) s += v[i] * v[(k * 3 + i) % 40];
  out[blockIdx.x * 256 + threadIdx.x] = s;
}
"""


@pytest.fixture
def op(namespace, monkeypatch):
    monkeypatch.setenv("WORKBENCH_ARCH", "sm_90")

    @wb.op(f"{namespace}::summed")
    def summed(x: Tensor) -> Tensor:
        return x.float().pow(2).sum(-1, keepdim=True).expand(x.shape).to(x.dtype)

    summed.cases(lambda t: iter([(t(4, 128),)]), dtypes=(torch.float32, torch.bfloat16))
    wb.cuda(summed, CELL)
    return summed


def test_registers_shared_memory_and_occupancy(op):
    report = op.inspect()
    (row,) = report.rows
    assert row.kernel == "summed<float, 256>"
    assert 10 <= row.registers <= 48
    assert (row.spills, row.stack, row.shared, row.dynamic_shared, row.threads) == (0, 0, 1024, 0, 256)
    assert row.blocks * 8 == row.occupancy * 64
    assert (report.target, report.dtype, report.how) == ("sm_90", "float32", "raw CUDA")
    assert report.others == ("bfloat16",)
    assert [s.name for s in report.stages] == ["ptx", "sass"]


def test_sass_and_ptx_by_source_line(op):
    report = op.inspect()
    for name, load, times in (("sass", "LDG", "FMUL"), ("ptx", "ld.global", "mul.rn.f32")):
        stage = report.stage(name)
        assert any(load in e.text for e in stage.at(14)), name
        assert any(times in e.text and e.line == 5 for e in stage.at(14)), name  # multiplied in line 5, for line 14
        assert not any(load in e.text for e in stage.at(15)), name
    assert any("BAR.SYNC" in e.text for e in report.stage("sass").at(16))
    assert any("STS" in text for text in report.at(15)["sass"])
    assert ("barriers", 1) in report.stage("sass").counts
    assert any(e.line == 5 and 14 in e.callers for e in report.stage("ptx").entries)


def test_each_dtype_has_its_own(op):
    report = op.inspect(dtype="bfloat16")
    assert report.rows[0].kernel == "summed<__nv_bfloat16, 256>"
    assert any(name == "global loads of 2 bytes" for name, _ in report.stage("sass").counts)
    assert op.inspect(dtype=torch.float16).rows[0].kernel == "summed<__half, 256>"  # not built before


def test_a_spill_is_told_on_its_line_and_is_bad(namespace, monkeypatch):
    monkeypatch.setenv("WORKBENCH_ARCH", "sm_90")
    op = wb.op(f"{namespace}::spilling(Tensor x) -> Tensor")
    wb.cuda(op, SPILLS)
    report = op.inspect()
    assert report.rows[0].registers <= 24
    assert report.rows[0].spills + report.rows[0].stack > 0
    bad = [f for f in report.findings if f.bad]
    assert bad
    assert 7 <= bad[0].line <= 13
    assert not report.ok
    assert any(name == "local loads" for name, _ in report.stage("sass").counts)


def test_a_block_that_depends_on_a_shape_is_that_of_a_case(namespace, monkeypatch):
    monkeypatch.setenv("WORKBENCH_ARCH", "sm_90")

    @wb.op(f"{namespace}::copied")
    def copied(x: Tensor) -> Tensor:
        return x.clone()

    text = """//! n = x.numel()
//! out = empty_like(x)
//! grid = cdiv(n, 64)
//! block = min(n, 64)
//! shared = n * 4
__global__ void copied(const float* x, float* out, int n) {
  extern __shared__ float s[];
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) { s[threadIdx.x] = x[i]; out[i] = s[threadIdx.x]; }
}
"""
    wb.cuda(copied, text)
    row = copied.inspect().rows[0]
    assert (row.threads, row.dynamic_shared) == (256, -1)
    assert row.assumed == (
        "copied: occupancy a block of 256 threads is assumed, without the shared memory that only a call tells"
    )
    copied.cases(lambda t: iter([wb.case("small", t(48))]))
    row = copied.inspect().rows[0]
    assert (row.threads, row.dynamic_shared, row.assumed) == (
        48,
        192,
        "copied: occupancy as launched for the case 'small'",
    )


def test_two_kernels_of_a_cell_have_headings(namespace, monkeypatch):
    monkeypatch.setenv("WORKBENCH_ARCH", "sm_90")
    op = wb.op(f"{namespace}::twice(Tensor x) -> Tensor")
    wb.cuda(
        op,
        """//! n = x.numel()
//! mid = empty_like(x)
//! out = empty_like(x)
//! grid = cdiv(n, 128)
//! block = 128
__global__ void first(const float* x, float* mid, int n) { int i = blockIdx.x * 128 + threadIdx.x; if (i < n) mid[i] = x[i] + 1; }
//! grid = cdiv(n, 64)
//! block = 64
__global__ void second(const float* mid, float* out, int n) { int i = blockIdx.x * 64 + threadIdx.x; if (i < n) out[i] = mid[i] * 3; }
""",
    )
    report = op.inspect()
    assert [(r.kernel, r.threads) for r in report.rows] == [("first", 128), ("second", 64)]
    assert [e.text for e in report.stage("sass").entries if e.text.startswith("//")] == ["// first", "// second"]
    assert any("FADD" in t for t in report.at(6)["sass"])
    assert any("FMUL" in t for t in report.at(9)["sass"])


def test_two_versions_side_by_side(op):
    wb.cuda(op, CELL.replace("tune BLOCK = 256, 128", "tune BLOCK = 128, 256"))
    both = op.inspect(1, against=2)
    assert both.titles == ("v1", "v2")
    assert [rows[0].threads for rows in both.rows] == [256, 128]
    assert both.names == ("ptx", "sass")
    assert "v1" in str(both)


HOST = """
template <int B> __global__ void scaled(const float* x, float* y, float k, int n) {
  int i = blockIdx.x * B + threadIdx.x;
  if (i < n)
    y[i] = x[i] * k;
}
Tensor scale(const Tensor& x, double k) {
  Tensor y = torch::stable::empty_like(x);
  int n = x.numel();
  scaled<128><<<(n + 127) / 128, 128, 0, wb::current_stream()>>>(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), k, n);
  return y;
}
"""


def test_the_kernels_of_a_host_cell(namespace, monkeypatch):
    monkeypatch.setenv("WORKBENCH_ARCH", "sm_90")
    op = wb.op(f"{namespace}::scale(Tensor x, float k) -> Tensor")
    wb.cuda(op, HOST)
    report = op.inspect()
    assert (report.how, [r.kernel for r in report.rows]) == ("host CUDA", ["scaled<128>"])
    assert any("FMUL" in text for text in report.at(5)["sass"])
    assert any("mul.f32" in text for text in report.at(5)["ptx"])
    assert report.rows[0].assumed == cuda.ASSUMED.assumed


def test_a_host_cell_without_a_kernel_says_so(namespace, monkeypatch):
    monkeypatch.setenv("WORKBENCH_ARCH", "sm_90")
    op = wb.op(f"{namespace}::same(Tensor x) -> Tensor")
    wb.cuda(op, "Tensor same(const Tensor& x) { return torch::stable::clone(x); }")
    with pytest.raises(SchemaError, match="has no kernel of its own to look at"):
        op.inspect()


def test_a_missing_nvdisasm_says_what_brings_it(op, monkeypatch):
    monkeypatch.setattr(tools, "_find", lambda name, path: None)
    with pytest.raises(ToolchainError, match="nvdisasm is not installed.*pip install triton"):
        op.inspect()


def test_what_is_in_a_file_without_cubins(tmp_path):
    empty = tmp_path / "x.so"
    empty.write_bytes(b"nothing")
    with pytest.raises(ToolchainError, match="cuobjdump failed"):
        cuda.embedded(str(empty))


@pytest.mark.gpu
@pytest.mark.parametrize("block", [32, 96, 128, 256, 640, 1024])
def test_the_estimate_is_what_the_driver_says(namespace, block):
    from cuda.bindings import driver

    from workbench.build import cuda_body, nvrtc

    @wb.op(f"{namespace}::summed")
    def summed(x: Tensor) -> Tensor:
        return x.float().pow(2).sum(-1, keepdim=True).expand(x.shape).to(x.dtype)

    summed.cases(lambda t: iter([(t(4, 128),)]))
    wb.cuda(summed, CELL.replace("tune BLOCK = 256, 128", f"tune BLOCK = {block}"))
    row, kernel = summed.inspect().rows[0], summed.versions[-1].kernel
    body = cuda_body.instantiate(kernel.source, kernel.declaration, {"x": torch.float32})
    built = nvrtc.compile(body.text, arch=kernel.arch, names=body.names)
    torch.zeros(1, device="cuda")  # makes its context current
    error, module = driver.cuModuleLoad(built.path.encode())
    assert not int(error)
    error, function = driver.cuModuleGetFunction(module, built.names[0].encode())
    assert not int(error)
    error, blocks = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, block, 0)
    assert not int(error)
    assert row.blocks == blocks
    driver.cuModuleUnload(module)
