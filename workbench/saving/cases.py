"""The cases of an op for the tests of a package: as the text that makes them, or as the tensors that it made."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..case import Case, _Recipe, case
from ..errors import SaveError, SchemaError
from ..inputs import tensors_in
from ..schema import Schema
from .carry import Carried, carry

STORED_BYTES = 8 << 20
# What the tests of an op (templates/tests/test_op.py.j2) call things in the module that its cases stand in, too.
TAKEN = frozenset({
    "CASES", "Case", "DEFINITION", "DEVICES", "EVERY_CASE", "Path", "SCHEMA", "case", "each_case", "each_device", "expected", "fresh",
    "REFERENCES", "gradients", "interpreted", "judge", "leaves", "make", "module", "package", "pytest", "run",
})  # fmt: skip
_OURS = __name__.partition(".")[0]


@dataclass(frozen=True)
class Kept:
    """`text` defines `cases`, with its imports apart; or `stored` are the inputs themselves."""

    text: str = ""
    imports: tuple[str, ...] = ()
    dtypes: tuple[torch.dtype, ...] = ()
    stored: tuple[Case, ...] = ()
    note: str = ""


def keep(cases: Sequence[Case], schema: Schema) -> Kept:
    """What a package needs to make the cases again. SaveError where they are too large to be stored."""
    recipes = [c.recipe for c in cases]
    if cases and all(isinstance(r, _Recipe) for r in recipes):
        function = recipes[0].function  # type: ignore[attr-defined]
        try:
            made = _carried(function, schema)
        except SaveError as error:
            return _stored(cases, schema, f"Its cases are stored as tensors: {error}.")
        dtypes = tuple(dict.fromkeys(r.dtype for r in recipes))  # type: ignore[attr-defined]
        return Kept(_body(made), tuple(sorted(set(made.imports.values()))), dtypes)
    if not cases:
        raise SaveError(
            f"{schema.qualname} has no cases, so that nothing would test it: say some with @{schema.name}.cases, or call it"
        )
    return _stored(cases, schema, "")


def _carried(function: Callable, schema: Schema) -> Carried:
    ours = [n for n, v in function.__globals__.items() if isinstance(v, types.ModuleType) and v.__name__ == _OURS]
    made = carry({"cases": _without(function, ours)}, f"{schema.qualname}: its cases")
    taken = sorted(n for n in made.taken if n in TAKEN or n.startswith("test_"))
    if taken:
        raise SaveError(f"{schema.qualname}: its cases use {taken[0]}, which is a name of the tests")
    made.functions["cases"] = re.sub(rf"\b(?:{'|'.join(ours) or 'wb'})\.case\(", "case(", made.functions["cases"])
    return made


def _without(function: Callable, ours: Sequence[str]) -> Callable:
    """The function as `carry` may see it: where `wb.case` is `case`, which the tests have."""
    hidden = {n: v for n, v in function.__globals__.items() if n not in ours and v is not case}
    made = types.FunctionType(function.__code__, hidden, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _body(made: Carried) -> str:
    constants = "\n".join(f"{n} = {v}" for n, v in made.constants.items())
    return "\n\n\n".join(filter(None, [constants, *made.helpers.values(), *made.functions.values()]))


def _stored(cases: Sequence[Case], schema: Schema, note: str) -> Kept:
    kept = tuple(c for c in cases if not c.bench)
    size = sum(x.numel() * x.element_size() for c in kept for x in tensors_in(c.bound(schema)))
    if size > STORED_BYTES:
        raise SaveError(
            f"{schema.qualname}: its cases hold {size >> 20} MB of tensors, too many to store ({note or 'they were learnt'}) "
            "Make them in @cases with t(...)"
        )
    return Kept(stored=kept, note=note)


def write(cases: Sequence[Case], schema: Schema, path: str) -> None:
    """Stored cases as a file that torch.load reads without running anything."""
    rows: list[dict[str, Any]] = []
    for c in cases:
        arguments = {n: _plain(v, schema) for n, v in c.bound(schema).items()}
        rows.append({"name": c.name, "arguments": arguments, "dtype": c.dtype, "bench": c.bench, "atol": c.atol,
                     "rtol": c.rtol, "error": c.error, "constant": sorted(c.constant)})  # fmt: skip
    torch.save(rows, path)


def _plain(value: object, schema: Schema) -> object:
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.is_contiguous() else value.detach()
    if isinstance(value, (list, tuple)):
        return [_plain(v, schema) for v in value]
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype)):
        return value
    raise SchemaError(f"{schema.qualname}: a case holds a {type(value).__name__}, which cannot be stored")
