"""The text that the compiler sees for a raw C++ cell: prelude, the user's text under `#line`, and a thunk. Pure text.

A thunk is what the launcher calls: it takes every parameter of one function from the table of named values, converts
it to its C type and calls the function, with its template arguments spelled out for the dtypes at hand. Precompiling
the prelude is the business of `cpp.py`: the first line of the text is the one `#include` that can be precompiled.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ..directives import Binding, Declaration, Kind, Let, Tune, bind
from ..directives.evaluate import _Values
from ..errors import SchemaError
from ..source import Function, Parameter, Source
from . import ctypes_cpp

_MATH = re.compile(
    r"\bstd::|<c?math(\.h)?>|\b(?:M_PI|isnan|isinf|isfinite|signbit|(?:fabs|fmax|fmin|fma|fmod|sqrt|cbrt|hypot|pow|exp|exp2|expm1|"
    r"log|log2|log10|log1p|sin|cos|tan|asin|acos|atan|atan2|sinh|cosh|tanh|asinh|acosh|atanh|erf|erfc|tgamma|lgamma|"
    r"floor|ceil|round|trunc|rint|nearbyint|lrint|lround|llrint|llround|copysign|remainder|ldexp|frexp|modf|abs)[fl]?)\b"
)
_OWN_BFLOAT16 = re.compile(r"\b(?:struct|class|union|using)\s+bfloat16\b|\btypedef\b[^;]*\bbfloat16\s*;")
_OWN_HALF = re.compile(r"\b(?:struct|class|union|using)\s+half\b|\btypedef\b[^;]*\bhalf\s*;")


@dataclass(frozen=True)
class Body:
    """One instance of a cell's functions, ready for the compiler.

    `symbols` are the exported names, one a function in the order in which they are called; `parameters` are for each
    function (index among the named values, C type, "pointer" for a tensor) of every parameter, in order.
    """

    text: str
    symbols: tuple[str, ...]
    parameters: tuple[tuple[tuple[int, str], ...], ...]


def instantiate(
    source: Source,
    declaration: Declaration,
    dtypes: Mapping[str, torch.dtype | None],
    tuned: Mapping[str, int | float] | None = None,
) -> Body:
    """The body of a raw C++ cell for tensors of these dtypes, by name; None where a tensor is None.

    >>> body = instantiate(source, declaration, {"x": torch.float32, "w": torch.float32})
    >>> body.text.splitlines()[0]
    '#include "wb_body.h"'

    Dtypes of tensors that directives make are filled in. Raises SchemaError, on the user's line, naming the parameter
    and the dtype, where the kernel has no form for these dtypes, or where a template value is not known at build time.
    """
    known = complete(declaration, dtypes)
    tuned = dict(tuned or {})
    bound: set[str] = set()
    thunks, symbols, parameters, types = [], [], [], set()
    for binding in bind(declaration.functions, declaration):
        arguments = _template_arguments(binding, declaration, known, tuned)
        bound |= set(binding.values)
        for p in binding.function.parameters:
            _check_pointer(p, binding, declaration, known)
        symbol = f"wb_call_{binding.function.name}"
        thunks.append(_thunk(symbol, binding.function, arguments, declaration, source.file))
        symbols.append(symbol)
        parameters.append(tuple(_coded(p, arguments, declaration) for p in binding.function.parameters))
        types |= set(arguments.values())
    return Body(_text(source, declaration, tuned, bound, types, thunks), tuple(symbols), tuple(parameters))


def complete(declaration: Declaration, dtypes: Mapping[str, torch.dtype | None]) -> dict[str, torch.dtype | None]:
    """The dtypes of all tensors, those that directives make included, where they follow from the arguments' dtypes.

    >>> complete(declaration, {"x": torch.float16, "w": torch.float16})["rstd"]
    torch.float32
    """
    known = dict(dtypes)
    default = known.get(declaration.first_tensor or "")
    for made in declaration.allocations:
        if made.name in known:
            continue
        like = declaration.aliases.get(made.like, made.like) if made.like else None
        known[made.name] = known.get(like) if like else default
        if made.dtype is not None:
            known[made.name] = _dtype(made.dtype.tree, declaration, known, made.name, made.line)
    return known


def _dtype(tree: ast.AST, declaration: Declaration, known: Mapping, name: str, line: int) -> torch.dtype | None:
    if isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name):
        return known.get(declaration.aliases.get(tree.value.id, tree.value.id))
    if isinstance(tree, ast.Name):
        word = declaration.aliases.get(tree.id, tree.id)
        if word in known:
            return known[word]
        if word not in declaration.values:
            return getattr(torch, word)
    raise SchemaError(f"the dtype of {name} is only known at a call, so no form of the kernel can be chosen before", line=line)


def _text(source, declaration, tuned, bound, types, thunks) -> str:
    lines = [f'#include "{"wb_body_math.h" if _MATH.search(source.text) else "wb_body.h"}"']
    if "_Float16" in types or re.search(r"\bhalf\b", source.text):
        lines += [] if _OWN_HALF.search(source.text) else ['#include "wb_half.h"']
    if ("bfloat16" in types or re.search(r"\bbfloat16\b", source.text)) and not _OWN_BFLOAT16.search(source.text):
        lines += ['#include "wb_bfloat16.h"']
    for tune in declaration.tunes.values():
        if tune.name not in bound:
            value = tuned.get(tune.name, tune.values[0])
            kind = "double" if declaration.values[tune.name] is Kind.FLOAT else "int" if abs(value) < 2**31 else "long long"
            lines.append(f"constexpr {kind} {tune.name} = {value!r};")
    text = source.text if source.text.endswith("\n") else source.text + "\n"
    return "\n".join([*lines, _line(source.first_line, source.file), text + "\n".join(thunks)]) + "\n"


def _line(number: int, file: str) -> str:
    """A `#line` directive; control characters in a file's name would end it."""
    name = "".join(c if c.isprintable() else "?" for c in file).replace("\\", "\\\\").replace('"', '\\"')
    return f'#line {number} "{name}"'


