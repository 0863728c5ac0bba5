"""The configurations of an autotuned kernel are compiled side by side before the autotuner times them one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import torch

from .triton_compile import at_once
from .triton_tune import tuners


def side_by_side(kernels: Iterable[Any]) -> None:
    """Let these kernels' autotuners compile all that they are about to time, where it is more than one.

    >>> side_by_side(own_kernels(module).values())
    """
    for kernel in kernels:
        for tuner in tuners(kernel):
            if "prune_configs" not in vars(tuner):  # what the autotuner asks right before it begins to time
                tuner.prune_configs = partial(_pruned, tuner, tuner.prune_configs)


def _pruned(tuner: Any, usual: Any, keywords: Mapping[str, Any]) -> list[Any]:
    found = usual(keywords)
    if len(found) > 1 and keywords.get("warmup") is False:  # a launch
        compile_all(tuner, found, {**tuner.nargs, **keywords, "grid": None, "warmup": True})
    return found


def compile_all(tuner: Any, configs: Sequence[Any], given: Mapping[str, Any]) -> None:
    """What does not compile is left for the autotuner to meet, and to tell."""
    device = torch.cuda.current_device() if torch.cuda.is_initialized() else None

    def run(config: Any) -> None:
        on = nullcontext() if device is None else torch.cuda.device(device)  # each thread has its own
        with on, suppress(Exception):
            tuner.fn.run(**{**given, **config.all_kwargs()})

    with at_once(len(configs)) as pool:
        for done in [pool.submit(run, config) for config in configs]:
            done.result()


__all__ = ["compile_all", "side_by_side"]
