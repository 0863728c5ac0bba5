"""What a Triton cell may ask of Triton's driver and of torch.cuda where no GPU answers: the architecture compiled for.

`triton.runtime.driver.active.get_active_torch_device()` stands at the top of Triton's tutorials, launchers of
persistent kernels ask how many multiprocessors there are, and others launch within `torch.cuda.device(x.device)`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from .. import gpu
from ..gpu import Target

traces = True  # False in a process that ends with one trial: there nothing is traced
WARP, REGISTERS, THREADS = 32, 65_536, 1024  # of every architecture since compute capability 5


@dataclass(frozen=True)
class Driver:
    """A driver for an architecture that is not here. `device` is where the tensors of a launcher are.

    >>> Driver(gpu.target(), "cpu").utils.get_device_properties(0)["multiprocessor_count"]
    132
    """

    target: Target
    device: str = "cuda:0"

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: object = None) -> None:
        pass

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.target.number, WARP)

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device(self.device)

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        return divmod(self.target.number, 10)

    @property
    def utils(self) -> Any:
        return SimpleNamespace(get_device_properties=self._properties)

    def _properties(self, device: object = None) -> Mapping[str, int]:
        limits = gpu.LIMITS.get(self.target.number, gpu.LIMITS[90])
        return {
            "max_shared_mem": gpu.shared_bytes(self.target.number), "max_num_regs": REGISTERS, "warpSize": WARP,
            "multiprocessor_count": limits.count,
        }  # fmt: skip

    def torchs(self) -> Mapping[str, Callable]:
        """What launchers use of torch.cuda, by name: what describes a device, and what makes one the current one."""
        return {
            "get_device_properties": self._described,
            "get_device_capability": self.get_device_capability,
            "current_device": self.get_current_device,
            "set_device": self.set_current_device,
            "synchronize": lambda device=None: None,
            "device": lambda device: nullcontext(),
            "device_of": lambda obj: nullcontext(),
        }

    def _described(self, device: object = None) -> Any:
        limits, (major, minor) = gpu.LIMITS.get(self.target.number, gpu.LIMITS[90]), self.get_device_capability()
        return SimpleNamespace(
            name=self.target.arch, major=major, minor=minor, multi_processor_count=limits.count, warp_size=WARP,
            max_threads_per_multi_processor=limits.warps * WARP, max_threads_per_block=THREADS,
            regs_per_multiprocessor=REGISTERS, shared_memory_per_multiprocessor=limits.shared_kb << 10,
            shared_memory_per_block_optin=gpu.shared_bytes(self.target.number),
        )  # fmt: skip


@contextmanager
def targeting(target: Target) -> Iterator[None]:
    """Inside, Triton compiles for this target, with no look at the machine's own GPU."""
    with _active(Driver(target)):
        yield


@contextmanager
def standing_in(device: str) -> Iterator[None]:
    """Inside, where there is no GPU, Triton's driver and torch.cuda tell of the one that is compiled for.

    >>> with standing_in("cpu"):
    ...     triton.runtime.driver.active.get_active_torch_device()
    device(type='cpu')

    `device` is where tensors are: "cpu" in the interpreter, where what is made on "cuda" is made there, too, and
    `x.is_cuda` says yes. Beside a GPU nothing changes.
    """
    if gpu.present():
        yield
        return
    import torch

    if traces:
        importlib.import_module("torch._dynamo")  # it keeps for good what torch.cuda holds when it is imported
    driver = Driver(gpu.target(), device)
    names = driver.torchs()
    before = {name: getattr(torch.cuda, name) for name in names}
    try:
        for name, function in names.items():
            setattr(torch.cuda, name, function)
        with _active(driver), _on_the_cpu() if device == "cpu" else nullcontext():
            yield
    finally:
        for name, function in before.items():
            setattr(torch.cuda, name, function)


def _on_the_cpu() -> AbstractContextManager:
    """Inside, tensors of the CPU stand for those of a GPU: `torch.empty(n, device="cuda")`, `x.cuda()`, `x.is_cuda`."""
    import torch
    from torch.overrides import TorchFunctionMode

    is_cuda = torch.Tensor.is_cuda.__get__

    def here(value: Any) -> Any:
        named = isinstance(value, (str, torch.device)) and str(value).partition(":")[0] == "cuda"
        return torch.device("cpu") if named else value

    class OnTheCpu(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.Tensor.cuda:
                return args[0]
            if func is torch.device:
                return here(func(*args, **(kwargs or {})))
            if func == is_cuda:
                return True
            return func(*map(here, args), **{n: here(v) for n, v in (kwargs or {}).items()})

    return OnTheCpu()


@contextmanager
def _active(made: Driver) -> Iterator[None]:
    from triton.runtime.driver import driver

    before = dict(vars(driver))
    driver.set_active(made)
    try:
        yield
    finally:
        vars(driver).clear()
        vars(driver).update(before)


__all__ = ["Driver", "standing_in", "targeting"]
