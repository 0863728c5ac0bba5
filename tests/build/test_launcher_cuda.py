"""Launchers for CUDA behind a driver that records: geometry, limits, parameters, order, devices, and every error."""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
from functools import cache

import numpy as np
import pytest
import torch

from tests.build.cuda_tools import (
    CONTEXT,
    FILL,
    LAUNCH,
    LAUNCH_EX,
    RETAIN,
    SET_ATTRIBUTE,
    SET_CONTEXT,
    CudaCell,
    Fake,
    cuda_cell,
    fake_driver,
    load_cuda,
)
from workbench.build import driver, native
from workbench.errors import BuildError, ToolchainError
from workbench.schema import spell_results

NS = "launcher_cuda_tests"
LIBRARY = torch.library.Library(NS, "FRAGMENT")
f32, f64, bf16, f16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
_numbers = itertools.count()


@pytest.fixture(scope="module")
def the_driver():
    with fake_driver() as found:
        yield found


@pytest.fixture
def fake(the_driver) -> Fake:
    the_driver.library.fake_reset()
    return the_driver


def made(
    parameters: str, results: str, text: str, *, claims: dict | None = None, dtypes: dict | None = None, **names
) -> CudaCell:
    """A cell whose functions may be called NAME, with its op defined, its launcher registered, float32 installed."""
    name = f"op{next(_numbers)}"
    one = cuda_cell(f"{NS}::{name}({parameters}) -> {results}", text.replace("NAME", name), claims=claims, **names)
    types = (*one.schema.output_types, *("Tensor" for _ in one.schema.saves))
    LIBRARY.define(f"{name}({parameters}) -> {results}")
    LIBRARY.define(f"{name}_forward({parameters}) -> {spell_results(types, ('',) * len(types))}")
    load_cuda(one).launcher.register()
    one.install(one.instance(dtypes) if dtypes else one.same(f32))
    return one


def call(one: CudaCell, *args, **kwargs):
    return getattr(getattr(torch.ops, NS), one.schema.name)(*args, **kwargs)


def forward(one: CudaCell, *args):
    return getattr(getattr(torch.ops, NS), f"{one.schema.name}_forward")(*args)


# ------------------------------------------------------------ geometry and values

SCALE = """\
//! n = x.numel()
//! out = empty_like(x)
//! tune BLOCK = 4, 8
//! grid = cdiv(n, BLOCK)
//! block = BLOCK
template <typename T> __global__ void NAME(const T* x, T* out, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = T(float(x[i]) * by);
}
"""


@cache
def scale_cell() -> CudaCell:
    return made("Tensor x, float by", "Tensor", SCALE)


def scale() -> CudaCell:
    """The op `scale` as every test expects it: a float32 instance, no hooks."""
    one = scale_cell()
    one.launcher.on_miss(None)
    one.install(one.same(f32))
    return one


@pytest.mark.parametrize(("count", "grid"), [(1, 1), (4, 1), (5, 2), (123, 31)])
def test_a_kernel_is_launched_on_its_grid_and_gives_values(fake, count, grid):
    one = scale()
    x = torch.randn(count)
    torch.testing.assert_close(call(one, x, 3.0), 3 * x)
    (launch,) = fake.launches()
    assert (launch.what, list(launch.grid), list(launch.block), launch.shared) == (LAUNCH, [grid, 1, 1], [4, 1, 1], 0)
    assert launch.parameters[0] == x.data_ptr()
    assert struct.unpack("f", struct.pack("q", launch.parameters[2])[:4]) == (3.0,)
    assert struct.pack("q", launch.parameters[3])[:4] == struct.pack("i", count)


TWO = """\
//! rows, cols = x.shape
//! part = zeros(rows, 2, dtype=float32)
//! out = empty(rows)
//! grid = 2, rows, 1
//! block = 2, 3, 4
__global__ void first(const float* x, float* part, int cols) {
  if (threadIdx.x + threadIdx.y + threadIdx.z) return;
  for (int c = blockIdx.x; c < cols; c += 2) part[blockIdx.y * 2 + blockIdx.x] += x[blockIdx.y * cols + c];
}
//! grid = rows
//! block = 1
__global__ void second(const float* part, float* out) { out[blockIdx.x] = part[2 * blockIdx.x] + part[2 * blockIdx.x + 1]; }
"""


