"""What the tests of CUDA texts share: from the text of a cell to its cubin, and what is in that."""

from __future__ import annotations

import functools
import struct
from pathlib import Path

import torch

from workbench import schema as schemas
from workbench.build import cuda_body, nvrtc
from workbench.build.cuda_body import CudaBody
from workbench.build.result import Build
from workbench.directives import Declaration, parse
from workbench.schema import Schema
from workbench.source import Source, functions

ARCH = "sm_90"


@functools.cache
def parsed(
    schema: Schema | str, text: str, entry: str = "forward", file: str = "cell [3]"
) -> tuple[Source, Declaration]:
    """A CUDA cell whose first line is the magic."""
    source = Source(text, "cuda", file, 2)
    schema = schemas.parse(schema) if isinstance(schema, str) else schema
    return source, parse(source, schema, entry=entry, functions=functions(text, "cuda", 2))


def body(
    schema: Schema | str,
    text: str,
    dtypes: dict[str, torch.dtype | None],
    tuned: dict | None = None,
    entry: str = "forward",
) -> CudaBody:
    source, declaration = parsed(schema, text, entry)
    return cuda_body.instantiate(source, declaration, dtypes, tuned)


def compiled(made: CudaBody, **options) -> Build:
    return nvrtc.compile(made.text, **{"arch": ARCH, "names": made.names, **options})


def symbols(path: str) -> set[str]:
    """The names in the symbol table of a cubin, which is an ELF file of 64 bits."""
    data = Path(path).read_bytes()
    assert data[:5] == b"\x7fELF\x02"
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
    found = set()
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        names = data[sections[link][4] :]
        for at in range(offset, offset + length, entry):
            (first,) = struct.unpack_from("<I", data, at)
            found.add(names[first : names.index(b"\0", first)].decode())
    return found
