"""A raw CUDA kernel as a package has it: compiled by nvcc, launched through CUDA's runtime. Pure text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..build import body, ctypes_cpp, cuda_body, launcher
from ..build.body_parts import constants
from ..build.forms import Form
from ..directives import Declaration, bind
from . import flags, raw, sources
from .model import Native
from .support import own
from .tables import Dtypes, Group, tables, told


def native(kernel: Any, forms: Sequence[Dtypes], number: int = 0) -> Native:
    """The files of a raw CUDA kernel for these dtypes of its arguments."""
    language = raw.Language("cuda", "cuda", "cu", host, kernels, _flags, lambda _: ("launcher_cuda.h", "cuda_body.h"))
    return raw.files(language, kernel, forms, number)


def _flags(kernel: Any, group: Group, texts: Mapping[str, str]) -> flags.Flags:
    found = flags.for_cuda(kernel.declaration.flags_for(group.tuned), kernel.source, texts, kernel.arch)
    return replace(found, compiling=("--expt-relaxed-constexpr", *found.compiling))


def kernels(kernel: Any, stem: str, group: Group, main: str) -> str:
    """The text that launches a cell's kernels, instantiated for each combination of dtypes."""
    declaration: Declaration = kernel.declaration
    bound: set[str] = set()
    types: set[str] = set()
    made: list[str] = []
    form, space = Form(declaration, group.instances[0], group.tuned, ctypes_cpp.CUDA), f"{stem}{group.suffix}_text"
    for k, dtypes in enumerate(group.instances):
        form = Form(declaration, dtypes, group.tuned, ctypes_cpp.CUDA)
        made += ["", f"// {told(declaration, dtypes)}"]
        for binding in bind(declaration.functions, declaration):
            function, arguments = binding.function, form.template_arguments(binding)
            bound |= set(binding.values)
            types |= set(arguments.values())
            for p in function.parameters:
                form.check(p, binding)
            checks, call = body.converted(function, arguments, declaration)
            given = call.partition("(")[2] if not arguments else call[call.index(">(") + 2 :]
            passed = given.removesuffix(")")
            name = cuda_body.name_expression(function, arguments)
            if not sources.in_no_namespace(kernel.source):
                name = f"::{space}::{name.rpartition('))')[2] if name.startswith('(void') else name}"
            made += [
                f'extern "C" int {raw.entry(stem + group.suffix, k, function.name)}(const wb_value* v, wb_launch* g) {{',
                "  static wb_allowed allowed;",
                *checks,
                f"  return wb_start({name}, allowed, g{', ' * bool(passed)}{passed});",
                "}",
            ]
    more = [line for line in cuda_body.prelude(kernel.source, types) if line.startswith("using ")]
    return own("\n".join([
        f"// The kernels of {main} for the dtypes that they are built for. Each is launched with parameters from the table of",
        "// named values; 0, or the position from 1 of a parameter whose value does not fit, or the negative code of an error.",
        '#include "support/cuda_body.h"',
        *more,
        *sources.included(kernel.source, main, space, kernel.declaration.flags, constants(form, bound)),
        *made,
        "",
    ]), kernel)  # fmt: skip


def host(kernel: Any, stem: str, made: Sequence[Group], main: str) -> str:
    """The host code: checks, allocations, geometry, and which kernels are launched for which dtypes."""
    declaration, schema = kernel.declaration, kernel.native_schema
    functions = [b.function.name for b in bind(declaration.functions, declaration)]
    declared = [
        f'extern "C" int {raw.entry(stem + g.suffix, k, f)}(const wb_value* v, wb_launch* g);'
        for g in made for k in range(len(g.instances)) for f in functions
    ]  # fmt: skip

    def symbol(suffix: str, k: int, function: str) -> str:
        return f"reinterpret_cast<int (*)(const wb::Value*)>({raw.entry(stem + suffix, k, function)})"

    return own("\n".join([
        f"// Host code of {schema.qualname}, {kernel.slot} on GPUs: checks, allocates and launches the kernels of {main}.",
        *([f'#define WB_ARCH "{kernel.arch}"'] if flags.for_one_alone(kernel.arch, declaration.flags) else []),
        '#include "launcher.h"',
        '#include "launcher_cuda.h"',
        "",
        "union wb_value;",
        *declared,
        "",
        f"namespace {stem} {{",
        *launcher.what_it_does(
            schema, declaration, kernel.slot, "cuda", kernel._gradients(), layout=raw.layout_op(schema, kernel.slot),
            numbers=True,
        ),
        *tables(kernel, made, symbol),
        *launcher.call(declaration, "cuda", static=False, descriptor="descriptor"),
        f"}}  // namespace {stem}",
        "",
    ]), kernel)  # fmt: skip
