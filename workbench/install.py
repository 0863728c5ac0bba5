"""From a cell's source to an installed version: build, trial, register, one line to say how it went.

Also what else changes the slots of an op: restoring a version, a kernel in Python, and judging again after the
reference or the cases changed. Nothing is installed that did not survive its trial.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from . import examine, pullback, source
from .case import Case
from .errors import SchemaError, TrialError, WorkbenchError
from .kernel import Kernel
from .measure import rough
from .report import Line, Outcome, Trial
from .source import Source
from .version import Version

FAULTS = ("crash", "hang", "overrun", "mutation")


def cell(
    op, text: Source, slot: str, *, force: bool = False, cases: Sequence[str] | None = None, function: str = ""
) -> Line:
    """Build a raw cell for a slot of an op, try it on the op's cases, install it if it agrees.

    >>> cell(rmsnorm, Source("void rmsnorm(...) {...}", "cpp"), "forward").installed
    True

    `cases` names those to try (all but the bench ones without it; an empty list: none); `force` installs one that
    merely differs. A refused build is kept as a version and told in the line, with `installed` False. Raises
    SchemaError and BuildError, on the cell's lines, for text that is no kernel.
    """
    started = time.perf_counter()
    kernel = Kernel(text, op.schema, slot, function=function)
    chosen = _chosen(op, cases)
    tried, refusals = _built(op, kernel, chosen)
    trial = examine.examine(op, kernel, tried)
    trial = replace(trial, outcomes=(*trial.outcomes, *refusals))
    verdict = _refusal(op, trial)
    former = op.runs(slot, kernel.device)
    if verdict and force and not _faults(trial):
        trial = replace(trial, notes=(*trial.notes, f"installed by --force although it {verdict}"))
        verdict = ""
    version = op.record(
        Version(op.next_number(), slot, kernel.device, text.language, kernel.tier, text, source.title(text), trial,
                time.perf_counter() - started, verdict, kernel)
    )  # fmt: skip
    if not verdict:
        if not chosen and cases is None:
            _install_when_called(op, version)
        else:
            put(op, version)
    return _line(op, version, former, time.perf_counter() - started)


def _chosen(op, names: Sequence[str] | None) -> tuple[Case, ...]:
    everything = op.case_list()
    if names is None:
        return everything
    known = {c.name for c in everything}
    for n in names:
        if n not in known:
            raise SchemaError(f"{op.name} has no case {n!r}; its cases are {', '.join(sorted(known)) or 'none'}")
    return tuple(c for c in everything if c.name in names)


def _built(op, kernel: Kernel, cases: Sequence[Case]) -> tuple[list[Case], list[Outcome]]:
    """Build every form that the cases ask for; cases in dtypes that the kernel has no form for are left out."""
    wanted = [examine.dtypes_for(op, kernel, examine.evidence(op, c, kernel.slot)) for c in cases]
    combinations = list({tuple(w.items()): w for w in wanted}.values())
    answers = {tuple(c.items()): r for c, r in zip(combinations, kernel.build(combinations), strict=True)}
    tried = [c for c, w in zip(cases, wanted, strict=True) if answers[tuple(w.items())] is None]
    refusals = [
        Outcome(c.name, c.dtype_name, "skip", detail=answers[tuple(w.items())].message)
        for c, w in zip(cases, wanted, strict=True)
        if answers[tuple(w.items())] is not None
    ]
    if cases and not tried:
        raise next(r for r in answers.values() if r is not None)
    forward, backward = examine._pair(op, kernel)
    other = backward if kernel.slot == "forward" else forward
    if other is not None:
        for c in tried:
            other.form(examine.dtypes_for(op, other, examine.evidence(op, c, other.slot)))
    return tried, refusals


def _faults(trial: Trial) -> list[Outcome]:
    return [o for o in trial.outcomes if o.status in FAULTS]


def _refusal(op, trial: Trial) -> str:
    """Why this build is not installed, in one sentence; "" if nothing speaks against it."""
    wrong = [o for o in trial.outcomes if o.status not in ("agree", "skip")]
    if not wrong:
        return ""
    first = min(wrong, key=lambda o: o.status not in FAULTS)
    where = f"{first.case} {first.dtype}".strip()
    verb = {"mismatch": "differs", "error": "raises", "crash": "crashes", "hang": "hangs",
            "overrun": "reads or writes out of bounds", "mutation": "writes to an input"}[first.status]  # fmt: skip
    more = f" ({len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return f"{verb} on {where}: {first.detail}{more}"


# ---------------------------------------------------------------- slots


def put(op, version: Version) -> None:
    """Let a version run in its slot. A kernel whose launcher runs already is swapped in by one atomic store."""
    key = (version.slot, version.device)
    former = op.runs(*key)
    kernel = version.kernel
    if former.number and not (isinstance(kernel, Kernel) and kernel.shares_launcher(former.kernel)):
        former.kernel.remove()
    op.fill(key, version)
    if isinstance(kernel, Kernel):
        _learn_layout(op, kernel)
        _name_partial(op, kernel)
        kernel.install(lambda dtypes: _arrived(op, kernel, dtypes))
    else:
        kernel.install(op)
    settle(op)


def settle(op) -> None:
    """Make what compiled callers traced follow from the slots: saved fakes, backwards that need a forward's saves."""
    forward = op.runs("forward", "cpu").kernel
    declaration = getattr(forward, "declaration", None)
    schema = op.schema

    def derived(args: tuple, kwargs: dict):
        made = declaration.fake(schema.bind(args, kwargs))
        return made

    had = op.definition.saved_fake is not None
    op.definition.saved_fake = None
    if declaration is not None and schema.saves:
        op.definition.saved_fake = lambda args, kwargs: [derived(args, kwargs)[n] for n in schema.saves]
    if op.reference is None and op.definition.fake is None and declaration is not None:
        op.definition.derived_fake = lambda *a, **k: _outputs_of(schema, derived(a, k))
        op.changed()
    backward = op.runs("backward", "cpu").kernel
    if isinstance(backward, Kernel) and backward.uses_saved and not isinstance(forward, Kernel):
        backward.remove()  # nothing was saved, so the reference's vjp runs until a forward kernel is back
    elif isinstance(backward, Kernel) and backward.uses_saved:
        backward.install(lambda dtypes: _arrived(op, backward, dtypes))
    if schema.saves or had:
        op.changed()


