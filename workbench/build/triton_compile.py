"""Compiling the kernels of a Triton cell for an architecture, with or without a GPU, and what they take of it.

Every specialisation is compiled that the cases ask for (`triton_launches`). On a GPU Triton then finds them in its own
cache, from this process and from the worker.
"""

from __future__ import annotations

import copy
import os
import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import BuildError, Diagnostic
from ..gpu import Target
from .resources import Resources
from .triton_kernels import innermost, own_kernels
from .triton_launches import Seen, address, described, forms, key
from .triton_module import LOCK, label

SHARED_BYTES = {75: 64 << 10, 80: 163 << 10, 86: 99 << 10, 87: 163 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10,
                103: 227 << 10, 120: 99 << 10}  # fmt: skip  # most dynamic shared memory a block, by architecture


@dataclass(frozen=True)
class Compiled:
    """One specialisation of one kernel. `asm` maps "ttir", "ttgir", "llir", "ptx" and "cubin" to what they are.

    `signature` says what was specialised: "x: *fp32, n: i32, BLOCK=128, num_warps=4".
    """

    name: str
    asm: Mapping[str, Any] = field(repr=False)
    resources: Resources
    signature: str
    cached: bool = False


# ---------------------------------------------------------------- compiling


def compile(
    module: Any, seen: Sequence[Seen], target: Target, known: Mapping[str, Compiled], *, exact: bool = True
) -> dict[str, Compiled]:
    """Every specialisation among these launches that is not `known`, by its key. BuildError, on the cell's line.

    Without `exact` one is enough for all integers and addresses, whatever they are multiples of.
    An autotuned kernel is compiled in its first configuration that the architecture has room for.
    """
    wanted: dict[str, list[tuple[Any, dict]]] = {}
    for launch in seen:
        every = list(forms(launch))
        wanted.setdefault(key(*every[0], exact=exact), every)
    todo = {k: f for k, f in wanted.items() if k not in known}
    if not todo:
        return {}
    workers = min(4, len(todo), os.cpu_count() or 1)
    with LOCK, targeting(target), _hits() as hits, ThreadPoolExecutor(workers) as pool:
        done = {k: pool.submit(_first_that_fits, module, forms, target, hits) for k, forms in todo.items()}
        return {k: f.result() for k, f in done.items()}


def _first_that_fits(
    module: Any, forms: Sequence[tuple[Any, dict]], target: Target, hits: Mapping[int, bool]
) -> Compiled:
    for i, (kernel, given) in enumerate(forms):
        try:
            return _compile(module, kernel, given, target, hits)
        except _NoRoom as error:
            if i + 1 == len(forms):
                where = {"line": error.line, "file": error.file}
                raise BuildError(error.message, diagnostics=error.diagnostics, log=error.log, **where) from None
    raise AssertionError("a kernel has at least one configuration")


class _NoRoom(BuildError):
    """More shared memory than the architecture has."""


class _Pointer:
    """A tensor as Triton's specialisation looks at it."""

    def __init__(self, t: torch.Tensor) -> None:
        self.dtype, self.shape, self._address, self._strides = t.dtype, t.shape, address(t), t.stride()
        self.device = t.device

    def data_ptr(self) -> int:
        return self._address

    def ptr_range(self) -> int:
        return 0

    def stride(self, dim: int | None = None) -> Any:
        return self._strides if dim is None else self._strides[dim]


@dataclass(frozen=True)
class _Driver:
    """What Triton asks of a driver when it only compiles."""

    target: Any

    def get_current_device(self) -> int:
        return 0

    def get_current_target(self) -> Any:
        return self.target

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


