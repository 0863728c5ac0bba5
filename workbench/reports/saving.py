"""What a save did, as plain data: where the package lies, what of it is new, what changes for its callers."""

from __future__ import annotations

from dataclasses import dataclass

from .report import Report


@dataclass(frozen=True)
class Change:
    """What a new version of an op changes: `kind` is compatible, breaking or silent, `why` one sentence."""

    op: str
    kind: str
    why: str


@dataclass(frozen=True)
class Saved(Report):
    """The outcome of `wb.save`.

    >>> saved = wb.save([rmsnorm], "rmsnorm_ops")
    >>> saved.name, saved.version, saved.changes
    ('rmsnorm_ops', '0.1.0', ())

    `path` is the folder, `files` how many there are in it, `kept` those that keep a change made by hand. `changes` are
    those against the package that was there, and `advised` the version that goes with them.
    """

    path: str
    name: str
    version: str
    layout: str
    ops: tuple[str, ...]
    files: int
    seconds: float
    changes: tuple[Change, ...] = ()
    advised: str = ""
    kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True: what cannot be saved raises."""
        return True

    @property
    def rows(self) -> tuple[Change, ...]:
        """What changes for callers."""
        return self.changes

    def __str__(self) -> str:
        from ..show import save_text

        return save_text.saved(self)


__all__ = ["Change", "Saved"]
