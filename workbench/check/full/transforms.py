"""The op under vmap and autocast, and on a GPU in graphs and on streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ...case import SEED
from ...inputs import fresh, tensors_in
from ...reports.report import Row
from .. import agree
from ..cure_table import BATCHING, NO_RULE
from ..sample import Sample, call, failed
from .classes import leaves_of
from .graphs import own_call, same
from .layouts import replaced
from .values import like

BATCH = 3


class UnevenError(Exception):
    """Results of several sizes, which no batch can hold."""


def vmapped(sample: Sample, *, strided: bool = True) -> list[Row]:
    """`torch.vmap` over all tensors, over each alone, along the first dimension and the last, against a loop."""
    name, op = "vmap", sample.op
    if op.random:
        return [Row(name, sample.label, "skip", "not run: the op draws random numbers, so no two calls are equal")]
    named = sample.case.bound(op.schema)
    single = [a.name for a in op.schema.tensors if isinstance(named[a.name], Tensor)]
    if not single or any(isinstance(named[a.name], (list, tuple)) for a in op.schema.tensors):
        return [Row(name, sample.label, "skip", "not run: only single tensors are batched here, and it takes lists")]
    ways: list[tuple[tuple[str, ...], int]] = [(tuple(single), 0)]
    ways += [(tuple(single), -1)] if strided else []
    if len(single) > 1:  # what is written to must be batched whenever anything is
        ways += [((n,), 0) for n in single if not set(op.schema.mutated) - {n}]
    tried: list[str] = []
    refused: list[str] = []
    for batched, dim in ways:
        about = f"{', '.join(batched)} along {dim}"
        try:
            if difference := _vmap_differs(sample, named, batched, dim):
                return [_without_rule(op, failed(name, about, difference))]
        except Exception as error:
            if op.schema.mutated and "is written in place and not contiguous" in str(error):
                refused.append(about)  # a mutated argument is never copied
                continue
            if isinstance(error, UnevenError):
                return [Row(name, about, "skip", f"not judged: {error}")]
            return [_without_rule(op, failed(name, about, error))]
        tried.append(about)
    said = f"as a loop over the batch, over {'; '.join(tried)}"
    said += f"; over {'; '.join(refused)} the kernel refuses, since what it writes is not contiguous" if refused else ""
    return [Row(name, sample.label, "pass", said)]


def _without_rule(op: object, row: Row) -> Row:
    """Who gave no batching rule is not told to leave it out."""
    own = getattr(getattr(op, "definition", None), "vmap", None)
    return replace(row, cure=NO_RULE) if own is None and row.cure == BATCHING else row


def _vmap_differs(sample: Sample, named: dict, batched: Sequence[str], dim: int) -> str:
    op = sample.op
    leaves = leaves_of(named)
    stacks = {
        n: torch.stack([like(leaves[n], tuple(leaves[n].shape), SEED + i) for i in range(BATCH)], dim) for n in batched
    }
    given = fresh({**named, **stacks}, device=sample.device)
    other = leaves_of(fresh(given))

    def one(*moving: Tensor) -> tuple[Tensor, ...]:
        arguments = {**given, **dict(zip(batched, moving, strict=True))}
        return tuple(agree.leaves(op.schema, arguments, call(op, arguments)).values())

    with torch.no_grad():
        alone = []
        for i in range(BATCH):
            arguments = replaced({**given, **other}, {n: other[n].select(dim, i).clone() for n in batched})
            alone.append(agree.leaves(op.schema, arguments, call(op, arguments)))
            if [x.shape for x in alone[i].values()] != [x.shape for x in alone[0].values()]:
                raise UnevenError("shapes depend on values, so there is no batch of results")
        out = torch.vmap(one, in_dims=(dim,) * len(batched))(*[given[n] for n in batched])
        for i, wanted in enumerate(alone):
            for (n, x), y in zip(wanted.items(), out, strict=True):
                if y.shape[1:] != x.shape:
                    return f"{n} has shape {tuple(y.shape[1:])} in a batch, {tuple(x.shape)} alone"
                if not same(x, y[i]):
                    return f"{n}: elements differ between vmap and a loop"
    return ""


def autocast(sample: Sample) -> list[Row]:
    """Under autocast the same answers in the same dtypes, in eager mode and compiled."""
    name, op = "autocast", sample.op
    if op.random:
        return [Row(name, sample.label, "skip", "not run: the op draws random numbers, so no two calls are equal")]
    device = torch.device(sample.device).type

    def run(function: Callable, on: bool) -> dict[str, Tensor]:
        named = fresh(sample.case.bound(op.schema), device=sample.device)
        with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16, enabled=on):
            return agree.leaves(op.schema, named, function(*named.values()))

    function = own_call(op)
    try:
        plain = run(function, False)
        ways = {"eager mode": run(function, True)}
        ways["a compiled graph"] = run(
            torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=False), True
        )
    except Exception as error:
        return [failed(name, sample.label, error)]
    finally:
        torch._C._dynamo.eval_frame.reset_code(function.__code__)
    for way, under in ways.items():
        for n, x in plain.items():
            if x.dtype != under[n].dtype:
                said = f"{n} is {_short(under[n])} under autocast in {way}, {_short(x)} without it"
                return [failed(name, sample.label, said)]
            if not same(x, under[n]):
                return [failed(name, sample.label, f"{n}: elements differ under autocast, in {way}")]
    detail = "under autocast to bfloat16, in eager mode and compiled, it takes what it is given and answers as without"
    return [Row(name, sample.label, "pass", detail)]


def cuda_graph(sample: Sample) -> Row:
    """Captured in a CUDA graph and replayed with other inputs; needs a GPU."""
    name, op = "CUDA graph", sample.op
    if reason := _no_gpu(sample):
        return Row(name, sample.label, "skip", reason)
    inputs = fresh(sample.case.bound(op.schema), device=sample.device)
    others = {n: like(x.cpu(), tuple(x.shape), SEED + 9).to(x.device) for n, x in leaves_of(inputs).items()}
    current = torch.cuda.current_stream()
    try:
        with torch.no_grad():
            side = torch.cuda.Stream()
            side.wait_stream(current)  # the inputs are made there
            with torch.cuda.stream(side):
                call(op, fresh(inputs))  # what is made at a first call is made now
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                left = agree.leaves(op.schema, inputs, call(op, inputs))
            for n, x in leaves_of(inputs).items():
                x.copy_(others[n])
            graph.replay()
            torch.cuda.synchronize()
            wanted_inputs = replaced(fresh(inputs), {n: x.clone() for n, x in others.items()})
            wanted = agree.leaves(op.schema, wanted_inputs, call(op, wanted_inputs))
    except Exception as error:
        return failed(name, sample.label, error)
    finally:
        torch.cuda.set_stream(current)  # where a capture fails, its context leaves the stream that it captured
    for n, x in wanted.items():
        if not same(x, left[n]):
            return failed(name, sample.label, f"{n}: elements differ between the replayed graph and a call")
    return Row(name, sample.label, "pass", "captured once and replayed on other inputs, it gives what a call gives")


def streams(sample: Sample) -> Row:
    """On a side stream, behind work that is still running there; needs a GPU."""
    name, op = "streams", sample.op
    if reason := _no_gpu(sample):
        return Row(name, sample.label, "skip", reason)
    plain = fresh(sample.case.bound(op.schema), device=sample.device)
    try:
        with torch.no_grad():
            late = fresh(plain)
            wanted = agree.leaves(op.schema, plain, call(op, plain))
            source = fresh(sample.case.bound(op.schema), device=sample.device)
            for x in tensors_in(late):
                x.zero_()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(
                    20_000_000
                )  # cycles: a kernel on another stream would run before the inputs are there
                for x, y in zip(tensors_in(late), tensors_in(source), strict=True):
                    x.copy_(y)
                got = agree.leaves(op.schema, late, call(op, late))
            side.synchronize()
    except Exception as error:
        return failed(name, sample.label, error)
    for n, x in wanted.items():
        if not same(x, got[n]):
            return failed(name, sample.label, f"{n}: elements differ on a side stream: it ran on another one")
    return Row(name, sample.label, "pass", "on a side stream it waits for what was put there before it")


def _no_gpu(sample: Sample) -> str:
    if torch.device(sample.device).type != "cuda":
        return "not run: no kernel for a GPU is installed" if torch.cuda.is_available() else "not run: no GPU here"
    return "not run: the op draws random numbers, so no two calls are equal" if sample.op.random else ""


def _short(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")