def _template_arguments(
    binding: Binding, declaration: Declaration, known: Mapping[str, torch.dtype | None], tuned: Mapping[str, int | float]
) -> dict[str, str]:
    """Template parameter -> what stands in its place, in order; a defaulted type that no tensor fixes ends the list."""
    arguments = {}
    for t in binding.function.templates:
        if t.name in binding.values:
            arguments[t.name] = _constant(t.name, t.line, declaration, tuned)
        elif t.name in binding.types:
            arguments[t.name] = _element_type(t.name, binding, declaration, known)
        else:
            break
    return arguments


def _element_type(name: str, binding: Binding, declaration: Declaration, known: Mapping[str, torch.dtype | None]) -> str:
    function, line = binding.function, binding.function.line
    seen: dict[torch.dtype, str] = {}
    for tensor in binding.types[name]:
        dtype = known.get(declaration.aliases.get(tensor, tensor))
        if dtype is not None:
            seen.setdefault(dtype, tensor)
    if len(seen) > 1:
        told = ", ".join(f"{ctypes_cpp.short(d)} for {t}" for d, t in seen.items())
        raise SchemaError(f"{function.name}: the type {name} would be {told}; give one of them a type of its own", line=line)
    # Every tensor of this type is None: any type will do, its pointers are null.
    dtype = next(iter(seen), known.get(declaration.first_tensor or "") or torch.float32)
    if dtype not in ctypes_cpp.CPP:
        raise SchemaError(
            f"{function.name}: {seen[dtype]} is {ctypes_cpp.short(dtype)}, which has no C++ type here; kernels take "
            f"{', '.join(map(ctypes_cpp.short, ctypes_cpp.CPP))}", line=line)
    return ctypes_cpp.CPP[dtype]


