"""A raw C++ kernel as a package has it: the cell's text, its instances, and its host code. Pure text.

The host code is the live launcher's, with its numbers in place and its kernels called by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..build import body, launcher
from ..build.body_parts import coded, constants
from ..build.ctypes_cpp import CODES, DTYPE_CODES, dtype_of, name_of, short
from ..build.flags import links
from ..build.forms import Form, complete
from ..build.native import ANY, NONE
from ..build.statements_cpp import texts
from ..directives import Declaration, Kind, bind
from . import sources
from .model import Native, Unit
from .support import own

Dtypes = Mapping[str, "torch.dtype | None"]


def native(kernel: Any, forms: Sequence[Dtypes], number: int = 0) -> Native:
    """The files of a raw C++ kernel for these dtypes of its arguments."""
    schema, slot = kernel.schema, kernel.slot
    stem = f"{schema.name}_{slot}_cpu"
    kept = sources.of(kernel.source, schema, slot, kernel.declaration.flags)
    flags = sources.flags(kernel.declaration.flags, kernel.source)
    instances = [complete(kernel.declaration, f) for f in forms]
    files = {
        **kept.files,
        f"csrc/{stem}_kernels.cpp": kernels(kernel, stem, instances, kept.main),
        f"csrc/{stem}.cpp": host(kernel, stem, instances, kept.main),
    }
    units = (
        Unit(f"csrc/{stem}_kernels.cpp", tuple(f for f in flags if not links(f))),
        Unit(f"csrc/{stem}.cpp"),
    )
    link = tuple(f for f in flags if links(f) or f.startswith("-fopenmp"))
    return Native(
        slot, "cpu", "cpp", "raw", files, units, names(kernel, stem), kept.origins,
        ("launcher.h", *re.findall(r'"support/(\w+\.h)"', _wanted(files, stem))), link,
        partial=kernel.native_schema.name if kernel.left_out else "", number=number,
    )  # fmt: skip


def _wanted(files: Mapping[str, str], stem: str) -> str:
    """The includes of the instances, with the names that our headers have here."""
    text = files[f"csrc/{stem}_kernels.cpp"]
    return re.sub(r'"support/((?:body|half|bfloat16|cuda)\w*\.h)"', r'"support/wb_\1"', text)


def names(kernel: Any, stem: str) -> tuple[tuple[str, str], ...]:
    """(op, function) of each name that the host code is registered for."""
    return tuple((f"{kernel.native_schema.name}{s}", f"{stem}::call") for s in launcher.suffixes(kernel.slot))


def layout_op(schema: Any, slot: str) -> str:
    """The op that knows the strides of outputs: `lab::rmsnorm_layout`."""
    return f"{schema.qualname}{'_backward' * (slot == 'backward')}_layout"


def kernels(kernel: Any, stem: str, instances: Sequence[Dtypes], main: str) -> str:
    """The text that instantiates a cell's function for each combination of dtypes."""
    declaration: Declaration = kernel.declaration
    bound: set[str] = set()
    types: set[str] = set()
    made: list[str] = []
    form = Form(declaration, instances[0])
    for k, dtypes in enumerate(instances):
        form = Form(declaration, dtypes)
        made += ["", f"// {told(declaration, dtypes)}"]
        for binding in bind(declaration.functions, declaration):
            arguments = form.template_arguments(binding)
            bound |= set(binding.values)
            types |= set(arguments.values())
            for p in binding.function.parameters:
                form.check(p, binding)
            checks, call = body.converted(binding.function, arguments, declaration)
            made += [
                f'extern "C" int {entry(stem, k, binding.function.name)}(const wb_value* v) {{',
                *checks, f"  {call};", "  return 0;", "}",
            ]  # fmt: skip
    return own("\n".join([
        f"// The kernels of {main} for the dtypes that they are built for: each takes its parameters from the table of",
        "// named values, and returns 0, or the position from 1 of a parameter whose value does not fit its type.",
        *body.prelude(kernel.source.text, types),
        *constants(form, bound),
        f'#include "{main}"',
        *made,
        "",
    ]))  # fmt: skip


def entry(stem: str, instance: int, function: str) -> str:
    return f"{stem}_{instance}_{function}"


def told(declaration: Declaration, dtypes: Dtypes) -> str:
    """`x float32, w float32`."""
    given = [a.name for a in declaration.arguments if a.is_tensor]
    return ", ".join(f"{n} {short(d)}" for n in given if (d := dtypes.get(n))) or "no tensor"