def test_kernels_are_launched_in_text_order_on_one_stream_after_the_zeros(fake):
    one = made("Tensor x", "Tensor", TWO)
    fake.set(stream=0xABC0)
    x = torch.randn(5, 7)
    for _ in range(2):  # workspace is zeroed at every call
        torch.testing.assert_close(call(one, x), x.sum(1))
    asked = [r for r in fake.take() if r.what in (LAUNCH, FILL)]
    assert [r.what for r in asked] == [FILL, LAUNCH, LAUNCH] * 2
    assert [r.stream for r in asked] == [0xABC0] * 6
    assert asked[0].parameters[0] == 5 * 2 * 4
    assert [list(r.grid) for r in asked[1:3]] == [[2, 5, 1], [5, 1, 1]]
    assert [list(r.block) for r in asked[1:3]] == [[2, 3, 4], [1, 1, 1]]
    assert asked[0].kernel == asked[1].parameters[1] == asked[2].parameters[0]
    assert asked[1].kernel != asked[2].kernel


def test_sm_count_is_that_of_the_device(fake):
    one = made(
        "Tensor x",
        "Tensor",
        "//! parts = min(x.numel(), 2 * sm_count)\n//! out = empty(parts)\n//! grid = parts\n//! block = 1\n__global__ void NAME(const float* x, float* out, int parts) { out[blockIdx.x] = parts; }",
    )
    assert call(one, torch.ones(100)).shape == (100,)
    assert call(one, torch.ones(1000)).tolist() == [264.0] * 264
    assert [r.grid[0] for r in fake.launches()] == [100, 264]


def test_another_text_of_the_same_shape_is_one_atomic_store(fake):
    one = scale()
    name = one.schema.name
    again = cuda_cell(one.schema, SCALE.replace("NAME", name).replace("* by", "+ by").replace("= 4, 8", "= 32"))
    x = torch.randn(40)
    torch.testing.assert_close(call(one, x, 3.0), 3 * x)
    one.launcher.install(native.descriptor(again.declaration, [again.same(f32)]))
    torch.testing.assert_close(call(one, x, 3.0), 3 + x)
    one.install(one.instance({"x": f32}, {"BLOCK": 8}), tuned={"BLOCK": 8})
    torch.testing.assert_close(call(one, x, 3.0), 3 * x)
    assert [(r.grid[0], r.block[0]) for r in fake.launches()] == [(10, 4), (2, 32), (5, 8)]


def test_dtypes_are_instances_and_new_ones_are_asked_for(fake):
    one = scale()
    asked = []

    def build(dtypes):
        asked.append(dtypes)
        one.install(one.same(f32), one.same(f16))

    one.launcher.on_miss(build)
    x = torch.randn(9).half()
    torch.testing.assert_close(call(one, x, 2.0), 2 * x)
    assert asked == [(f16, f16)]
    one.launcher.on_miss(None)
    with pytest.raises(RuntimeError, match=r"\(cuda\): no kernel was built for these dtypes: x float64"):
        call(one, x.double(), 2.0)


def test_nothing_is_launched_for_nothing_to_do(fake):
    one = scale()
    fake.take()
    assert call(one, torch.ones(0, 3), 2.0).shape == (0, 3)
    assert fake.launches() == []


def test_saved_tensors_and_backward(fake):
    text = "//! n = x.numel()\n//! y = empty_like(x)\n//! twice = empty_like(x)\n//! grid = n\n//! block = 1\n__global__ void NAME(const float* x, float* y, float* twice) { int i = blockIdx.x; y[i] = x[i] * x[i]; twice[i] = 2 * x[i]; }"
    one = made("Tensor x", "Tensor", text, returns="y", saves="twice")
    x = torch.randn(6)
    y, twice = forward(one, x)
    torch.testing.assert_close((y, twice, call(one, x)), (x * x, 2 * x, x * x))
    name = one.schema.name
    LIBRARY.define(f"{name}_backward(Tensor? grad_y, Tensor x, Tensor y, Tensor twice) -> Tensor")
    back = "//! n = x.numel()\n//! grad_x = empty_like(x)\n//! grid = n\n//! block = 1\n__global__ void back(const float* grad_y, const float* twice, float* grad_x) { int i = blockIdx.x; grad_x[i] = grad_y ? grad_y[i] * twice[i] : 0; }"
    behind = load_cuda(cuda_cell(one.schema, back, entry="backward"))
    behind.launcher.register()
    behind.install(behind.same(f32))
    g = torch.randn(6)
    run = getattr(getattr(torch.ops, NS), f"{name}_backward")
    torch.testing.assert_close(run(g, x, y, twice), g * 2 * x)
    fake.take()
    assert run(None, x, y, twice).tolist() == [0.0] * 6
    assert fake.launches()[0].parameters[0] == 0  # None is a null pointer


