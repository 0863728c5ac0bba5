"""The steps of one job, taken in the child: arguments into guarded memory, the call, a look at what it did."""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from ..build import triton_tune
from ..build.arithmetic import Arithmetic
from . import ambient, explain, guard
from .allocator import Allocator
from .call import Call, Skip, define
from .protocol import Given, Job, Meta, Pickled, Step
from .wire import COMPILED, COMPILES, FRAME, Done, Order, Stored, unpack


class Trial:
    """One job in progress."""

    def __init__(self, order: Order, frames: int, output: int, memory: Any = guard) -> None:
        self.order, self.memory = order, memory  # `guard`, or what does the same in the memory of a GPU
        self.results = order.results
        self.frames, self.output = frames, output
        self.blocks: list[guard.Block] = []  # what the op that runs now can reach; frozen ones included
        self.guarding: AbstractContextManager = nullcontext()  # of what the code under trial allocates by itself
        self.own: set[int] = set()  # the addresses of these blocks
        self.named: set[str] = set()  # the names that went to these
        self.asked = False  # has the launcher asked for the reference's strides?
        self.made: dict[tuple[int, int], object] = {}
        self.position = 0  # end of the result file
        self.broken = False  # nothing can run here any more
        self.keeper: ambient.Keeper | None = None  # of what else the process is beside its memory
        self.job = Job(())
        self.step = Step("")
        self.chosen: set[str] = set()  # the configurations of autotuned kernels in this step
        self.compiles = False
        self.keep: list[object] = []

    def tell(self, kind: str, *content: object) -> None:
        self._frame(pickle.dumps((kind, *content), pickle.HIGHEST_PROTOCOL))

    def end(self) -> None:
        """An empty frame: the worker need not wait for the process to be gone, which takes milliseconds."""
        self._frame(b"")

    def _frame(self, data: bytes) -> None:
        self._write(self.frames, FRAME.pack(len(data)) + data)

    def _write(self, fd: int, data: bytes) -> None:
        message = memoryview(data)
        try:
            while message:
                message = message[os.write(fd, message) :]
        except OSError:
            os._exit(explain.CHANNEL_LOST)

    def run(self) -> None:
        self.tell("began")
        try:
            self.job = job = unpack(self.order.job, self.order.files, self.travelled)
            self.keep.append(define(job.schemas, self.expected))
            self.keeper = self.keeper_of(job)
            for library in job.libraries:
                self.keep.append(library.load(self.allocate))
            if job.steps and self.keeper and (spoilt := self.keeper.changes()):
                self.tell("done", Done(0, "process", f"while its library was loaded: {spoilt}"))
                return
            self.guarding = self.guard_own(job)
        except BaseException as error:
            self.tell("failed", explain.said(error))
            return
        for number, step in enumerate(job.steps):
            self.take(number, step)
            if self.broken:
                return
        if self.keeper:
            self.tell("closing")
            self.keeper.close()

    def travelled(self, mark: tuple) -> Given | Pickled:
        """What stands in the job for a tensor, or for an object of a class that is not loaded yet."""
        return Given(self.order.loose, mark[1]) if mark[0] == "tensor" else Pickled(mark[1])

    def keeper_of(self, job: Job) -> ambient.Keeper | None:
        """Where all code is native: what Python imports may change more, and by right."""
        code = [getattr(library, "code", ()) for library in job.libraries]
        return ambient.Keeper(sum(code, ())) if code and all(code) else None

    def guard_own(self, job: Job) -> AbstractContextManager:
        """What guards the memory that the code under trial allocates by itself."""
        return Allocator(self.order.allocator, self.allocate_own) if self.order.allocator else nullcontext()

    def invoke(self, call: Call) -> object:
        """The call itself, and all the work that it began."""
        pid = os.getpid()
        try:
            return call.op(*call.args, **call.keywords)
        finally:
            if os.getpid() != pid:
                os._exit(0)  # a copy that the code made by fork(): only one of us is to answer

    def raised(self, error: BaseException) -> tuple[str, str]:
        """Status and sentence of a step that raised."""
        return "error", explain.said(error)

    def take(self, number: int, step: Step) -> None:
        started = time.perf_counter()
        self.blocks = [b for b in self.blocks if not b.argument]  # those of former steps are out of reach
        self.step, self.named, self.asked, self.chosen = step, set(), False, set()
        triton_tune.turn, triton_tune.told, triton_tune.compiling = step.turn, self.choose, self.compiling
        try:
            call = Call(self, step)
            self.tell("begin", number, tuple(self.blocks))
            torch.set_num_threads(self.order.threads)
            started = time.perf_counter()
            with Arithmetic() as numbers, self.guarding:
                returned = self.invoke(call)
            seconds = time.perf_counter() - started
            torch.set_num_threads(1)  # our own looks are short: on busy cores, threads waiting for threads cost more
            outputs = _as_tuple(returned)
            self.made.update({(number, i): value for i, value in enumerate(outputs)})
            self.name_results(outputs)
            status, detail = self.inspect(call, outputs)
            ends = number in (0, len(self.job.steps) - 1)
            if status == "ok" and self.keeper and (spoilt := self.keeper.changes(numbers.changed, whole=ends)):
                self.broken, done = True, Done(number, "process", spoilt, seconds=seconds)
            else:
                done = Done(number, status, detail, seconds=seconds, **self.collect(call, outputs))
        except Skip as reason:
            done = Done(number, "skip", str(reason))
        except BaseException as error:
            done = Done(number, *self.raised(error), seconds=time.perf_counter() - started)
        self.compiling(False)
        _flush()
        self._write(self.output, self.order.mark)
        self.tell("done", done)

    def choose(self, label: str) -> None:
        """An autotuned kernel is about to run in this configuration."""
        if label not in self.chosen:
            self.chosen.add(label)
            self.tell("chose", label)

    def compiling(self, begins: bool) -> None:
        """Triton compiles in this process, which is no fault of the code under trial: its time does not count."""
        if begins != self.compiles:
            self.compiles = begins
            self._frame(COMPILES if begins else COMPILED)

    def allocate(self, nbytes: int, tensors: tuple[tuple[str, Meta | None], ...] = ()) -> int:
        """The address of `nbytes` of guarded, poisoned memory. Launchers call this for what they allocate."""
        block = self.memory.allocate(nbytes)
        block = replace(block, tensors=tensors or self.guess(nbytes))
        self.blocks.append(block)
        self.tell("block", block)
        return block.start

    def allocate_own(self, nbytes: int) -> int:
        """The same for the code under trial: one of an output's size is taken for that output until it returns."""
        known = {self.step.output(i): m for i, m in enumerate(self.step.layout or ())}
        named = next(((n, m) for n, m in known.items() if n not in self.named and _bytes(m) == nbytes), None)
        if named:
            self.named.add(named[0])
        start = self.allocate(nbytes, (named or ("", None),))
        self.own.add(start)
        return start

    def guess(self, nbytes: int) -> tuple[tuple[str, Meta | None], ...]:
        """Name and metadata of an allocation, for messages: the next of the step's names that it can be."""
        known = {self.step.output(i): m for i, m in enumerate(self.step.layout or ())}
        names = self.step.allocates or tuple(known)
        if self.asked:  # then the launcher sees to the outputs first
            names = (*known, *(n for n in names if n not in known))
        for name in names:
            meta = known.get(name)
            if name not in self.named and (meta is None or _bytes(meta) == nbytes):
                self.named.add(name)
                return ((name, meta),)
        return ()

    def name_results(self, outputs: tuple) -> None:
        """Names for what came back; whatever else the code allocated was for itself."""
        self.blocks = [replace(b, tensors=()) if b.start in self.own and b.writable else b for b in self.blocks]
        results = {self.step.output(i): value for i, value in enumerate(outputs)}
        for name, value in results.items():
            for i, tensor in enumerate(value) if isinstance(value, (list, tuple)) else ((None, value),):
                self.name(tensor, name if i is None else f"{name}[{i}]")

    def name(self, tensor: object, name: str) -> None:
        """What is now known of the block that holds a tensor."""
        block = self.home(tensor)
        if block is not None and not block.argument and isinstance(tensor, torch.Tensor):
            meta = replace(Meta.of(tensor), offset=(tensor.data_ptr() - block.start) // tensor.element_size())
            self.blocks[self.blocks.index(block)] = replace(block, tensors=((name, meta),))

    def expected(self, *_: object, **__: object) -> object:
        """What `wb_layout` ops return: empty tensors with the metadata of the reference."""
        if self.step.layout is None:
            raise RuntimeError(f"{self.step.op}: the kernel asks for the strides of the reference, which are not known")
        self.asked, made = True, []
        for i, meta in enumerate(self.step.layout):
            start = self.allocate(meta.extent * meta.dtype.itemsize, ((self.step.output(i), meta),))
            block = next(b for b in reversed(self.blocks) if b.start == start)
            made.append(self.memory.tensor(block, meta))
        return made[0] if len(made) == 1 else tuple(made)

    def inspect(self, call: Call, outputs: tuple) -> tuple[str, str]:
        """Status and sentence of a step that returned: was anything written that may not be?"""
        found = ("ok", "")
        for place in range(len(self.blocks)):
            block = self.blocks[place]
            if not block.writable and self.memory.PROTECTS:
                continue
            if hit := self.memory.damage(block):
                found = ("overrun", explain.damaged(block, *hit))
            elif (block.argument or not block.writable) and found[0] == "ok":
                inside = [t for t in call.mutated.values() if self.home(t) is block]
                byte = self.memory.changed_byte(block, call.originals.get(block.start, bytearray()), inside)
                if byte is not None:
                    found = ("mutation", explain.mutated(block, byte))
            if block.start not in self.own or block.tensors:  # the code may keep for later what it did not return
                self.blocks[place] = self.memory.freeze(block)
        return found

    def collect(self, call: Call, outputs: tuple) -> dict[str, Any]:
        """The fields of `Done` that hold what came out."""
        if self.step.discards:
            return {}
        flat = [t for value in outputs for t in (value if isinstance(value, (list, tuple)) else (value,))]
        return {
            "outputs": tuple(self.store(value) for value in outputs),
            "mutated": {name: self.store(tensor) for name, tensor in call.mutated.items()},
            "unwritten": tuple(self.unwritten(t) for t in flat),
            "aliases": tuple(self.alias(t) for t in flat),
        }

    def store(self, value: object) -> object:
        if isinstance(value, (list, tuple)):
            return [self.store(v) for v in value]
        if not isinstance(value, torch.Tensor):
            return value
        meta = Meta.of(value)
        stored = Stored(meta, self.position)
        view = self.memory.content(value)
        while view:
            count = os.pwrite(self.results.fd, view, self.position)
            self.position, view = self.position + count, view[count:]
        self.position = -(-self.position // guard.ALIGNMENT) * guard.ALIGNMENT
        return stored

    def home(self, tensor: object) -> guard.Block | None:
        if not isinstance(tensor, torch.Tensor) or not tensor.numel():
            return None
        return next((b for b in self.blocks if b.start <= tensor.data_ptr() < b.end), None)

    def unwritten(self, tensor: object) -> int:
        block = self.home(tensor)
        return 0 if block is None or block.argument else self.memory.unwritten(tensor, block)

    def alias(self, tensor: object) -> str:
        block = self.home(tensor)
        return block.tensors[0][0] if block is not None and block.argument else ""


def _bytes(meta: Meta) -> int:
    return meta.numel * meta.dtype.itemsize


def _as_tuple(returned: object) -> tuple:
    if returned is None:
        return ()
    return tuple(returned) if isinstance(returned, tuple) else (returned,)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    ctypes.CDLL(None).fflush(None)
