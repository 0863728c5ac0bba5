"""An op without cases: its kernel waits for the first call, which shows what to try it on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from . import slots
from .errors import TrialError, WorkbenchError
from .judge import examine, verdict
from .tiers import Kernel
from .version import Version


def put_when_called(op, version: Version) -> None:
    """An op without cases: the first call shows what to try the kernel on."""
    if version.kernel.unrunnable:  # no call comes to it
        slots.place(op, version)
        slots.lend(op, version, put_when_called)
        return
    key = (version.slot, version.device)
    former = op.runs(*key)
    if former.number:
        slots.take_out(op, former.kernel)
    Waiting(op, version).wait()


class Waiting:
    """Stands in a slot until the first call; then the kernel is tried on a case like that call, and installed."""

    tier = "raw"
    left_out = ()

    def __init__(self, op, version: Version) -> None:
        self.op, self.version = op, version
        self.interpreted = version.kernel.interpreted

    def wait(self) -> None:
        """Into the slot."""
        self.op.fill((self.version.slot, self.version.device), replace(self.version, kernel=self))
        self.install(self.op)

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
            kernel: Kernel = version.kernel
            forget = op.learn_case(args, kwargs)
            self.remove()  # what the kernel is held against must not come back to it
            op.vacate((version.slot, version.device))
            try:
                trial = examine.judge(op, kernel, op.case_list())
            except BaseException as error:  # no word against the kernel: the next call tries it
                forget()
                self.wait()
                if isinstance(error, WorkbenchError):
                    error.still = error.still or f"v{version.number} waits for a call that can be tried"
                raise
            refusal = verdict.refusal(trial)
            if refusal:
                op.update(replace(version, trial=trial, refused=refusal))
                raise TrialError(f"v{version.number} of {op.qualname} was tried at its first call and {refusal}",
                                 kind=verdict.kind(trial), report=trial)  # fmt: skip
            slots.put(op, op.update(replace(version, trial=trial)))
            return getattr(getattr(torch.ops, op.schema.namespace), op.name + suffix)(*args, **kwargs)

        return call
