"""The rows of a full check that run in this process: on the cases, and on inputs that every kernel has survived."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...case import Case
from ...inputs import tensors_in
from ...reports.report import Row
from ..sample import Sample, size
from . import derivatives, graphs, metadata, transforms

HERE = ("metadata", "requires_grad", "gradients, other inputs", "second derivatives", "directional derivatives",
        "compiled, dynamic shapes", "compiled, gradients", "export", "inductor", "autocast", "vmap", "CUDA graph",
        "streams")  # fmt: skip
OTHERS = 40  # inputs at most that these rows look at besides the cases
MOST_SIZES = 6


def looks(
    sample: Sample, safe: Callable[[str], list[Case]], cases: Sequence[Case], *, strided: bool = True
) -> list[tuple[str, Callable[[], Row | list[Row]]]]:
    """The rows by name, in the order of HERE; `safe` gives the inputs of a sweep that no kernel got wrong.

    `strided` says whether further inputs with gaps between their elements may be handed to the kernels here.
    """
    usual = Sample(sample.op, usual_case(cases), sample.device, sample.level)
    layouts, sizes = safe("layouts")[:OTHERS], safe("sizes")
    ranks = [x.dim() for x in tensors_in(usual.case.recipe())]
    alike = [c for c in sizes if c.dtype is usual.case.dtype and [x.dim() for x in tensors_in(c.recipe())] == ranks]
    sized = _several(alike, MOST_SIZES)
    ordinary = [c for c in sized if least(c) > 1]
    others = [*layouts, *sizes][:: max(1, (len(layouts) + len(sizes)) // OTHERS)]
    return [
        ("metadata", lambda: metadata.fakes(sample, [*layouts, *sizes[:OTHERS], *safe("dtypes")])),
        ("requires_grad", lambda: derivatives.requires_grad(usual)),
        ("gradients, other inputs", lambda: derivatives.laid_out(usual, others)),
        ("second derivatives", lambda: derivatives.second(usual)),
        ("directional derivatives", lambda: derivatives.directional(usual)),
        (
            "compiled, dynamic shapes",
            lambda: graphs.recompilations(usual, ordinary, [c for c in sized if least(c) < 2]),
        ),
        ("compiled, gradients", lambda: graphs.gradients_compiled(usual, [usual.case, *ordinary[:2]])),
        ("export", lambda: graphs.exported(usual, ordinary[:2])),
        ("inductor", lambda: graphs.inductor(usual)),
        ("autocast", lambda: transforms.autocast(usual)),
        ("vmap", lambda: transforms.vmapped(usual, strided=strided)),
        ("CUDA graph", lambda: transforms.cuda_graph(usual)),
        ("streams", lambda: transforms.streams(usual)),
    ]


def usual_case(cases: Sequence[Case]) -> Case:
    """The smallest case in which no size is 0 or 1: the one that torch's transforms are tried on."""
    return min([c for c in cases if least(c) > 1] or cases, key=size)


def least(case: Case) -> int:
    """The smallest size in a case."""
    return min((n for x in tensors_in(case.recipe()) for n in x.shape), default=2)


def _unlike(case: Case) -> int:
    return len({n for x in tensors_in(case.recipe()) for n in x.shape})


def _several(cases: Sequence[Case], most: int) -> list[Case]:
    """A few inputs of different sizes, those with 0 or 1 last."""
    seen: dict[tuple, Case] = {}
    for c in cases:
        seen.setdefault(tuple(tuple(x.shape) for x in tensors_in(c.recipe())), c)
    ordinary = [c for c in seen.values() if least(c) > 1]
    unlike = max((_unlike(c) for c in ordinary), default=0)  # sizes that are equal by chance are a graph of their own
    ordinary = [c for c in ordinary if _unlike(c) == unlike]
    rest = [c for c in seen.values() if least(c) <= 1]
    return [*ordinary[: most - 2], *rest[:2]]
