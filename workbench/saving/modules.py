"""Which modules and values are there wherever a package is installed, and the statement that imports them."""

from __future__ import annotations

import sys
import types

import torch

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
OURS = __name__.partition(".")[0]


def importable(name: str, value: object) -> str:
    """The statement that brings a value from an installed module; "" where it lives in the notebook or beside it."""
    if isinstance(value, types.ModuleType):
        if not installed(value.__name__) or value.__name__.partition(".")[0] == OURS:
            return ""
        root, _, last = value.__name__.rpartition(".")
        if name == last and root:
            return f"from {root} import {last}"
        return f"import {value.__name__}" + (f" as {name}" if name != value.__name__ else "")
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    for place in dict.fromkeys(["torch", "typing", "math", module or ""]):
        found = sys.modules.get(place)
        for attribute in dict.fromkeys([qualname, getattr(value, "__name__", ""), name]):
            if (
                found is not None and attribute and "." not in attribute and place.partition(".")[0] != OURS
                and getattr(found, attribute, None) is value and not isinstance(value, PLAIN) and installed(place)
            ):  # fmt: skip
                return f"from {place} import {attribute}" + (f" as {name}" if name != attribute else "")
    return ""


def installed(module: str) -> bool:
    """Does a module come with Python or from an installed package, so that an import brings it elsewhere too?"""
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names and root != "__main__":
        return True
    file = getattr(sys.modules.get(root), "__file__", "") or ""
    return "site-packages" in file or "dist-packages" in file
