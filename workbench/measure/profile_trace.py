"""torch's Chrome trace read into calls of one op: what ran when, on which thread or stream, and who started it.

Plain data in, plain data out, without torch: traces recorded on a GPU are read as well where there is none.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MARK = "workbench: "  # begins the names of the ranges that are put around each phase of each call
PHASES = ("forward", "backward")
KINDS = {
    "cpu_op": "op", "user_annotation": "op", "kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "copy",
    "cuda_runtime": "launch", "cuda_driver": "launch",
}  # fmt: skip
ON_DEVICE = ("kernel", "copy")
# Ops that move no data: they make a tensor's place, or another look at one.
EMPTY = frozenset({
    "empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "resize_", "set_", "view", "reshape",
    "_reshape_alias", "as_strided", "expand", "expand_as", "permute", "transpose", "t", "unsqueeze", "squeeze",
    "select", "slice", "narrow", "split", "chunk", "unbind", "detach", "detach_", "alias", "view_as", "flatten",
    "unflatten", "lift_fresh", "result_type", "is_nonzero", "_local_scalar_dense", "item", "resolve_conj",
    "resolve_neg", "diagonal", "unfold", "movedim", "swapaxes", "mT", "numpy_T", "_unsafe_view", "contiguous", "to",
    "_to_copy", "type_as", "broadcast_to", "broadcast_tensors", "zeros_like", "zeros", "ones", "ones_like",
    "is_same_size",
})  # fmt: skip
MOVES = {"aten::copy_", "aten::fill_", "aten::zero_"}
WAITS = (
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
)


@dataclass(eq=False)
class Event:
    """One event of the trace: times in microseconds of its clock; `own_us` is without what it called.

    `kernel` says that the own time of an op on a CPU is work and no dispatch.
    """

    name: str
    kind: str
    track: str
    start_us: float
    duration_us: float
    args: Mapping[str, Any] = field(default_factory=dict)
    phase: str = ""
    depth: int = 0
    own_us: float = 0.0
    parent: Event | None = None
    children: list[Event] = field(default_factory=list)
    kernel: bool = False

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us


@dataclass
class Call:
    """One call: `marks` are the begin and end of its phases, `events` what ran in it, in the order of their begin.

    `memory` are (time, bytes that were allocated or freed, "cpu" or "cuda").
    """

    marks: dict[str, tuple[float, float]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    memory: list[tuple[float, int, str]] = field(default_factory=list)

    @property
    def start_us(self) -> float:
        return min((start for start, _ in self.marks.values()), default=0.0)

    @property
    def traced_us(self) -> float:
        """The time of its phases on the CPU."""
        return sum(end - start for start, end in self.marks.values())


def calls(
    trace: Mapping[str, Any], native: Collection[str] = (), computes: Callable[[str], bool] = lambda _: True
) -> list[Call]:
    """The calls of a trace whose phases were marked with `MARK`.

    >>> [c.traced_us for c in calls(json.load(file), native={"lab::rmsnorm_forward"})]
    [412.0, 409.5]

    `native` are the names of ops behind which native code runs: their own time is work; `computes` says so of ops of
    torch. What ran outside of the marks
    is left out; a kernel on a GPU belongs to the phase in which it was launched.
    """
    events, marks, memory = _read(trace.get("traceEvents", ()))
    found, starts = _marked(marks)
    on_cpu = [e for e in events if e.kind not in ON_DEVICE]
    nest(on_cpu)
    launches = {e.args.get("correlation"): e for e in on_cpu if e.kind == "launch"}
    external = {e.args.get("External id"): e for e in on_cpu if e.kind == "op"}
    mark_kernels([e for e in on_cpu if e.kind == "op"], native, computes)
    for e in events:
        by = e
        if e.kind in ON_DEVICE:
            e.own_us = e.duration_us
            by = launches.get(e.args.get("correlation")) or external.get(e.args.get("External id")) or e
            e.parent = by.parent if by.kind == "launch" else None if by is e else by
        if place := _place(by.start_us, starts):
            e.phase = place[1]
            place[0].events.append(e)
    for at, size, device in memory:
        if place := _place(at, starts):
            place[0].memory.append((at, size, device))
    return found


def _read(raw: Iterable[Mapping[str, Any]]) -> tuple[list[Event], list[Event], list[tuple[float, int, str]]]:
    events: list[Event] = []
    marks: list[Event] = []
    memory: list[tuple[float, int, str]] = []
    for e in raw:
        args = e.get("args") or {}
        if e.get("name") == "[memory]":
            kind = {0: "cpu", 1: "cuda"}.get(args.get("Device Type", -1), "")
            memory.append((float(e["ts"]), int(args.get("Bytes", 0)), kind))
        kind = KINDS.get(e.get("cat", ""), "") if e.get("ph") == "X" else ""
        if not kind:
            continue
        track = f"stream {args.get('stream', e.get('tid'))}" if kind in ON_DEVICE else f"thread {e.get('tid')}"
        made = Event(str(e.get("name", "")), kind, track, float(e["ts"]), float(e.get("dur", 0.0)), args)
        (marks if made.name.startswith(MARK) else events).append(made)
    events.sort(key=lambda e: (e.start_us, -e.duration_us))
    return events, sorted(marks, key=lambda m: m.start_us), sorted(memory)


def _marked(marks: Sequence[Event]) -> tuple[list[Call], list[tuple[float, float, Call, str]]]:
    found: list[Call] = []
    starts = []
    for m in marks:
        phase = m.name.removeprefix(MARK)
        if phase == PHASES[0] or not found:
            found.append(Call())
        found[-1].marks[phase] = (m.start_us, m.end_us)
        starts.append((m.start_us, m.end_us, found[-1], phase))
    return found, starts


def _place(at: float, starts: Sequence[tuple[float, float, Call, str]]) -> tuple[Call, str] | None:
    """The call and the phase that a moment of the CPU lies in."""
    i = bisect.bisect_right(starts, at, key=lambda s: s[0]) - 1
    return (starts[i][2], starts[i][3]) if i >= 0 and at <= starts[i][1] else None


def nest(events: Sequence[Event]) -> None:
    """Say of each event of a CPU in which other of its thread it lies, and its own time. They come by their begin."""
    open_: dict[str, list[Event]] = {}
    for e in events:
        stack = open_.setdefault(e.track, [])
        while stack and e.start_us >= stack[-1].end_us:
            stack.pop()
        e.own_us = e.duration_us
        e.depth = len(stack)
        if stack:
            e.parent = stack[-1]
            stack[-1].children.append(e)
            stack[-1].own_us = max(stack[-1].own_us - e.duration_us, 0.0)
        stack.append(e)


def mark_kernels(
    ops: Sequence[Event], native: Collection[str], computes: Callable[[str], bool] = lambda _: True
) -> None:
    """Say of which ops the own time is work: native code, leaves, and those of torch that have code of their own.

    Those that `computes` says so of count beside what they call where that only fills and copies, as `aten::addmm` does
    with its bias, or where, over the whole trace, they take more than it. One that calls itself counts once.
    """
    own: dict[str, float] = {}
    for e in ops:
        own[e.name] = own.get(e.name, 0.0) + e.own_us - sum(c.duration_us for c in e.children)
    for e in reversed(ops):  # inner ones begin later
        inside = _working(e)
        if e.name in native:
            e.kernel = not _below(e, native)
        elif e.name.startswith("aten::"):
            beside = computes(e.name) and (inside <= MOVES or own[e.name] > 0)
            bare = e.name.partition("::")[2] in EMPTY or _below(e, {e.name})
            e.kernel = not bare and (not inside or beside)
        else:  # CppNode: the gradient that a library wrote in C++
            hollow = e.name.startswith(("autograd::", "torch::")) and not e.name.startswith("torch::autograd::CppNode<")
            e.kernel = not inside and "::" in e.name and not hollow


def _working(e: Event) -> set[str]:
    """The names of what works inside of it."""
    found: set[str] = set()
    for c in e.children:
        found |= _working(c) | ({c.name} if c.kernel else set())
    return found


def _below(e: Event, names: Collection[str]) -> bool:
    return any(c.name in names or _below(c, names) for c in e.children)
