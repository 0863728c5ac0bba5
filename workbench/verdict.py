"""What a trial comes to: installed or not, in one sentence, and the line that says so under the cell."""

from __future__ import annotations

from dataclasses import replace

from .errors import BuildError, TrialError
from .measure import rough
from .report import Line, Outcome, Trial
from .version import Version

FAULTS = ("crash", "hang", "overrun", "mutation")  # what --force does not install
VERBS = {
    "mismatch": "differs",
    "error": "raises",
    "crash": "crashes",
    "hang": "hangs",
    "overrun": "reads or writes out of bounds",
    "mutation": "writes to an input",
}


def wrong(trial: Trial) -> list[Outcome]:
    return [o for o in trial.outcomes if o.status not in ("agree", "skip")]


def faults(trial: Trial) -> list[Outcome]:
    """The outcomes that no option installs."""
    return [o for o in trial.outcomes if o.status in FAULTS]


def refusal(trial: Trial) -> str:
    """Why a build is not installed, in one sentence; "" if nothing speaks against it.

    >>> refusal(Trial((Outcome("odd", "float32", "mismatch", detail="y: 3 of 615 elements differ"),)))
    'differs on odd float32: y: 3 of 615 elements differ'
    """
    found = wrong(trial)
    if not found:
        return ""
    first = min(found, key=lambda o: o.status not in FAULTS)
    where = f"{first.case} {first.dtype}".strip()
    more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
    return f"{VERBS[first.status]} on {where}: {first.detail}{more}"


def kind(trial: Trial) -> str:
    """The kind of a TrialError: the first fault, else a mismatch."""
    return next((o.status for o in faults(trial)), "mismatch")


def refusal_error(op, told: Line) -> TrialError:
    """The error that a refused cell raises."""
    outcome = next(iter(wrong(told.trial)), None)
    error = TrialError(
        f"v{told.version} of {told.op} is not installed: it {told.refused}",
        kind=kind(told.trial),
        case=outcome.case if outcome else "",
        report=told.trial,
    )
    error.still = f"{op.name} {told.slot} still runs {op.still(told.slot, 'cpu')}. {told.hint}".strip()
    return error


def line(op, version: Version, former: Version, seconds: float) -> Line:
    refused = bool(version.refused)
    timed = None if refused else rough.time_us(op, version)
    if timed:
        version = op.update(replace(version, rough_us=timed.us, rough_case=timed.case))
    same = timed is not None and former.rough_case == timed.case
    how = f"{op.name}.versions[{version.number}](...)"
    forced = " or --force" if refused and not faults(version.trial) else ""
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


def uncompiled(op, slot: str, language: str, error: BuildError, seconds: float) -> Line:
    """The line of a cell that did not compile. There is no build, so it is no version."""
    return Line(
        op=op.name,
        slot=slot,
        language=language,
        version=op.next_number(),
        installed=False,
        seconds=seconds,
        refused=error.message.splitlines()[0],
        still=op.still(slot, "cpu"),
        diagnostics=error.diagnostics,
    )