def test_a_mutated_argument_is_written_in_place(fake):
    text = "//! n = x.numel()\n//! grid = n\n//! block = 1\n__global__ void NAME(float* x, float by) { x[blockIdx.x] += by; }"
    one = made("Tensor(a!) x, float by", "()", text)
    x = torch.zeros(2, 3)
    call(one, x, 2.0)
    assert x.tolist() == [[2.0] * 3] * 2
    fake.take()
    with pytest.raises(RuntimeError, match=r"x is written in place and not contiguous"):
        call(one, x.t(), 1.0)
    assert fake.launches() == []


def test_the_allocation_hook_gives_the_memory(fake):
    one = made("Tensor x", "Tensor", TWO)
    kept = []

    def allocate(nbytes):
        kept.append(ctypes.create_string_buffer(nbytes + 64))
        return (ctypes.addressof(kept[-1]) + 63) // 64 * 64

    one.launcher.allocate_with(allocate)
    x = torch.randn(5, 7)
    torch.testing.assert_close(call(one, x), x.sum(1))
    assert [len(k) - 64 for k in kept] == [5 * 2 * 4, 5 * 4]


# ------------------------------------------------------------ parameters

NUMBERS = """\
//! n = k * 1
//! out = empty(16, dtype=float64)
//! grid = 1
//! block = 1
template <typename H> __global__ void NAME(const H* x, double* out, signed char a, uint8_t b, short c, unsigned short d, int e,
    unsigned f, long long g, size_t h, bool i, float j, double l, H m, float by, double n, H k) {
  out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = f; out[6] = g; out[7] = h; out[8] = i; out[9] = j;
  out[10] = l; out[11] = double(m); out[12] = by; out[13] = n; out[14] = double(k);
}
"""
INTEGERS = "abcdefghijlm"


@pytest.fixture(scope="module")
def numbers(the_driver) -> CudaCell:
    one = made(f"Tensor x, float by, int k, {', '.join(f'int {n}=1' for n in INTEGERS)}", "Tensor", NUMBERS)
    one.install(one.same(f16), one.same(bf16))
    return one


def test_every_c_type_gets_its_value(fake, numbers):
    values = [-5, 250, -300, 65000, -70000, 2**32 - 1, -(2**40), 2**62, 1, 3, -7, 9]
    for dtype in (f16, bf16):
        out = call(numbers, torch.ones(1, dtype=dtype), 0.1, 5, *values)
        assert out[:12].tolist() == [float(v) for v in values]
        assert out[12].item() == torch.tensor(0.1).double().item()
        assert out[13:15].tolist() == [5.0, 5.0]


LIMITS = {"a": (-128, 127, "int8_t"), "b": (0, 255, "uint8_t"), "c": (-(2**15), 2**15 - 1, "int16_t"),
          "d": (0, 2**16 - 1, "uint16_t"), "e": (-(2**31), 2**31 - 1, "int"), "f": (0, 2**32 - 1, "unsigned int"),
          "h": (0, 2**63 - 1, "uint64_t"), "i": (0, 1, "bool")}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_what_does_not_fit_a_parameter_is_refused_before_anything_runs(fake, numbers, name):
    low, high, spelled = LIMITS[name]
    x = torch.ones(1, dtype=f16)
    index = "abcdefgh".index(name) if name != "i" else 8
    for good in (low, high):
        assert call(numbers, x, 0.1, 5, **{name: good})[index].item() == float(good)
    fake.take()
    for bad in (low - 1, high + 1):
        if -(2**63) <= bad < 2**63:
            said = rf"{name} = {bad} does not fit the parameter `{spelled} {name}` of op\d+$"
            with pytest.raises(RuntimeError, match=said):
                call(numbers, x, 0.1, 5, **{name: bad})
    assert fake.launches() == []


