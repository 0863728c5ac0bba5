"""Ops of other extensions for which a new build brings kernels: they are tried with it before it is installed."""

from __future__ import annotations

from ..errors import TrialError
from ..judge import examine, verdict
from ..tiers.block import BlockKernel
from . import extensions
from .extensions import Extension, Made


def judge(made: Made, mine: Extension, *, force: bool = False) -> None:
    """TrialError if such an op now fails on its cases. `force` lets pass what merely differs."""
    spaces = {b.namespace for b in made.blocks if b.kind == "impl"}

    def others() -> tuple[str, ...]:
        return extensions.beside(made.spaces, mine)

    for e in extensions.live():
        for d in e.now.ops if e is not mine and e.now.spaces & spaces else ():
            op, cases = e.ops[d.name], e.ops[d.name].case_list()
            if not cases or d.schema is None:
                continue
            kernel = BlockKernel(made.sources, made.options, d.schema, made.build, others, None, lambda: None)
            trial = examine.examine(op, kernel, cases)
            why = verdict.refusal(trial)
            if why and (verdict.faults(trial) or not force):
                error = TrialError(f"{op.name} with these kernels {why}", kind=verdict.kind(trial), report=trial)
                error.still = f"{op.name} runs as before"
                raise error
