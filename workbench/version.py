"""A version: one build of one slot, with its number and how its trial went.

Not a sixth noun with a life of its own: it is the entry under which an `Op` keeps a `Build`, so that a build can be
restored, compared, or called although it was refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .errors import SchemaError
from .reports.report import NOT_RUN, Trial
from .source import Source

LANGUAGES = {"cpp": "C++", "cuda": "CUDA", "triton": "Triton", "python": "Python"}


@dataclass(frozen=True, repr=False)
class Version:
    """Number `number` of an op; `op.versions[number]`. Number 0 is the reference.

    >>> rmsnorm.versions[1](x, w).shape        # x and w of (4, 128) and (128,)
    torch.Size([4, 128])

    Called, it runs as the op does if it is installed, else in the worker. `trial` is how it went on the cases,
    `refused` why it was not installed, `source` its text, `seconds` from run to installed.
    """

    number: int
    slot: str  # "forward" or "backward"
    device: str  # "cpu", "cuda", "" for any
    language: str  # "python", "cpp", "cuda", "triton"
    tier: str = ""
    source: Source | None = None
    title: str = ""
    trial: Trial | None = None
    seconds: float = 0.0
    refused: str = ""  # one sentence; "" when it was installed
    kernel: Any = field(default=None, repr=False)  # a `tiers.Kernel` or what else stands in a slot; none for number 0
    call: Callable | None = field(default=None, repr=False)
    rough_us: float = 0.0
    rough_case: str = ""

    @property
    def how(self) -> str:
        """`raw C++`, `reference`."""
        tier = "" if self.tier == self.language else self.tier
        return f"{tier} {LANGUAGES[self.language]}".strip() if self.number else "reference"

    @property
    def tried(self) -> Trial:
        """The trial of a kernel: only the reference has none."""
        assert self.trial is not None
        return self.trial

    @property
    def prints(self) -> bool:
        """Did it print while it was tried? Then its time is that of printing."""
        return self.trial is not None and bool(self.trial.printed)

    def __call__(self, *args, **kwargs):
        """Run this version: as the op does if it is installed, else in the worker, where it can hurt nobody."""
        assert self.call is not None, "an op hands it in when it records a version"
        return self.call(self, args, kwargs)

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return " ".join(filter(None, [f"v{self.number}", self.slot, self.device, self.how, self._state]))

    @property
    def _state(self) -> str:
        if self.refused:
            return f"refused: {self.refused}"
        if self.trial is None or not self.trial.ok:
            return ""
        unrun = getattr(self.kernel, "unrunnable", "") and not getattr(self.kernel, "interpreted", False)
        if NOT_RUN in {o.detail for o in self.trial.outcomes} or (unrun and not self.trial.outcomes):
            return NOT_RUN
        return "agreed" if any(o.status == "agree" for o in self.trial.outcomes) else "not tried"


def asked(op: Any, wanted: int | Version) -> Version:
    """The version of an op that a verb is asked for: a number, counted from the end when negative, or the version.

    >>> asked(rmsnorm, 3)
    <v3 forward cpu raw C++ agreed>

    SchemaError for a number that there is none of, for another op's version, and for what is no version.
    """
    if isinstance(wanted, Version):
        if wanted.number < len(op.versions) and op.versions[wanted.number].call is wanted.call:
            return wanted
        raise SchemaError(f"{wanted} is no version of {op.name}; write its number, or one of {op.name}.versions")
    if isinstance(wanted, bool) or not isinstance(wanted, int):
        raise SchemaError(f"a version of {op.name} is a number, or one of {op.name}.versions; got {wanted!r}")
    if not -len(op.versions) <= wanted < len(op.versions):
        raise SchemaError(f"{op.name} has no version {wanted}; the last one is {len(op.versions) - 1}")
    return op.versions[wanted]
