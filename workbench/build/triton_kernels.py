"""The kernels in a Triton module, and copies of its functions in which something else stands for them."""

from __future__ import annotations

import copy
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import SchemaError
from .triton_text import loads


def innermost(kernel: Any) -> Any:
    """The jitted function inside autotuners and heuristics."""
    while type(kernel).__name__ in ("Autotuner", "Heuristics"):
        kernel = kernel.fn
    return kernel


def is_kernel(value: object) -> bool:
    return type(innermost(value)).__name__ in ("JITFunction", "InterpretedFunction")


def own_kernels(module: types.ModuleType) -> dict[str, Any]:
    """The kernels and helpers of a cell, and of the modules beside it, by `name` or `module.name`."""
    return {f"{prefix}{n}": v for prefix, m in _with_beside(module) for n, v in vars(m).items() if is_kernel(v)}


def _with_beside(module: types.ModuleType, prefix: str = "") -> Iterator[tuple[str, types.ModuleType]]:
    seen: set[int] = set()
    waiting = [(prefix, module)]
    while waiting:
        prefix, here = waiting.pop(0)
        if id(here) in seen:
            continue
        seen.add(id(here))
        yield prefix, here
        waiting += [(f"{prefix}{n}.", v) for n, v in vars(here).items() if _is_own(v)]


def _is_own(value: object) -> bool:
    return isinstance(value, types.ModuleType) and value.__name__.startswith("workbench_triton_")


def rebound(module: types.ModuleType, exchange: Callable[[Any], Any]) -> types.SimpleNamespace:
    """The functions of a module over a copy of its globals, in which `exchange(kernel)` stands for each kernel.

    >>> rebound(module, torch.library.wrap_triton).rmsnorm(x, w)

    The module itself is left alone: helpers called from kernels must stay what they are.
    """
    made: dict[int, Any] = {}

    def copied(value: Any) -> Any:
        if id(value) in made:
            return made[id(value)]
        if is_kernel(value):
            made[id(value)] = exchange(value)
        elif isinstance(value, types.FunctionType) and _is_own(sys.modules.get(value.__module__)):
            made[id(value)] = function(value)
        elif _is_own(value):
            made[id(value)] = namespace(value)
        elif type(value) in (list, tuple):
            made[id(value)] = type(value)(copied(v) for v in value)
        elif type(value) is dict:
            made[id(value)] = {k: copied(v) for k, v in value.items()}
        else:
            return value
        return made[id(value)]

    def function(value: types.FunctionType) -> types.FunctionType:
        home = namespace(sys.modules[value.__module__])
        new = types.FunctionType(value.__code__, vars(home), value.__name__, value.__defaults__, value.__closure__)
        new.__kwdefaults__ = value.__kwdefaults__
        return new

    def namespace(value: types.ModuleType) -> types.SimpleNamespace:
        if id(value) not in made:
            made[id(value)] = types.SimpleNamespace()
            vars(made[id(value)]).update({n: v if n == "__builtins__" else copied(v) for n, v in vars(value).items()})
        return made[id(value)]

    return namespace(module)


def check_constants(module: types.ModuleType, label: Callable[[str], str]) -> None:
    """SchemaError, on its line, for a plain number that a kernel takes from its module: Triton wants it marked."""
    from triton import knobs

    if knobs.compilation.allow_non_constexpr_globals:
        return
    for kernel in own_kernels(module).values():
        function = innermost(kernel).fn
        for name, line in loads(function.__code__):
            value = function.__globals__.get(name)
            if type(value) in (bool, int, float, str) and not name.startswith("__"):
                said = (
                    f"{function.__name__} uses {name}, a plain {type(value).__name__} of the cell: Triton takes a "
                    f"number from outside a kernel as a constexpr alone; write '{name} = tl.constexpr({value!r})' (the "
                    f"annotation '{name}: tl.constexpr = ...' does not do), or pass it as an argument"
                )
                raise SchemaError(said, line=line, file=label(function.__code__.co_filename))


class Heuristic:
    """Heuristics that stand over a kernel, worked out for tracers, which know jitted and autotuned kernels alone."""

    def __init__(self, kernel: Any, inner: Any) -> None:
        self.kernel, self.inner = kernel, inner

    def __getitem__(self, grid: Any) -> Callable:
        def launch(*args: Any, **keywords: Any) -> None:
            for name, rule in self.kernel.values.items():
                keywords[name] = rule({**dict(zip(self.kernel.arg_names, args, strict=False)), **keywords})
            self.inner[grid](*args, **keywords)

        return launch


def traceable(kernel: Any) -> Any:
    """The kernel as torch's tracers see it. RuntimeError where torch cannot look into it: an autotuner with hooks."""
    from torch.library import wrap_triton

    if type(kernel).__name__ == "Heuristics":
        return Heuristic(kernel, traceable(kernel.fn))
    return wrap_triton(tuned(kernel))


def tuned(kernel: Any) -> Any:
    """An autotuner over the configurations alone that were found best, where some were: tracers tune for themselves."""
    best = getattr(kernel, "workbench_winners", ())
    if not best:
        return kernel
    made = copy.copy(kernel)
    made.configs, made.cache = list(best), {}
    return made
