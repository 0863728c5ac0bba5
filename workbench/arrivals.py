"""Dtypes that arrive at a call and that a kernel was not built for: built, tried, and only then taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from .case import Case
from .errors import SchemaError, WorkbenchError
from .judge import examine, verdict
from .judge.evidence import evidences
from .judge.partners import dtypes_for
from .tiers import Kernel
from .version import Version


def arrived(op, version: Version, dtypes: dict) -> str | None:
    """Dtypes that the kernel was not built for yet arrive at a call: build, try, and only then go on.

    A version that was installed untried, or by force, is held to no more than that.
    """
    kernel: Kernel = version.kernel
    untried, forced = not version.tried.outcomes, not version.tried.ok
    try:
        cases = [] if untried else [_in_dtypes(op, c, dtypes) for c in _one_dtype(op.case_list())]
        if kernel.shaped:
            for e in evidences(op, kernel, cases):
                dtypes_for(op, kernel, e)
        (no_form,) = kernel.build([dtypes])
        if no_form is not None:
            raise no_form
        trial = examine.examine(op, kernel, cases)
        refusal = verdict.refusal(trial)
        if refusal and (verdict.faults(trial) or not forced):
            kernel.forget(dtypes)
            return f"the kernel was tried for {_shown(dtypes)} and {refusal}"
        kernel.refresh()
    except SchemaError as error:
        return f"{error.message}; built so far: {kernel.forms_text()}{_autocast(kernel.device)}"
    except WorkbenchError as error:
        return f"no form for {_shown(dtypes)}: {error}{_autocast(kernel.device)}"
    return None


def _autocast(device: str) -> str:
    if not torch.is_autocast_enabled(device):
        return ""
    lower = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    return f"; under autocast other ops hand on {lower}: cast what comes in, or give the kernel a form for it"


def _one_dtype(cases: Sequence[Case]) -> list[Case]:
    """Each case once, whatever dtypes it is there for."""
    return list({c.name: c for c in reversed(cases)}.values())[::-1]


def _in_dtypes(op, case: Case, dtypes: dict) -> Case:
    """The case with its tensors in the dtypes that arrived: integers for floats, too."""
    schema = op.schema
    arrived = {n: d for n, d in dtypes.items() if d is not None and schema.argument(n)}
    cast = case.cast({n: d for n, d in arrived.items() if d.is_floating_point})

    def recipe() -> tuple[tuple, dict]:
        bound: dict[str, Any] = cast.bound(schema)
        for n, d in arrived.items():
            if isinstance(bound[n], torch.Tensor) and bound[n].dtype != d:
                bound[n] = (bound[n] * 8 if bound[n].is_floating_point() else bound[n]).to(d)
        args, keywords = op.definition.split(list(bound.values()))
        return tuple(args), keywords

    singles = [(cast.bound(schema)[n], d) for n, d in arrived.items()]
    same = all(not isinstance(t, torch.Tensor) or t.dtype == d for t, d in singles)
    return cast if same else replace(cast, recipe=recipe, dtype=None)


def _shown(dtypes: dict) -> str:
    return ", ".join(f"{n} {str(d).removeprefix('torch.')}" for n, d in dtypes.items() if d is not None)
