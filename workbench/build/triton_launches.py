"""The launches that a Triton launcher makes, seen without making them: it runs on fake tensors with recorders in place
of its kernels. And what Triton would make of each: which function, with which arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .triton_kernels import innermost, rebound


@dataclass(frozen=True)
class Seen:
    """One launch of the launcher: the kernel as the cell names it, and what it was given."""

    kernel: Any
    args: tuple
    keywords: Mapping[str, Any]


def launches(module: Any, function: str, arguments: Mapping[str, object]) -> list[Seen]:
    """The launches that a function of the module makes when it is called with these arguments, by name.

    >>> launches(module, "rmsnorm", {"x": torch.randn(4, 128), "w": torch.randn(128)})[0].keywords
    {'BLOCK': 128}

    Nothing is launched: tensors are fakes. What the function raises on them is raised.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    found: list[Seen] = []
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        fakes = {n: _faked(mode, v) for n, v in arguments.items()}
        getattr(rebound(module, lambda kernel: _Recorder(kernel, found)), function)(**fakes)
    return found


class _Recorder:
    """Stands for a kernel: a launch is noted and does nothing."""

    def __init__(self, kernel: Any, found: list[Seen] | None = None) -> None:
        self._kernel, self._found = kernel, found

    def __getitem__(self, grid: Any) -> Callable:
        return lambda *args, **keywords: self.run(*args, grid=grid, **keywords)

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **keywords: Any) -> None:
        if self._found is not None:
            self._found.append(Seen(self._kernel, args, keywords))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)


def without_kernels(module: Any, function: str) -> Callable:
    """The function with launches that do nothing: what it makes, without what is in it."""
    return getattr(rebound(module, _Recorder), function)


def _faked(mode: Any, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return mode.from_tensor(value)
    return [_faked(mode, v) for v in value] if isinstance(value, (list, tuple)) else value


def forms(seen: Seen) -> Iterator[tuple[Any, dict]]:
    """The jitted function and its arguments by name, heuristics and each configuration worked in."""

    def inner(kernel: Any, given: dict) -> Iterator[tuple[Any, dict]]:
        kind = type(kernel).__name__
        if kind == "Autotuner":
            kernel.nargs = {n: v for n, v in given.items() if n in kernel.arg_names}
            rest = {n: v for n, v in given.items() if n not in kernel.nargs}
            configs = kernel.prune_configs(rest) if len(kernel.configs) > 1 else kernel.configs
            kernel.nargs = None
            for config in configs:
                yield from inner(kernel.fn, {**given, **config.all_kwargs()})
        elif kind == "Heuristics":
            made = dict(given)
            for name, rule in kernel.values.items():
                made[name] = rule({**made})
            yield from inner(kernel.fn, made)
        else:
            yield kernel, given

    names = innermost(seen.kernel).arg_names
    yield from inner(seen.kernel, {**dict(zip(names, seen.args, strict=False)), **seen.keywords})


def key(kernel: Any, given: Mapping[str, Any], *, exact: bool = True) -> str:
    return f"{kernel.module}.{kernel.__name__}({described(kernel, given, exact=exact)})"


def described(kernel: Any, given: Mapping[str, Any], *, exact: bool = False) -> str:
    fixed = {p.name for p in kernel.params if p.is_constexpr}
    parts = []
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            aligned = address(value) % 16 == 0
            parts.append(f"{name}: *{_short(value.dtype)}" + ("" if aligned or not exact else " unaligned"))
        elif name in fixed or name not in kernel.arg_names:
            parts.append(f"{name}={getattr(value, 'value', value)}")
        elif type(value) is int and exact:
            parts.append(f"{name}: int {value == 1} {value % 16 == 0} {value.bit_length() > 31}")
        else:
            parts.append(f"{name}: {type(value).__name__}" if value is not None else f"{name}=None")
    return ", ".join(parts)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.").replace("bfloat", "bf").replace("float", "fp").replace("int", "i")


def address(t: torch.Tensor) -> int:
    """Where it begins in a storage that is aligned."""
    return int(t.storage_offset()) * t.element_size()
