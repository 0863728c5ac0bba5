"""A raw C++ kernel as a package has it: the cell's text, its instances, and its host code. Pure text.

The host code is the live launcher's, with its numbers in place and its kernels called by name. `files` is that of a raw
CUDA kernel, too, whose texts are in `raw_cuda`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..build import body, launcher
from ..build.body_parts import constants
from ..build.forms import Form
from ..directives import Declaration, bind
from . import flags, sources
from .model import Native, Unit
from .support import own
from .tables import Dtypes, Group, groups, tables, told
from .tables import forms as built_for


@dataclass(frozen=True)
class Language:
    """How a raw kernel is written for a package: `host` and `kernels` are its texts, `flags_of` what compiles a group's
    kernels, `support` the headers that they need of ours.
    """

    name: str
    device: str
    suffix: str
    host: Callable[[Any, str, Sequence[Group], str], str]
    kernels: Callable[[Any, str, Group, str], str]
    flags_of: Callable[[Any, Group, Mapping[str, str]], flags.Flags]
    support: Callable[[str], Iterable[str]]


def native(kernel: Any, forms: Sequence[Dtypes], number: int = 0) -> Native:
    """The files of a raw C++ kernel for these dtypes of its arguments."""
    return files(Language("cpp", "cpu", "cpp", host, kernels, _flags, _support), kernel, forms, number)


def files(language: Language, kernel: Any, forms: Sequence[Dtypes], number: int) -> Native:
    """The files of a raw kernel: the cell's own, its host code, and the kernels of each group of dtypes."""
    schema, slot, suffix = kernel.schema, kernel.slot, language.suffix
    stem = f"{schema.name}_{slot}_{language.device}"
    kept = sources.of(kernel.source, schema, slot, kernel.declaration.flags, kernel.headers)
    made = groups(kernel, forms)
    texts = {**kept.files, f"csrc/{stem}.{suffix}": language.host(kernel, stem, made, kept.main)}
    units = [Unit(f"csrc/{stem}.{suffix}")]
    linked: list[str] = []
    for g in made:
        path = f"csrc/{stem}_kernels{g.suffix}.{suffix}"
        texts[path] = language.kernels(kernel, stem, g, kept.main)
        given = language.flags_of(kernel, g, kept.files)
        units.append(Unit(path, given.compiling))
        linked += given.linking
    support = "launcher.h", *language.support(texts[f"csrc/{stem}_kernels.{suffix}"])
    return Native(
        slot, language.device, language.name, "raw", texts, tuple(units), names(kernel, stem), kept.origins,
        support, tuple(dict.fromkeys(linked)),
        partial=kernel.native_schema.name if kernel.left_out else "", number=number, forms=built_for(kernel, made[0]),
    )  # fmt: skip


def _flags(kernel: Any, group: Group, texts: Mapping[str, str]) -> flags.Flags:
    return flags.for_cpp(kernel.declaration.flags_for(group.tuned), kernel.source, texts)


def _support(instances: str) -> list[str]:
    """The headers that the instances include, by the names that they have here."""
    text = re.sub(r'"support/((?:body|half|bfloat16|cuda)\w*\.h)"', r'"support/wb_\1"', instances)
    return re.findall(r'"support/(\w+\.h)"', text)


def names(kernel: Any, stem: str) -> tuple[tuple[str, str], ...]:
    """(op, function) of each name that the host code is registered for."""
    return tuple((f"{kernel.native_schema.name}{s}", f"{stem}::call") for s in launcher.suffixes(kernel.slot))


def layout_op(schema: Any, slot: str) -> str:
    """The op that knows the strides of outputs: `lab::rmsnorm_layout`."""
    return f"{schema.qualname}{'_backward' * (slot == 'backward')}_layout"


def kernels(kernel: Any, stem: str, group: Group, main: str) -> str:
    """The text that instantiates a cell's function for each combination of dtypes."""
    declaration: Declaration = kernel.declaration
    bound: set[str] = set()
    types: set[str] = set()
    made: list[str] = []
    form, space = Form(declaration, group.instances[0], group.tuned), f"{stem}{group.suffix}_text"
    for k, dtypes in enumerate(group.instances):
        form = Form(declaration, dtypes, group.tuned)
        made += ["", f"// {told(declaration, dtypes)}"]
        for binding in bind(declaration.functions, declaration):
            arguments = form.template_arguments(binding)
            bound |= set(binding.values)
            types |= set(arguments.values())
            for p in binding.function.parameters:
                form.check(p, binding)
            checks, call = body.converted(binding.function, arguments, declaration)
            call = call if sources.in_no_namespace(kernel.source) else f"::{space}{call}"
            made += [
                f'extern "C" int {entry(stem + group.suffix, k, binding.function.name)}(const wb_value* v) {{',
                *checks, f"  {call};", "  return 0;", "}",
            ]  # fmt: skip
    return own("\n".join([
        f"// The kernels of {main} for the dtypes that they are built for: each takes its parameters from the table of",
        "// named values, and returns 0, or the position from 1 of a parameter whose value does not fit its type.",
        *body.prelude(kernel.source.text, types),
        *sources.included(kernel.source, main, space, kernel.declaration.flags, constants(form, bound)),
        *made,
        "",
    ]), kernel)  # fmt: skip


def entry(stem: str, instance: int, function: str) -> str:
    return f"{stem}_{instance}_{function}"


def host(kernel: Any, stem: str, made: Sequence[Group], main: str) -> str:
    """The host code: checks, allocations, and which kernel is called for which dtypes."""
    declaration, schema = kernel.declaration, kernel.native_schema
    functions = [b.function.name for b in bind(declaration.functions, declaration)]
    declared = [
        f'extern "C" int {entry(stem + g.suffix, k, f)}(const wb::Value*);'
        for g in made
        for k in range(len(g.instances))
        for f in functions
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
        *tables(kernel, made, lambda suffix, k, f: entry(stem + suffix, k, f)),
        *launcher.call(declaration, "cpu", static=False, descriptor="descriptor"),
        f"}}  // namespace {stem}",
        "",
    ]), kernel)  # fmt: skip
