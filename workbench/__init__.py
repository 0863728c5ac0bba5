"""Workbench: write an op in plain PyTorch, then replace it slot by slot with native code, in a notebook.

>>> import torch, workbench as wb
>>> from torch import Tensor
>>> @wb.op("lab::scale")
... def scale(x: Tensor, k: float = 2.0) -> Tensor:
...     return x * k
>>> scale(torch.ones(2))
tensor([2., 2.])

`wb.op` makes ops, `wb.ops` holds them by name, `wb.case` names inputs to try them on. `wb.cpp`, `wb.cuda` and
`wb.triton` fill their slots, as the magics `%%cpp`, `%%cuda` and `%%triton` do, which `%load_ext workbench` brings;
`wb.load` and `wb.load_inline` take what you have, `wb.fake_class` what C++ classes look like while they are traced.
`wb.save` writes a package, `wb.deploy` a model; `wb.doctor` looks at this machine.

Importing is quick and quiet: it makes no file, starts no process and looks for no compiler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .case import Case, case
from .define import op, ops
from .errors import BuildError, SaveError, SchemaError, ToolchainError, TrialError, WorkbenchError
from .op import Op

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from .adopt.classes import fake_class
    from .cells import cpp, cuda, triton
    from .deploying import deploy
    from .diagnose import doctor
    from .inline import load_inline
    from .loading import load
    from .saving import save

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
    "cuda",
    "deploy",
    "doctor",
    "fake_class",
    "load",
    "load_inline",
    "op",
    "ops",
    "save",
    "triton",
]


# What builds is imported when it is first asked for, from modules of other names: an import puts a module here, too.
_LATER = {"cpp": ".cells", "cuda": ".cells", "triton": ".cells", "load": ".loading", "load_inline": ".inline",
          "save": ".saving", "deploy": ".deploying", "doctor": ".diagnose", "fake_class": ".adopt.classes"}  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LATER[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names: what builds is among them before it was asked for, the modules are not."""
    return sorted([*__all__, "__doc__", "__file__", "__name__", "__path__", "__version__"])


def load_ipython_extension(shell: InteractiveShell) -> None:
    """What `%load_ext workbench` calls."""
    from .magic import register

    register(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """What `%unload_ext workbench` and `%reload_ext workbench` call."""
    from .magic import unregister

    unregister(shell)
