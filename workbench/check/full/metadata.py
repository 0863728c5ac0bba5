"""What the fakes say of other sizes and layouts, against what the reference really gives."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...case import Case
from ...inputs import fresh, tensors_in
from ...reports.report import Row
from .. import agree
from ..sample import Sample, failed


def fakes(sample: Sample, cases: Sequence[Case]) -> list[Row]:
    """Shape, strides, dtype and device of the fake on each of these inputs, against a real call."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    name, op, ran = "metadata", sample.op, 0
    usual, raised = {_ranks(c) for c in op.case_list()}, []
    if not op.schema.outputs:
        return [Row(name, sample.label, "skip", "not judged: the op returns nothing")]
    for case in cases:
        real = fresh(case.bound(op.schema), device=sample.device)
        with torch.no_grad():
            wanted = agree.leaves(op.schema, real, _called(sample, real))
        try:
            inputs = fresh(case.bound(op.schema), device=sample.device)
            with FakeTensorMode(shape_env=ShapeEnv()) as mode, torch.no_grad():  # for sizes that depend on values
                faked = pytree.tree_map_only(Tensor, lambda x: mode.from_tensor(x, static_shapes=True), inputs)
                got = agree.leaves(op.schema, faked, _called(sample, faked))
        except Exception as error:
            if _ranks(case) not in usual:
                raised.append(f"{case.label}: {type(error).__name__}")
                continue  # nobody promised these numbers of dimensions
            return [failed("fake", case.label, error)]
        for n, x in wanted.items():
            if got[n].dim() == x.dim() and not all(isinstance(size, int) for size in got[n].shape):
                continue  # its sizes depend on values
            seen = [_shown(t) for t in (got[n], x)]
            if seen[0] != seen[1]:
                return [failed("fake", _label(case), f"{n} is {seen[0]} by the fake, {seen[1]} in a real call")]
        ran += 1
    detail = "shapes, strides, dtypes and devices of the fake are those of real calls, in other sizes and layouts too"
    detail += f"; it raises on {', '.join(raised[:3])}" if raised else ""
    return [Row(name, f"{ran} inputs", "pass", detail)]


def _called(sample: Sample, named: dict) -> object:
    schema = sample.op.schema
    return sample.op.torch_op(
        *[named[a.name] for a in schema.positional], **{a.name: named[a.name] for a in schema.keyword_only}
    )


def _ranks(case: Case) -> tuple[int, ...]:
    return tuple(x.dim() for x in tensors_in(case.recipe()))


def _label(case: Case) -> str:
    strides = [x.stride() for x in case.args if isinstance(x, Tensor) and not x.is_contiguous()]
    return case.label + (f", strides {strides[0]}" if strides else "")


def _shown(x: Tensor) -> str:
    strides = tuple(s if n > 1 else 0 for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else ()
    dtype = str(x.dtype).removeprefix("torch.")
    return f"{dtype} {tuple(x.shape)} strides {strides} on {x.device.type}"
