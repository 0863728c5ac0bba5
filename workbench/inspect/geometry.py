"""The size of a block and the shared memory that a launch asks for, as far as they are known before a call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..directives import Declaration
from ..directives.evaluate import values
from ..directives.nodes import Launch
from ..errors import WorkbenchError

USUAL = 256


@dataclass(frozen=True)
class Geometry:
    """`threads` a block, `shared` bytes that the launch asks for (-1: only a call tells), `assumed` how that is known
    if no directive says it as a number.
    """

    threads: int
    shared: int
    assumed: str = ""


def geometries(op, declaration: Declaration) -> list[Geometry]:
    """That of each launch, in order: from numbers and tuned names, else as one of the op's cases has it."""
    case = _Case(op, declaration)
    return [_geometry(declaration, launch, case) for launch in declaration.launches]


class _Case:
    """The arguments of the op's first case, made when they are first asked for."""

    def __init__(self, op, declaration: Declaration) -> None:
        self.op, self.declaration = op, declaration
        self._made: tuple[str, Mapping[str, object]] | None = None

    def arguments(self) -> tuple[str, Mapping[str, object]]:
        if self._made is None:
            nothing = {a.name: None for a in self.declaration.arguments}
            cases = self.op.case_list()
            self._made = "", nothing
            if cases:
                self._made = cases[0].name, {**nothing, **cases[0].bound(self.op.schema)}
        return self._made


def _geometry(declaration: Declaration, launch: Launch, case: _Case) -> Geometry:
    nothing = {a.name: None for a in declaration.arguments}
    plain = _evaluated(declaration, launch, nothing)
    if None not in plain:
        return Geometry(plain[0] or 0, plain[1] or 0)
    name, arguments = case.arguments()
    block, shared = (
        p if p is not None else c for p, c in zip(plain, _evaluated(declaration, launch, arguments), strict=True)
    )
    told = []
    if block is None:
        told.append(f"a block of {USUAL} threads is assumed")
    if shared is None:
        told.append("without the shared memory that only a call tells")
    if (plain[0] is None and block is not None) or (plain[1] is None and shared is not None):
        told.append(f"as launched for the case {name!r}")
    return Geometry(block or USUAL, -1 if shared is None else shared, f"{launch.function}: occupancy {', '.join(told)}")


def _evaluated(
    declaration: Declaration, launch: Launch, arguments: Mapping[str, object]
) -> tuple[int | None, int | None]:
    """(threads, bytes); None for what these arguments do not tell."""
    try:
        threads = math.prod(int(values(declaration, arguments).value(e)) for e in launch.block)
    except (WorkbenchError, TypeError, AttributeError, RuntimeError, ArithmeticError, KeyError):
        threads = None
    try:
        shared = int(values(declaration, arguments).value(launch.shared)) if launch.shared else 0
    except (WorkbenchError, TypeError, AttributeError, RuntimeError, ArithmeticError, KeyError):
        shared = None
    return threads, shared
