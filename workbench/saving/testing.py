"""The tests and the benchmark that a package has of its own, and what they ask of each op. Pure text."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from . import imports, judges, names, templates
from .model import Package, SavedOp

JUDGE = "judge"  # the package beside the tests that holds an op against its reference

NOT_EXPORTED = ("ScalarType", "Device")  # torch.export takes neither as an input


def of(package: Package, *, native: bool, oldest: tuple[int, int]) -> dict[str, str]:
    """The files below `tests/`: the judges, one file for the package, and one for each op."""
    name = package.name
    made = judges.files(name)
    made["tests/test_package.py"] = templates.render(
        "tests/test_package.py.j2", name=name, version=package.version, native=native, oldest=oldest
    )
    for op in package.ops:
        made[f"tests/test{names.module(op.name)}.py"] = _of_op(name, op, package.ops)
    return {path: imports.ordered(text, (name, JUDGE)) for path, text in made.items()}


def _of_op(name: str, op: SavedOp, ops: Sequence[SavedOp]) -> str:
    kept, schema = op.cases, op.schema
    tensors = any(a.is_tensor or a.is_tensor_list for a in schema.arguments)
    gradient = "backward" in op.functions or any(n.slot == "backward" for n in op.kernels)
    dtypes = ", ".join(map(str, kept.dtypes)) + "," * (len(kept.dtypes) == 1)
    one_batch = any(a.type == "Tensor" for a in schema.arguments) and not schema.mutated and not op.random
    return templates.render(
        "tests/test_op.py.j2", name=name, op=op.name, module=names.module(op.name), namespace=schema.namespace, qualname=schema.qualname,
        imports=kept.imports, stored=bool(kept.stored), cases=kept.text, case=_names_case(kept.text), dtypes=dtypes,
        has_reference="reference" in op.functions, others=[names.module(n) for n in others(op, ops)],
        differentiable=tensors and not op.random and ("compare" not in op.functions or gradient), random=op.random,
        batch=one_batch and "reference" in op.functions, objects=bool(op.classes),
        not_exported=any(a.type.rstrip("?") in NOT_EXPORTED for a in schema.arguments),
        triton=any(s.language == "triton" for s in op.scripts),
    )  # fmt: skip


def _names_case(text: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == "case" for n in ast.walk(ast.parse(text)))


def benchmark(package: Package, file: str) -> str:
    """The text of `benchmarks/FILE`, which times every case of every op."""
    text = templates.render(
        "project/bench.py.j2", name=package.name, file=file, ops=[{"name": op.name, "module": names.module(op.name)} for op in package.ops],
        mutating=any(op.schema.mutated for op in package.ops),
    )  # fmt: skip
    return imports.ordered(text, (package.name, JUDGE))


def others(op: SavedOp, ops: Sequence[SavedOp]) -> list[str]:
    """The ops that an op's functions call, and those that these call: the ones with a reference, by short name.

    The judges run these references in their place: a kernel has no form for float64.
    """
    by_name = {o.name: o for o in ops}
    found: dict[str, SavedOp] = {}
    waiting = list(op.also)
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in found and name != op.name:
            found[name] = by_name[name]
            waiting += by_name[name].also
    return sorted(n for n, o in found.items() if "reference" in o.functions)
