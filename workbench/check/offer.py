"""A fake for an op that has none: read off what it gave on its cases, right on each of them, and offered as text."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from ..inputs import fresh
from ..schema import Argument
from .sample import Checkable, call

MOST = 16  # cases that are looked at


def fake(op: Checkable, device: str = "cpu") -> str:
    """A line that gives the op a fake; "" where its outputs follow from no shape, or there is nothing to look at.

    >>> fake(op)
    'f.fake(lambda x, w: x.new_empty((x.shape[0], w.shape[1])))'
    """
    schema = op.schema
    if not schema.outputs or any(t != "Tensor" for t in schema.output_types):
        return ""
    given, gave = [], []
    for case in op.case_list()[:MOST]:
        given.append(fresh(case.bound(schema), device=device))
        with torch.no_grad():
            returned = call(op, fresh(given[-1]))
        gave.append([returned] if isinstance(returned, Tensor) else list(returned))  # type: ignore[call-overload]
    tensors = [a.name for a in schema.tensors if given and all(isinstance(g[a.name], Tensor) for g in given)]
    made = [_output(tensors, given, outputs) for outputs in zip(*gave, strict=True)]
    if not made or not all(made):
        return ""
    names = [_parameter(a) for a in schema.positional]
    names += ["*", *map(_parameter, schema.keyword_only)] if schema.keyword_only else []
    made_of = made[0] if len(made) == 1 else f"({', '.join(made)})"
    return f"{schema.name}.fake(lambda {', '.join(names)}: {made_of})"


def _parameter(argument: Argument) -> str:
    return argument.name if argument.required else f"{argument.name}={argument.default!r}"


def _output(tensors: Sequence[str], given: Sequence[Mapping[str, object]], outputs: Sequence[Tensor]) -> str:
    """How to make one output, which it was in each case; "" when nothing fits."""
    for name in tensors:
        if all(_look(g[name]) == _look(out) for g, out in zip(given, outputs, strict=True)):
            return f"torch.empty_like({name})"
    if not tensors or len({out.dim() for out in outputs}) != 1 or not all(out.is_contiguous() for out in outputs):
        return ""
    sizes = [_size(tensors, given, d, [out.shape[d] for out in outputs]) for d in range(outputs[0].dim())]
    if not all(sizes):
        return ""
    dtypes = [out.dtype for out in outputs]
    model = next((n for n in tensors if [g[n].dtype for g in given] == dtypes), "")  # type: ignore[attr-defined]
    if not model and len(set(dtypes)) != 1:
        return ""
    shape = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
    return f"{model or tensors[0]}.new_empty({shape}{'' if model else f', dtype={dtypes[0]}'})"


def _look(value: object) -> tuple:
    assert isinstance(value, Tensor)
    return value.shape, value.dtype, value.stride()


def _size(tensors: Sequence[str], given: Sequence[Mapping[str, object]], place: int, wanted: Sequence[int]) -> str:
    """The expression that gave that size in every case; one of the same place first, a number last."""
    found = [text for text, values in _sizes(tensors, given) if values == list(wanted)]
    found.sort(key=lambda text: f"[{place}]" not in text)  # stable: simpler ones come first
    return found[0] if found else str(wanted[0]) if len(set(wanted)) == 1 else ""


def _sizes(tensors: Sequence[str], given: Sequence[Mapping[str, object]]) -> Iterator[tuple[str, list[int]]]:
    """Every size that the arguments have in all cases, and what it was in each."""
    plain = []
    for name in tensors:
        shapes = [g[name].shape for g in given]  # type: ignore[attr-defined]
        low = min(map(len, shapes))
        places = [*range(low), *(range(-1, -low - 1, -1) if len({*map(len, shapes)}) > 1 else ())]
        plain += [(f"{name}.shape[{i}]", [shape[i] for shape in shapes]) for i in places]
    for name in given[0]:
        numbers = [g[name] for g in given]
        if all(type(n) is int for n in numbers):
            plain.append((name, numbers))
    yield from plain
    for name in tensors:
        yield f"{name}.numel()", [g[name].numel() for g in given]  # type: ignore[attr-defined]
    for sign, act in (("*", operator.mul), ("+", operator.add)):
        for (one, left), (other, right) in itertools.combinations(plain, 2):
            yield f"{one} {sign} {other}", list(map(act, left, right))