HALF = "//! r = by * 1.0\n//! out = empty(1, dtype=float64)\n//! grid = 1\n//! block = 1\ntemplate <typename H> __global__ void NAME(const H* x, double* out, H r) { out[0] = double(r); }"


@pytest.mark.parametrize("dtype", [f16, bf16])
def test_floats_are_rounded_once_to_half_and_bfloat16(fake, dtype):
    one = made("Tensor x, float by", "Tensor", HALF, dtypes={"x": dtype})
    x = torch.ones(1, dtype=dtype)
    exact = torch.arange(0, 2**16, 97, dtype=torch.int32).to(torch.uint16).view(dtype)
    values = [v for v in exact.double().tolist() if not math.isnan(v)][:400]
    values += [0.1, -0.1, 1e-7, 3e-8, 2.9802322387695312e-08, 2.98023223876953125e-08, 5.9e-8, 65504.0, 65519.9, 65520.0, 1e5,
               -1e39, 3.4e38, 3.4028235677973366e38, 1.00048828125, 1.0014648, 1.00390625, 1.01171875, 0.0, -0.0,
               float("inf"), -float("inf"), 1e-45, -6.2e-5, 6.1e-5]  # fmt: skip
    for v in values:
        if dtype == bf16:  # torch rounds by way of float: only what a float holds is rounded once
            v = torch.tensor(v, dtype=f32).item()
            want = torch.tensor(v, dtype=f32).to(bf16).double()
        else:
            with np.errstate(over="ignore"):
                want = torch.tensor(float(np.float16(v)), dtype=f64)
        got = call(one, x, v)[0]
        assert got.item() == want.item(), (v, got, want)
        assert torch.signbit(got) == torch.signbit(want)
    assert call(one, x, float("nan")).isnan().all()


FP8 = [("__nv_fp8_e4m3", torch.float8_e4m3fn, 448.0), ("__nv_fp8_e5m2", torch.float8_e5m2, 57344.0)]


@pytest.mark.parametrize(("spelled", "dtype", "largest"), FP8)
def test_fp8_parameters_are_rounded_and_stop_at_the_largest_number(fake, spelled, dtype, largest):
    one = scale()
    values = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        0.1,
        0.3,
        3.3,
        17.0,
        240.0,
        250.0,
        0.002,
        0.001,
        0.0009,
        1e-5,
        1e-9,
        300.0,
        447.0,
        2000.0,
    ]
    by = next(i for i, p in enumerate(one.declaration.functions[0].parameters) if p.name == "by")
    described = native.descriptor(one.declaration, [one.same(f32)])
    described.kept[1][0].functions[0].parameters[by].type = native._code(spelled)  # the host has no such type
    one.launcher.install(described)
    fake.set(run=0)
    for v in values:
        fake.take()
        call(one, torch.ones(1), v)
        code = fake.launches()[0].parameters[2] & 0xFF
        got = torch.tensor([code], dtype=torch.uint8).view(dtype).double().item()
        want = torch.tensor(v, dtype=f64).float().clamp(-largest, largest).to(dtype).double().item()
        assert got == want, (v, got, want)
    for v, want in ((1e9, largest), (float("inf"), largest), (-float("inf"), -largest)):
        fake.take()
        call(one, torch.ones(1), v)
        assert (
            torch.tensor([fake.launches()[0].parameters[2] & 0xFF], dtype=torch.uint8).view(dtype).double().item()
            == want
        )


def test_optional_tensors_and_numbers(fake):
    text = "//! by_ = 1.0 if by is None else by\n//! has = shift is not None\n//! out = empty_like(x)\n//! grid = 1\n//! block = 1\n__global__ void NAME(const float* x, const float* shift, float* out, float by_, bool has) { *out = *x * by_ + (shift ? *shift : 0) + has * 100; }"
    one = made("Tensor x, Tensor? shift=None, float? by=None", "Tensor", text)
    assert call(one, torch.ones(1)).item() == 1
    assert call(one, torch.ones(1), torch.ones(1), 5.0).item() == 106


