"""The three ways of writing native code, as kernels that can be built, tried, installed and taken out."""

from collections.abc import Sequence

from ..schema import Schema
from ..source import Source, functions
from .base import Kernel
from .choose import Tier, tier
from .host import HostKernel
from .raw import RawKernel


def kernel(
    source: Source, schema: Schema, slot: str, *, function: str = "", floating: Sequence[str] | None = None
) -> Kernel:
    """The kernel of a cell, in the tier that its text asks for. SchemaError, on the cell's line, where it is none.

    `floating` names the tensor arguments that take a gradient, None: all of them.
    """
    found = functions(source.text, source.language, source.first_line)
    if tier(source, found).name == "host":
        return HostKernel(source, schema, slot, found, function=function, floating=floating)
    return RawKernel(source, schema, slot, found, function=function)


__all__ = ["HostKernel", "Kernel", "RawKernel", "Tier", "kernel", "tier"]
