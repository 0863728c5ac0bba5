"""What a kernel's results are compared with: the reference's answer to a case, in the case's dtype and in float64.

The verdict on results is in `agree.py`, the same for gradients in `gradients.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..case import SEED, Case
from ..errors import WorkbenchError
from ..inputs import FLOATS, fresh, tensors_in
from ..reference import Definition
from ..schema import Schema
from .float64 import NO_MEMORY, Limits, TooMuchError, float64, instead

LIMIT_S = 10.0
SLACK_OF_A_VERSION = 8.0  # against another kernel's results, whose own error nobody knows


@dataclass(frozen=True)
class Output:
    """One tensor that a call leaves behind: an output, one of a list (`outs[0]`), a mutated argument, a gradient.

    `value` is the reference's in the case's dtype, `true` its float64 run. `strides` None: any will do. `own` is the
    reference's own error where it was looked at on more inputs than this one, else None.
    """

    name: str
    value: Tensor
    true: Tensor
    strides: tuple[int, ...] | None = None
    own: Tensor | None = None


@dataclass(frozen=True)
class Expected:
    """What one case should give.

    `inputs()` makes fresh copies of the inputs, by name, views of one base staying so. `outputs` are what the call
    leaves behind, in order: the op's outputs, then its mutated arguments. `compared` replaces their values where the
    op has a `compare`. `skipped` says why there is nothing to compare with, in one sentence. `cotangents` are the
    incoming gradients that go with `outputs` when those are gradients; `terms()` then says how large what each element
    is a difference of is, float64 by name.
    """

    case: Case
    schema: Schema
    outputs: tuple[Output, ...] = ()
    compared: tuple[Output, ...] | None = None
    compare: Callable | None = None
    device: str = "cpu"
    skipped: str = ""
    slack: float = 1.0
    seconds: float = 0.0
    note: str = ""
    cotangents: Mapping[str, Tensor] = field(default_factory=dict)
    terms: Callable[[], Mapping[str, Tensor]] | None = None

    def inputs(self) -> dict[str, object]:
        return fresh(self.case.bound(self.schema), device=self.device)


def expected(
    reference: Callable | None,
    schema: Schema,
    case: Case,
    compare: Callable | None = None,
    *,
    device: str = "cpu",
    limit_s: float = LIMIT_S,
    references: Mapping[str, Callable] | None = None,
) -> Expected:
    """The reference's answer to a case, in its dtype and in float64, with autocast off and without gradients.

    >>> wanted = expected(rmsnorm.reference, rmsnorm.schema, case)
    >>> judge({"out": kernel(**wanted.inputs())}, wanted).status
    'agree'

    A reference that exceeds `limit_s` or the memory gives an Expected that only says so (`skipped`); what else it
    raises is raised. `references` are run in place of other ops, by name, which may have no form for a dtype.
    """
    start = time.perf_counter()
    if reference is None:
        return Expected(case, schema, device=device, skipped="the op has no reference")
    inputs = fresh(case.bound(schema), device=device)
    definition = Definition(schema, reference)
    low = lowest(inputs)
    try:
        with torch.no_grad():
            with seeded(device), Limits(limit_s), instead(references):
                values = leaves(schema, inputs, call(definition, inputs))
            wide, note = _in_float64(definition, case, schema, device, low, limit_s, references, values)
    except (TooMuchError, MemoryError, torch.OutOfMemoryError) as error:
        return Expected(case, schema, device=device, skipped=str(error) or NO_MEMORY)
    outputs = tuple(Output(n, v, wide[n], tuple(v.stride())) for n, v in values.items())
    made = Expected(case, schema, outputs, None, compare, device, seconds=time.perf_counter() - start, note=note)
    if compare is None:
        return made
    pairs = zip(compared(made, values), compared(made, wide), strict=True)
    return replace(made, compared=tuple(Output(f"compared[{i}]", v, t) for i, (v, t) in enumerate(pairs)))


def expected_of_version(schema: Schema, case: Case, results: Mapping[str, Tensor], device: str = "cpu") -> Expected:
    """What a version that is trusted gave, as the answer to a case that the reference cannot run."""
    outputs = tuple(Output(n, v, widened(v), tuple(v.stride())) for n, v in results.items())
    return Expected(case, schema, outputs, device=device, slack=SLACK_OF_A_VERSION)


def leaves(schema: Schema, inputs: Mapping[str, object], returned: Any) -> dict[str, Tensor]:
    """What a call left behind, by name: its outputs, lists opened (`outs[0]`), then the arguments it mutated.

    >>> leaves(kv_write_.schema, inputs, None).keys()
    dict_keys(['k_cache', 'v_cache'])
    """
    results = [] if not schema.outputs else [returned] if len(schema.outputs) == 1 else list(returned)
    named = [*zip(schema.outputs, results, strict=True), *((n, inputs[n]) for n in schema.mutated)]
    found: dict[str, Tensor] = {}
    for name, value in named:
        if isinstance(value, (list, tuple)):
            found.update({f"{name}[{i}]": as_tensor(v) for i, v in enumerate(value)})
        elif value is not None:
            found[name] = as_tensor(value)
    return found


def is_random(reference: Callable, schema: Schema, case: Case, device: str = "cpu") -> bool:
    """Whether two runs of the reference on the same inputs differ, torch's generator standing elsewhere.

    >>> is_random(lambda x: torch.nn.functional.dropout(x), schema, case)
    True
    """
    runs = []
    for seed in (SEED, SEED + 1):
        inputs = fresh(case.bound(schema), device=device)
        with torch.no_grad(), seeded(device, seed):
            runs.append(leaves(schema, inputs, call(Definition(schema, reference), inputs)))
    return any(
        a.shape != b.shape or not torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(*(run.values() for run in runs), strict=True)
    )


def _in_float64(definition, case, schema, device, low, limit_s, references, values) -> tuple[dict[str, Tensor], str]:
    """The float64 run, or the plain run once more where the reference has no other: then only the floor is allowed."""
    inputs = fresh(case.bound(schema), dtypes=torch.float64, device=device)
    try:
        with seeded(device), float64(low, limit_s, references):
            wide = leaves(schema, inputs, call(definition, inputs))
        fits = wide.keys() == values.keys() and all(
            w.shape == v.shape and w.is_floating_point() == v.is_floating_point()
            for w, v in zip(wide.values(), values.values(), strict=True)
        )
        reason = "" if fits else "it gives other shapes or types there"
    except (TooMuchError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    if not reason:
        return wide, ""
    wide = {n: widened(v) for n, v in values.items()}
    return wide, f"the reference does not run in float64 ({reason}), so it was taken as exact"


def call(definition: Definition, inputs: Mapping[str, object]) -> object:
    args, kwargs = definition.split(list(inputs.values()))
    return definition.run(args, kwargs)


def compared(wanted: Expected, values: Mapping[str, Tensor]) -> list[Tensor]:
    """What `compare` makes of one set of results, in float64; arguments are as the call left them."""
    assert wanted.compare is not None
    named = {**wanted.case.bound(wanted.schema), **values}
    for name, value in named.items():  # a mutated list of tensors comes back opened
        if isinstance(value, (list, tuple)) and f"{name}[0]" in values:
            named[name] = [v for k, v in values.items() if k.startswith(f"{name}[")]
    missing = [n for n in wanted.schema.outputs if n not in named]
    lists = {n: [v for k, v in values.items() if k.startswith(f"{n}[")] for n in missing}
    named = fresh({**named, **lists}, dtypes=torch.float64, device=wanted.device)
    arguments = [named[a.name] for a in wanted.schema.arguments]
    outputs = [named[n] for n in wanted.schema.outputs]
    with torch.no_grad():
        out = wanted.compare(*arguments, *outputs)
    found = list(out) if isinstance(out, (tuple, list)) else [out]
    if not found or not all(isinstance(x, (Tensor, bool, int, float)) for x in found):
        raise WorkbenchError(f"{wanted.schema.qualname}: compare must return tensors, got {type(out).__name__}")
    return [as_tensor(x) for x in found]


def lowest(named: Mapping[str, object]) -> torch.dtype:
    """The floating dtype of fewest bits among these tensors, float32 where there is none."""
    kinds = {plain_dtype(x.dtype) for x in tensors_in(named) if x.is_floating_point() or x.is_complex()}
    return max(kinds, key=lambda d: torch.finfo(d).eps, default=torch.float32)


def plain_dtype(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real() if dtype.is_complex else dtype


def widened(x: Tensor) -> Tensor:
    return x.to(torch.complex128) if x.is_complex() else x.double() if x.dtype in FLOATS else x


def as_tensor(x: object) -> Tensor:
    return x if isinstance(x, Tensor) else torch.tensor(x, dtype=torch.float64 if isinstance(x, float) else None)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@contextmanager
def seeded(device: str, seed: int = SEED) -> Iterator[None]:
    on_gpu = torch.device(device).type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        if on_gpu:
            torch.cuda.manual_seed(seed)
        torch.random.default_generator.manual_seed(seed)
        yield
