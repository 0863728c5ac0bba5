"""What stands between an op and a Triton launcher: arguments bound by name, results put where the op's schema has them.

Used in this process and in the worker, for compiled and for interpreted kernels alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import SchemaError
from ..schema import Argument, Schema


@dataclass(frozen=True)
class Plan:
    """How a launcher is called for one slot.

    `arguments` are the native op's, in order, and `takes` those that the launcher names, in its own order. A backward
    gives None for the gradients of those in `left_out`.
    `contiguous`: the cell reads no strides, so it counts on contiguous tensors. `file` and `line` are the launcher's.
    `unread`: gradients that arrive in a backward which reads strides, and none of theirs: it counts on those of what
    they are gradients of.
    """

    schema: Schema
    slot: str
    arguments: tuple[Argument, ...]
    function: str
    takes: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    contiguous: bool = False
    file: str = ""
    line: int = 0
    unread: tuple[str, ...] = ()

    @property
    def results(self) -> tuple[str, ...]:
        """What a forward returns, by name: outputs, then what is saved."""
        return (*self.schema.outputs, *self.schema.saves)


def named(plan: Plan, args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by name. The dispatcher drops trailing ones that are their defaults."""
    values = {a.name: None if a.required else a.default for a in plan.arguments}
    values.update(zip((a.name for a in plan.arguments if not a.keyword_only), args, strict=False))
    values.update(keywords)
    return values


def dtypes(arguments: Sequence[Argument], values: Mapping[str, Any]) -> dict[str, torch.dtype | None]:
    """The dtypes of tensor arguments, by name; of a list that of its first tensor."""
    found = {}
    for a in arguments:
        if a.is_tensor:
            found[a.name] = getattr(values.get(a.name), "dtype", None)
        elif a.is_tensor_list:
            value = values.get(a.name)
            found[a.name] = getattr(value[0], "dtype", None) if isinstance(value, (list, tuple)) and value else None
    return found


def size(values: Mapping[str, Any]) -> int:
    """The elements of all tensors; 0 where one has none, so that there may be nothing to launch for."""
    sizes = [t.numel() for v in values.values() for t in tensors(v)]
    return sum(sizes) if all(sizes) else 0


def call(plan: Plan, function: Callable, values: Mapping[str, Any]) -> list[Any]:
    """Call the launcher; all results in order, as the op gives them. SchemaError where they are not what it gives."""
    given = settled(plan, values) if plan.contiguous else alike(plan, values) if plan.unread else values
    returned = function(**{n: given[n] for n in plan.takes})
    if plan.slot == "backward":
        return gradients(plan, values, returned)
    found = outputs(plan, returned)
    _on_one_device(plan, given, found)
    return found


def _on_one_device(plan: Plan, given: Mapping[str, Any], found: Sequence[Any]) -> None:
    name, where = next(((n, t.device) for n, v in given.items() for t in tensors(v)), ("", None))
    for result, value in zip(plan.results, found, strict=True):
        other = next((t.device for t in tensors(value) if where is not None and t.device != where), None)
        if other is not None:
            said = f"{plan.function} returned {result} on {other}; {name} is on {where}"
            raise SchemaError(said, line=plan.line, file=plan.file)


def home(plan: Plan, values: Mapping[str, Any]) -> torch.device | None:
    """The device of all tensors, None where there is none. RuntimeError where they are on several."""
    found: torch.device | None = None
    first: tuple[str, Any, torch.Tensor]
    for name, value in values.items():
        for t in tensors(value):
            if found is None:
                found, first = t.device, (name, value, t)
            elif t.device != found:
                said = f"{_place(name, value, t)} is on {t.device}, {_place(*first)} on {found}"
                raise RuntimeError(f"{plan.schema.qualname}: {said}: all tensors must be on one")
    return found


def contiguous(values: Mapping[str, Any]) -> bool:
    """Are all tensors, those in lists too?"""
    for value in values.values():  # at every call: no generator
        for t in tensors(value):
            if not t.is_contiguous():
                return False
    return True


def settled(plan: Plan, values: Mapping[str, Any]) -> dict[str, Any]:
    """Contiguous tensors for a launcher that reads no strides; what it mutates is never copied."""
    found = dict(values)
    for a in plan.arguments:
        value = values[a.name]
        strided = next((t for t in tensors(value) if not t.is_contiguous()), None)
        if strided is None:
            continue
        if a.mutated:
            raise SchemaError(
                f"{plan.schema.qualname}: {_place(a.name, value, strided)} is not contiguous, "
                "and the cell reads no strides of it; it is mutated, so a copy would not do: pass its strides to the "
                "kernel, or a contiguous tensor"
            )
        several = isinstance(value, (list, tuple))
        found[a.name] = [t if t is None else t.contiguous() for t in value] if several else value.contiguous()
    return found