@contextmanager
def targeting(target: Target) -> Iterator[None]:
    """Inside, Triton compiles for this target, with no look at the machine's own GPU."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    before = dict(vars(driver))
    driver.set_active(_Driver(GPUTarget("cuda", target.number, 32)))
    try:
        yield
    finally:
        vars(driver).clear()
        vars(driver).update(before)


def _compile(module: Any, kernel: Any, given: Mapping[str, Any], target: Target, hits: Mapping[int, bool]) -> Compiled:
    pointers = {n: _Pointer(v) if isinstance(v, torch.Tensor) else v for n, v in given.items()}
    fresh = copy.copy(kernel)  # compiled forms are kept by device, and this device is none
    fresh.device_caches = defaultdict(fresh.create_binder)
    try:
        made = fresh.run(grid=None, warmup=True, **pointers)
    except Exception as error:
        raise said(error, module, kernel) from error
    most, shared = SHARED_BYTES.get(target.number, 0), int(made.metadata.shared)
    if most and shared > most:
        takes = f"{kernel.__name__} takes {shared / 1024:.4g} KB of shared memory"
        text = f"{takes}, a block of {target.arch} has {most >> 10} KB: smaller blocks, or fewer num_stages"
        raise _at(_NoRoom, text, kernel, kernel.starting_line_number)
    resources = _resources(kernel.__name__, made, shared)
    return Compiled(kernel.__name__, made.asm, resources, described(kernel, given), bool(hits.get(id(fresh))))


@contextmanager
def _hits() -> Iterator[dict[int, bool]]:
    """Inside, whether Triton found a function in its cache, by the function's id; empty where it does not tell."""
    from triton import knobs

    found: dict[int, bool] = {}
    former: Any = getattr(knobs.compilation, "listener", None)

    def listen(**told: Any) -> None:
        found[id(getattr(told.get("src"), "fn", None))] = bool(told.get("cache_hit"))
        if former is not None:
            former(**told)

    knobs.compilation.listener = listen
    try:
        yield found
    finally:
        knobs.compilation.listener = former


def said(error: BaseException, module: Any, kernel: Any) -> BuildError:
    """An error of Triton's compiler on the cell's own line: of the innermost function that it names."""
    chain: list[Any] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    named = [e for e in chain if hasattr(e, "node") and hasattr(e, "src") and getattr(e.node, "lineno", None)]
    if not named:
        first = str(error).strip().splitlines() or [""]
        text = f"Triton does not compile {kernel.__name__}: {type(error).__name__}: {first[0]}"
        return _at(BuildError, text, kernel, kernel.starting_line_number, log=str(error))
    inner = named[-1]
    functions = [innermost(k) for k in own_kernels(module).values()]
    home = next((f for f in functions if f.src == inner.src), kernel)
    cause = next((str(e) for e in reversed(chain) if not hasattr(e, "node")), "")
    text = (inner.error_message or cause or type(inner).__name__).strip()
    line = home.starting_line_number + inner.node.lineno - 1
    return _at(BuildError, text, home, line, inner.node.col_offset + 1, str(error))


def _at(kind: type[BuildError], text: str, kernel: Any, line: int, column: int = 1, log: str = "") -> BuildError:
    import linecache

    file = kernel.fn.__code__.co_filename
    where = label(file) or file
    excerpt = linecache.getline(file, line).strip()
    found = Diagnostic(where, line, column, "error", text.splitlines()[0] if text else "", excerpt)
    return kind(text, diagnostics=(found,), log=log or text, line=line, file=where)


def _resources(name: str, made: Any, shared: int) -> Resources:
    """Registers and local memory as the cubin says them; Triton's only local memory is what was spilled."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        try:
            text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
        except (OSError, subprocess.TimeoutExpired):
            text = ""
    found = {key: int(value) for key, value in re.findall(r"\b([A-Z]+)(?:\[0\])?:(\d+)", text)}
    stack = found.get("STACK", 0) + found.get("LOCAL", 0)
    return Resources(name, found.get("REG", 0), stack, stack, stack, shared, found.get("CONSTANT", 0))


__all__ = ["Compiled", "compile", "targeting"]
