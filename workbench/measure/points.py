"""On what an op is measured: its cases, or points of a sweep. Each is made when its turn comes, and let go after."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from .. import which
from ..case import Case, make
from ..check.full.classes import Sizes, leaves_of, sizes_of
from ..check.full.variant import Variant
from ..errors import SchemaError, WorkbenchError
from ..inputs import describe
from ..schema import Schema
from . import memory

DTYPE = "dtype"
SIZE = re.compile(r"\s*(\w+(?:\[\d+\])?)\.(?:shape\[(-?\d+)\]|size\((-?\d+)\))\s*")
FORMS = (
    'sweep={"x.shape[-1]": [256, 512, 1024]} for sizes of a case, or a function that makes arguments: '
    "sweep=lambda t, cols=(256, 512, 1024): (t(8192, cols), t(cols))"
)


@dataclass(frozen=True)
class Point:
    """One set of inputs to measure on. `case` makes it; `values` are those of what is swept, by name."""

    name: str
    dtype: str
    make: Callable[[], Case]
    values: tuple[tuple[str, object], ...] = ()

    @property
    def label(self) -> str:
        return f"{self.name} {self.dtype}".strip()


def points(op, cases: object = None, sweep: object = None) -> list[Point]:
    """Where an op is measured.

    >>> [p.label for p in points(rmsnorm)]                                  # its bench cases, else its largest one
    ['llama float32', 'llama bfloat16']
    >>> points(rmsnorm, "odd")                                              # see `which.cases`
    >>> points(rmsnorm, sweep={"x.shape[-1]": [256, 512], "dtype": [torch.float32, torch.bfloat16]})
    >>> points(rmsnorm, sweep=lambda t, cols=(256, 512): (t(8192, cols), t(cols)))

    A sweep is a mapping (sizes, dtypes or scalars of one case, all that belongs to a size going with it), or a function
    of `t` and of names whose defaults are the values. WorkbenchError for one that is empty or means nothing.
    """
    if sweep is None:
        return [Point(c.name, c.dtype_name, partial(_itself, c)) for c in which.cases(op, cases, verb="bench")]
    if isinstance(sweep, Mapping):
        return _of_mapping(op, cases, sweep)
    if callable(sweep):
        if cases is not None:
            raise WorkbenchError(
                "bench(cases=..., sweep=a function): that function makes the arguments; leave out cases="
            )
        return _of_function(op, sweep)
    raise WorkbenchError(f"bench(sweep={describe(sweep)}): write {FORMS}")


def _itself(case: Case) -> Case:
    return case


def _values(name: str, values: object) -> list:
    """The values of one name. An empty list of them would measure nothing without a word."""
    if isinstance(values, (str, torch.dtype)) or not isinstance(values, (Sequence, range)):
        raise WorkbenchError(f"bench: the sweep gives {name!r} {describe(values)}; a list of values is wanted. {FORMS}")
    if not values:
        raise WorkbenchError(f"bench: the sweep gives {name!r} no values; write for instance {name}: [256, 512, 1024]")
    return list(values)


# ------------------------------------------------------------ a function that makes arguments


def _of_function(op, function: Callable) -> list[Point]:
    taken = list(inspect.signature(function).parameters.values())
    swept = taken[1:]
    bare = [p.name for p in swept if p.default is inspect.Parameter.empty]
    if not swept or bare:
        what = f"gives {bare[0]!r} no values" if bare else "sweeps over nothing"
        raise WorkbenchError(f"bench: the sweep's function {what}; write {FORMS}")
    names = [p.name for p in swept]
    found = []
    for values in itertools.product(*(_values(p.name, p.default) for p in swept)):
        named = dict(zip(names, values, strict=True))
        found.append(_made(op.schema, function, named))
    return found


def _made(schema: Schema, function: Callable, named: Mapping[str, Any]) -> Point:
    dtype = named.get(DTYPE, torch.float32)
    if not isinstance(dtype, torch.dtype):
        raise WorkbenchError(f"bench: the sweep's dtype is {describe(dtype)}; dtypes such as torch.bfloat16 are wanted")

    def case() -> Case:
        def generator(t: Any) -> Any:
            yield function(t, **named)

        return make(generator, schema, dtype)[0]

    return Point(spelled(named), _short(dtype) if DTYPE in named else "", case, tuple(named.items()))


# ------------------------------------------------------------ one case, changed


def _of_mapping(op, cases: object, sweep: Mapping) -> list[Point]:
    if not sweep:
        raise WorkbenchError(f"bench(sweep={{}}) sweeps over nothing; write {FORMS}")
    bases = which.cases(op, cases, verb="bench")
    names = list(dict.fromkeys(c.name for c in bases))
    if len(names) > 1:
        raise WorkbenchError(f"a sweep changes one case; say which with cases=: {', '.join(names)}")
    if DTYPE in sweep:
        bases = bases[:1]
    sweep = {str(name): _values(str(name), values) for name, values in sweep.items()}
    fixed = {n for n, values in sweep.items() if len(values) == 1} if len(sweep) > 1 else set()
    changes = {name: _change(op, bases[0], name, values) for name, values in sweep.items()}
    found = []
    for base in bases:
        for values in itertools.product(*sweep.values()):
            named = dict(zip(sweep, values, strict=True))
            dtype = named.get(DTYPE)
            found.append(
                Point(
                    spelled({n: v for n, v in named.items() if n not in fixed}),
                    _short(dtype) if isinstance(dtype, torch.dtype) else base.dtype_name,
                    partial(_changed, op, base, named, changes),
                    tuple(named.items()),
                )
            )
    return found


def _change(op, base: Case, name: str, values: Sequence) -> tuple[str, object]:
    """What a name means: ("size", its class), ("dtype", None), ("scalar", the argument)."""
    schema: Schema = op.schema
    if name == DTYPE and schema.argument(DTYPE) is None:
        for d in values:
            if not isinstance(d, torch.dtype) or not d.is_floating_point:
                raise WorkbenchError(f"bench: the sweep's dtype has {d!r}; dtypes such as torch.bfloat16 are wanted")
        return DTYPE, None
    match = SIZE.fullmatch(name)
    if match:
        for n in values:
            if isinstance(n, bool) or not isinstance(n, int) or n < 0:
                raise WorkbenchError(f"bench: the sweep gives {name} the size {n!r}; integers of at least 0 are wanted")
        family = _family(op, base)
        leaves = leaves_of(base.bound(schema))
        leaf, dim = match[1], int(match[2] or match[3])
        if leaf in leaves and -leaves[leaf].dim() <= dim < leaves[leaf].dim():
            place = (leaf, dim % leaves[leaf].dim())
            return "size", next(i for i, places in enumerate(family.classes) if place in places)
    argument = schema.argument(name)
    if argument is not None and not argument.is_tensor and not argument.is_tensor_list:
        return "scalar", name
    sizes = [f"{n}.shape[{i}]" for n, x in leaves_of(base.bound(schema)).items() for i in range(x.dim())]
    scalars = [a.name for a in schema.arguments if not a.is_tensor and not a.is_tensor_list]
    raise WorkbenchError(
        f"bench: the sweep names {name!r}, which is nothing of case {base.label!r}; it has "
        f"{', '.join([*sizes, *scalars, DTYPE])}. Or {FORMS.partition(', or ')[2]}"
    )


def _family(op, base: Case) -> Sizes:
    """The sizes of the case that change together, as its siblings show."""
    return sizes_of([base, *(c for c in op.case_list(bench=True) if c.name != base.name and not c.bench)], op.schema)[0]


def _changed(op, base: Case, named: Mapping[str, Any], changes: Mapping[str, tuple[str, Any]]) -> Case:
    """The base case with these values."""
    schema = op.schema
    dtype = next((v for n, v in named.items() if changes[n][0] == DTYPE), None)
    if dtype is not None:
        floating = [n for n, x in base.bound(schema).items() if isinstance(x, torch.Tensor) and x.dtype == base.dtype]
        base = base.cast(dict.fromkeys(floating, dtype))
    varied = Variant(
        "sweep", "", base, _family(op, base),
        sizes=tuple((changes[n][1], v) for n, v in named.items() if changes[n][0] == "size"),
        scalars=tuple((n, v) for n, v in named.items() if changes[n][0] == "scalar"),
    )  # fmt: skip
    memory.check(_bytes(varied, schema), "cpu")
    found = varied.case(schema)
    if found is None:
        raise SchemaError(f"case {base.label!r} cannot be given {spelled(named)}")
    return replace(found, name=spelled(named))


def _bytes(varied: Variant, schema: Schema) -> int:
    """Of the tensors that a change would make."""
    leaves = leaves_of(varied.base.bound(schema))
    shapes = {n: list(x.shape) for n, x in leaves.items()}
    for number, n in varied.sizes:
        for leaf, dim in varied.family.classes[number]:
            shapes[leaf][dim] = n
    return sum(math.prod(shape) * leaves[n].element_size() for n, shape in shapes.items())


def spelled(named: Mapping[str, object]) -> str:
    """`"cols=256, k=2"`; a dtype stands apart."""
    return ", ".join(f"{n}={v}" for n, v in named.items() if n != DTYPE) or "case"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