# ------------------------------------------------------------ limits

LAUNCHED = """\
//! out = empty_like(x)
//! grid = GRID
//! block = BLOCK
//! shared = a * 4
__global__ void NAME(const float* x, float* out) { *out = *x; }
"""


@cache
def limited(grid: str = "1", block: str = "1", shared: str = "0", own_shared: int = 0) -> CudaCell:
    text = LAUNCHED.replace("GRID", grid).replace("BLOCK", block).replace("a * 4", shared)
    return made("Tensor x, int a=1, int b=1, int c=1", "Tensor", text, claims={"own_shared": own_shared})


@pytest.mark.parametrize(
    ("where", "values", "message"),
    [
        ({"grid": "a // b"}, (3, 4), r"grid = a // b: the grid is 0, it needs at least 1 block; write cdiv\(a, b\) for a // b, or max\(1, \.\.\.\) where there may be no work \(line 3\)$"),
        ({"grid": "a, b"}, (3, -4), r"grid = a, b: the grid is \(3, -4\), it needs at least 1 block"),
        ({"grid": "a, b"}, (1, 65536), r"the grid is \(1, 65536\), its second and third size are at most 65535; put the largest first \(line 3\)$"),
        ({"grid": "a, b, c"}, (1, 1, 65536), r"the grid is \(1, 1, 65536\), its second and third"),
        ({"grid": "a"}, (2**31,), r"the grid is 2147483648, its first size is at most 2147483647"),
        ({"block": "a"}, (1025,), r"block = a: the block is 1025, a block has at most 1024 threads \(line 4\)$"),
        ({"block": "a, b"}, (64, 17), r"the block is \(64, 17\), a block has at most 1024 threads"),
        ({"block": "a, b"}, (2**40, 2**40), r"a block has at most 1024 threads"),
        ({"block": "a, b, c"}, (1, 1, 65), r"the block is \(1, 1, 65\), its third size is at most 64"),
        ({"block": "a"}, (0,), r"the block is 0, it needs at least 1 thread"),
        ({"shared": "a * 4"}, (-1,), r"shared = a \* 4: -4 bytes of shared memory, which is negative \(line 5\)$"),
        ({"shared": "a * 4"}, (58113,), r"shared = a \* 4: 232452 bytes of shared memory are more than the 232448 that a block may have on this GPU \(sm_90\) \(line 5\)$"),
        ({"shared": "a * b"}, (2**40, 2**40), r"shared = a \* b: integer overflow"),
        ({"grid": "a // b"}, (1, 0), r"grid = a // b: division by zero \(line 3\)$"),
    ],
)  # fmt: skip
def test_geometry_beyond_the_gpus_limits_is_an_error_on_its_line(fake, where, values, message):
    one = limited(**where)
    fake.take()
    with pytest.raises(RuntimeError, match=rf"^{NS}::op\d+ \(cuda\): ") as caught:
        call(one, torch.ones(1), *values)
    caught.match(message)
    assert fake.launches() == []


def test_geometry_at_the_limits_is_launched(fake):
    for where, values in (
        ({"grid": "a, b, c"}, (2**31 - 1, 65535, 65535)),
        ({"block": "a, b, c"}, (4, 4, 64)),
        ({"block": "a"}, (1024,)),
    ):
        one = limited(**where)
        fake.set(run=0)
        call(one, torch.ones(1), *values)
        (launch,) = fake.launches()
        assert tuple(launch.grid if "grid" in where else launch.block)[: len(values)] == values


def test_the_second_kernels_geometry_is_looked_at_before_the_first_runs(fake):
    one = made(
        "Tensor(a!) x, int a",
        "()",
        "//! grid = 1\n//! block = 1\n__global__ void first(float* x) { *x += 1; }\n//! grid = a\n//! block = 1\n__global__ void second(float* x, signed char a) { *x += 10; }",
    )
    x = torch.zeros(1)
    for bad, message in (
        (0, r"grid = a: the grid is 0"),
        (300, r"a = 300 does not fit the parameter `int8_t a` of second"),
    ):
        with pytest.raises(RuntimeError, match=message):
            call(one, x, bad)
    assert x.item() == 0
    call(one, x, 2)
    assert x.item() == 21


