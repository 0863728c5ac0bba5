"""The text that NVRTC sees for a raw CUDA cell: prelude and the user's text under `#line`, with the names of the
kernels that it instantiates. Pure text. Which file each `#include` means is the business of `nvrtc.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ..directives import Declaration, bind
from ..errors import SchemaError
from ..source import Function, Parameter, Source, code
from . import ctypes_cpp
from .body_parts import coded, constants, defines, of_user
from .forms import Form, complete

# Headers that a text needs for what it names, or for the types that it is instantiated with.
_HALF = re.compile(r"(?<![A-Za-z])half2?\b|__half|2half|half2|\b__h(?:add|sub|mul|fma|div|neg|abs)")
_HEADERS = (
    ("cuda_fp16.h", {"__half"}, _HALF),
    ("cuda_bf16.h", {"__nv_bfloat16"}, re.compile(r"bfloat16")),
    ("cuda_fp8.h", {"__nv_fp8_e4m3", "__nv_fp8_e5m2"}, re.compile(r"fp8|e4m3|e5m2")),
)
# What pasted text takes from C++ headers, often without including them.
_TRAITS = ("is_", "enable_if", "conditional", "remove_", "decay", "integral_constant", "bool_constant", "make_signed",
           "make_unsigned", "true_type", "false_type", "common_type", "void_t", "add_", "underlying_type")  # fmt: skip
_STD = (
    ("limits", re.compile(r"\bstd::numeric_limits\b")),
    ("type_traits", re.compile(rf"\bstd::(?:{'|'.join(_TRAITS)})")),
    ("utility", re.compile(r"\bstd::(?:pair|make_pair|exchange|declval|(?:make_)?(?:index|integer)_sequence)\b")),
    ("array", re.compile(r"\bstd::array\b")),
    ("tuple", re.compile(r"\bstd::(?:tuple|make_tuple|tie)\b")),
    ("complex", re.compile(r"\bstd::complex\b")),
)
_ORDER = ('#include "wb_cuda.h"', '#include "wb_cuda_std.h"',
          *(f"#include <{name}>" for name, *_ in (*_STD, *_HEADERS)))  # fmt: skip


@dataclass(frozen=True)
class CudaBody:
    """One instance of a cell's kernels, ready for NVRTC.

    `names` are the C++ names of the kernels in the order in which they are launched, template arguments spelled out;
    `parameters` are for each kernel (index among the named values, C type, `float*` for a tensor) of every parameter.
    """

    text: str
    names: tuple[str, ...]
    parameters: tuple[tuple[tuple[int, str], ...], ...]


def instantiate(
    source: Source,
    declaration: Declaration,
    dtypes: Mapping[str, torch.dtype | None],
    tuned: Mapping[str, int | float] | None = None,
) -> CudaBody:
    """The body of a raw CUDA cell for tensors of these dtypes, by name; None where a tensor is None.

    >>> instantiate(source, declaration, {"x": torch.float16, "w": torch.float32}).names
    ('rmsnorm<__half, float, 256>',)

    Dtypes of tensors that directives make are filled in. Raises SchemaError, on the user's line, naming the parameter
    and the dtype, where a kernel has no form for these dtypes, or where a template value is not known at build time.
    """
    form = Form(declaration, complete(declaration, dtypes), dict(tuned or {}), ctypes_cpp.CUDA)
    try:
        return _instantiate(source, form)
    except SchemaError as error:
        error.file = error.file or source.file
        raise


def _instantiate(source: Source, form: Form) -> CudaBody:
    declaration = form.declaration
    bound: set[str] = set()
    types: set[str] = set()
    names, parameters = [], []
    for binding in bind(declaration.functions, declaration):
        arguments = form.template_arguments(binding)
        bound |= set(binding.values)
        types |= set(arguments.values())
        for p in binding.function.parameters:
            form.check(p, binding)
        names.append(name_expression(binding.function, arguments))
        parameters.append(tuple(coded(p, arguments, declaration) for p in binding.function.parameters))
    return CudaBody(_text(source, form, bound, types), tuple(names), tuple(parameters))


def name_expression(function: Function, arguments: Mapping[str, str]) -> str:
    """What NVRTC is asked for: the kernel with its template arguments, or with its type where it has none.

    >>> name_expression(functions("__global__ void exp(const float* x, int n) {}", "cuda")[0], {})
    '(void(*)(const float*, int))exp'

    A kernel may bear the name of a function that CUDA has (`exp`); its type says which is meant.
    """
    name = "::".join(filter(None, (function.namespace, function.name)))
    if arguments or function.templates:
        return f"{name}<{', '.join(arguments.values())}>"
    return f"(void(*)({', '.join(map(_type, function.parameters))})){name}"


def _type(p: Parameter) -> str:
    """The type of a parameter as it was written, without its name and what is after a `*`."""
    if not p.pointer:
        return p.type
    before = re.sub(r"\b(?:__restrict__|__restrict|restrict)\b", "", p.spelled.partition("*")[0].partition("[")[0])
    words = before if "*" in p.spelled else before.removesuffix(p.name)
    return f"{' '.join(words.split())}*"


def _text(source: Source, form: Form, bound: Collection[str], types: Collection[str]) -> str:
    lines = [*prelude(source, types), *constants(form, bound)]
    return "\n".join([*lines, of_user(source)])


def together(bodies: Sequence[CudaBody]) -> tuple[CudaBody, ...]:
    """The same bodies with one text where they differ in headers alone, as forms for several dtypes do.

    >>> {b.text for b in together([for_float, for_half])}          # one run of NVRTC gives both
    {'#include "wb_cuda.h"\\n#include <cuda_fp16.h>\\n#line 2 "cell [3]"\\n...'}

    NVRTC takes one text at a time: three forms in one run take half as long as in three, with a heavy header a third.
    """
    heads = [body.text.partition("#line ")[0].splitlines() for body in bodies]
    rests = {body.text.partition("#line ")[2] for body in bodies}
    others = {tuple(line for line in head if not line.startswith("#include")) for head in heads}
    if len(rests) > 1 or len(others) > 1:
        return tuple(bodies)
    wanted = {line for head in heads for line in head if line.startswith("#include")}
    lines = [*(line for line in _ORDER if line in wanted), *(line for kept in others for line in kept)]
    text = "\n".join([*lines, f"#line {rests.pop()}" if rests else ""])
    return tuple(replace(body, text=text) for body in bodies)


def prelude(source: Source, types: Collection[str] = ()) -> list[str]:
    """The lines before the user's: what the text and the types that it is instantiated with need.

    >>> prelude(Source("__global__ void k(__half* x) {}", "cuda"))
    ['#include "wb_cuda.h"', '#include <cuda_fp16.h>']
    """
    text = code(source.text)
    named = {"wb_cuda.h", *(["wb_cuda_std.h"] if "std::" in text else [])}
    named |= {name for name, pattern in _STD if pattern.search(text)}
    for name, needed_by, pattern in _HEADERS:
        if needed_by & set(types) or (pattern.search(text) and not (name == "cuda_fp16.h" and defines(text, "half"))):
            named.add(name)
    lines = [line for line in _ORDER if line[10:-1] in named]
    if re.search(r"(?<![\w:])bfloat16\b", text) and not defines(text, "bfloat16"):
        lines.append("using bfloat16 = __nv_bfloat16;")  # as C++ cells call it
    return lines