def _outputs_of(schema, made: dict):
    found = [made[n] for n in schema.outputs]
    return found[0] if len(found) == 1 else tuple(found) or None


def _learn_layout(op, kernel: Kernel) -> None:
    """Does the reference give contiguous inputs other strides than contiguous ones? Then every call must ask."""
    if kernel.slot == "backward" or op.reference is None:
        return
    for case in op.case_list():
        wanted = examine.evidence(op, case, "forward").wanted
        if any(o.strides is not None and not o.value.is_contiguous() for o in wanted.outputs):
            kernel.layout = True


def _name_partial(op, kernel: Kernel) -> None:
    """A backward that leaves gradients out runs under a name of its own; the op's own name adds the reference's."""
    if not kernel.left_out or not _leaves_floats_out(op, kernel):
        return
    op.registration.name_partial(kernel.native_schema.name)


def _leaves_floats_out(op, kernel: Kernel) -> bool:
    return bool(kernel.left_out)


def _arrived(op, kernel: Kernel, dtypes: dict) -> str | None:
    """Dtypes that the kernel was not built for yet arrive at a call: build, try, and only then go on."""
    try:
        kernel.form(dtypes)
        floats = {n: d for n, d in dtypes.items() if d is not None and d.is_floating_point and op.schema.argument(n)}
        cases = [c.cast(floats) for c in _one_dtype(op.case_list())]
        trial = examine.examine(op, kernel, cases)
        refusal = _refusal(op, trial)
        if refusal:
            kernel.forget(dtypes)
            return f"{op.qualname}: the kernel was tried for {_shown(dtypes)} and {refusal}"
        kernel.refresh()
    except SchemaError as error:
        return f"{op.qualname}: {error.message}; built so far: {kernel.forms_text()}"
    except WorkbenchError as error:
        return f"{op.qualname}: no form for {_shown(dtypes)}: {error}"
    return None


def _one_dtype(cases: Sequence[Case]) -> list[Case]:
    """Each case once, whatever dtypes it is there for."""
    return list({c.name: c for c in reversed(cases)}.values())[::-1]


def _shown(dtypes: dict) -> str:
    return ", ".join(f"{n} {str(d).removeprefix('torch.')}" for n, d in dtypes.items() if d is not None)


