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
from ..source import Function, Source
from .body_parts import coded, constants, defines, line_directive, of_user, scalar
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
        parameters.append(tuple(coded(p, arguments, declaration) for p in binding.function.parameters))
        types |= set(arguments.values())
    return Body(_text(source, form, bound, types, thunks), tuple(symbols), tuple(parameters))


def _text(source: Source, form: Form, bound: set[str], types: set[str], thunks: list[str]) -> str:
    lines = [*prelude(source.text, types), *constants(form, bound), of_user(source) + "\n".join(thunks)]
    return "\n".join(lines) + "\n"


def prelude(text: str, types: set[str]) -> list[str]:
    """The headers of ours that a text needs that is instantiated with these types, what can be precompiled first."""
    lines = [f'#include "{_prelude(text)}"']
    if "_Float16" in types or re.search(r"\bhalf\b", text):
        lines += [] if defines(text, "half") else ['#include "wb_half.h"']
    if ("bfloat16" in types or re.search(r"\bbfloat16\b", text)) and not defines(text, "bfloat16"):
        lines += ['#include "wb_bfloat16.h"']
    return lines


def _prelude(text: str) -> str:
    """The smallest header of ours that has what the text asks for: each is precompiled as a whole."""
    if _STD.search(text):
        return "wb_body_std.h"
    return "wb_body_math.h" if _MATH.search(text) else "wb_body.h"


def _thunk(symbol: str, function: Function, arguments: Mapping[str, str], declaration: Declaration, file: str) -> str:
    """`extern "C" int symbol(values)`: 0, or the position from 1 of a parameter whose value does not fit."""
    checks, call = converted(function, arguments, declaration)
    at = line_directive(function.line, file)  # a mistake in the call is one of the signature
    return "\n".join(
        [
            at,
            f'extern "C" __attribute__((visibility("default"))) int {symbol}(const wb_value* v) {{',
            *checks,
            at,
            f"  {call};",
            "  return 0;",
            "}",
        ]
    )


def converted(
    function: Function, arguments: Mapping[str, str], declaration: Declaration, geometry: str = ""
) -> tuple[list[str], str]:
    """The checks of the table `v` of named values, and the call with its values in their C types.

    `geometry` is what stands before a kernel's arguments, `<<<...>>>`.
    """
    values = list(declaration.values)
    checks, passed = [], []
    for position, p in enumerate(function.parameters, 1):
        slot = f"v[{values.index(p.name)}]"
        if p.pointer:
            passed.append(f"({'const ' if p.const else ''}{arguments.get(p.type, p.type)}*){slot}.p")
            continue
        spelled, name = scalar(p, arguments)
        if declaration.values[p.name] is Kind.FLOAT:
            passed.append(f"({spelled}){slot}.f")
            continue
        passed.append(f"({spelled}){slot}.i")
        if name not in ("float", "double", "half", "bfloat16", "int64_t"):
            checks.append(f"  if (!wb_fits<{spelled}>({slot}.i)) return {position};")
    # A name may be that of a C function (`exp`): `::` and the types of the arguments say which is meant.
    called = "::" + "::".join(filter(None, (function.namespace, function.name)))
    template = f"<{', '.join(arguments.values())}>" if arguments else ""
    return checks, f"{called}{template}{geometry}({', '.join(passed)})"
