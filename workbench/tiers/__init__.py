"""The three ways of writing native code, as kernels that can be built, tried, installed and taken out."""

from ..schema import Schema
from ..source import Source, functions
from .base import Kernel
from .choose import Tier, tier
from .raw import RawKernel


def kernel(source: Source, schema: Schema, slot: str, *, function: str = "") -> Kernel:
    """The kernel of a cell, in the tier that its text asks for. SchemaError, on the cell's line, where it is none."""
    found = functions(source.text, source.language, source.first_line)
    return RawKernel(source, schema, slot, found, function=function)


__all__ = ["Kernel", "RawKernel", "Tier", "kernel", "tier"]
