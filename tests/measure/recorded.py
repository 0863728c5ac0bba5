"""A trace as torch writes it on a GPU (kineto's Chrome format), cut down to two calls: what tests read without one."""

from __future__ import annotations

import copy

KERNEL = "void rmsnorm<float, 512>(float const*, float const*, float*, float, int)"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float>, std::array<char*, 3ul> >(int, float)"
MAIN, AUTOGRAD = 41, 42


def mark(phase, at, took):
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": f"workbench: {phase}",
        "pid": 4,
        "tid": MAIN,
        "ts": at,
        "dur": took,
        "args": {},
    }


def op(name, at, took, tid=MAIN, external=0):
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 4,
        "tid": tid,
        "ts": at,
        "dur": took,
        "args": {"External id": external},
    }


def launch(at, correlation, tid=MAIN, name="cudaLaunchKernel", took=4.0, cat="cuda_runtime"):
    args = {"cbid": 211, "correlation": correlation, "External id": 0}
    return {"ph": "X", "cat": cat, "name": name, "pid": 4, "tid": tid, "ts": at, "dur": took, "args": args}


def kernel(name, at, took, correlation, registers=40, block=(512, 1, 1), grid=(8192, 1, 1), shared=1024):
    args = {
        "External id": 0, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": correlation,
        "registers per thread": registers, "shared memory": shared, "blocks per SM": 62.06, "warps per SM": 992.9,
        "grid": list(grid), "block": list(block), "est. achieved occupancy %": 75,
    }  # fmt: skip
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": took, "args": args}


def copied(name, at, took, correlation, cat="gpu_memcpy"):
    args = {"device": 0, "context": 1, "stream": 7, "correlation": correlation, "bytes": 4096}
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": at, "dur": took, "args": args}


def memory(at, size, device=1):
    args = {"Total Reserved": 0, "Total Allocated": 0, "Bytes": size, "Device Id": 0, "Device Type": device, "Addr": 1}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": 4,
        "tid": MAIN,
        "ts": at,
        "args": args,
    }


def one_call(begin, slower=0.0):
    """A forward of one kernel of 40 us, a backward of three: 10, 20 and 10 us, with pauses of 5 and 2 us."""
    t, c = begin, int(begin)
    return [
        mark("forward", t, 30 + slower),
        op("lab::rmsnorm", t + 2, 24, external=c + 1),
        op("lab::rmsnorm_forward", t + 6, 18, external=c + 2),
        memory(t + 8, 4096),
        launch(t + 12, c + 1, name="cuLaunchKernel", cat="cuda_driver"),
        kernel(KERNEL, t + 20, 40, c + 1),
        mark("backward", t + 40 + slower, 100),
        op("autograd::engine::evaluate_function: MulBackward0", t + 45, 80, AUTOGRAD),
        op("aten::mul", t + 50, 20, AUTOGRAD, c + 3),
        memory(t + 52, 8192),
        launch(t + 55, c + 3, AUTOGRAD),
        op("aten::mul", t + 75, 20, AUTOGRAD, c + 4),
        launch(t + 80, c + 4, AUTOGRAD),
        op("aten::zero_", t + 100, 20, AUTOGRAD, c + 5),
        launch(t + 105, c + 5, AUTOGRAD, "cudaMemsetAsync"),
        memory(t + 120, -8192),
        kernel(MUL, t + 90, 10, c + 3, registers=32, shared=0),
        kernel(MUL, t + 105, 20, c + 4, registers=32, shared=0),
        copied("Memset (Device)", t + 127, 10, c + 5, "gpu_memset"),
    ]


def gpu():
    """Two calls; besides them an event outside of any."""
    events = [op("aten::randn", 10, 5), *one_call(1000.0), *one_call(2000.0, slower=2.0)]
    return {"schemaVersion": 1, "traceEvents": copy.deepcopy(events)}