def _constant(name: str, line: int, declaration: Declaration, tuned: Mapping[str, int | float]) -> str:
    """The value of a template value parameter: a tuned name, or what follows from these and numbers alone."""
    made = {s.name: s for s in declaration.statements if isinstance(s, (Let, Tune))}
    waiting, seen = [name], set()
    while waiting:
        n = waiting.pop()
        statement = made.get(n)
        asked = statement and isinstance(statement, Let) and any(isinstance(k, ast.Attribute) for k in ast.walk(statement.value.tree))
        if statement is None or asked:
            why = f"{name} is only known at a call" if n == name else f"{name} depends on {n}, which is only known at a call"
            raise SchemaError(f"{why}: a template parameter needs a number or a tuned name; take {name} as a function "
                              f"parameter, or write 'tune {name} = ...'", line=line)
        if isinstance(statement, Let) and n not in seen:
            seen.add(n)
            names = (k.id for k in ast.walk(statement.value.tree) if isinstance(k, ast.Name))
            waiting += [k for k in names if k in declaration.values or k == "sm_count"]
    value = _Values(declaration, {a.name: None for a in declaration.arguments}, tuned)[name]
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _check_pointer(p: Parameter, binding: Binding, declaration: Declaration, known: Mapping[str, torch.dtype | None]) -> None:
    """A pointer to a type of its own takes one dtype."""
    if not p.pointer or p.type in {t.name for t in binding.function.templates} or p.type == "void":
        return
    tensor = declaration.aliases.get(p.name, p.name)
    wanted, got = ctypes_cpp.dtype_of(p.type), known.get(tensor)
    if wanted is None:
        raise SchemaError(f"{binding.function.name}: '{p.spelled}' points to {p.type}, which is the type of no dtype", line=p.line)
    if got is not None and got != wanted:
        raise SchemaError(
            f"{binding.function.name} has no form for {ctypes_cpp.short(got)}: its parameter '{p.spelled}' takes "
            f"{ctypes_cpp.short(wanted)} alone, got {p.name} as {ctypes_cpp.short(got)}; a template on the element type takes more",
            line=p.line)


def _coded(p: Parameter, arguments: Mapping[str, str], declaration: Declaration) -> tuple[int, str]:
    value = list(declaration.values).index(p.name)
    return value, "pointer" if p.pointer else _scalar(p, arguments)[1]


def _scalar(p: Parameter, arguments: Mapping[str, str]) -> tuple[str, str]:
    """(C++ type to convert to, its name among the codes)"""
    spelled = arguments.get(p.type, p.type)
    name = ctypes_cpp.name_of(spelled)
    if name is None:
        raise SchemaError(f"'{p.spelled}': no value converts to {spelled}", line=p.line)
    return spelled, name


def _thunk(symbol: str, function: Function, arguments: Mapping[str, str], declaration: Declaration, file: str) -> str:
    """`extern "C" int symbol(values)`: 0, or the position from 1 of a parameter whose value does not fit."""
    values = list(declaration.values)
    checks, passed = [], []
    for position, p in enumerate(function.parameters, 1):
        slot = f"v[{values.index(p.name)}]"
        if p.pointer:
            passed.append(f"({'const ' if p.const else ''}{arguments.get(p.type, p.type)}*){slot}.p")
            continue
        spelled, name = _scalar(p, arguments)
        if declaration.values[p.name] is Kind.FLOAT:
            passed.append(f"({spelled}){slot}.f")
            continue
        passed.append(f"({spelled}){slot}.i")
        if name not in ("float", "double", "half", "bfloat16", "int64_t"):
            checks.append(f"  if (!wb_fits<{spelled}>({slot}.i)) return {position};")
    # A name may be that of a C function (`exp`): `::` and the types of the arguments say which is meant.
    called = "::" + "::".join(filter(None, (function.namespace, function.name)))
    template = f"<{', '.join(arguments.values())}>" if arguments else ""
    at = _line(function.line, file)  # a mistake in the call is one of the signature
    return "\n".join([
        at,
        f'extern "C" __attribute__((visibility("default"))) int {symbol}(const wb_value* v) {{',
        *checks,
        at,
        f"  {called}{template}({', '.join(passed)});",
        "  return 0;",
        "}",
    ])
