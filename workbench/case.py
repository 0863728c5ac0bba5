"""Cases: named, seeded recipes of inputs. The only place where test inputs are made.

A case whose tensors are large is a recipe alone: they are made anew whenever they are asked for, and held by nobody.
"""

from __future__ import annotations

import difflib
import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .errors import SchemaError
from .inputs import FLOATS, Tensors, describe, form, fresh, seeded, sketch_call, tensors_in
from .schema import Schema

SEED = 20_240
HELD_BYTES = 32 << 20  # cases up to this size keep their tensors
OPTIONS = ("bench", "atol", "rtol", "error", "bytes", "flops")


@dataclass(frozen=True)
class Case:
    """One named set of inputs for an op.

    >>> odd = wb.case("odd", torch.randn(5, 123), torch.randn(123))
    >>> odd.args[0].shape
    torch.Size([5, 123])

    `recipe` makes `(args, arguments)`: what goes to the op, positional and by name. `dtype` is what `t` made tensors
    in when none was named, None when the case fixes all of its dtypes. `bench=True` keeps it out of trial and checks.
    `error` is how many times the reference's own error is allowed; `atol` and `rtol`, when given, replace that rule.
    `names` are the positional arguments' names once it belongs to an op, `constant` those made with `grad=False`.
    `bytes` and `flops` are what a call must move and compute, where the bench is not to count itself.
    """

    name: str
    recipe: Callable[[], tuple[tuple, dict]]
    dtype: torch.dtype | None = None
    bench: bool = False
    atol: float | None = None
    rtol: float | None = None
    error: float = 2.0
    names: tuple[str, ...] = ()
    constant: frozenset[str] = frozenset()
    bytes: float | None = None
    flops: float | None = None

    @property
    def args(self) -> tuple:
        """What goes to the op by position; large tensors are made anew at each asking."""
        return self.recipe()[0]

    @property
    def arguments(self) -> dict:
        """What goes to the op by name."""
        return self.recipe()[1]

    @property
    def dtype_name(self) -> str:
        """`"bfloat16"`, or `""` when the case fixes all of its dtypes."""
        return str(self.dtype).removeprefix("torch.") if self.dtype else ""

    @property
    def label(self) -> str:
        """`"odd bfloat16"`."""
        return f"{self.name} {self.dtype_name}".strip()

    def bound(self, schema: Schema) -> dict[str, object]:
        """All arguments by name, defaults filled in. A mutating op needs copies: see `inputs.fresh`."""
        args, arguments = self.recipe()
        return _bind(schema, args, arguments, f"case {self.name!r}")

    def cast(self, dtypes: Mapping[str, torch.dtype]) -> Case:
        """The case with the floating tensors of the named arguments in other dtypes; views of one base stay so.

        >>> case.cast({"x": torch.bfloat16}).label
        '4x128 bfloat16'
        """
        unknown = [n for n in dtypes if self.names and n not in self.names and n not in self.arguments]
        if unknown or not self.names:
            what = f"has no argument {unknown[0]!r}" if unknown else "belongs to no op yet: its arguments have no names"
            raise SchemaError(f"case {self.name!r} {what}")

        def recipe() -> tuple[tuple, dict]:
            args, arguments = self.recipe()
            named = {**dict(zip(self.names, args, strict=True)), **arguments}
            made = fresh(named, dtypes=dtypes)
            return tuple(made[n] for n in self.names), {n: made[n] for n in arguments}

        kinds = {d for d in dtypes.values() if d in FLOATS}
        return replace(self, recipe=recipe, dtype=kinds.pop() if len(kinds) == 1 else None)


def case(
    name: str,
    *args: object,
    bench: bool = False,
    atol: float | None = None,
    rtol: float | None = None,
    error: float = 2.0,
    bytes: float | None = None,
    flops: float | None = None,
    **arguments: object,
) -> Case:
    """A named case, to be yielded by an op's cases.

    >>> @rmsnorm.cases
    ... def _(t):
    ...     yield wb.case("odd", t(5, 123), t(123), eps=1e-3)       # keywords that are argument names go to the op
    ...     yield wb.case("llama", t(8192, 4096), t(4096), bench=True)

    `args` and `arguments` go to the op. `bench=True` is for the bench alone, which takes `bytes` and `flops` in place
    of its own count. `atol` / `rtol` judge as `torch.allclose` does, against float64; without them `error` times the
    reference's own error is allowed. SchemaError without a name, or for an option that is no number of at least 0.
    """
    if not isinstance(name, str) or not name.strip():
        raise SchemaError(f'a case needs a name before its inputs: wb.case("odd", ...), got {describe(name)}')
    options = {"atol": atol, "rtol": rtol, "error": error, "bytes": bytes, "flops": flops}
    for option, value in options.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0):
            raise SchemaError(f"case {name!r}: {option} is a number of at least 0, got {value!r}")
    made = Case(name, lambda: (args, arguments), None, bool(bench), atol, rtol, float(error))
    return replace(made, bytes=bytes, flops=flops)


