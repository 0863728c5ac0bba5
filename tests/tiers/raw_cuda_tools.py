"""From the text of a CUDA cell to an op that torch can call, without wb.op: what the tests of raw CUDA share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from workbench import schema as schemas
from workbench.schema import Schema, spell_results
from workbench.source import Source
from workbench.tiers import RawCudaKernel, kernel

NS = "raw_cuda_tests"
LIBRARY = torch.library.Library(NS, "FRAGMENT")
_numbers = itertools.count()


def schema_of(text: str, **names) -> Schema:
    """`"Tensor x -> Tensor"` under a name that no test has had."""
    arguments, _, results = text.rpartition(" -> ")
    return fresh(schemas.parse(f"{NS}::op({arguments}) -> {results}", **names))


def fresh(schema: Schema) -> Schema:
    return replace(schema, namespace=NS, name=f"op{next(_numbers)}")


def cuda(schema: Schema, text: str, slot: str = "forward") -> RawCudaKernel:
    return kernel(Source(text, "cuda", "cell [3]", first_line=2), schema, slot)


def define(schema: Schema, slot: str = "forward") -> Callable:
    """The op, defined with torch; what it is called by."""
    arguments, results = str(schema).removeprefix(schema.qualname).rpartition(" -> ")[::2]
    types = (*schema.output_types, *("Tensor" for _ in schema.saves))
    if slot == "backward":
        given = ", ".join(f"Tensor? grad_{n}" for n in schema.outputs)
        kept = ", ".join(f"Tensor {n}" for n in (*schema.outputs, *schema.saves))
        gradients = ", ".join("Tensor" for a in schema.tensors)
        taken = ", ".join(f"{a.type} {a.name}" for a in schema.arguments)
        LIBRARY.define(f"{schema.name}_backward({given}, {taken}, {kept}) -> ({gradients})")
        return getattr(getattr(torch.ops, NS), f"{schema.name}_backward")
    LIBRARY.define(f"{schema.name}{arguments} -> {results}")
    LIBRARY.define(f"{schema.name}_forward{arguments} -> {spell_results(types, ('',) * len(types))}")
    return getattr(getattr(torch.ops, NS), f"{schema.name}_forward" if schema.saves else schema.name)


def same(made: RawCudaKernel, dtype: torch.dtype) -> dict[str, torch.dtype]:
    return {a.name: dtype for a in made.declaration.arguments if a.is_tensor}


def installed(
    schema: Schema, text: str, slot: str = "forward", dtypes: Sequence[dict] = ()
) -> tuple[Callable, RawCudaKernel]:
    """The cell behind its op, built for these dtypes, and for others when they come."""
    run, made = define(schema, slot), cuda(schema, text, slot)
    refused = [r for r in made.build(list(dtypes)) if r is not None]
    assert not refused, refused

    def on_miss(wanted: dict) -> str | None:
        (refusal,) = made.build([wanted])
        if refusal is None:
            made.refresh()
        return refusal.message if refusal else None

    made.install(on_miss)
    return run, made
