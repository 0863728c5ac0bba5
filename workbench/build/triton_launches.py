"""The launches that a Triton launcher makes, seen without making them: it runs on fake tensors with recorders in place
of its kernels. And what Triton would make of each: which function, with which arguments.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import Diagnostic, WorkbenchError
from . import triton_slips, triton_tune
from .triton_driver import standing_in
from .triton_kernels import innermost, rebound
from .triton_module import LOCK, label, raised
from .triton_warmed import Warmed

MOST_INTERPRETED = 16  # configurations of a case in the interpreter, which is slow


@dataclass(frozen=True)
class Seen:
    """One launch of the launcher: the kernel as the cell names it, and what it was given."""

    kernel: Any
    args: tuple
    keywords: Mapping[str, Any]
    every: bool = False  # are all configurations of an autotuned kernel wanted, or any one of them?
    odd: Diagnostic | None = None  # a warning: its grid has no block, its autotuner a key that is no parameter

    @property
    def given(self) -> dict[str, Any]:
        """All that it was given, by name."""
        return {**dict(zip(innermost(self.kernel).arg_names, self.args, strict=False)), **self.keywords}


@dataclass(frozen=True)
class Form:
    """A jitted function with all its arguments by name, `tuned` of them by a configuration, which has this label."""

    kernel: Any
    given: Mapping[str, Any]
    label: str = ""
    tuned: frozenset[str] = frozenset()


def launches(module: Any, function: str, arguments: Mapping[str, object], *, device: str = "") -> list[Seen]:
    """The launches that a function of the module makes when it is called with these arguments, by name.

    >>> launches(module, "rmsnorm", {"x": torch.randn(4, 128), "w": torch.randn(128)})[0].keywords
    {'BLOCK': 128}

    Nothing is launched: tensors are fakes, on `device` where one is named. What the function raises is raised.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    found: list[Seen] = []
    with _aside(device or "cpu"), FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        fakes = {n: _faked(mode, v, device) for n, v in arguments.items()}
        getattr(rebound(module, lambda kernel: _Recorder(kernel, found)), function)(**fakes)
    return found


class _Recorder:
    """Stands for a kernel: a launch is noted and does nothing."""

    def __init__(self, kernel: Any, found: list[Seen] | None = None) -> None:
        self._kernel, self._found = kernel, found

    def __getitem__(self, grid: Any) -> Callable:
        return lambda *args, **keywords: self.run(*args, grid=grid, **keywords)

    def warmup(self, *args: Any, grid: Any = None, **keywords: Any) -> Warmed:
        self.run(*args, grid=grid, **keywords)
        return Warmed(innermost(self._kernel), args, keywords, lambda grid, given: None)

    def __call__(self, *args: Any, **keywords: Any) -> None:
        raise triton_slips.without_grid(self._kernel)

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **keywords: Any) -> None:
        if self._found is not None:
            triton_slips.launch(self._kernel, grid, args, keywords)
            odd = triton_slips.nothing(self._kernel, grid) or triton_slips.unknown_key(self._kernel)
            self._found.append(Seen(self._kernel, args, keywords, odd=odd))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)


def without_kernels(module: Any, function: str) -> Callable:
    """The function with launches that do nothing: what it makes, without what is in it."""
    usual = getattr(rebound(module, _Recorder), function)

    def call(*args: Any, **keywords: Any) -> Any:
        with _aside("cpu"):
            return usual(*args, **keywords)

    return call


@contextmanager
def _aside(device: str) -> Iterator[None]:
    """Where a launcher runs to be looked at; that it asks fakes for their addresses is no news to anybody."""
    with LOCK, standing_in(device), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
        yield


def _faked(mode: Any, value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):
        return _elsewhere(mode, value, device) if device else mode.from_tensor(value)
    return [_faked(mode, v, device) for v in value] if isinstance(value, (list, tuple)) else value


