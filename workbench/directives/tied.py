"""Tensors whose sizes no directive ties to those of the others: a kernel would read past their ends without a word."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import torch

from ..errors import SchemaError
from .evaluate import values
from .nodes import Declaration, Kind, Let, Unpack, bound_names

Arguments = Mapping[str, object]


def notes(declaration: Declaration, cases: Sequence[Arguments]) -> tuple[str, ...]:
    """One sentence for each tensor argument that a function takes and no directive mentions.

    >>> notes(declaration, [{"x": torch.zeros(2, 8), "b": torch.zeros(8)}])
    ('nothing ties the sizes of b to the others: `//! require b.shape == (cols,)`',)

    `cases` are arguments by name; what holds in all of them is what is proposed. Where nothing does, the sentence
    says no more than that a `require` is missing. An op of one tensor has nothing to tie it to.
    """
    loose = untied(declaration)
    if len([a for a in declaration.arguments if a.is_tensor]) < 2:
        return ()
    return tuple(f"nothing ties the sizes of {n} to the others: {_cure(declaration, n, cases)}" for n in loose)


def untied(declaration: Declaration) -> tuple[str, ...]:
    """The tensor arguments that a called function takes by pointer and no directive mentions; none of a backward.

    What comes to a backward went through the forward, which is where sizes are asked for.
    """
    if declaration.entry != "forward":
        return ()
    taken = {declaration.aliases.get(p.name, p.name) for f in declaration.functions for p in f.parameters if p.pointer}
    said = {declaration.aliases.get(n, n) for n in _mentioned(declaration)}
    return tuple(a.name for a in declaration.arguments if a.is_tensor and a.name in taken - said)


def unused(declaration: Declaration) -> tuple[str, ...]:
    """The arguments that no function takes and no directive mentions; none of a backward, which takes what it needs.

    >>> unused(declaration)                    # of a kernel that was there before its op got an argument `silu`
    ('silu',)
    """
    if declaration.entry != "forward":
        return ()
    taken = {declaration.aliases.get(p.name, p.name) for f in declaration.functions for p in f.parameters}
    said = {declaration.aliases.get(n, n) for n in _mentioned(declaration)}
    return tuple(a.name for a in declaration.arguments if a.name not in taken | said)


def _mentioned(declaration: Declaration) -> set[str]:
    """Every name that a directive reads; `b_ = b` alone, another name, says nothing of sizes."""
    another = {id(s.value) for s in declaration.statements if isinstance(s, Let) and s.name in declaration.aliases}
    trees = [e.tree for e in declaration.expressions if id(e) not in another]
    names = {n.id for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return names | {a.like for a in declaration.allocations if a.like}


def _cure(declaration: Declaration, name: str, cases: Sequence[Arguments]) -> str:
    argument = next(a for a in declaration.arguments if a.name == name)
    given = [(c[name], c) for c in cases if isinstance(c.get(name), torch.Tensor)]
    shapes = [(tuple(t.shape), c) for t, c in given if isinstance(t, torch.Tensor)]
    met = (_dimensions(declaration, name, shapes) or _like(declaration, name, shapes)) if shapes else ""
    if not met:
        return "a `//! require` that says what they are keeps the kernel from reading past its end"
    return f"`//! require {f'{name} is None or ' if argument.optional else ''}{met}`"


def _dimensions(declaration: Declaration, name: str, shapes: Sequence[tuple[tuple[int, ...], Arguments]]) -> str:
    """`b.shape == (cols,)`, where each size is that of a named integer in all cases; "" where one is not."""
    ranks = {len(shape) for shape, _ in shapes}
    if len(ranks) != 1:
        return ""
    known = [_integers(declaration, c) for _, c in shapes]
    names: list[str] = []
    for dim in reversed(range(ranks.pop())):  # from the right, where names of sizes are written last
        fits = [
            n for n in known[0]
            if n not in names and all(k.get(n) == shape[dim] for k, (shape, _) in zip(known, shapes, strict=True))
        ]  # fmt: skip
        if not fits:
            return ""
        names.insert(0, fits[-1])
    return f"{name}.shape == ({', '.join(names)}{',' * (len(names) == 1)})"


def _like(declaration: Declaration, name: str, shapes: Sequence[tuple[tuple[int, ...], Arguments]]) -> str:
    """`b.shape == x.shape`, or how many elements it has as a named integer, where that holds in all cases."""
    for a in declaration.arguments:
        another = a.is_tensor and a.name != name and not a.optional
        if another and all(getattr(c.get(a.name), "shape", None) == shape for shape, c in shapes):
            return f"{name}.shape == {a.name}.shape"
    known = [_integers(declaration, c) for _, c in shapes]
    counts = [torch.Size(shape).numel() for shape, _ in shapes]
    fits = [n for n in known[0] if all(k.get(n) == count for k, count in zip(known, counts, strict=True))]
    return f"{name}.numel() == {fits[-1]}" if fits else ""


def _integers(declaration: Declaration, arguments: Arguments) -> dict[str, int]:
    """The named integers of a call: arguments, then what directives name in text order; unpacked sizes come last."""
    found: dict[str, int] = {}
    try:
        evaluated = values(declaration, arguments)
    except SchemaError:
        return found
    named = [a.name for a in declaration.arguments]
    for kind in (Let, Unpack):
        named += [n for s in declaration.statements if isinstance(s, kind) for n in bound_names(s)]
    for n in named:
        if declaration.values.get(n) is Kind.INT:
            try:
                value = evaluated[n]
            except (SchemaError, TypeError, RuntimeError):
                continue
            if type(value) is int and (value > 1 or n in evaluated.by_name):  # an argument is 1 for other reasons
                found[n] = value
    return found


__all__ = ["notes", "untied", "unused"]