def _install_when_called(op, version: Version) -> None:
    """An op without cases: the first call shows what to try the kernel on."""
    key = (version.slot, version.device)
    former = op.runs(*key)
    if former.number:
        former.kernel.remove()
    op.fill(key, replace(version, kernel=_Waiting(op, version)))
    op.slots[key].kernel.install(op)


class _Waiting:
    """Stands in a slot until the first call; then the kernel is tried on a case like that call, and installed."""

    tier = "raw"
    left_out = ()

    def __init__(self, op, version: Version) -> None:
        self.op, self.version = op, version

    def install(self, op) -> None:
        suffix = {"forward": ("", "_forward"), "backward": ("_backward",)}[self.version.slot]
        for s in suffix:
            op.registration.set_kernel(op.name + s, self.version.device, self._first_call(s))

    def remove(self) -> None:
        for s in ("", "_forward", "_backward"):
            self.op.registration.clear_kernel(self.op.name + s, self.version.device)

    def _first_call(self, suffix: str) -> Callable:
        def call(*args, **kwargs):
            op, version = self.op, self.version
            op.learn_case(args, kwargs)
            kernel: Kernel = version.kernel
            tried, _ = _built(op, kernel, op.case_list())
            trial = examine.examine(op, kernel, tried)
            refusal = _refusal(op, trial)
            if refusal:
                restore(op, 0)
                raise TrialError(f"v{version.number} of {op.qualname} was tried at its first call and {refusal}",
                                 kind=_kind(trial), report=trial)  # fmt: skip
            put(op, op.update(replace(version, trial=trial)))
            name = op.qualname.replace("::", ".") + suffix
            return getattr(getattr(torch.ops, op.schema.namespace), op.name + suffix)(*args, **kwargs) if name else None

        return call


def restore(op, number: int):
    """Put a version back into its slot; 0: the reference into all of them."""
    if not 0 <= number < len(op.versions):
        raise SchemaError(f"{op.name} has no version {number}; the last one is {len(op.versions) - 1}")
    version = op.versions[number]
    if version.refused:
        raise SchemaError(f"v{number} of {op.name} was not installed: it {version.refused}. Use --force to install it.")
    if number:
        put(op, version)
        return op
    for key in list(op.slots):
        empty(op, key)
    return op


def empty(op, key: tuple[str, str]) -> None:
    """The reference runs in this slot again."""
    op.runs(*key).kernel.remove()
    op.vacate(key)
    settle(op)
    op.changed()


def judge_again(op) -> list[str]:
    """After another reference or other cases: kernels that now differ are taken out. Returns what was taken out."""
    op.evidence.clear()
    gone = []
    for key, version in sorted(op.slots.items(), key=lambda kv: kv[0][0] != "forward"):
        if not isinstance(version.kernel, Kernel):
            continue
        try:
            tried, refusals = _built(op, version.kernel, op.case_list())
            trial = examine.examine(op, version.kernel, tried)
            refusal = _refusal(op, trial)
            trial = replace(trial, outcomes=(*trial.outcomes, *refusals))
        except WorkbenchError as error:
            trial, refusal = version.trial, error.message
        op.fill(key, op.update(replace(version, trial=trial)))
        if refusal:
            gone.append(f"v{version.number} ({' '.join(key)}) was taken out: it {refusal}")
            empty(op, key)
        elif op.runs(*key).kernel.layout is False:
            _learn_layout(op, version.kernel)
            version.kernel.refresh()
    return gone


def call_version(op, version: Version, args: tuple, kwargs: dict):
    """Run a version: through the op if it is installed, else in the worker."""
    installed = op.slots.get((version.slot, version.device))
    if not version.number:
        return op.definition.run(args, kwargs)
    if installed is not None and installed.number == version.number:
        return op(*args, **kwargs)
    return examine.call_in_worker(op, version, args, kwargs)


# ---------------------------------------------------------------- kernels in Python


