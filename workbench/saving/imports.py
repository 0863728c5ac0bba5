"""The imports of a generated module in the order that isort gives them, with ruff's defaults. Pure text."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator

WIDTH = 160  # of a line, as the package's own pyproject.toml says


def ordered(text: str, own: Collection[str]) -> str:
    """A module with each of its top-level runs of imports in order; `own` are the modules of the project itself.

    >>> print(ordered("import torch\\nimport os\\n", ()))
    import os
    <BLANKLINE>
    import torch

    A run with a comment in it stays as it is.
    """
    lines = text.splitlines()
    tree = ast.parse(text)
    begins = {_first(n) for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    for run in reversed(list(_runs(tree))):
        first, last = run[0].lineno - 1, run[-1].end_lineno or run[-1].lineno
        after = next((i for i in range(last, len(lines)) if lines[i].strip()), len(lines))
        if not any("#" in line for line in lines[first:last]):
            gap = ["", ""] if after + 1 in begins else lines[last:after]
            lines[first:after] = [*block(run, own), *gap]
    return "\n".join(lines) + "\n"


def _runs(tree: ast.Module) -> Iterator[list[ast.Import | ast.ImportFrom]]:
    run: list[ast.Import | ast.ImportFrom] = []
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            run.append(node)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _first(node: ast.FunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def block(run: Collection[ast.Import | ast.ImportFrom], own: Collection[str]) -> list[str]:
    """The lines of a run of imports: sections with a blank line between, one statement a module."""
    plain: dict[tuple[int, str, bool], set[tuple[str, str | None]]] = {}
    for node in run:
        for alias in node.names:
            base = f"{'.' * node.level}{node.module or ''}" if isinstance(node, ast.ImportFrom) else ""
            place = _section(base or alias.name, own)
            # Those with another name stand in statements of their own, as isort has them.
            apart = f"{alias.name} as {alias.asname}" if base and alias.asname else ""
            where = (place, f"{base}|{apart}", bool(base))
            plain.setdefault(where, set()).add((alias.name, alias.asname))
    sections: dict[int, list[tuple[tuple, list[str]]]] = {}
    for (place, said_of, is_from), names in plain.items():
        base = said_of.partition("|")[0]
        members = sorted(names, key=lambda n: _member(n[0]))
        said = [f"{n} as {a}" if a else n for n, a in members]
        if is_from:
            order = (1, -_level(base), base.lstrip(".").lower(), _member(members[0][0]), bool(members[0][1]))
            sections.setdefault(place, []).append((order, _statement(base, said)))
        else:
            rows = [((0, 0, n.lower(), a or ""), [f"import {s}"]) for (n, a), s in zip(members, said, strict=True)]
            sections.setdefault(place, []).extend(rows)
    found: list[str] = []
    for _, rows in sorted(sections.items()):
        found += [""] * bool(found) + [line for _, lines in sorted(rows) for line in lines]
    return found


def _statement(base: str, said: list[str]) -> list[str]:
    line = f"from {base} import {', '.join(said)}"
    return [line] if len(line) <= WIDTH else [f"from {base} import (", *(f"    {n}," for n in said), ")"]


def _level(base: str) -> int:
    return len(base) - len(base.lstrip("."))


def _section(name: str, own: Collection[str]) -> int:
    """future, the standard library, others', the project's own, beside it."""
    if name.startswith("."):
        return 4
    top = name.partition(".")[0]
    return 0 if top == "__future__" else 1 if top in sys.stdlib_module_names else 3 if top in own else 2


def _member(name: str) -> tuple[int, str, str]:
    """CONSTANTS, then Classes, then functions."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, name.lower(), name
