"""Kernels in plain Python behind ops of the namespace `stand`, for the worker's device "cpu": what CUDA ones do."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class StandIn:
    """Puts the functions `names` of this file behind the ops `stand::NAME`, each with its output at `out`."""

    names: tuple[str, ...]
    allocates: bool = False
    forgets: bool = False  # does it leave a registration behind?

    def load(self, allocate):
        library = torch.library.Library("stand", "FRAGMENT")
        for name in self.names:
            library.impl(name, self.kernel(globals()[name], allocate), "CPU")
        if self.forgets:
            left = torch.library.Library("stand", "FRAGMENT")
            left.define("left_behind(Tensor x) -> Tensor")
            KEPT.append(left)
        return library

    def kernel(self, function, allocate):
        def call(x, *more):
            if self.allocates:
                return function(x, *more)
            start = allocate(x.numel() * x.element_size())
            buffer = (ctypes.c_ubyte * (x.numel() * x.element_size())).from_address(start)
            flat = torch.frombuffer(buffer, dtype=x.dtype) if x.numel() else torch.empty(0, dtype=x.dtype)
            return function(x, flat.view(x.shape), *more)

        return call


KEPT: list[object] = []


def poke(address: int, value: float) -> None:
    ctypes.c_float.from_address(address).value = value


def twice(x, out):
    return torch.mul(x, 2, out=out)


def writes_one_more(x, out):
    poke(out.data_ptr() + 4 * out.numel(), 7)
    return twice(x, out)


def writes_far_behind(x, out):
    poke(out.data_ptr() + 4 * (out.numel() + 5000), 7)
    return twice(x, out)


def writes_before(x, out):
    poke(out.data_ptr() - 4, 7)
    return twice(x, out)


def writes_to_its_input(x, out):
    poke(x.data_ptr() + 4 * 124, 7)
    return twice(x, out)


def writes_half(x, out):
    flat = out.view(-1)
    flat[: flat.numel() // 2] = 1
    return out


def reads_one_more(x, out):
    twice(x, out)
    out.view(-1)[-1] = ctypes.c_float.from_address(x.data_ptr() + 4 * x.numel()).value
    return out


def raises(x, out):
    raise ValueError("a bad launch")


def prints(x, out):
    print(f"n is {x.numel()}")
    return twice(x, out)


def counts_what_is_alive(x, out):
    found = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.untyped_storage().nbytes() > 8 << 20]
    print(len(found), "large tensors")
    return twice(x, out)


def aborts(x, out):
    os.abort()


def exits(x, out):
    os._exit(3)


def spins(x, out):
    while True:
        time.sleep(0.01)


def compiles_long(x, out):
    from workbench.build import triton_tune

    for _ in range(2):
        triton_tune.compiling(True)
        time.sleep(0.6)
        triton_tune.compiling(False)
    return twice(x, out)


def does_not_fit(x, out):
    from workbench.build import triton_tune
    from workbench.trial.call import Skip

    triton_tune.told(f"kernel with B={triton_tune.turn}")
    triton_tune.told(f"kernel with B={triton_tune.turn}")
    raise Skip("kernel does not fit")


def compiles_for_ever(x, out):
    from workbench.build import triton_tune

    triton_tune.compiling(True)
    spins(x, out)


def dereferences_null(x, out):
    ctypes.c_float.from_address(0).value = 1


def reads_far_away(x, out):
    ctypes.c_float.from_address(out.data_ptr() + (1 << 40)).value = 1


def loses_its_context(x, out):
    from workbench.trial import gpu_guard

    print("cell:3: void f(float *): block: [0,0,0], thread: [1,0,0] Assertion `n < 3` failed.", flush=True)
    gpu_guard.stand_in_fault = "CUDA error: device-side assert triggered\nCUDA kernel errors might be ..."
    return out


def loses_it_badly(x, out):
    from workbench.trial import gpu_guard

    gpu_guard.stand_in_fault = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be ..."
    raise RuntimeError("cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS")


def adds_one_in_place(x, out):
    x.add_(1)


# ---- these make their tensors by themselves


def makes_out(x):
    out = torch.empty_like(x)
    twice(x, out)
    return out


def makes_half(x):
    out = torch.empty_like(x)
    out.view(-1)[: out.numel() // 2] = 1
    return out


def makes_zeros(x):
    return torch.zeros_like(x)


def makes_and_overruns(x):
    out = x.new_empty(x.shape)
    poke(out.data_ptr() + 4 * out.numel(), 7)
    return twice(x, out)


def makes_workspace_and_overruns(x):
    out, work = torch.empty_like(x), torch.zeros(7)
    poke(work.data_ptr() + 4 * work.numel(), 7)
    return twice(x, out)


def asks_for_the_layout(x):
    return torch.ops.wb_layout.stand__asks_for_the_layout(x).fill_(3)


def asks_for_what_is_not_there(x):
    """An op of somebody else, with a kernel for other devices alone."""
    library = torch.library.Library("stand", "FRAGMENT")
    library.define("elsewhere(Tensor x) -> Tensor")
    library.impl("elsewhere", lambda x: x, "CUDA")
    try:
        return torch.ops.stand.elsewhere(x)
    finally:
        library._destroy()


def gives_its_input(x):
    return x


def gives_a_view(x):
    return torch.mm(x, x.t())[0]


def where_am_i(x, out):
    import stand_beside

    print(os.environ.get("SAID_LATER"), os.getcwd(), stand_beside.VALUE)
    return twice(x, out)
