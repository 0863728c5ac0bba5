"""The GPU trial on a GPU: each way in which a kernel goes wrong, right values after it, and what it costs."""

from __future__ import annotations

import functools
import time

import pytest
import torch

from tests.trial.test_client import alive, wait_for
from workbench.trial import GpuWorker, Job, Meta, Step, sanitizer

pytestmark = pytest.mark.gpu

CELL = """\
//! n = x.numel()
//! out = empty(x.shape)
//! grid = cdiv(n, 256)
//! block = 256
__global__ void scale(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  BODY
}
"""
GOOD = "if (i < n) out[i] = 2 * x[i];"
OUT = "out (shape (5, 123), float32)"


@pytest.fixture(scope="module")
def gpu_trial():
    worker = GpuWorker()
    yield worker
    worker.close()


@functools.cache
def built(body: str):
    from tests.tiers.raw_cuda_tools import cuda, same, schema_of

    schema = schema_of("Tensor x -> Tensor")
    kernel = cuda(schema, CELL.replace("BODY", body))
    assert kernel.build([same(kernel, torch.float32)]) == [None]
    return schema, kernel


def job(*bodies: str, x: torch.Tensor) -> Job:
    from workbench.register.registration import forward_schema

    made = [built(b) for b in bodies]
    steps = tuple(
        Step(k.step_op, (x,), case=f"case {i}", outputs=("out",), layout=(Meta.of(x),), allocates=("out",))
        for i, (_, k) in enumerate(made)
    )
    unique = {s.name: (s, k) for s, k in made}.values()
    schemas = tuple(text for s, _ in unique for text in (str(s), forward_schema(s)))
    return Job(steps, tuple(k.launch() for _, k in unique), schemas)


def right(worker, x):
    result = worker.run(job(GOOD, x=x), 20).results[0]
    assert (result.status, result.unwritten, result.aliases) == ("ok", (0,), ("",)), result
    assert torch.equal(result.outputs[0], 2 * x)


TOUCHES = {
    f"{GOOD} if (i == 0) out[n] = 1;": ("overrun", f"writes past the end of {OUT}: flat element 615 of 615"),
    f"{GOOD} if (i == 0) out[n + 5000] = 1;": ("overrun", f"writes past the end of {OUT}: flat element 5615 of 615"),
    f"{GOOD} if (i == 0) out[-1] = 1;": ("overrun", f"writes 4 bytes before the start of {OUT}"),
    f"{GOOD} if (i == 0) ((float*)x)[124] = 1;": (
        "mutation",
        "writes to the argument x[1, 1] (shape (5, 123), float32)",
    ),
}


@pytest.mark.parametrize("body", TOUCHES)
def test_a_bad_touch_is_named_and_costs_nothing(gpu_trial, x, body):
    right(gpu_trial, x)
    pid = gpu_trial.pid
    bad, good = gpu_trial.run(job(body, GOOD, x=x), 20).results
    assert (bad.status, bad.detail[: len(TOUCHES[body][1])]) == TOUCHES[body]
    assert torch.equal(good.outputs[0], 2 * x)
    right(gpu_trial, x)
    assert gpu_trial.pid == pid


def test_a_read_past_the_end_is_nan_and_what_nothing_wrote_is_counted(gpu_trial, x):
    read, half = gpu_trial.run(job("if (i < n) out[i] = x[i + 1];", "if (i < n / 2) out[i] = 1;", x=x), 20).results
    assert read.outputs[0][-1, -1].isnan() and not read.outputs[0].view(-1)[:-1].isnan().any()
    assert (half.status, half.unwritten) == ("ok", (308,))


def test_printf_comes_back_with_its_step(gpu_trial, x):
    said = f'{GOOD} if (i == 0) printf("n is %d\\n", n);'
    answer = gpu_trial.run(job(said, GOOD, said, x=x), 20)
    assert [r.printed for r in answer.results] == ["n is 615\n", "", "n is 615\n"]


FAULTS = {
    "out[(long long)i + (1ll << 42)] = 1;": ("an illegal memory access",),
    "*(volatile float*)(size_t)(16 + i % 1) = 1;": ("an illegal memory access",),
    "if (i == 0) *(float2*)(out + 1) = make_float2(1, 2);": ("a misaligned address",),
    "assert(n < 0);": ("an assert in a kernel failed",),
    "__trap();": ("an unspecified launch failure: __trap()", "an illegal instruction: __trap()"),
}


@pytest.mark.parametrize("body", FAULTS)
def test_a_fault_is_named_and_costs_a_swap(gpu_trial, x, body):
    right(gpu_trial, x)
    gpu_trial._spare.wait()
    pid, spare = gpu_trial.pid, gpu_trial.spare_pid
    started = time.monotonic()
    before, died, after = gpu_trial.run(job(GOOD, body, GOOD, x=x), 20).results
    assert time.monotonic() - started < 10
    assert (died.status, died.case, after.status) == ("crash", "case 1", "skip"), died
    assert died.detail.startswith(FAULTS[body]), died
    assert torch.equal(before.outputs[0], 2 * x)
    assert gpu_trial.pid == spare
    right(gpu_trial, x)
    wait_for(lambda: not alive(pid), 30)
    assert torch.equal((torch.ones(3, device="cuda") * 2).cpu(), torch.full((3,), 2.0))  # this context is whole


