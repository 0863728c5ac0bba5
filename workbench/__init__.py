"""Workbench: write an op in plain PyTorch, then replace it slot by slot with native code, in a notebook.

>>> import torch, workbench as wb
>>> from torch import Tensor
>>> @wb.op("lab::scale")
... def scale(x: Tensor, k: float = 2.0) -> Tensor:
...     return x * k

In a notebook `%load_ext workbench` brings the cell magic `%%cpp`. Importing is quick and quiet: it makes no
file, starts no process and looks for no compiler.
"""

from __future__ import annotations

from .case import Case, case
from .cells import cpp
from .define import op, ops
from .errors import BuildError, SaveError, SchemaError, ToolchainError, TrialError, WorkbenchError
from .load import load
from .op import Op

__version__ = "0.1.0"

__all__ = [
    "BuildError",
    "Case",
    "Op",
    "SaveError",
    "SchemaError",
    "ToolchainError",
    "TrialError",
    "WorkbenchError",
    "case",
    "cpp",
    "load",
    "op",
    "ops",
]


def load_ipython_extension(shell: object) -> None:
    """What `%load_ext workbench` calls."""
    from .magic import register

    register(shell)