def make(
    function: Callable, schema: Schema, dtypes: torch.dtype | Sequence[torch.dtype] = (torch.float32,)
) -> tuple[Case, ...]:
    """The cases that a generator yields, once per dtype where that makes a difference.

    >>> def rows(t):
    ...     yield t(4, 128), t(128)
    >>> [c.label for c in make(rows, schema, (torch.float32, torch.bfloat16))]
    ['4x128 float32', '4x128 bfloat16']

    Raises SchemaError, with the generator's line, for a generator that raises or yields what the op does not take.
    """
    dtypes = tuple(dtypes) if isinstance(dtypes, Iterable) and not isinstance(dtypes, str) else (dtypes,)
    if not dtypes:
        raise SchemaError(f"{schema.qualname}: cases(dtypes=()) leaves nothing to make tensors in")
    for d in dtypes:
        if not isinstance(d, torch.dtype) or not d.is_floating_point:
            raise SchemaError(f"{schema.qualname}: cases(dtypes=...) takes dtypes such as torch.float32, got {d!r}")
    runs = [_discover(function, schema, d) for d in dict.fromkeys(dtypes)]
    made: list[Case] = []
    for index in range(max(map(len, runs))):
        seen: list[list[torch.dtype]] = []
        for run in runs:
            recipe = run[index].recipe if index < len(run) else None
            if isinstance(recipe, _Recipe) and recipe.kinds not in seen:
                seen.append(recipe.kinds)
                made.append(run[index])
        if len(seen) == 1 and len(runs) > 1:  # the same dtypes whatever was asked for: the case fixes them itself
            made[-1] = replace(made[-1], dtype=None)
    return tuple(made)


def learn(args: tuple, kwargs: dict, schema: Schema) -> Case:
    """A case like one real call: its shapes, dtypes, strides and scalars, and the range of its values.

    >>> learn((torch.randn(4, 128), torch.randn(128)), {}, schema).label
    '4x128 float32'

    Integers keep their range, so that indices stay valid, and floats that are never negative stay so. The call's own
    tensors are not kept alive. What lies between values (sorted offsets, a permutation) is lost.
    """
    bound = _bind(schema, args, kwargs, "the call")
    rebuild = sketch_call(bound, SEED)
    names = tuple(a.name for a in schema.positional)
    only = tuple(a.name for a in schema.keyword_only)

    def recipe() -> tuple[tuple, dict]:
        made = rebuild()
        return tuple(made[n] for n in names), {n: made[n] for n in only}

    kinds = {x.dtype for x in tensors_in(bound) if x.dtype in FLOATS}
    return Case(_name(bound, 1), recipe, kinds.pop() if len(kinds) == 1 else None, names=names)


class _Recipe:
    """Case number `index` of a generator, run with one dtype: held where `made` is given, else made on demand."""

    def __init__(self, function: Callable, schema: Schema, dtype: torch.dtype, index: int, made: tuple, hold: bool):
        self.function, self.schema, self.dtype, self.index = function, schema, dtype, index
        self.kinds = [x.dtype for x in tensors_in(made)]
        self.form = form({**dict(zip((a.name for a in schema.positional), made[0], strict=True)), **made[1]})
        sizes = {s.data_ptr(): s.nbytes() for s in (x.untyped_storage() for x in tensors_in(made))}
        self.made = made if hold and sum(sizes.values()) <= HELD_BYTES else None

    def __call__(self) -> tuple[tuple, dict]:
        if self.made is not None:
            return self.made
        for index, (value, _) in enumerate(_run(self.function, self.schema, self.dtype, sketch=False)):
            if index == self.index:
                return _inputs(self.schema, value, index)
        raise SchemaError(f"{self.schema.qualname}: its cases yielded fewer the second time; they must repeat")


def _discover(function: Callable, schema: Schema, dtype: torch.dtype) -> list[Case]:
    try:
        return _collect(function, schema, dtype, sketch=True)
    except SchemaError:  # large tensors are only sketched at first: perhaps the generator looked at their values
        return _collect(function, schema, dtype, sketch=False)


