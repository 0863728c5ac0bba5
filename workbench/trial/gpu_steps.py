"""The steps of one job on a GPU: those of `steps`, in memory of the GPU, with a look at the context after each.

Other than a forked child this process lives on: what a job leaves behind is taken back at its end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import gpu_faults
from .call import Call
from .explain import said
from .gpu_guard import Memory
from .protocol import Job, Made, Meta
from .steps import Trial
from .wire import Order, Stored

OWN_NAMESPACES = frozenset({"aten", "prims", "prim"})
EVERY_DEVICE = torch._C.DispatchKey.CompositeExplicitAutograd
WORTH_A_LOOK = 1 << 20  # bytes
LOOK_S, SAME_LOOKS = 0.02, 3  # at a tool's log
# Of what code allocates by itself: guarded in a step, zones included, and in one piece.
MOST_BLOCKS, MOST_BYTES, LARGE = 512, 1 << 30, 64 << 20


class GpuTrial(Trial):
    """One job in progress on the device of `memory`."""

    memory: Memory

    def __init__(self, order: Order, frames: int, output: int, memory: Memory, log: str = "") -> None:
        self.log = log  # what a tool writes that watches this process
        super().__init__(order, frames, output, memory)
        self.wanted: set[tuple[int, int]] = set()  # results that later steps take
        self.rehomed = self.taken = 0  # blocks and bytes that the code of this step allocated by itself
        self.stored: tuple[Stored, torch.Tensor] | None = None  # the last large result

    def guard_own(self, job: Job) -> AbstractContextManager:
        self.wanted = {(m.step, m.index) for step in job.steps for m in _made((step.args, step.keywords))}
        if not job.allocates or self.memory.bare:
            return nullcontext()
        return Rehoming(self.rehome, self.memory)

    def keeper_of(self, job: Job) -> None:
        return None  # CUDA starts threads and more

    def take(self, number: int, step: Any) -> None:
        self.rehomed = self.taken = 0
        if isinstance(self.guarding, Rehoming):
            self.guarding.problem = ""
        super().take(number, step)
        if self.log:
            self.tell("log", number, _settled_size(self.log))
        if not self.broken:
            self.release(number)

    def invoke(self, call: Call) -> object:
        self.memory.synchronise()  # the code under trial may use streams of its own
        returned = super().invoke(call)
        self.memory.synchronise()
        return returned

    def raised(self, error: BaseException) -> tuple[str, str]:
        """An error of the context comes again whatever one asks of it: then it is lost, and with it this process."""
        try:
            self.memory.synchronise()
        except Exception as lost:
            self.broken = True
            return "crash", gpu_faults.fault(f"{lost}\n{said(error)}")
        status, detail = super().raised(error)
        inside = getattr(self.guarding, "problem", "")  # C++ in between loses the words of an exception of Python
        return status, f"{detail}: {inside}" if inside and inside not in detail else detail

    def inspect(self, call: Call, outputs: tuple) -> tuple[str, str]:
        found = super().inspect(call, outputs)
        if found[0] == "ok":
            for i, value in enumerate(outputs):
                for t in value if isinstance(value, (list, tuple)) else (value,):
                    if isinstance(t, torch.Tensor) and t.numel() and t.device != torch.device(self.memory.device):
                        where = f"on {t.device}; the arguments are on {self.memory.device}"
                        return "error", f"{self.step.output(i)} is {where}"
        return found

    def store(self, value: object) -> object:
        """A large result of the same bits as the one before it, as configurations of a kernel leave, is sent once."""
        if not isinstance(value, torch.Tensor) or value.nbytes < WORTH_A_LOOK:
            return super().store(value)
        if value.device != torch.device(self.memory.device):
            return super().store(value)
        data = self.memory.flat(value)
        if self.stored is None or self.stored[0].meta != Meta.of(value) or not torch.equal(self.stored[1], data):
            stored = super().store(value)
            assert isinstance(stored, Stored)
            self.stored = stored, data.clone()
        return self.stored[0]

    def rehome(self, tensor: torch.Tensor) -> torch.Tensor:
        """Guarded memory for a tensor that the code under trial made; itself where that is too much."""
        meta = Meta.of(tensor)
        nbytes = meta.extent * meta.dtype.itemsize
        expected = any(m.extent * m.dtype.itemsize == nbytes for m in self.step.layout or ())
        if self.rehomed >= MOST_BLOCKS or self.taken > MOST_BYTES or (nbytes > LARGE and not expected):
            return tensor
        start = self.allocate_own(nbytes)
        block = next(b for b in reversed(self.blocks) if b.start == start)
        self.rehomed, self.taken = self.rehomed + 1, self.taken + block.room.mapped
        return self.memory.tensor(block, meta)

    def release(self, number: int) -> None:
        """Give back the memory of this step, but for the results that later ones take."""
        for key in [k for k in self.made if k not in self.wanted]:
            del self.made[key]
        kept = {id(b) for value in self.made.values() for t in _flat(value) if (b := self.home(t)) is not None}
        for block in self.blocks:
            if id(block) not in kept:
                self.memory.release(block)
                self.own.discard(block.start)
        self.blocks = [b for b in self.blocks if id(b) in kept]

    def leave(self, known: set[str]) -> str:
        """Take back what the job put into this process; why it had better not be used again, or "".

        `known` are the names of the ops that torch had before, see `ops`.
        """
        problem = ""
        while self.keep:
            problem = take_back(self.keep.pop()) or problem
        self.made.clear()
        self.blocks.clear()
        self.stored = None
        self.memory.clear()
        spaces = {f"{name.partition('::')[0]}::" for name in (*self.job.schemas, *(s.op for s in self.job.steps))}
        left = sorted(n for n in ops() - known if n.startswith((*spaces, "wb_layout::", "wb_probe::")))
        return problem or (f"the job left {', '.join(left)} registered" if left else "")


class Rehoming(TorchDispatchMode):
    """While it is active, each new tensor on the device that an op of torch gives is handed to `rehome`.

    This is how code that allocates by itself, in Python or in C++ through torch's dispatcher, gets memory between red
    zones. Its own ops run as they are, with this mode inside them.
    """

    def __init__(self, rehome: Callable[[torch.Tensor], torch.Tensor], memory: Memory) -> None:
        super().__init__()
        self.supports_higher_order_operators = True
        self.problem = ""  # what an op of torch said when it raised
        self.rehome, self.memory, self.device = rehome, memory, torch.device(memory.device)
        self.key = torch._C.DispatchKey.CUDA if self.device.type == "cuda" else torch._C.DispatchKey.CPU

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> object:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            return func(*args, **kwargs)
        if func.namespace not in OWN_NAMESPACES:
            # Asked for a kernel that there is not, `_op_dk` calls a null pointer: `wb_layout` has one for all devices.
            key = next((k for k in (self.key, EVERY_DEVICE) if func.has_kernel_for_dispatch_key(k)), None)
            if key is None:
                return func(*args, **kwargs)
            with self:
                return func._op_dk(key, *args, **kwargs)
        try:
            returned = func(*args, **kwargs)
        except Exception as error:
            self.problem = said(error)
            raise
        known = {_storage(t) for t in _tensors((args, kwargs))}
        return _replaced(returned, lambda t: self.moved(t, func, known))

    def moved(self, tensor: torch.Tensor, func: Any, known: set[int]) -> torch.Tensor:
        plain = tensor.layout is torch.strided and type(tensor) is torch.Tensor and not tensor.is_quantized
        if not plain or tensor.device != self.device or not tensor.numel() or _storage(tensor) in known:
            return tensor
        new = self.rehome(tensor)
        if func._schema.name.startswith(EMPTY):
            if new is tensor:
                self.memory.poison(tensor)
        elif new is not tensor:
            new.copy_(tensor)
        return new


# What these give is not written yet: it stays poison.
EMPTY = ("aten::empty", "aten::new_empty")


def take_back(kept: object) -> str:
    """Undo what the `load` of a library did, from what it returned; what went wrong, or "".

    Known are libraries of torch, everything with an `unregister`, and tuples and lists of these.
    """
    try:
        if isinstance(kept, (tuple, list)):
            return "".join([take_back(k) for k in reversed(kept)][:1])
        if isinstance(kept, torch.library.Library):
            kept._destroy()
        elif hasattr(kept, "unregister"):
            kept.unregister()
    except Exception as error:
        return said(error)
    return ""


def _settled_size(path: str) -> int:
    """The size of a file that another process writes, once it has been the same for a while."""
    size, looks = -1, 0
    while looks < SAME_LOOKS:
        time.sleep(LOOK_S)
        now = os.stat(path).st_size if os.path.exists(path) else 0
        size, looks = now, looks + 1 if now == size else 0
    return size


def ops() -> set[str]:
    """All ops that torch has."""
    return set(torch._C._dispatch_get_all_op_names())


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else 0


def _flat(value: object) -> list[object]:
    if isinstance(value, dict):
        value = list(value.values())
    return [v for part in value for v in _flat(part)] if isinstance(value, (list, tuple)) else [value]


def _tensors(value: object) -> list[torch.Tensor]:
    return [t for t in _flat(value) if isinstance(t, torch.Tensor)]


def _made(value: object) -> list[Made]:
    return [m for m in _flat(value) if isinstance(m, Made)]


def _replaced(value: object, new: Callable[[torch.Tensor], torch.Tensor]) -> object:
    if isinstance(value, torch.Tensor):
        return new(value)
    if isinstance(value, (list, tuple)):
        made = [_replaced(v, new) for v in value]
        return made if isinstance(value, list) else tuple(made)
    return value