def test_a_kernel_that_never_ends_is_stopped(gpu_trial, x):
    right(gpu_trial, x)
    gpu_trial._spare.wait()
    pid, spare, started = gpu_trial.pid, gpu_trial.spare_pid, time.monotonic()
    before, hung = gpu_trial.run(job(GOOD, "while (((volatile const float*)x)[0] < 1e30f) {}", x=x), 1.0).results
    assert time.monotonic() - started < 3
    assert (hung.status, hung.case) == ("hang", "case 1")
    assert torch.equal(before.outputs[0], 2 * x)
    assert gpu_trial.pid == spare
    right(gpu_trial, x)
    wait_for(lambda: not alive(pid), 60)


def test_an_error_costs_nothing(gpu_trial, x):
    right(gpu_trial, x)
    pid = gpu_trial.pid
    doubles = gpu_trial.run(job(GOOD, x=x.double()), 20).results[0]
    assert doubles.status == "error" and "float64" in doubles.detail
    right(gpu_trial, x)
    assert gpu_trial.pid == pid


def test_a_transposed_input_gets_the_strides_of_the_reference(gpu_trial, x):
    result = gpu_trial.run(job(GOOD, x=x.t()), 20).results[0]
    assert (result.status, result.outputs[0].stride()) == ("ok", (1, 123))
    assert torch.equal(result.outputs[0], 2 * x.t())


TRITON = {
    "twice": ("ok", "", 0),
    "half": ("ok", "", 308),
    "one_more": ("overrun", f"writes past the end of {OUT}: flat element 615 of 615", 0),
    "workspace": ("overrun", "writes past the end of an output or workspace of 2460 bytes", 0),
}


def test_triton_launchers_allocate_between_red_zones(gpu_trial, x):
    from tests.trial.on_gpu import OnGpu

    right(gpu_trial, x)
    pid = gpu_trial.pid
    steps = tuple(Step(f"ongpu::{n}", (x,), case=n, layout=(Meta.of(x),)) for n in TRITON)
    schemas = tuple(f"ongpu::{n}(Tensor x) -> Tensor" for n in TRITON)
    answer = gpu_trial.run(Job(steps, (OnGpu(tuple(TRITON)),), schemas), 120)
    assert answer.guarded
    for result in answer.results:
        status, detail, unwritten = TRITON[result.case]
        assert (result.status, result.unwritten) == (status, (unwritten,)), result
        assert result.detail.startswith(detail)
    assert torch.equal(answer.results[0].outputs[0], 2 * x)
    assert gpu_trial.pid == pid


@pytest.mark.alone
def test_memory_is_given_back(gpu_trial):
    big = torch.ones(32 << 20)  # 128 MB

    def free() -> int:
        return torch.cuda.mem_get_info()[0]

    right(gpu_trial, big[:615])
    before = free()
    for _ in range(4):
        assert gpu_trial.run(job(GOOD, GOOD, x=big), 20).ok
    right(gpu_trial, big[:615])
    wait_for(lambda: before - free() < 300 << 20)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_it_runs_on_the_device_of_the_notebook(gpu_trial, x):
    right(gpu_trial, x)
    pid = gpu_trial.pid
    with torch.cuda.device(1):
        step = Step("aten::mul.Tensor", (x, 2.0))
        assert torch.equal(gpu_trial.run(Job((step,)), 60).results[0].outputs[0], 2 * x)
        right(gpu_trial, x)
    right(gpu_trial, x)
    assert gpu_trial.pid == pid


@pytest.mark.skipif(not sanitizer.program(), reason="no compute-sanitizer here")
def test_compute_sanitizer_names_the_tensor_and_the_case(x):
    past = f"{GOOD} if (i == 0) out[n] = 1;"
    race = "__shared__ float s[256]; s[threadIdx.x] = i; if (i < n) out[i] = s[255 - threadIdx.x];"
    found = sanitizer.sanitize(job(GOOD, past, x=x), ["memcheck"], limit_s=200)
    assert found.ran == ("memcheck",), found
    (row,) = found.findings
    assert (row.kind, row.case) == ("Invalid __global__ write of size 4 bytes", "case 1")
    assert row.detail == f"0 bytes past the end of {OUT}"
    found = sanitizer.sanitize(job(race, x=x), ["racecheck"], limit_s=200)
    assert [f.kind for f in found.findings] == ["race in shared memory"], found
    assert sanitizer.sanitize(job(GOOD, x=x), ["memcheck", "synccheck"], limit_s=200).ok
