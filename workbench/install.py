"""From a cell's source to an installed version: build, trial, register, and one line to say how it went.

Nothing is installed that did not survive its trial. What then runs where is in `slots`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from . import edit_times, slots, source, tiers, waiting, which
from .build import includes
from .case import Case
from .errors import WorkbenchError, stopped
from .holes import differentiable_type
from .judge import examine, verdict
from .judge.evidence import learn_layout
from .reference import flat
from .reports.report import Line
from .source import Source
from .tiers import Kernel
from .version import Version


def cell(
    op, text: Source, slot: str, *, force: bool = False, cases: Sequence[str] | None = None, function: str = "",
    interpret: bool = False,
) -> Line:  # fmt: skip
    """Build a raw cell for a slot of an op, try it on the op's cases, install it if it agrees.

    >>> cell(rmsnorm, Source("void rmsnorm(...) {...}", "cpp"), "forward").installed
    True

    `cases` names those to try (all but the bench ones without it; an empty list: none); `force` installs one that
    merely differs. A refused build is kept as a version and told in the line, with `installed` False. Raises
    SchemaError and BuildError, on the cell's lines, for text that is no kernel.
    """
    started = time.perf_counter()
    headers = _former_headers(op, slot)
    kernel = tiers.kernel(text, op.schema, slot, function=function, floating=_floating(op), interpret=interpret)
    chosen = _chosen(op, cases)
    trial = examine.judge(op, kernel, chosen)
    refused = verdict.refusal(trial)
    former = op.runs(slot, kernel.device)
    if refused and force and not verdict.faults(trial):
        trial = replace(trial, notes=(*trial.notes, f"installed by --force although it {refused}"))
        refused = ""
    version = op.record(
        Version(op.next_number(), slot, kernel.device, text.language, kernel.tier, text, source.title(text), trial,
                time.perf_counter() - started, refused, kernel)
    )  # fmt: skip
    if not refused:
        _install(op, version, waits=not chosen and cases is None)
    seconds = time.perf_counter() - started
    if not kernel.cached and former.tier == kernel.tier:  # a first cell of a tier may have to prepare headers
        edit_times.remember(kernel.tier, seconds)
    return verdict.line(op, version, former, seconds, includes.changed(headers, kernel.headers))


def _install(op, version: Version, *, waits: bool) -> None:
    """Into its slot, or, of an op without cases, to wait for its first call. One that cannot go there is refused."""
    try:
        (waiting.put_when_called if waits else slots.put)(op, version)
    except Exception as error:
        said = error.message if isinstance(error, WorkbenchError) else str(error).partition("\n")[0]
        op.update(replace(version, refused=f"cannot be installed: {said}"))
        raise


def _former_headers(op, slot: str) -> Mapping[str, str]:
    """The headers of the slot's former cell, refused or not, as they were when it was built."""
    kernels = [v.kernel for v in reversed(op.versions) if v.slot == slot]
    return next((k.headers for k in kernels if isinstance(k, Kernel)), {})


def _floating(op) -> list[str] | None:
    """The tensor arguments that are floating-point in some case, None when there are no cases to tell."""
    bound = [c.bound(op.schema) for c in op.case_list()]
    if not bound:
        return None
    return [a.name for a in op.schema.tensors if any(differentiable_type(t) for b in bound for t in flat(b[a.name]))]


def _chosen(op, names: Sequence[str] | None) -> tuple[Case, ...]:
    everything = op.case_list()
    if names is None:
        return everything
    wanted = {id(c) for n in names for c in which.named(everything, n, op.name)}
    return tuple(c for c in everything if id(c) in wanted)


def judge_again(op) -> list[str]:
    """After another reference or other cases: kernels that now differ are taken out. Returns what was taken out."""
    gone = []
    for key, version in sorted(op.slots.items(), key=lambda kv: kv[0][0] != "forward"):
        if isinstance(version.kernel, waiting.Waiting):
            continue
        try:
            trial = examine.judge(op, version.kernel, op.case_list())
            refused = verdict.refusal(trial)
        except WorkbenchError as error:
            trial, refused = version.trial, f"cannot be tried: {error.message}"
        if refused and getattr(version.kernel, "defines_itself", False):
            op.fill(key, op.update(replace(version, trial=trial)))
            gone.append(f"v{version.number} {refused}; it stays, since its cell defines the op")
            continue
        op.fill(key, op.update(replace(version, trial=trial, refused=refused)))
        if refused:
            gone.append(f"v{version.number} ({' '.join(key)}) was taken out: it {refused}")
            slots.empty(op, key)
        elif isinstance(version.kernel, Kernel) and not version.kernel.layout:
            learn_layout(op, version.kernel, op.case_list())
            version.kernel.refresh()
    return gone


@contextmanager
def keeping(op, slot: str, device: str) -> Iterator[None]:
    """Adds to any error, and to an interrupt, what is still installed: the last words of every refusal."""
    try:
        yield
    except WorkbenchError as error:
        if not error.still and op is not None:
            error.still = f"{op.name} {slot} still runs {op.still(slot, device)}"
        raise
    except KeyboardInterrupt as interrupt:
        said = f"; {op.name} {slot} still runs {op.still(slot, device)}" if op is not None else ""
        raise stopped(f"stopped{said}") from interrupt
