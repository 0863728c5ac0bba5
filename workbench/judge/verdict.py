"""What a trial comes to: installed or not, in one sentence, and the line that says so under the cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ..build import resources
from ..check import agree
from ..check.cures import cure, in_language
from ..directives import tied
from ..errors import BuildError, TrialError
from ..holes import differentiable_type
from ..measure import rough
from ..reference import flat
from ..reports.report import NOT_RUN, Line, Mismatch, Outcome, Trial
from ..show import words
from ..source import LANGUAGE_DEVICES
from ..tiers import Kernel
from ..trial.protocol import FAULTS
from ..version import Version
from . import beforehand, cost

ADVISED = ("hang", "overrun", "mutation", "process")  # of which there is something to say in general
PRINTS = "not timed: it prints"
VERBS = {
    "mismatch": "differs",
    "error": "raises",
    "crash": "crashes",
    "hang": "hangs",
    "overrun": "goes out of bounds",
    "mutation": "writes to an input",
    "process": "changes the process it runs in",
}


def wrong(trial: Trial) -> list[Outcome]:
    return [o for o in trial.outcomes if o.status not in ("agree", "skip")]


def faults(trial: Trial) -> list[Outcome]:
    """The outcomes that no option installs."""
    return [o for o in trial.outcomes if o.status in FAULTS]


def gravest(trial: Trial) -> Outcome | None:
    """The outcome to tell of: the first fault, else the first that is wrong."""
    return min(wrong(trial), key=lambda o: o.status not in FAULTS, default=None)


def refusal(trial: Trial) -> str:
    """Why a build is not installed, in one sentence; "" if nothing speaks against it.

    >>> refusal(Trial((Outcome("odd", "float32", "mismatch", detail="y has shape (5,), the reference's (5, 123)"),)))
    "differs on odd float32: y has shape (5,), the reference's (5, 123)"

    Of elements that differ it says how many: which they are is in the picture below, and in `detail`.
    """
    first = gravest(trial)
    if first is None:
        return ""
    where = f"{first.case} {first.dtype}".strip() + (f" ({first.how})" if first.how else "")
    return f"{VERBS[first.status]} on {where}: {_differing(trial, first.mismatch) if first.mismatch else first.detail}"


def _differing(trial: Trial, found: Mismatch) -> str:
    """How many elements differ; the output is named where there could be doubt which one is meant."""
    name = found.output
    others = {o.mismatch.output for o in wrong(trial) if o.mismatch} - {name}
    return (f"{name}: " if others or name.startswith("grad_") else "") + words.differing(found)


def kind(trial: Trial) -> str:
    """The kind of a TrialError: the first fault, else a mismatch."""
    found = next((o.status for o in faults(trial)), "mismatch")
    return "mutation" if found == "process" else found


def refusal_error(told: Line) -> TrialError:
    """The error that a refused cell raises: the line's sentence, the worst element, and what still runs."""
    assert told.trial is not None, "what was built was tried"
    outcome = gravest(told.trial)
    found = outcome.mismatch if outcome else None
    worst = f"; {found.output} {agree.worst(found)}" if found and found.worst else ""
    also = f" ({words.also(told)})" if words.also(told) else ""
    error = TrialError(
        f"v{told.version} of {told.op} is not installed: it {told.refused}{worst}{also}",
        kind=kind(told.trial),
        case=outcome.case if outcome else "",
        report=told.trial,
    )
    error.still = f"{told.op} {told.slot} still runs {told.still}. {told.hint.replace('`', '')}".strip()
    return error


def line(op, version: Version, former: Version, seconds: float, headers: Sequence[str] = ()) -> Line:
    """The line of a version, installed or refused. `headers` are those that changed since the slot's former cell."""
    refused = bool(version.refused)
    prints = version.prints
    untimed: tuple[str, ...] = (PRINTS,) if prints and not refused else ()
    timed = None
    if not refused and not prints:
        timed = rough.time_us(op, version, fault=partial(beforehand.fault, op, version))
    if timed and timed.fault:
        untimed, timed = (f"not timed on {timed.case}: {timed.fault}",), None
    if timed:
        version = op.update(replace(version, rough_us=timed.us, rough_case=timed.case))
    same = timed is not None and former.rough_case == timed.case
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
        resources=takes(version.kernel),
        unrun=unrun(version.kernel),
        rough_us=timed.us if timed else 0.0,
        rough_case=timed.case if timed else "",
        former=former.number if same else 0,
        former_us=former.rough_us if same else 0.0,
        refused=version.refused,
        still=op.still(version.slot, version.device),
        hint=_hint(op, version) if refused else "",
        notes=(*untimed, *rebuilt(headers, version.kernel.cached), *_notes(op, version)),
        cost="" if former.tier == version.tier else cost.of(version.kernel),
        title=version.title,
    )


