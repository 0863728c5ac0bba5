"""The tables of a package's host code: which kernel for which dtypes, tuned values by sizes, messages. Pure text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..build.body_parts import coded, literal
from ..build.ctypes_cpp import CODES, DTYPE_CODES, dtype_of, name_of, short
from ..build.forms import Form, complete
from ..build.native import ANY, NONE, _sizes
from ..build.statements_cpp import texts
from ..directives import Binding, Declaration, Kind, bind

Dtypes = Mapping[str, "torch.dtype | None"]
_DTYPES = {code: dtype for dtype, code in DTYPE_CODES.items()}
Symbol = Callable[[str, int, str], str]


@dataclass(frozen=True)
class Group:
    """The instances of one setting of the tuned names: `suffix` is "" for the usual one; `sizes` are the calls, as
    `launcher.h` spells them, that another one was found best for.
    """

    suffix: str
    tuned: Mapping[str, int | float]
    instances: list[Dtypes]
    sizes: list[tuple[int, ...]] = field(default_factory=list)


def groups(kernel: Any, forms: Sequence[Dtypes]) -> list[Group]:
    """The usual setting for all dtypes, then what was found best for some sizes."""
    declaration: Declaration = kernel.declaration
    usual = {t.name: kernel.tuned.get(t.name, t.values[0]) for t in declaration.tunes.values()}
    found = [Group("", usual, [complete(declaration, f) for f in forms])]
    for choice in sorted(
        kernel.choices, key=lambda c: tuple(_sizes(c))
    ):  # not as they were found: a package is the same again
        values = {**usual, **choice.tuned}
        mine = next((g for g in found if g.tuned == values), None)
        if mine is None:
            mine = Group(f"_tuned{len(found)}", values, [])
            found.append(mine)
        if mine is found[0]:  # the usual setting was found best
            continue
        dtypes = dict(zip(declaration.tensors, choice.instance.dtypes, strict=True))
        mine.instances.append(dtypes)
        mine.sizes.append(tuple(_sizes(choice)))
    return [replace(g, instances=_distinct(kernel, g)) for g in found]


def _distinct(kernel: Any, group: Group) -> list[Dtypes]:
    """Without those that are one kernel: an argument that is None has no dtype, and its pointer that of another one."""
    found: dict[object, Dtypes] = {}
    for dtypes in group.instances:
        calls = [(binding.function.name, codes) for binding, codes in _parameters(kernel, group, dtypes)]
        found[repr((calls, _served(kernel, group, dtypes)))] = dtypes  # in the place of the first
    return list(found.values())


def tables(kernel: Any, made: Sequence[Group], symbol: Symbol) -> list[str]:
    """What a live launcher is handed as data: kernels by dtypes, tuned values, the directives as messages.

    `symbol(group's suffix, instance, function)` spells a kernel's entry.
    """
    lines = statements(kernel.declaration)
    for group in made[1:]:
        lines += _descriptor(kernel, group, symbol, [])
    rows = []
    for group in made[1:]:
        for number, sizes in enumerate(group.sizes):
            name = f"sizes{group.suffix}_{number}"
            lines.append(f"static const int64_t {name}[] = {{{', '.join(map(str, sizes)) or '0'}}};")
            rows.append(f"{{{name}, &descriptor{group.suffix}}}")
    if rows:
        lines.append(f"static const wb::Choice choices[] = {{{', '.join(rows)}}};")
    more = [f"    .choice_count = {len(rows)}, .choices = choices,"] if rows else []
    return [*lines, *_descriptor(kernel, made[0], symbol, more)]


def _descriptor(kernel: Any, group: Group, symbol: Symbol, more: Sequence[str]) -> list[str]:
    declaration: Declaration = kernel.declaration
    instances, suffix = group.instances, group.suffix
    kinds = list(declaration.values.values())
    lines: list[str] = []
    for k, dtypes in enumerate(instances):
        rows = []
        for number, (binding, codes) in enumerate(_parameters(kernel, group, dtypes)):
            table = ", ".join(f"{{{v}, {code(t)}, {int(kinds[v] is Kind.FLOAT)}}}" for v, t in codes)
            name = f"parameters_{k}_{number}{suffix}"
            lines.append(f"static const wb::Parameter {name}[] = {{{table or '{}'}}};")
            rows.append(
                f'{{{symbol(suffix, k, binding.function.name)}, "{binding.function.name}", {len(codes)}, {name}, nullptr}}'
            )
        lines.append(f"static const wb::Function functions_{k}{suffix}[] = {{{', '.join(rows)}}};")
        lines.append(f"static const int8_t dtypes_{k}{suffix}[] = {{{', '.join(map(str, _served(kernel, group, dtypes))) or '0'}}};"
                     f"  // {told(declaration, dtypes)}")  # fmt: skip
    tuned = [
        f"{{.{'f' if isinstance(v, float) else 'i'} = {v!r}}}"
        for v in (group.tuned.get(t.name, t.values[0]) for t in declaration.tunes.values())
    ]
    rows = [f"{{dtypes_{k}{suffix}, functions_{k}{suffix}}}" for k in range(len(instances))]
    return [
        *lines,
        f"static const wb::Instance instances{suffix}[] = {{{', '.join(rows)}}};",
        f"static const wb::Value tuned{suffix}[] = {{{', '.join(tuned) or '{}'}}};",
        f"static const wb::Descriptor descriptor{suffix} = {{",
        f"    .layout = {int(kernel.layout)}, .instance_count = {len(instances)}, .instances = instances{suffix},",
        f"    .function_count = {len(declaration.functions)}, .tuned = tuned{suffix}, .statements = statements,",
        *more,
        "};",
        "",
    ]


def statements(declaration: Declaration) -> list[str]:
    """The directives as messages show them, with their lines."""
    said = ", ".join(f"{{{literal(t)}, {line}}}" for t, line in texts(declaration)) or "{}"
    return [f"static const wb::Text statements[] = {{{said}}};"]


def _types(kernel: Any) -> Mapping[torch.dtype, str]:
    from ..build import ctypes_cpp

    return ctypes_cpp.CUDA if kernel.source.language == "cuda" else ctypes_cpp.CPP


def code(spelled: str) -> int:
    return CODES.index("pointer" if spelled.endswith("*") else name_of(spelled) or spelled)


def _parameters(kernel: Any, group: Group, dtypes: Dtypes) -> list[tuple[Binding, list[tuple[int, str]]]]:
    """Each function of an instance with its parameters: which value each takes, and its C++ type."""
    declaration: Declaration = kernel.declaration
    form, found = Form(declaration, dtypes, group.tuned, _types(kernel)), []
    for binding in bind(declaration.functions, declaration):
        arguments = form.template_arguments(binding)
        found.append((binding, [coded(p, arguments, declaration) for p in binding.function.parameters]))
    return found


def _served(kernel: Any, group: Group, dtypes: Dtypes) -> list[int]:
    """The dtypes that an instance serves, as `native._codes` has them."""
    declaration: Declaration = kernel.declaration
    typed = [one for _, codes in _parameters(kernel, group, dtypes) for one in codes]
    pointers = {v: t[:-1] for v, t in typed if t.endswith("*")}
    slots = {v: declaration.aliases.get(n, n) for v, n in enumerate(declaration.values)}
    named = {slots[v]: t for v, t in pointers.items()}
    codes = []
    for name in declaration.tensors:
        served = dtypes.get(name) or dtype_of(named.get(name, "void"))
        codes.append(DTYPE_CODES.get(served, NONE) if name in named and served else ANY)
    return codes


def forms(kernel: Any, group: Group) -> tuple[str, ...]:
    """The dtypes of the op's arguments that the kernels of a group are for: `("x float32", "x float64")`.

    An argument that a kernel takes in any dtype is left out; where it takes all so, what else it is given is told.
    """
    found = []
    for dtypes in group.instances:
        served = dict(zip(kernel.declaration.tensors, _served(kernel, group, dtypes), strict=True))
        given = [a.name for a in kernel.declaration.arguments if a.is_tensor]
        typed = [(n, served[n]) for n in given if served[n] != ANY]
        named = [(n, code) for n, code in typed if kernel.schema.argument(n)] or typed
        found.append(", ".join(f"{n} {'None' if code == NONE else short(_DTYPES[code])}" for n, code in named))
    return tuple(dict.fromkeys(filter(None, found)))


def told(declaration: Declaration, dtypes: Dtypes) -> str:
    """`x float32, w float32`."""
    given = [a.name for a in declaration.arguments if a.is_tensor]
    return ", ".join(f"{n} {short(d)}" for n in given if (d := dtypes.get(n))) or "no tensor"
