"""How the C++ text of a kernel is compiled, tier by tier: what `cpp.py` beside this file runs again."""

from __future__ import annotations

import os

import torch

from .. import toolchain
from ..build import body, cpp, extension, flags, full
from ..errors import SchemaError
from ..source import Source
from ..tiers import FullKernel, HostKernel, Kernel
from ..tiers.block import BlockKernel

Dtypes = dict[str, "torch.dtype | None"]


def unit(kernel: Kernel, dtypes: Dtypes) -> cpp.Unit:
    """The compiler run that made this kernel's C++, for these dtypes where it has several forms.

    SchemaError where the kernel has no form for them.
    """
    source = kernel.source
    if isinstance(kernel, BlockKernel):
        return _extension(source, (), kernel.built.path)
    if isinstance(kernel, FullKernel):
        return _extension(source, kernel.declaration.flags, kernel.schema.name, kernel.text())
    if isinstance(kernel, HostKernel):
        return _unit(kernel.text(), "host", kernel)
    return _unit(body.instantiate(source, kernel.declaration, dtypes).text, "body", kernel)


def _unit(text: str, kind: str, kernel: Kernel) -> cpp.Unit:
    source = kernel.source
    folders = (os.path.abspath(source.path),) if source.path else ()
    return cpp.Unit(text, kind, kernel.declaration.flags_for({}), source.file, folders, toolchain.compiler())


def _extension(source: Source, words: tuple[str, ...], name: str, after: str = "") -> cpp.Unit:
    """A text of the full tier with torch's own flags, and no precompiled header: these hold no line numbers."""
    if source.language != "cpp":
        raise SchemaError(f"{source.file} is CUDA")
    compiled = [w for w in words if not w.startswith(flags.LIBRARY)]
    options = extension.Options(extra_cflags=tuple(compiled))
    one = extension.Unit(source, 0, options, toolchain.compiler(), full.MACROS if after else "", after, 1)
    module = os.path.basename(name).removesuffix(".so")
    given = (*one.ninja_flags(one.header, ""), *one.cflags, f"-DTORCH_EXTENSION_NAME={module}")
    return cpp.Unit(one.text(one.header), "full", given, source.file, one.folders, one.compiler)


__all__ = ["unit"]
