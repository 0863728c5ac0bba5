"""A case that no trial had, run once in the worker before this process runs it: the one that is only there to be timed.

A buffer that is large enough for every case of the trial may be too small for it, and nobody has typed a call.
"""

from __future__ import annotations

import torch

from ..inputs import moved
from ..measure.rough import Kept
from ..tiers import Kernel
from ..trial import Parcel
from ..trial.protocol import FAULTS, Pickled
from ..version import Version
from . import one_call
from .evidence import given, tensors_of


def fault(op, version: Version, kept: Kept) -> str:
    """Why a call on these inputs is not made here; "" where it did, in the worker, nothing that no call may.

    >>> fault(op, version, kept)
    'stopped by SIGSEGV: it reads 4 bytes behind x. A call like it can end this process'
    """
    kernel = version.kernel
    if not isinstance(kernel, Kernel) or not kernel.trial_device or _tried(version, kept):
        return ""
    if any(isinstance(v, torch.ScriptObject) and not Pickled.can(v) for v in kept.values.values()):
        return "what it takes cannot be sent to the worker, which runs it first"
    if kept.parcel is None:
        kept.parcel = Parcel.of(tensors_of(moved(kept.values, "cpu")))
    args, keywords = op.definition.split([given(kept, a.name) for a in op.schema.arguments])
    _, result = one_call.run(op, kernel, args, keywords, kept.values, case=kept.case.label, discards=True)
    return f"{result.detail}. A call like it can end this process" if result.status in FAULTS else ""


def _tried(version: Version, kept: Kept) -> bool:
    """Has its trial had the case?"""
    return version.trial is not None and any(
        (o.case, o.dtype, o.status) == (kept.case.name, kept.case.dtype_name, "agree") for o in version.trial.outcomes
    )