class PythonKernel:
    """A Python function as the forward of one device."""

    tier = ""
    left_out = ()
    declaration = None

    def __init__(self, function: Callable, device: str) -> None:
        self.function, self.device = function, device
        self.op = None

    def install(self, op) -> None:
        self.op, schema = op, op.schema
        count = len(schema.outputs)

        def forward(*args, **kwargs):
            out = self.function(*args, **kwargs)
            given = [] if out is None else list(out) if isinstance(out, (tuple, list)) and count + len(schema.saves) > 1 else [out]
            if len(given) == count and schema.saves:
                given += [pullback.absent() for _ in schema.saves]
            if len(given) != count + len(schema.saves):
                raise SchemaError(f"{op.qualname}: the kernel returned {len(given)} results, {count + len(schema.saves)} are wanted")
            return None if not given else given[0] if len(given) == 1 else tuple(given)

        def public(*args, **kwargs):
            found = forward(*args, **kwargs)
            if not schema.saves:
                return found
            return found[0] if count == 1 else tuple(found[:count]) or None

        op.registration.set_kernel(op.name, self.device, public)
        op.registration.set_kernel(f"{op.name}_forward", self.device, forward)

    def remove(self) -> None:
        for name in (self.op.name, f"{self.op.name}_forward"):
            self.op.registration.clear_kernel(name, self.device)


def python_kernel(op, function: Callable, device: str) -> Callable:
    """`@op.kernel("cpu")`: judged on the op's cases in this process (it is Python), then installed."""
    device = str(torch.device(device).type)
    version = Version(op.next_number(), "forward", device, "python", "", None, (function.__doc__ or "").strip().split("\n")[0],
                      kernel=PythonKernel(function, device))  # fmt: skip
    outcomes = []
    for case in op.case_list() if device == "cpu" else ():
        outcomes.append(examine.judge_here(op, function, case))
    trial = Trial(tuple(outcomes))
    refusal = _refusal(op, trial)
    version = op.record(replace(version, trial=trial, refused=refusal))
    if refusal:
        raise TrialError(f"v{version.number} is not installed: it {refusal}", kind=_kind(trial), report=trial)
    put(op, version)
    return function


# ---------------------------------------------------------------- the line


def _kind(trial: Trial) -> str:
    wrong = [o.status for o in trial.outcomes if o.status not in ("agree", "skip")]
    return next((s for s in wrong if s in FAULTS), "mismatch")


def refusal_error(op, line: Line) -> TrialError:
    """The error that a refused cell raises."""
    outcome = next((o for o in line.trial.outcomes if o.status not in ("agree", "skip")), None)
    error = TrialError(
        f"v{line.version} of {line.op} is not installed: it {line.refused}",
        kind=_kind(line.trial),
        case=outcome.case if outcome else "",
        report=line.trial,
    )
    error.still = f"{op.name} {line.slot} still runs {op.still(line.slot, 'cpu')}. {line.hint}".strip()
    return error


def _line(op, version: Version, former: Version, seconds: float) -> Line:
    refused = bool(version.refused)
    timed = None if refused else rough.time_us(op, version)
    if timed:
        version = op.update(replace(version, rough_us=timed.us, rough_case=timed.case))
    same = timed is not None and former.rough_case == timed.case
    how = f"{op.name}.versions[{version.number}](...)"
    forced = " or --force" if refused and not _faults(version.trial) else ""
    return Line(
        op=op.name,
        slot=version.slot,
        language=version.language,
        version=version.number,
        installed=not refused,
        seconds=seconds,
        tier=version.tier,
        cached=version.kernel.cached,
        trial=version.trial,
        rough_us=timed.us if timed else 0.0,
        rough_case=timed.case if timed else "",
        former=former.number if same else 0,
        former_us=former.rough_us if same else 0.0,
        refused=version.refused,
        still=op.still(version.slot, version.device),
        hint=f"Try it anyway: {how}{forced}." if refused else "",
        notes=_notes(op, version),
        title=version.title,
    )


def _notes(op, version: Version) -> tuple[str, ...]:
    notes = list(version.trial.notes) if version.trial else []
    notes += [str(d) for d in version.kernel.diagnostics if d.severity == "warning"]
    if version.trial is not None and not version.trial.outcomes:
        notes.append("no cases: it is tried at its first call")
    if version.kernel.left_out:
        notes.append(f"the gradient of {', '.join(version.kernel.left_out)} comes from the reference")
    skipped = {o.detail for o in (version.trial.outcomes if version.trial else ()) if o.status == "skip"} - {"not reached"}
    return (*notes, *sorted(skipped))


@contextmanager
def keeping(op, slot: str, device: str = "cpu"):
    """Adds to any error what is still installed: the last words of every refusal."""
    try:
        yield
    except WorkbenchError as error:
        if not error.still and op is not None:
            error.still = f"{op.name} {slot} still runs {op.still(slot, device)}"
        raise
