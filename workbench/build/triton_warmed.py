"""What `kernel.warmup(...)` gives a launcher where Triton compiles nothing for it: in the interpreter, and while its
launches are only looked at.

Launchers ask it for registers and shared memory to choose how many programs stay resident. How many these are changes
no result, so the numbers are those of a small kernel. What was compiled has its own: `op.inspect()` shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

REGISTERS, SHARED = 32, 1024


class Warmed:
    """Stands for a `CompiledKernel`. `launch(grid, arguments by name)` is what launching it does.

    >>> Warmed(kernel, (x, y), {"BLOCK": 128}, launch)[(8, 1, 1)](x, y, 128)
    """

    n_regs, n_spills, n_max_threads = REGISTERS, 0, 1024

    def __init__(
        self, kernel: Any, args: Sequence[Any], keywords: Mapping[str, Any], launch: Callable[[Any, dict], Any]
    ) -> None:
        self._names, self._launch = list(kernel.arg_names), launch
        self._given = {**dict(zip(self._names, args, strict=False)), **keywords}
        options = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "shared": SHARED, "name": _name(kernel)}
        self.name = options["name"]
        self.metadata = SimpleNamespace(**{n: self._given.get(n, v) for n, v in options.items()})

    def _init_handles(self) -> None:
        """Loads a compiled kernel."""

    def __getitem__(self, grid: Any) -> Callable:
        def run(*args: Any, stream: Any = None) -> None:
            given = {n: v for n, v in self._given.items() if n in self._names}
            self._launch(grid, {**given, **dict(zip(self._names, args, strict=False))})

        return run


def _name(kernel: Any) -> str:
    return str(getattr(kernel, "__name__", None) or getattr(getattr(kernel, "fn", None), "__name__", ""))


def patches() -> tuple[tuple[Any, str, Any], ...]:
    """Of the interpreter, whose `warmup` gives None: (owner, name, function)."""
    from triton.runtime.interpreter import InterpretedFunction

    usual = InterpretedFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
        if not warmup:
            return usual(self, *args, grid=grid, warmup=False, **keywords)
        return Warmed(self, args, keywords, lambda size, given: usual(self, grid=size, warmup=False, **given))

    return ((InterpretedFunction, "run", run),)


__all__ = ["Warmed", "patches"]
