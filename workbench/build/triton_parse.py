"""Triton's kernels are compiled in threads; their sources are parsed one at a time."""

from __future__ import annotations

import threading
from typing import Any

from ..turn import free_in_forks

_TURN = free_in_forks(threading.RLock())


def in_turn() -> None:
    """Have Triton parse one source at a time, from now on.

    Python 3.11 counts the depth of a syntax tree for all threads together. Where a collection of garbage runs Python
    code amid a parse (`gc.callbacks`), another thread may parse meanwhile, and one of them ends in "AST constructor
    recursion depth mismatch".
    """
    from triton.runtime.jit import JITCallable

    parse = JITCallable.parse
    if getattr(parse, "in_turn", False):
        return

    def parse_in_turn(self: Any) -> Any:
        with _TURN:
            return parse(self)

    parse_in_turn.in_turn = True  # type: ignore[attr-defined]
    JITCallable.parse = parse_in_turn
