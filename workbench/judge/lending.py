"""Another version in a slot for a moment, to be timed there: the op's versions, slots and card know nothing of it."""

from __future__ import annotations

from .. import slots
from ..errors import WorkbenchError
from ..measure.profile_run import undivided
from ..tiers import Kernel
from ..version import Version
from .evidence import learn_layout


class Lent:
    """A former version that can take its slot and give it back, as often as one likes.

    >>> lent = Lent(rmsnorm, rmsnorm.versions[6])
    >>> lent.enter()
    >>> rmsnorm(x, w)                # runs v6
    >>> lent.leave()

    An interrupt leaves the slot whole. WorkbenchError for a version that cannot run beside what is installed, with the
    reason.
    """

    def __init__(self, op, version: Version) -> None:
        why = _why_not(op, version)
        if why:
            raise WorkbenchError(f"v{version.number} of {op.name} cannot be timed: {why}")
        self.op, self.version = op, version
        self.installed = op.runs(version.slot, version.device)
        self.inside = False
        if isinstance(version.kernel, Kernel):
            learn_layout(op, version.kernel, op.case_list())

    def enter(self) -> None:
        """Let the version run in its slot."""
        with undivided():
            self.inside = True
            _exchange(self.op, self.installed, self.version)

    def leave(self) -> None:
        """What was installed runs again; nothing happens if it does."""
        with undivided():
            if self.inside:
                _exchange(self.op, self.version, self.installed)
                self.inside = False


def _exchange(op, gone: Version, version: Version) -> None:
    shared = isinstance(version.kernel, Kernel) and version.kernel.shares_launcher(gone.kernel)
    if gone.number and not shared:
        slots.take_out(op, gone.kernel)
    if not version.number:
        return
    if isinstance(version.kernel, Kernel):
        slots.hand_over(op, version)
    else:
        version.kernel.install(op)


def _why_not(op, version: Version) -> str:
    kernel = version.kernel
    if not version.number:
        return "it is the reference"
    if version.refused:
        return f"it {version.refused}"
    if getattr(kernel, "unrunnable", ""):
        return f"it does not run here: {kernel.unrunnable}"
    if getattr(kernel, "defines_itself", False) or op.registration.foreign:
        return "its cell defines the op itself"
    made_for = getattr(kernel, "schema", op.schema)
    if (str(made_for), made_for.saves) != (str(op.schema), op.schema.saves):
        return f"it was made for another schema, {made_for}"
    return ""