def host(kernel: Any, stem: str, instances: Sequence[Dtypes], main: str) -> str:
    """The host code: checks, allocations, and which kernel is called for which dtypes."""
    declaration, schema = kernel.declaration, kernel.native_schema
    functions = [b.function.name for b in bind(declaration.functions, declaration)]
    declared = [
        f'extern "C" int {entry(stem, k, f)}(const wb::Value*);' for k in range(len(instances)) for f in functions
    ]
    return own("\n".join([
        f"// Host code of {schema.qualname}, {kernel.slot} on the CPU: checks, allocates and calls the kernels of {main}.",
        '#include "launcher.h"',
        "",
        *declared,
        "",
        f"namespace {stem} {{",
        *launcher.what_it_does(
            schema, declaration, kernel.slot, "cpu", kernel._gradients(), layout=layout_op(schema, kernel.slot), numbers=True
        ),
        *descriptor(kernel, stem, instances, lambda k, f: entry(stem, k, f)),
        *launcher.call(declaration, "cpu", static=False, descriptor="descriptor"),
        f"}}  // namespace {stem}",
        "",
    ]))  # fmt: skip


def descriptor(kernel: Any, stem: str, instances: Sequence[Dtypes], symbol: Any, *, suffix: str = "") -> list[str]:
    """The tables that a live launcher is handed: kernels by dtypes, tuned values, and the directives as messages."""
    declaration: Declaration = kernel.declaration
    kinds = list(declaration.values.values())
    lines: list[str] = []
    for k, dtypes in enumerate(instances):
        form, rows, pointers = Form(declaration, dtypes, types=_types(kernel)), [], {}
        for number, binding in enumerate(bind(declaration.functions, declaration)):
            arguments = form.template_arguments(binding)
            codes = [coded(p, arguments, declaration) for p in binding.function.parameters]
            pointers |= {v: t[:-1] for v, t in codes if t.endswith("*")}
            table = ", ".join(f"{{{v}, {_code(t)}, {int(kinds[v] is Kind.FLOAT)}}}" for v, t in codes)
            name = f"parameters_{k}_{number}{suffix}"
            lines.append(f"static const wb::Parameter {name}[] = {{{table or '{}'}}};")
            rows.append(f'{{{symbol(k, binding.function.name)}, "{binding.function.name}", {len(codes)}, {name}, nullptr}}')
        lines.append(f"static const wb::Function functions_{k}{suffix}[] = {{{', '.join(rows)}}};")
        lines.append(f"static const int8_t dtypes_{k}{suffix}[] = {{{', '.join(map(str, _served(declaration, dtypes, pointers))) or '0'}}};"
                     f"  // {told(declaration, dtypes)}")  # fmt: skip
    tuned = [f"{{.{'f' if isinstance(v, float) else 'i'} = {v!r}}}" for v in (t.values[0] for t in declaration.tunes.values())]
    rows = [f"{{dtypes_{k}{suffix}, functions_{k}{suffix}}}" for k in range(len(instances))]
    return [
        *lines,
        f"static const wb::Instance instances{suffix}[] = {{{', '.join(rows)}}};",
        f"static const wb::Value tuned{suffix}[] = {{{', '.join(tuned) or '{}'}}};",
        *(statements(declaration) if not suffix else []),
        f"static const wb::Descriptor descriptor{suffix} = {{",
        f"    .layout = {int(kernel.layout)}, .instance_count = {len(instances)}, .instances = instances{suffix},",
        f"    .function_count = {len(declaration.functions)}, .tuned = tuned{suffix}, .statements = statements,",
        "};",
        "",
    ]


def statements(declaration: Declaration) -> list[str]:
    """The directives as messages show them, with their lines."""
    said = ", ".join(f"{{{_quoted(t)}, {line}}}" for t, line in texts(declaration)) or "{}"
    return [f"static const wb::Text statements[] = {{{said}}};"]


def _types(kernel: Any) -> Mapping[torch.dtype, str]:
    from ..build import ctypes_cpp

    return ctypes_cpp.CUDA if kernel.source.language == "cuda" else ctypes_cpp.CPP


def _code(spelled: str) -> int:
    return CODES.index("pointer" if spelled.endswith("*") else name_of(spelled) or spelled)


def _served(declaration: Declaration, dtypes: Dtypes, pointers: Mapping[int, str]) -> list[int]:
    """The dtypes that an instance serves, as `native._codes` has them."""
    slots = {v: declaration.aliases.get(n, n) for v, n in enumerate(declaration.values)}
    named = {slots[v]: t for v, t in pointers.items()}
    codes = []
    for name in declaration.tensors:
        served = dtypes.get(name) or dtype_of(named.get(name, "void"))
        codes.append(DTYPE_CODES.get(served, NONE) if name in named and served else ANY)
    return codes


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