def _hint(op, version: Version) -> str:
    """What to do about it, and how to run a refused version all the same; a backward has no call of its own."""
    called = version.slot == "forward" and not unrun(version.kernel)
    ways = [f"`{op.name}.versions[{version.number}](...)`"] if called else []
    raises = any(o.status == "error" for o in version.tried.outcomes)  # without a GPU: a launch that none takes
    ways += [] if faults(version.tried) or (raises and unrun(version.kernel)) else ["`--force`"]
    first = gravest(version.tried)
    advised = first is not None and first.status in ADVISED
    said = [in_language(cure(first.status, first.detail), version.language)] if first is not None and advised else []
    said += [f"Try it anyway: {' or '.join(ways)}."] if ways else []
    return "\n".join(line for line in said if line)


def unrun(kernel: object) -> str:
    """`compiled for sm_90, not run: no GPU here`; "" for a kernel that this machine can run."""
    why, arch = getattr(kernel, "unrunnable", ""), getattr(kernel, "compiled_for", "")
    if not why or getattr(kernel, "interpreted", False):
        return ""
    return (f"compiled for {arch}, " if arch else "") + f"not run: {why}"


def takes(kernel: object) -> str:
    """What a GPU kernel takes: `38 regs, no spills`; before it, where it was not run there, `interpreted | ...`."""
    if not isinstance(kernel, Kernel):
        return ""
    taken = resources.summary(kernel.resources)
    if not kernel.interpreted:
        return taken
    return "interpreted" + (f" | compiled for {kernel.compiled_for}: {taken}" if taken else "")


def rebuilt(headers: Sequence[str], cached: bool) -> tuple[str, ...]:
    """The note on headers that changed: "rebuilt: warp.h changed"; from the store nothing had to be built."""
    return (f"{'' if cached else 'rebuilt: '}{', '.join(headers)} changed",) if headers else ()


def _notes(op, version: Version) -> tuple[str, ...]:
    notes = list(version.trial.notes) if version.trial else []
    notes += [str(d) for d in version.kernel.diagnostics if d.severity == "warning"]
    notes += version.kernel.build_notes
    notes += [*_untied(op, version.kernel), *_unused(version.kernel)]
    waits = not version.kernel.unrunnable or version.kernel.interpreted
    if version.trial is not None and not version.trial.outcomes and waits:
        itself = getattr(version.kernel, "defines_itself", False)
        notes.append("no cases: it was loaded, not run" if itself else "no cases: it is tried at its first call")
    if unsaved := getattr(version.kernel, "unsaved", ()):
        notes.append(f"{', '.join(unsaved)} is not saved here: the gradient comes from the reference")
    if left := left_to_reference(op, version.kernel):
        notes.append(f"the gradient of {', '.join(left)} comes from the reference")
    outcomes = version.trial.outcomes if version.trial else ()
    skipped = {o.detail for o in outcomes if o.status == "skip"} - {"not reached", NOT_RUN}
    return (*notes, *sorted(skipped))


def left_to_reference(op, kernel: Kernel) -> tuple[str, ...]:
    """The arguments whose gradient a backward leaves to the reference; integers, as the cases have them, have none."""
    if not kernel.left_out:
        return ()
    bound = [c.bound(op.schema) for c in op.case_list()]
    given = {n: [t for b in bound for t in flat(b[n])] for n in kernel.left_out}
    return tuple(n for n, found in given.items() if not found or any(map(differentiable_type, found)))


def _untied(op, kernel: object) -> tuple[str, ...]:
    """The notes on tensors that a raw kernel would read past the end of, were they shorter than in the cases."""
    if not isinstance(kernel, Kernel) or not tied.untied(kernel.declaration):
        return ()
    return tied.notes(kernel.declaration, [c.bound(op.schema) for c in op.case_list()])


def _unused(kernel: object) -> tuple[str, ...]:
    """The note on arguments of which a raw kernel makes nothing: cases may all leave them at their defaults."""
    if not isinstance(kernel, Kernel) or kernel.tier != "raw":
        return ()
    return tuple(
        f"nothing here takes {n}: whatever a caller gives changes nothing" for n in tied.unused(kernel.declaration)
    )


def uncompiled(op, slot: str, language: str, error: BuildError, seconds: float) -> Line:
    """The line of a cell that did not compile. There is no build, so it is no version."""
    return Line(
        op=op.name,
        slot=slot,
        language=language,
        version=op.next_number(),
        installed=False,
        seconds=seconds,
        refused=_first_message(error),
        still=op.still(slot, LANGUAGE_DEVICES[language]),
        diagnostics=error.diagnostics,
    )


def _first_message(error: BuildError) -> str:
    """The compiler's first error as a sentence: "line 9: use of undeclared identifier 'colz'"."""
    first = error.message.splitlines()[0]
    return f"line {error.line}: {first}" if error.line else first
