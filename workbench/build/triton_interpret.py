"""Triton's interpreter inside a process that also compiles: every patch that it needs is taken back afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from .triton_driver import standing_in
from .triton_module import LOCK, jit_makes


@contextmanager
def interpreting() -> Iterator[None]:
    """Inside, kernels that were loaded for the interpreter can be launched; Triton is as before afterwards.

    >>> with interpreting():
    ...     load(source, interpreted=True).scale(x)
    """
    with LOCK, jit_makes(True), standing_in("cpu"), _as_it_was():
        for owner, name, function in (*_standard(), *_corrected()):
            setattr(owner, name, function)
        yield


@contextmanager
def _as_it_was() -> Iterator[None]:
    """The interpreter patches `triton.language`, and in helpers called from kernels it forgets to take that back."""
    from triton.language import core
    from triton.runtime.interpreter import GridExecutor, InterpretedFunction, InterpreterBuilder

    modules = [m for n, m in sorted(sys.modules.items()) if n.startswith("triton.language") and m is not None]
    classes = [
        core.tensor,
        core.dtype,
        InterpreterBuilder,
        InterpretedFunction,
        *filter(None, [getattr(core, "tensor_descriptor_base", None)]),
    ]
    before = [(owner, dict(vars(owner))) for owner in (*modules, *classes)]
    written_back = GridExecutor._restore_args_dev
    GridExecutor._restore_args_dev = lambda self, *args: _restore(written_back, self, *args)
    try:
        yield
    finally:
        GridExecutor._restore_args_dev = written_back
        for owner, names in before:
            now = dict(vars(owner))
            for name, value in names.items():
                if now.get(name) is not value:
                    setattr(owner, name, value)
            for name in now.keys() - names.keys() if isinstance(owner, type) else ():
                delattr(owner, name)


def _restore(usual: Callable, executor: Any, args_dev: Any, args_hst: Any, kwargs: Any, kwargs_hst: Any) -> None:
    """Tensors of the CPU were not copied, and one that a kernel may only read cannot be written back."""
    given = (*args_dev, *kwargs.values())
    flat = [t for v in given for t in (v if isinstance(v, tuple) else (v,))]
    devices = [getattr(getattr(t, "base", t), "device", None) for t in flat]
    if any(d is not None and d.type != "cpu" for d in devices):
        usual(executor, args_dev, args_hst, kwargs, kwargs_hst)


@cache
def _corrected() -> tuple[tuple[Any, str, Any], ...]:
    from . import triton_bfloat16, triton_libdevice, triton_warmed

    return (*triton_bfloat16.patches(), *triton_libdevice.patches(), *triton_warmed.patches())


@cache
def _standard() -> tuple[tuple[Any, str, Any], ...]:
    """The functions of `tl` that are Triton code themselves (tl.sum, tl.softmax), as the interpreter runs them."""
    from triton.language import core
    from triton.runtime.interpreter import InterpretedFunction

    made: dict[int, Any] = {}

    def interpreted(function: Any) -> Any:
        if id(function) not in made:
            made[id(function)] = InterpretedFunction(function.fn)
        return made[id(function)]

    def method(function: Any) -> Callable:
        return lambda self, *args, **kwargs: interpreted(function)(self, *args, **kwargs)  # noqa: PLW0108  binds self

    found = []
    for module in [m for n, m in sorted(sys.modules.items()) if n.startswith("triton.language") and m is not None]:
        for name, value in list(vars(module).items()):
            if type(value).__name__ == "JITFunction":
                found.append((module, name, interpreted(value)))
    for name, value in list(vars(core.tensor).items()):
        if type(value).__name__ == "JITFunction":
            found.append((core.tensor, name, method(value)))
    return tuple(found)


def warm() -> None:
    """All that a process pays for once, before it is forked."""
    _standard()
    _corrected()


__all__ = ["interpreting", "warm"]
