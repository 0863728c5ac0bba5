"""The text that the compiler sees for a raw C++ cell: prelude, the user's text under `#line`, and a thunk. Pure text.

A thunk is what the launcher calls: it takes every parameter of one function from the table of named values, converts
it to its C type and calls the function, with its template arguments spelled out for the dtypes at hand. Precompiling
the prelude is the business of `cpp.py`: the first line of the text is the one `#include` that can be precompiled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ..directives import Declaration, Kind, bind
from ..errors import SchemaError
from ..source import Function, Parameter, Source
from . import ctypes_cpp
from .forms import Form, complete

_MATH = re.compile(
    r"\bstd::|<c?math(\.h)?>|\b(?:M_PI|isnan|isinf|isfinite|signbit|(?:fabs|fmax|fmin|fma|fmod|sqrt|cbrt|hypot|pow|exp|exp2|expm1|"
    r"log|log2|log10|log1p|sin|cos|tan|asin|acos|atan|atan2|sinh|cosh|tanh|asinh|acosh|atanh|erf|erfc|tgamma|lgamma|"
    r"floor|ceil|round|trunc|rint|nearbyint|lrint|lround|llrint|llround|copysign|remainder|ldexp|frexp|modf|abs)[fl]?)\b"
)
_STD = re.compile(
    r"#[ \t]*include[ \t]*<(?:algorithm|array|atomic|bit|complex|functional|limits|memory|numeric|string|tuple|"
    r"type_traits|utility|vector|[a-z]*intrin\.h)>"
)
_OWN_BFLOAT16 = re.compile(r"\b(?:struct|class|union|using)\s+bfloat16\b|\btypedef\b[^;]*\bbfloat16\s*;")
_OWN_HALF = re.compile(r"\b(?:struct|class|union|using)\s+half\b|\btypedef\b[^;]*\bhalf\s*;")


@dataclass(frozen=True)
class Body:
    """One instance of a cell's functions, ready for the compiler.

    `symbols` are the exported names, one a function in the order in which they are called; `parameters` are for each
    function (index among the named values, C type, `float*` for a tensor) of every parameter, in order.
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
    try:
        return _instantiate(source, Form(declaration, complete(declaration, dtypes), dict(tuned or {})))
    except SchemaError as error:
        error.file = error.file or source.file
        raise


def _instantiate(source: Source, form: Form) -> Body:
    declaration = form.declaration
    bound: set[str] = set()
    thunks, symbols, parameters, types = [], [], [], set()
    for binding in bind(declaration.functions, declaration):
        arguments = form.template_arguments(binding)
        bound |= set(binding.values)
        for p in binding.function.parameters:
            form.check(p, binding)
        symbol = f"wb_call_{binding.function.name}"
        thunks.append(_thunk(symbol, binding.function, arguments, declaration, source.file))
        symbols.append(symbol)
        parameters.append(tuple(_coded(p, arguments, declaration) for p in binding.function.parameters))
        types |= set(arguments.values())
    return Body(_text(source, form, bound, types, thunks), tuple(symbols), tuple(parameters))


def _text(source: Source, form: Form, bound: set[str], types: set[str], thunks: list[str]) -> str:
    lines = [f'#include "{_prelude(source.text)}"']
    if "_Float16" in types or re.search(r"\bhalf\b", source.text):
        lines += [] if _OWN_HALF.search(source.text) else ['#include "wb_half.h"']
    if ("bfloat16" in types or re.search(r"\bbfloat16\b", source.text)) and not _OWN_BFLOAT16.search(source.text):
        lines += ['#include "wb_bfloat16.h"']
    for tune in form.declaration.tunes.values():
        if tune.name not in bound:
            value = form.tuned.get(tune.name, tune.values[0])
            kind = "double" if isinstance(value, float) else "int" if abs(value) < 2**31 else "long long"
            lines.append(f"constexpr {kind} {tune.name} = {value!r};")
    text = source.text if source.text.endswith("\n") else source.text + "\n"
    return "\n".join([*lines, _line(source.first_line, source.file), text + "\n".join(thunks)]) + "\n"


def _prelude(text: str) -> str:
    """The smallest header of ours that has what the text asks for: each is precompiled as a whole."""
    if _STD.search(text):
        return "wb_body_std.h"
    return "wb_body_math.h" if _MATH.search(text) else "wb_body.h"


def _line(number: int, file: str) -> str:
    """A `#line` directive; control characters in a file's name would end it."""
    name = "".join(c if c.isprintable() else "?" for c in file).replace("\\", "\\\\").replace('"', '\\"')
    return f'#line {number} "{name}"'


def _coded(p: Parameter, arguments: Mapping[str, str], declaration: Declaration) -> tuple[int, str]:
    value = list(declaration.values).index(p.name)
    return value, f"{arguments.get(p.type, p.type)}*" if p.pointer else _scalar(p, arguments)[1]


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