def _collect(function: Callable, schema: Schema, dtype: torch.dtype, sketch: bool) -> list[Case]:
    found: list[Case] = []
    names: dict[str, int] = {}
    for value, t in _run(function, schema, dtype, sketch):
        one = _one(value, t, function, schema, len(found))
        names[one.name] = names.get(one.name, 0) + 1
        again = names[one.name]
        found.append(one if again == 1 else replace(one, name=f"{one.name} ({again})"))
        del value  # a large tensor goes as soon as its generator lets go of it
    if not found:
        raise SchemaError(f"{schema.qualname}: its cases yield nothing; write for instance `yield t(4, 128), t(128)`")
    return found


def _one(value: object, t: Tensors, function: Callable, schema: Schema, index: int) -> Case:
    args, arguments = made = _inputs(schema, value, index)
    names = tuple(a.name for a in schema.positional)
    named = {**dict(zip(names, args, strict=True)), **arguments}
    return replace(
        value if isinstance(value, Case) else case(_name(named, index + 1)),
        recipe=_Recipe(function, schema, t.dtype, index, made, hold=not t.take_sketched()),
        dtype=t.dtype if t.defaulted and any(x.dtype is t.dtype for x in tensors_in(made)) else None,
        names=names,
        constant=frozenset(n for n, v in named.items() if (x := tensors_in(v)) and all(map(t.is_constant, x))),
    )


def _run(function: Callable, schema: Schema, dtype: torch.dtype, sketch: bool) -> Iterator[tuple[object, Tensors]]:
    t = Tensors(dtype, SEED, sketch)
    with seeded(SEED):
        try:
            yield from ((value, t) for value in function(t) or ())
        except Exception as error:
            what = error.message if isinstance(error, SchemaError) else f"{type(error).__name__}: {error}"
            raise SchemaError(f"{schema.qualname}: its cases raised {what}{_where(function, error)}") from error


def _where(function: Callable, error: BaseException) -> str:
    """The generator's own line that an exception went through."""
    found, frame = "", error.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        if code is getattr(function, "__code__", None):
            text = linecache.getline(code.co_filename, frame.tb_lineno).strip()
            found = f" (line {frame.tb_lineno}{': ' + text if text else ''})"
        frame = frame.tb_next
    return found


def _inputs(schema: Schema, value: object, index: int) -> tuple[tuple, dict]:
    """What a generator yielded, bound to the schema: positional arguments with their defaults, keyword-only ones."""
    if isinstance(value, Case):
        (args, arguments), where = value.recipe(), f"case {value.name!r}"
    else:
        args, arguments, where = (value if isinstance(value, tuple) else (value,)), {}, f"case {index + 1}"
    bound = _bind(schema, args, arguments, where)
    for a in schema.tensors:
        v = bound[a.name]
        items = v if a.is_tensor_list and isinstance(v, (list, tuple)) else [v]
        if (a.is_tensor_list and not isinstance(v, (list, tuple))) or not all(
            isinstance(x, Tensor) or (x is None and "?" in a.type) for x in items
        ):
            wanted = {"Tensor": "a tensor", "Tensor?": "a tensor or None"}.get(a.type, "a list of tensors")
            raise SchemaError(f"{schema.qualname}: {where}: {a.name} is {wanted}, got {describe(v)}")
    return tuple(bound[a.name] for a in schema.positional), {a.name: bound[a.name] for a in schema.keyword_only}


def _bind(schema: Schema, args: tuple, arguments: dict, where: str) -> dict[str, object]:
    known = [a.name for a in schema.arguments]
    for n in arguments:
        if n not in known:
            near = difflib.get_close_matches(n, [*known, *OPTIONS], 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the arguments are {', '.join(known)}"
            raise SchemaError(f"{schema.qualname}: {where} names {n!r}, which is no argument; {hint}")
    try:
        return schema.bind(args, arguments)
    except TypeError as error:
        got = ", ".join([*map(describe, args), *(f"{n}={describe(v)}" for n, v in arguments.items())])
        takes = f"it takes ({schema.parameters}), got ({got})"
        raise SchemaError(f"{schema.qualname}: {where} does not fit, {error}: {takes}") from None


def _name(named: Mapping[str, object], number: int) -> str:
    """`"4x128"`, after the first argument that holds tensors."""
    for value in named.values():
        if isinstance(value, Tensor):
            return "x".join(map(str, value.shape)) or "0-dim"
        if isinstance(value, (list, tuple)) and tensors_in(value):
            return f"{len(value)} tensors" if len(value) > 1 else "1 tensor"
    return f"case {number}"
