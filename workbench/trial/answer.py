"""From what the worker saw of a child to one result a step: pure but for reading the result file."""

from __future__ import annotations

import mmap
import os
import pickle
import time
from dataclasses import replace
from typing import Any

import torch

from . import explain, faults, gpu_faults, trace
from .guard import Block
from .protocol import Answer, Job, Result
from .wire import Done, Order, Reply, Stored


def answer(job: Job, order: Order, reply: Reply, started: float, *, guarded: bool = True) -> Answer:
    """What the worker saw, as one result a step; the job went out at `started`."""
    file = order.results.fd
    size = os.fstat(file).st_size
    data = mmap.mmap(file, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) if size else b""
    story = _Story(job, reply, data, order.mark)
    try:
        for frame in reply.frames:
            story.read(*pickle.loads(frame))
        ended = reply.ended
    except Exception:  # the code under trial wrote into our pipe
        ended = False
    if not ended:
        story.break_off()
    return Answer(story.results(), story.all_printed(), time.perf_counter() - started, guarded)


class _Story:
    """The frames of one child, read in order."""

    def __init__(self, job: Job, reply: Reply, data: mmap.mmap | bytes, mark: bytes) -> None:
        self.job, self.reply, self.data = job, reply, data
        self.done: dict[int, Result] = {}
        self.current, self.failed, self.closing = -1, "", False
        self.blocks: list[Block] = []
        self.chosen: dict[int, list[str]] = {}
        self.marks = 0
        self.printed = reply.printed.split(mark)  # one part a step that is done, and the rest
        self.mark_bytes = len(mark)
        self.last_words = _text(reply.last_printed.split(mark)[-1])

    def read(self, kind: str, *content: Any) -> None:
        if kind == "begin":
            self.current, self.blocks = content[0], list(content[1])
        elif kind == "block":
            self.blocks.append(content[0])
        elif kind == "chose":
            self.chosen.setdefault(self.current, []).append(content[0])
        elif kind == "done":
            done: Done = content[0]
            self.done[done.step] = self._result(done)
            self.marks += 1
            self.current = done.step
        elif kind == "failed":
            self.failed = content[0]
        elif kind == "closing":
            self.closing = True

    def break_off(self) -> None:
        """The step that was running is the one that did it."""
        number = self.current if self.current not in self.done else self.current + 1
        found = faults.parse(self.reply.fault)
        if self.reply.hung and self.reply.compiled:
            status, detail, name = "error", f"Triton still compiles after {self.reply.seconds:.3g} s", ""
        elif self.reply.hung:
            status, detail, name = "hang", explain.hung(self.reply.seconds, self.reply.state), ""
        elif found:
            (status, detail), name = explain.fault(found, tuple(self.blocks), self.last_words), found.name
        else:
            status, detail, name = explain.ended(self.reply.exit, self.last_words)
        if number < 0:
            number, detail = 0, f"while its library was loaded: {detail}"
        elif self.closing:
            number, detail = len(self.job.steps) - 1, f"at the end of the process: {detail}"
        if number < len(self.job.steps):
            case, printed = self.job.steps[number].case, self._printed(number)
            code = sum((getattr(library, "code", ()) for library in self.job.libraries), ())
            where = trace.of(found, code) if found else ()
            self.done[number] = Result(number, case, status, detail, name, printed=printed, trace=where)

    def results(self) -> tuple[Result, ...]:
        rest = ("error", self.failed) if self.failed else ("skip", "not reached")
        found = [self.done.get(i) or Result(i, s.case, *rest) for i, s in enumerate(self.job.steps)]
        return tuple(replace(r, chosen=tuple(self.chosen[r.step])) if r.step in self.chosen else r for r in found)

    def all_printed(self) -> str:
        """Without the marks; one that the limit cut in two may stay."""
        return _text(b"".join(self.printed), self.reply.printed_bytes - self.marks * self.mark_bytes)

    def _printed(self, number: int) -> str:
        return _text(self.printed[number]) if number < len(self.printed) else ""

    def _result(self, done: Done) -> Result:
        case = self.job.steps[done.step].case
        outputs = tuple(self._load(v) for v in done.outputs)
        mutated = {name: self._load(v) for name, v in done.mutated.items()}
        printed = self._printed(done.step)
        detail = gpu_faults.with_assertion(done.detail, printed)
        rest = (done.unwritten, done.aliases, printed, done.seconds)
        return Result(done.step, case, done.status, detail, "", outputs, mutated, *rest)

    def _load(self, value: object) -> object:
        if isinstance(value, list):
            return [self._load(v) for v in value]
        if not isinstance(value, Stored):
            return value
        meta = value.meta
        if not meta.extent:
            return torch.empty_strided(meta.shape, meta.strides, dtype=meta.dtype)
        count = meta.extent * meta.dtype.itemsize
        flat = torch.frombuffer(self.data, dtype=torch.uint8, count=count, offset=value.position)
        return torch.empty(0, dtype=meta.dtype).set_(flat.untyped_storage(), 0, meta.shape, meta.strides)


def _text(data: bytes, whole: int = 0) -> str:
    text = data.decode(errors="replace")
    return text + (f"\n... truncated: {whole} bytes in all" if whole > len(data) else "")
