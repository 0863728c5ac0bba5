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
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from .. import gpu
from ..errors import BuildError, Diagnostic
from ..gpu import Target, shared_bytes
from . import process, triton_hints, triton_parse, triton_slips
from .resources import Resources
from .triton_driver import targeting
from .triton_kernels import innermost, own_kernels
from .triton_launches import Form, Seen, address, described, forms, key, multiples
from .triton_module import LOCK, label
from .triton_tune import UNFIT

MOST_AT_ONCE = 16  # compilations: a seventh of each holds Python's lock


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
    tuned: frozenset[str] = frozenset()  # the arguments that a configuration brings


# ---------------------------------------------------------------- compiling


def compile(
    module: Any, seen: Sequence[Seen], target: Target, known: Mapping[str, Compiled], *, exact: bool = True
) -> dict[str, Compiled]:
    """Every specialisation among these launches that is not `known`, by its key. BuildError, on the cell's line.

    Without `exact` one is enough for all integers and addresses, whatever they are multiples of: that of which most
    are multiples of 16, as sizes mostly are. Only then are loads wide, and only what is loaded so is copied ahead.
    An autotuned kernel is compiled in one configuration that the architecture has room for, or in `every` such.
    They are compiled side by side, and an interrupt waits for none of them.
    """
    launches = [forms(launch, in_turn=exact) for launch in seen]
    groups: dict[str, list[Form]] = {}
    for launch, found in zip(seen, launches, strict=True):
        for group in [[f] for f in found] if exact and launch.every else [found]:
            name = key(group[0].kernel, group[0].given, exact=exact)
            if name not in groups or (not exact and multiples(group[0].given) > multiples(groups[name][0].given)):
                groups[name] = group
    todo = {k: group for k, group in groups.items() if k not in known}
    if not todo:
        return {}
    triton_slips.check_arch(target)
    launchers = _Launchers()
    with LOCK, targeting(target), _hits() as hits, at_once(len(todo)) as pool:
        run = partial(_first_that_fits, module, target=target, hits=hits, launchers=launchers)
        futures = {k: pool.submit(run, group) for k, group in todo.items()}
        done = {k: f.result() for k, f in futures.items()}
    made = {k: c for k, c in done.items() if isinstance(c, Compiled)}
    for found in launches:
        keys = [key(f.kernel, f.given, exact=exact) for f in found]
        lacking = [c for k in keys if isinstance(c := done.get(k), NoRoom)]
        if lacking and not any(k in made or k in known for k in keys):
            raise BuildError(lacking[0].message, diagnostics=lacking[0].diagnostics, log=lacking[0].log,
                             line=lacking[0].line, file=lacking[0].file)  # fmt: skip
    return made


def each(module: Any, found: Sequence[Form], target: Target) -> Iterator[tuple[int, Compiled | BuildError]]:
    """These forms, compiled side by side: the place of each as it is done, with what came of it.

    An interrupt, or nobody asking for the rest, ends what has not begun. Nothing may be launched here meanwhile.
    """
    triton_slips.check_arch(target)
    launchers = _Launchers()
    with LOCK, targeting(target), _hits() as hits, at_once(len(found)) as pool:

        def run(form: Form) -> Compiled | BuildError:
            try:
                return _compile(module, form, target, hits, launchers)
            except BuildError as error:
                return error

        futures = {pool.submit(run, form): i for i, form in enumerate(found)}
        for done in as_completed(futures):
            yield futures[done], done.result()


@contextmanager
def at_once(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for as many compilations: Triton and LLVM run without Python's lock. An interrupt waits for none."""
    triton_parse.in_turn()
    process.refuse_at_the_end()
    pool = ThreadPoolExecutor(max(1, min(MOST_AT_ONCE, count, len(os.sched_getaffinity(0)))), "triton")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _first_that_fits(
    module: Any, group: Sequence[Form], *, target: Target, hits: Mapping[int, bool], launchers: _Launchers
) -> Compiled | NoRoom:
    lacking = None
    for form in group:
        try:
            return _compile(module, form, target, hits, launchers)
        except NoRoom as error:
            lacking = lacking or error
    assert lacking is not None, "a kernel has at least one configuration"
    return lacking


class NoRoom(BuildError):
    """More than the architecture has, or what else Triton's autotuner leaves out."""


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


def _compile(module: Any, form: Form, target: Target, hits: Mapping[int, bool], launchers: _Launchers) -> Compiled:
    kernel, given = form.kernel, form.given
    pointers = {n: _Pointer(v) if isinstance(v, torch.Tensor) else v for n, v in given.items()}
    fresh = copy.copy(kernel)  # compiled forms are kept by device, and this device is none
    fresh.device_caches = defaultdict(fresh.create_binder)
    try:
        made = fresh.run(grid=None, warmup=True, **pointers)
    except Exception as error:
        found = said(error, module, kernel)
        if form.label and type(error).__name__ in UNFIT:
            raise NoRoom(found.message, diagnostics=found.diagnostics, log=found.log, line=found.line,
                          file=found.file) from error  # fmt: skip
        raise found from error
    most, shared = shared_bytes(target.number), int(made.metadata.shared)
    if most and shared > most:
        takes = f"{kernel.__name__} takes {shared / 1024:.4g} KB of shared memory"
        text = f"{takes}, a block of {target.arch} has {most >> 10} KB: smaller blocks, or fewer num_stages"
        raise _at(NoRoom, text, kernel, kernel.starting_line_number)
    launchers.build(made)
    resources = _resources(kernel.__name__, made, shared)
    return Compiled(
        kernel.__name__, made.asm, resources, described(kernel, given), bool(hits.get(id(fresh))), form.tuned
    )


class _Launchers:
    """What calls a compiled kernel is C as well in some Tritons, one for all kernels with the same types."""

    def __init__(self) -> None:
        self._begun: set[tuple] = set()

    def build(self, made: Any) -> None:
        types = (tuple(made.src.signature.values()), tuple(made.src.constants))
        if not gpu.present() or types in self._begun:
            return
        self._begun.add(types)
        with suppress(Exception):  # then the first launch does it, or says what is wrong
            from triton.backends.nvidia.driver import CudaLauncher

            CudaLauncher(made.src, made.metadata)


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
        text, line = triton_hints.foreign(first[0], kernel)
        if text:
            return _at(BuildError, text, kernel, line, log=str(error))
        text = f"Triton does not compile {kernel.__name__}: {type(error).__name__}: {first[0]}"
        return _at(BuildError, text, kernel, kernel.starting_line_number, log=str(error))
    inner = named[-1]
    functions = [innermost(k) for k in own_kernels(module).values()]
    home = next((f for f in functions if f.src == inner.src), kernel)
    cause = next((str(e) for e in reversed(chain) if not hasattr(e, "node")), "")
    text = triton_hints.plain((inner.error_message or cause or type(inner).__name__).strip())
    text = triton_hints.branched(text, inner.src)
    text = triton_hints.called(text + triton_hints.hint(text), inner.node)
    line = home.starting_line_number + inner.node.lineno - 1
    return _at(BuildError, text, home, line, inner.node.col_offset + 1, str(error))


def _at(kind: type[BuildError], text: str, kernel: Any, line: int, column: int = 1, log: str = "") -> BuildError:
    import linecache

    file = kernel.fn.__code__.co_filename
    where = label(file) or file
    excerpt = linecache.getline(file, line).rstrip()
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


__all__ = ["Compiled", "NoRoom", "compile", "each", "targeting"]