@pytest.mark.parametrize(
    ("bytes_", "own", "set_to"),
    [(4096, 0, None), (48 * 1024, 0, None), (48 * 1024 + 4, 0, 232448), (47 * 1024, 2048, 230400), (232448, 0, 232448)],
)
def test_more_shared_memory_than_48_kb_is_asked_for_once(fake, bytes_, own, set_to):
    one = limited(shared="a", own_shared=own)
    one.install(one.same(f32))  # nothing is asked for yet
    fake.take()
    for _ in range(2):
        call(one, torch.ones(1), bytes_)
    asked = fake.take()
    assert [r.shared for r in asked if r.what == LAUNCH] == [bytes_] * 2
    told = [tuple(r.parameters[:3]) for r in asked if r.what == SET_ATTRIBUTE]
    assert told == ([(8, set_to, 0)] if set_to else [])


def test_the_kernels_own_shared_memory_counts(fake):
    one = limited(shared="a", own_shared=1024)
    with pytest.raises(
        RuntimeError,
        match=r"shared = a: 232448 bytes of shared memory and 1024 of the kernel's own __shared__ arrays are more than the 232448 that a block may have on this GPU \(sm_90\) \(line 5\)$",
    ):
        call(one, torch.ones(1), 232448)
    assert fake.launches() == []


CLUSTER = LAUNCHED.replace("//! shared = a * 4", "//! cluster = CLUSTER")


@cache
def clustered(cluster: str, grid: str = "8, 2") -> CudaCell:
    text = CLUSTER.replace("CLUSTER", cluster).replace("GRID", grid).replace("BLOCK", "1")
    return made("Tensor x, int a=1, int b=1, int c=1", "Tensor", text)


def test_a_cluster_is_a_launch_attribute(fake):
    one = clustered("a, b")
    assert call(one, torch.ones(1), 4, 2).item() == 1
    call(one, torch.ones(1), 1, 1)
    first, second = fake.launches()
    assert (first.what, list(first.cluster), list(first.grid)) == (LAUNCH_EX, [4, 2, 1], [8, 2, 1])
    assert (second.what, list(second.cluster)) == (LAUNCH_EX, [1, 1, 1])


@pytest.mark.parametrize(
    ("cluster", "values", "message"),
    [
        ("a", (9,), r"cluster = a: the cluster is 9, it has 1 to 8 blocks \(line 5\)$"),
        ("a, b", (4, 4), r"the cluster is \(4, 4\), it has 1 to 8 blocks"),
        ("a", (0,), "the cluster is 0, it has 1 to 8 blocks"),
        ("a", (3,), r"the cluster \(3, 1, 1\) does not divide the grid \(8, 2, 1\)"),
    ],
)
def test_a_cluster_that_cannot_be_is_an_error_on_its_line(fake, cluster, values, message):
    one = clustered(cluster)
    with pytest.raises(RuntimeError, match=message):
        call(one, torch.ones(1), *values)
    assert fake.launches() == []


# ------------------------------------------------------------ devices and streams


def test_the_devices_context_is_current_while_kernels_are_launched(fake):
    one = scale()
    call(one, torch.ones(2), 1.0)  # opens the GPU, if no test has
    for former in (0, 0x7777, CONTEXT):
        fake.current = former
        fake.take()
        call(one, torch.ones(2), 1.0)
        assert fake.current == former
        asked = fake.take()
        assert [r.context for r in asked if r.what == LAUNCH] == [CONTEXT]
        assert len([r for r in asked if r.what == SET_CONTEXT]) == (0 if former == CONTEXT else 2)
        assert not [r for r in asked if r.what == RETAIN]


def test_the_former_context_comes_back_after_an_error(fake):
    one = scale()
    fake.current = 0x7777
    fake.set(launch_code=700)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        call(one, torch.ones(2), 1.0)
    assert fake.current == 0x7777


def test_the_stream_is_asked_for_at_every_call(fake):
    one = scale()
    for stream in (0, 0x10, 0x20):
        fake.set(stream=stream)
        call(one, torch.ones(2), 1.0)
    assert [r.stream or 0 for r in fake.launches()] == [0, 0x10, 0x20]


