"""The three ways of writing native code, as kernels that can be built, tried, installed and taken out."""

from collections.abc import Sequence

from .. import directives
from ..build import includes, triton_text
from ..directives.lines import targets
from ..errors import SchemaError
from ..schema import Schema, split_name
from ..source import Function, Source, directives_of, functions
from . import signature, triton_signature
from .base import Kernel
from .choose import Tier, full_only, tier
from .full import FullKernel
from .full_cuda import FullCudaKernel
from .host import HostKernel
from .host_cuda import HostCudaKernel
from .host_entry import entry
from .raw import RawKernel
from .raw_cuda import RawCudaKernel
from .triton import TritonKernel

MOST_OF_HEADERS = 1 << 20  # characters that are searched for macros


def kernel(
    source: Source, schema: Schema, slot: str, *, function: str = "", floating: Sequence[str] | None = None,
    interpret: bool = False,
) -> Kernel:  # fmt: skip
    """The kernel of a cell, in the tier that its text asks for. SchemaError, on the cell's line, where it is none.

    `floating` names the tensor arguments that take a gradient, None: all of them. `interpret` is for Triton: it runs
    in the interpreter, in this process.
    """
    if source.language == "triton":
        device = "cpu" if interpret else "cuda"
        return TritonKernel(source, schema, slot, function=function, device=device, here=interpret)
    found = _functions(source)
    chosen = tier(source, found)
    if chosen.name == "full":
        full = FullCudaKernel if source.language == "cuda" else FullKernel
        return full(source, schema, slot, found, because=chosen, function=function, floating=floating)
    if chosen.name == "host":
        host = HostCudaKernel if source.language == "cuda" else HostKernel
        return host(source, schema, slot, found, function=function, floating=floating)
    raw = RawCudaKernel if source.language == "cuda" else RawKernel
    return raw(source, schema, slot, found, function=function)


def _functions(source: Source) -> tuple[Function, ...]:
    """The functions of a text, with the macros of the headers beside it."""
    beside = includes.digests(source.text, *includes.places(source, ())) if "include" in source.text else {}
    headers = ""
    for path in beside:
        with open(path, encoding="utf-8", errors="replace") as header:
            headers += header.read(max(0, MOST_OF_HEADERS - len(headers))) + "\n"
    return functions(source.text, source.language, source.first_line, headers)


def has_backward(source: Source) -> bool:
    """Does a forward's cell hold the backward too? Host, full and Triton cells may."""
    if source.language == "triton":
        return triton_text.has_backward(source)
    found = _functions(source)
    return any(f.name == "backward" and not f.is_global for f in found) and tier(source, found).name != "raw"


def infer_schema(source: Source, qualname: str, function: str = "") -> Schema:
    """The schema of an op that no one has defined yet, from the signature of the cell's function."""
    if source.language == "triton":
        return triton_signature.infer(source, qualname, function)
    found = _functions(source)
    if tier(source, found).name == "raw":
        return directives.infer_schema(source, found, qualname, function=function)
    made = Schema(*split_name(qualname), (), (), ())
    declared = [name for _, text in directives_of(source) for name in targets(text)]
    try:
        return signature.infer(entry(found, made, "forward", function, source), qualname, declared)
    except SchemaError as error:
        error.file = error.file or source.file
        raise


__all__ = [
    "FullCudaKernel",
    "FullKernel",
    "HostCudaKernel",
    "HostKernel",
    "Kernel",
    "RawCudaKernel",
    "RawKernel",
    "Tier",
    "full_only",
    "kernel",
    "tier",
]