def _elsewhere(mode: Any, t: torch.Tensor, device: str) -> torch.Tensor:
    """A fake of it on a device that this process need not have touched."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._python_dispatch import _disable_current_modes

    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
    with _disable_current_modes():
        room = torch.empty(int(t.storage_offset()) + last + 1, dtype=t.dtype, device="meta")
        meta = room.as_strided(t.shape, t.stride(), t.storage_offset())
    return FakeTensor(mode, meta, torch.device(device))


def forms(seen: Seen, *, in_turn: bool = False) -> list[Form]:
    """The jitted function and its arguments by name, heuristics and each configuration worked in.

    `in_turn`: first the configuration that a trial runs on these arguments, see `triton_tune.place`.
    """

    def inner(kernel: Any, given: dict, tuned: str, fixed: frozenset[str]) -> Iterator[Form]:
        kind = type(kernel).__name__
        if kind == "Autotuner":
            known = {n: v for n, v in given.items() if n in kernel.arg_names}
            configs = triton_tune.configurations(kernel, given, len(seen.args))
            at = triton_tune.place(len(configs), known, None) if in_turn else 0
            for config in (*configs[at:], *configs[:at]):
                said = triton_tune.label(kernel, config) if len(configs) > 1 else tuned
                made = _hooked(config, {**given, **config.all_kwargs()})
                yield from inner(kernel.fn, made, said, fixed | set(config.all_kwargs()))
        elif kind == "Heuristics":
            made = dict(given)
            for name, rule in kernel.values.items():
                made[name] = rule({**made})
            yield from inner(kernel.fn, made, tuned, fixed)
        else:
            yield Form(kernel, given, tuned, fixed)

    with _on_its_line(seen.kernel):
        return list(inner(seen.kernel, seen.given, "", frozenset()))


def choices(launches: Sequence[Seen], *, interpreted: bool = False) -> int:
    """How many configurations the launches have at most; 1 without an autotuned kernel."""
    counts = [1]
    for seen in launches:
        placed = len(seen.args)
        with _on_its_line(seen.kernel):
            for tuner in triton_tune.tuners(seen.kernel):
                counts.append(len(triton_tune.configurations(tuner, seen.given, placed, interpreted=interpreted)))
    return min(max(counts), MOST_INTERPRETED) if interpreted else max(counts)


def _hooked(config: Any, given: dict[str, Any]) -> dict[str, Any]:
    """These arguments after the configuration's hook, which gives tensor descriptors their blocks: copies of them."""
    described = {n: copy.copy(v) for n, v in given.items() if _is_descriptor(v)}
    if config.pre_hook is None or not described:
        return given
    made = {**given, **described}
    config.pre_hook(made)
    return made


def _is_descriptor(value: Any) -> bool:
    return hasattr(value, "block_shape") and hasattr(value, "base")


@contextmanager
def _on_its_line(kernel: Any) -> Iterator[None]:
    """What a cell's own rule raises, a heuristic or one that prunes configurations, is a BuildError on its line."""
    try:
        yield
    except WorkbenchError:
        raise
    except Exception as error:
        raise raised(error, label(innermost(kernel).fn.__code__.co_filename)) from error


def key(kernel: Any, given: Mapping[str, Any], *, exact: bool = True) -> str:
    return f"{kernel.module}.{kernel.__name__}({described(kernel, given, exact=exact)})"


def described(kernel: Any, given: Mapping[str, Any], *, exact: bool = False) -> str:
    fixed = {p.name for p in kernel.params if p.is_constexpr}
    parts = []
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            aligned = address(value) % 16 == 0
            parts.append(f"{name}: *{_short(value.dtype)}" + ("" if aligned or not exact else " unaligned"))
        elif _is_descriptor(value):
            blocks = "x".join(map(str, value.block_shape))
            parts.append(f"{name}: *{_short(value.base.dtype)}[{blocks}]")
        elif name in fixed or name not in kernel.arg_names:
            parts.append(f"{name}={getattr(value, 'value', value)}")
        elif type(value) is int and exact:
            parts.append(f"{name}: int {value == 1} {value % 16 == 0} {value.bit_length() > 31}")
        else:
            parts.append(f"{name}: {type(value).__name__}" if value is not None else f"{name}=None")
    return ", ".join(parts)


def multiples(given: Mapping[str, Any]) -> int:
    """How many integers and addresses are multiples of 16, which Triton makes use of."""
    numbers = [address(v) if isinstance(v, torch.Tensor) else v for v in given.values()]
    return sum(type(n) is int and n % 16 == 0 for n in numbers)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.").replace("bfloat", "bf").replace("float", "fp").replace("int", "i")


def address(t: torch.Tensor) -> int:
    """Where it begins in a storage that is aligned."""
    return int(t.storage_offset()) * t.element_size()
