"""The schema of an op that only its kernel describes, read from the kernel's signature."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence

from ..errors import SchemaError
from ..schema import Argument, Schema, split_name
from ..source import Function, Parameter, Source, directives_of
from .binding import FLOATS, called, is_integer
from .lines import targets


def infer_schema(source: Source, functions: Sequence[Function], name: str, *, function: str = "") -> Schema:
    """The schema that a raw cell's signature says, for a name that no op bears yet.

    >>> source = Source("//! out = empty_like(x)\\nvoid scale(const float* x, float* out, double by) {}", "cpp")
    >>> str(infer_schema(source, functions(source.text, "cpp"), "lab::scale"))
    'lab::scale(Tensor x, float by) -> Tensor'

    A `const T*` that no directive declares is a Tensor, another pointer a mutated one, integers are SymInt, floats
    float, in the order of the parameters of the called functions. Tensors named `out`, or `out0`, `out1`, ..., are
    the results. SchemaError if there is neither a result nor a mutated argument.
    """
    try:
        return _infer(source, functions, name, function)
    except SchemaError as error:
        error.file = error.file or source.file
        raise


def _infer(source: Source, functions: Sequence[Function], name: str, function: str) -> Schema:
    namespace, short = split_name(name)
    lines = directives_of(source)
    declared = {n for _, text in lines for n in targets(text)}
    bare = Schema(namespace, short, (), (), ())
    if source.language == "cuda":
        chosen = _with_grid(functions, lines) or called(source, bare, functions, (), entry="forward", function="")
    else:
        chosen = called(source, bare, functions, (), entry="forward", function=function)
    arguments: dict[str, Argument] = {}
    for p in (p for f in chosen for p in f.parameters):
        if p.name in declared:
            continue
        inferred = _argument(p)
        known = arguments.get(p.name)
        if known is not None and known.type != inferred.type:
            raise SchemaError(
                f"the parameter {p.name!r} is a {known.type} in one function and a {inferred.type} in this one",
                line=p.line,
            )
        if known is None or inferred.mutated:
            arguments[p.name] = inferred
    outputs = _results(declared, lines)
    if not outputs and not any(a.mutated for a in arguments.values()):
        raise SchemaError(
            f"{name} would return nothing: name its result 'out' (or 'out0', 'out1', ...), as in "
            "'//! out = empty_like(x)'",
            line=lines[-1][0] if lines else chosen[0].line,
        )
    return Schema(namespace, short, tuple(arguments.values()), outputs, ("Tensor",) * len(outputs))


def _with_grid(functions: Sequence[Function], lines: Sequence[tuple[int, str]]) -> list[Function]:
    kernels = [f for f in functions if f.is_global]
    grids = [line for line, text in lines if re.match(r"grid\s*=", text)]
    owners = [next((k for k in kernels if k.line >= line), None) for line in grids]
    return [k for k in kernels if k in owners]


def check_name(p: Parameter) -> None:
    """SchemaError, on its line, for a parameter whose name no argument of an op can have."""
    if not p.name:
        raise SchemaError(f"the parameter '{p.spelled}' has no name, and binding is by name", line=p.line)
    if keyword.iskeyword(p.name):
        raise SchemaError(f"the parameter {p.name!r} is a Python keyword, no op could be called with it", line=p.line)
    if not p.name.isascii() or p.name.startswith("__"):
        raise SchemaError(
            f"the parameter {p.name!r} becomes an argument of the op: its name has ASCII letters, and does not begin "
            "with two underscores",
            line=p.line,
        )


def _argument(p: Parameter) -> Argument:
    check_name(p)
    if p.pointer:
        return Argument(p.name, "Tensor", mutated=not p.const)
    type_ = "bool" if p.type == "bool" else "SymInt" if is_integer(p.type) else "float" if p.type in FLOATS else ""
    if not type_:
        raise SchemaError(
            f"the parameter '{p.spelled}' is neither a pointer nor a number: an op without a reference "
            "takes these only; declare the op's schema with wb.op",
            line=p.line,
        )
    return Argument(p.name, type_)


def _results(declared: set[str], lines: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    numbered = sorted((n for n in declared if re.fullmatch(r"out[0-9]{1,4}", n)), key=lambda n: int(n[3:]))
    if "out" in declared and not numbered:
        return ("out",)
    if numbered and (len(numbered) < 2 or "out" in declared or numbered != [f"out{i}" for i in range(len(numbered))]):
        line = next(line for line, text in lines if numbered[0] in targets(text))
        got = ", ".join([*(["out"] if "out" in declared else []), *numbered])
        raise SchemaError(f"results are 'out', or 'out0', 'out1', ... without a gap; got {got}", line=line)
    return tuple(numbered)
