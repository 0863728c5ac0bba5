"""What speaks against an op that is saved all the same: a kernel that differs, a backward that does not work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..check.agree import judge
from ..check.gradients import expected_gradients, pull
from ..show import words

AGREEING = ("agree", "skip")


def of(op: Any) -> tuple[str, ...]:
    """Sentences for the report of a save and for the README of the package; () where nothing is known against the op.

    >>> doubts.of(scale)
    ('lab::scale: v3 (forward, cpu) was installed by force although it differs on 4x8 float32: 32 of 32 elements differ',)
    """
    return tuple(f"{op.qualname}: {said}" for said in dict.fromkeys([*_forced(op), *_backward(op), *_checked(op)]))


def _forced(op: Any) -> Iterator[str]:
    for (slot, device), v in sorted(op.slots.items()):
        failed = words.failing(v.trial)
        if failed:
            yield f"v{v.number} ({slot}, {device}) was installed by force although it {words.failure(failed[0])}"


def _backward(op: Any) -> Iterator[str]:
    """A backward in Python is tried by nothing before it is called: here it is, on one case."""
    if op.definition.backward is None or op.reference is None or op.definition.is_random:
        return
    case = next((c for c in op.case_list() if not c.bench), None)
    if case is None:
        return
    wanted = expected_gradients(op.reference, op.schema, case)
    if wanted.skipped:
        return
    try:
        found = judge(pull(op, wanted), wanted)
    except Exception as error:  # it is the user's own, and raises what it likes
        said = str(error).strip().splitlines() or [type(error).__name__]
        yield f"its backward raises on {case.label}: {said[0].removeprefix(f'{op.qualname}: ')}"
        return
    if found.status not in AGREEING:
        yield f"its backward {words.failure(found)}"


def _checked(op: Any) -> Iterator[str]:
    if op.checked not in (None, op.installed()):  # it was of what no longer runs
        return
    failed = [r for r in op.last_check.rows if r.status == "fail"] if op.last_check is not None else []
    if failed:
        more = f" ({len(failed) - 1} more rows fail)" if len(failed) > 1 else ""
        on = f" on {failed[0].case}" if failed[0].case else ""
        yield f"its last check failed: {failed[0].check}{on}: {failed[0].detail.strip().splitlines()[0]}{more}"