def test_tensors_on_two_devices_are_named(fake):
    one = made(
        "Tensor x, Tensor w",
        "Tensor",
        "//! out = empty_like(x)\n//! grid = 1\n//! block = 1\n__global__ void NAME(const float* x, const float* w, float* out) { *out = *x + *w; }",
    )
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    packet = getattr(getattr(torch.ops, NS), one.schema.name)
    with pytest.raises(RuntimeError, match=r"\(cuda\): w is on device type .*, x on cpu"):
        packet.default.redispatch(keys, torch.ones(1), torch.ones(1, device="meta"))


def test_a_call_without_a_tensor_says_that_nothing_names_the_gpu(fake):
    one = made(
        "Tensor? x=None",
        "Tensor",
        "//! out = empty(1, dtype=float32)\n//! grid = 1\n//! block = 1\n__global__ void NAME(const float* x, float* out) { *out = x ? *x : 7; }",
    )
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    packet = getattr(getattr(torch.ops, NS), one.schema.name)
    with pytest.raises(RuntimeError, match="no tensor was given, so nothing says on which GPU"):
        packet.default.redispatch(keys, None)


# ------------------------------------------------------------ what the driver refuses


def test_too_many_threads_for_the_kernels_registers(fake):
    one = made(
        "Tensor x, float by", "Tensor", SCALE.replace("4, 8", "512"), claims={"max_threads": 256, "registers": 168}
    )
    fake.set(launch_code=701)
    message = (
        r"launching op\d+ on a grid of \(1, 1, 1\), blocks of \(512, 1, 1\) and 0 bytes of shared memory failed: too many "
        r"resources requested for launch \(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES\): with 168 registers a thread, or the "
        r"__launch_bounds__ of op\d+, its blocks have at most 256 threads; write __launch_bounds__\(512\) or take a smaller block$"
    )
    with pytest.raises(RuntimeError, match=message):
        call(one, torch.ones(2), 1.0)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            700,
            r"an illegal memory access was encountered \(CUDA_ERROR_ILLEGAL_ADDRESS\)\. A kernel before this one failed, and the GPU is lost to this process: restart it$",
        ),
        (701, r"too many resources requested for launch \(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES\)$"),
        (209, r"it was compiled for another GPU than this one, sm_90$"),
        (999, r"an error that the driver has no text for \(\?\)$"),
    ],
)
def test_what_the_driver_says_is_raised(fake, code, message):
    one = scale()
    fake.set(launch_code=code)
    with pytest.raises(RuntimeError, match=message):
        call(one, torch.ones(2), 1.0)
    fake.set(launch_code=0)
    assert call(one, torch.ones(2), 1.0).tolist() == [1, 1]


def test_a_cubin_without_the_kernel_is_a_build_error(fake):
    one, other = cuda_cell(f"{NS}::a(Tensor x, float by) -> Tensor", SCALE.replace("NAME", "a")), scale()
    wrong = native.Instance(one.same(f32).dtypes, other.same(f32).library, one.same(f32).body, ("kernel_a",))
    with pytest.raises(BuildError, match="has no kernel kernel_a"):
        native.descriptor(one.declaration, [wrong])


def test_without_a_driver_a_launcher_says_what_is_missing(fake, monkeypatch):
    one = scale()

    def gone():
        raise ToolchainError("there is no NVIDIA driver here")

    monkeypatch.setattr(driver, "table", gone)
    with pytest.raises(ToolchainError, match="there is no NVIDIA driver here"):
        native.Launcher(one.launcher.path)


def test_neither_calls_nor_errors_leak(fake):
    one = made("Tensor x", "Tensor", TWO)
    x = torch.randn(64, 1024)

    def resident_mb() -> float:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096 / 1e6

    def some(n):
        fake.set(run=0)
        for _ in range(n):
            call(one, x)
            fake.set(launch_code=701)
            with pytest.raises(RuntimeError):
                call(one, x)
            fake.set(launch_code=0)

    some(50)
    before = resident_mb()
    some(2000)
    assert resident_mb() - before < 20