def alike(plan: Plan, values: Mapping[str, Any]) -> dict[str, Any]:
    """Gradients whose strides are not read, with those of their output, or of an argument of that shape.

    What `y.sum()` sends back is one element, expanded: a launcher that takes its rows to lie like those of x would
    read past its end.
    """
    found = dict(values)
    rest = {n: v for n, v in values.items() if n not in plan.unread}
    plain = contiguous(rest)  # then no sizes are compared, on which a compiled graph would depend
    ordered = [rest[n] for n in (*plan.schema.outputs, *rest) if n in rest]
    for name in plan.unread:
        gradient = values[name]
        if not isinstance(gradient, torch.Tensor):
            continue
        shaped = [] if plain else [t for t in ordered if isinstance(t, torch.Tensor) and t.shape == gradient.shape]
        if not shaped or shaped[0].is_contiguous():
            found[name] = gradient.contiguous()
        else:
            wanted = torch.empty_like(shaped[0], dtype=gradient.dtype)
            found[name] = gradient if gradient.stride() == wanted.stride() else wanted.copy_(gradient)
    return found


def outputs(plan: Plan, returned: Any) -> list[Any]:
    """What a forward returned, one value a result."""
    wanted = plan.results
    several = isinstance(returned, (tuple, list)) and len(wanted) != 1
    found = [] if returned is None else list(returned) if several else [returned]
    if len(found) != len(wanted):
        names = ", ".join(wanted) or "nothing: it returns None"
        got = "nothing" if returned is None else _counted(found)
        raise SchemaError(
            f"{plan.function} returned {got}; {plan.schema.name} gives {names}",
            line=plan.line, file=plan.file,
        )  # fmt: skip
    types = (*plan.schema.output_types, *["Tensor"] * len(plan.schema.saves))
    for name, kind, value in zip(wanted, types, found, strict=True):
        if kind == "Tensor" and not isinstance(value, torch.Tensor):
            said = f"{plan.function} returned {_what(value)}; {plan.schema.name} gives {name}, a Tensor"
            raise SchemaError(said, line=plan.line, file=plan.file)
    return found


def gradients(plan: Plan, values: Mapping[str, Any], returned: Any) -> list[Any]:
    """What a backward returned, one value a tensor argument, each laid out as its argument.

    It returns one gradient a floating-point tensor argument, in their order; those that are None may be left out.
    """
    schema = plan.schema
    device = next(t.device for v in values.values() for t in tensors(v))
    found = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    floats = [a for a in schema.tensors if _floating(values[a.name]) or values[a.name] is None]
    given = [a for a in floats if values[a.name] is not None]
    if len(given) == 1 and given[0].is_tensor_list and not (found and isinstance(found[0], (tuple, list))):
        found = [found]
    owners = floats if len(found) == len(floats) else given
    if returned is None or len(found) != len(owners):
        got = "nothing" if returned is None else _counted(found)
        raise SchemaError(
            f"{plan.function} returned {got}; the floating-point tensor arguments are "
            f"{', '.join(a.name for a in given)}",
            line=plan.line, file=plan.file,
        )  # fmt: skip
    by_name = dict(zip((a.name for a in owners), found, strict=True))
    made = [_laid_out(by_name.get(a.name), values[a.name], device) for a in schema.tensors]
    return [None if a.name in plan.left_out else g for a, g in zip(schema.tensors, made, strict=True)]


def _laid_out(gradient: Any, argument: Any, device: torch.device) -> Any:
    """A gradient as the fake promises it: its argument's dtype and strides; an empty tensor where there can be none."""
    if isinstance(argument, (list, tuple)):
        given = gradient if isinstance(gradient, (list, tuple)) else [None] * len(argument)
        return [_laid_out(g, a, device) for g, a in zip(given, argument, strict=True)]
    if not _floating(argument):
        return torch.empty(0, dtype=torch.uint8, device=device)
    if gradient is None:
        return torch.zeros_like(argument)
    if gradient.dtype == argument.dtype and gradient.is_contiguous() and argument.is_contiguous():
        return gradient
    wanted = torch.empty_like(argument)
    alike = gradient.dtype == wanted.dtype and gradient.stride() == wanted.stride()
    return gradient if alike else wanted.copy_(gradient)


def laid_out(results: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """Results with the strides of `wanted`, copied where they have others."""
    found = list(results)
    for i, (r, w) in enumerate(zip(results, wanted, strict=False)):
        same = not isinstance(r, torch.Tensor) or not isinstance(w, torch.Tensor) or r.shape != w.shape
        if not same and (r.stride() != w.stride() and r.numel() > 1):
            found[i] = torch.empty_strided(w.shape, w.stride(), dtype=r.dtype, device=r.device).copy_(r)
    return found


def as_returned(found: Sequence[Any]) -> Any:
    """Results as a dispatcher's kernel returns them."""
    return None if not found else found[0] if len(found) == 1 else tuple(found)


def _floating(value: Any) -> bool:
    return any(t.is_floating_point() or t.is_complex() for t in tensors(value))


def tensors(value: Any) -> Sequence[torch.Tensor]:
    """An argument's tensors: one, those of a list without its Nones, none for anything else."""
    if isinstance(value, torch.Tensor):
        return (value,)
    return [t for t in value if isinstance(t, torch.Tensor)] if isinstance(value, (list, tuple)) else ()


def _place(name: str, value: Any, tensor: torch.Tensor) -> str:
    """`x`, or `xs[1]` of a list."""
    if isinstance(value, torch.Tensor):
        return name
    return f"{name}[{next(i for i, t in enumerate(value) if t is tensor)}]"


def _what(value: Any) -> str:
    """`2 results`, `an int`."""
    if isinstance(value, (tuple, list)):
        return _counted(value)
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _counted(found: Sequence[Any]) -> str:
    return f"{len(found)} result{'s' * (len(found) != 1)}"
