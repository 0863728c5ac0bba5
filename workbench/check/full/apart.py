"""Does the reference live through an input that somebody made up? A fork of this process goes first.

Torch does not look at every index: `embedding_bag` without offsets, or rows of a table that was made shorter, may end
the process. What holds no integers is not asked for, since torch looks at sizes everywhere.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import select
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn

import torch

from ...case import Case
from ...inputs import tensors_in

LIMIT_S = 20.0  # for one input; what takes longer here is not run in the notebook either
HANGS = 2  # after so many the rest is left


def dying(run: Callable[[Case], object], cases: Sequence[Case], limit_s: float = LIMIT_S) -> dict[Case, str]:
    """How `run` ends a process, of those cases on which it does.

    >>> dying(lambda case: embedding_bag(*case.args), [usual, without_offsets])
    {without_offsets: 'SIGSEGV'}

    An exception is no end. What a fork does not finish is found here, too.
    """
    left = [c for c in cases if _may_end_it(c)]
    found: dict[Case, str] = {}
    hangs = 0
    while left and hangs < HANGS:
        at, end = _first_death(run, left, limit_s)
        if not end:
            return found
        found[left[at]], left = end, left[at + 1 :]
        hangs += end == _no_end(limit_s)
    return found | dict.fromkeys(left, "not tried: it does not end on others")


def _may_end_it(case: Case) -> bool:
    """Has it integers, and no tensor of a GPU, whose context no fork can use?"""
    tensors = tensors_in(case.recipe())
    kinds = {x.dtype for x in tensors} - {torch.bool}
    integers = any(not k.is_floating_point and not k.is_complex for k in kinds)
    return integers and all(x.device.type == "cpu" for x in tensors)


def _no_end(limit_s: float) -> str:
    return f"no end within {limit_s:g} s"


def _first_death(run: Callable[[Case], object], cases: Sequence[Case], limit_s: float) -> tuple[int, str]:
    """The number of the first that ends a fork, and how it ended; "" where none does."""
    back, told = os.pipe()
    owner = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that this process has threads, which the fork has not
        child = os.fork()
    if not child:
        _run_all(run, cases, told, owner)
    os.close(told)
    try:
        at, late = _listen(back, limit_s)
    finally:
        os.close(back)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if late:
        return at, _no_end(limit_s)
    if at == len(cases):
        return at, ""
    code = os.waitstatus_to_exitcode(status)
    return at, signal.Signals(-code).name if code < 0 else f"it exits with {code}"


def _listen(back: int, limit_s: float) -> tuple[int, bool]:
    """How many inputs the fork has left behind, and whether it does not get on with the next."""
    behind, until = 0, time.monotonic() + limit_s
    while select.select([back], [], [], max(0.0, until - time.monotonic()))[0]:
        heard = os.read(back, 1 << 12)
        if not heard:
            return behind, False
        behind, until = behind + len(heard), time.monotonic() + limit_s
    return behind, True


def _run_all(run: Callable[[Case], object], cases: Sequence[Case], told: int, owner: int) -> NoReturn:
    """The life of the fork. Of the threads that torch had it has none, and starts none."""
    from ...trial.child import die_with

    try:
        die_with(owner)
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        torch.set_num_threads(1)
        for case in cases:
            try:
                run(case)
            except Exception:
                pass
            os.write(told, b".")
    finally:
        os._exit(0)


__all__ = ["dying"]
