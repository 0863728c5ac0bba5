"""Cases: named, seeded recipes of inputs. The only place where test inputs are made."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Case:
    """One named set of inputs for an op.

    `args` and `arguments` go to the op as they are; `dtype` is what `t` made tensors in when none was named;
    `bench=True` keeps the case out of the trial and the checks; `atol` and `rtol` replace the rule of agreement.
    """

    name: str
    args: tuple = ()
    arguments: dict | None = None
    dtype: torch.dtype | None = None
    bench: bool = False
    atol: float | None = None
    rtol: float | None = None
    error: float = 2.0
