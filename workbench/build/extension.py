"""The full tier: whatever `torch.utils.cpp_extension.load_inline` takes, compiled with torch's own flags by ninja.

One source or several. An object of several sources is kept under a key of its own, so that an edit compiles what it
changed and no more. What runs around it is the same as for every build: the key, the store, diagnostics on the
user's lines, and an end to all compilers at an interrupt. How torch writes its ninja file is in `torch_ninja.py`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from .. import toolchain
from ..errors import SchemaError, ToolchainError
from ..source import Source
from ..toolchain import Compiler
from . import architectures, cache, extension_run, flags, headers, includes, nvcc, prelude, store, torch_ninja
from .body_parts import line_directive
from .diagnostics import Lines
from .result import Build

LIMIT_S = 1800.0
LAYOUT = "full-1"
NAMES_ITS_FILE = re.compile(r"\bassert\b|__FILE__|\bsource_location\b")


@dataclass(frozen=True)
class Options:
    """torch's own options under torch's names; words as the shell reads them, folders as they are."""

    extra_cflags: tuple[str, ...] = ()
    extra_cuda_cflags: tuple[str, ...] = ()
    extra_ldflags: tuple[str, ...] = ()
    extra_include_paths: tuple[str, ...] = ()


def build(
    sources: Sequence[Source],
    *,
    name: str,
    extra_cflags: Sequence[str] = (),
    extra_cuda_cflags: Sequence[str] = (),
    extra_ldflags: Sequence[str] = (),
    extra_include_paths: Sequence[str] = (),
    macros: str = "",
    after: str = "",
    limit_s: float = LIMIT_S,
) -> Build:
    """Compile and link C++ and CUDA sources to `NAME.so`, as `torch.utils.cpp_extension.load` does; nothing is loaded.

    >>> build([Source(text, "cpp", file="cell [3]")], name="muladd", extra_cflags=["-O3"]).path
    '/home/me/.cache/workbench/objects/5e/5e0c.../muladd.so'

    The options have torch's names. `Source.path` is the folder of its quoted includes, which are in the key. `macros`
    names a header of this package that every source includes first; `after` is text behind the first source.
    Optimisation of C++ is -O1 where `extra_cflags` do not say. nvcc compiles CUDA sources, for one architecture where
    `extra_cuda_cflags` name none (`architectures.chosen`); where torch was built without CUDA, what comes of them can
    be looked at and not be loaded.

    Raises BuildError with the compiler's messages on the user's lines, also for what the linker does not find and
    after `limit_s` seconds; ToolchainError without a compiler, ninja or nvcc, and for what needs torch's own CUDA where
    it has none.
    """
    if not sources:
        raise SchemaError(f"the extension {name} has no sources")
    if not name.isidentifier() or not name.isascii():
        raise SchemaError(f"an extension's name becomes a file and a symbol, so it is an identifier; got {name!r}")
    cuda = _cuda(name, sources, extra_cuda_cflags)
    options = Options(*map(tuple, (extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths)))
    compiler = toolchain.compiler()
    units = tuple(
        Unit(s, i, options, compiler, macros, after if i == 0 else "", len(sources), cuda)
        for i, s in enumerate(sources)
    )
    whole = Extension(name, units, options, compiler, cuda)
    built = cache.build(whole.key, lambda folder: extension_run.make(whole, folder, limit_s), whole.lines.labels)
    for u in units:
        u.request_header()
    return built


@dataclass(frozen=True)
class Cuda:
    """nvcc, and the architecture that it compiles for."""

    nvcc: nvcc.Nvcc
    arch: str


_TORCHS_CUDA = re.compile(
    r"\b(?:at|c10|torch)::cuda::\w+|[<\"]((?:ATen|c10|THC)/cuda/[^>\"]+|torch/csrc/cuda/[^>\"]+)[>\"]"
)


def _cuda(name: str, sources: Sequence[Source], cflags: Sequence[str]) -> Cuda | None:
    """What its CUDA sources need, None where there are none. ToolchainError where it is not there."""
    mine = [s for s in sources if s.language == "cuda"]
    if not mine:
        return None
    found = None if torch_ninja.has_cuda() else next(filter(None, (_TORCHS_CUDA.search(s.text) for s in sources)), None)
    if found:
        raise ToolchainError(
            f"torch here ({toolchain.torch().version}) was built without CUDA, and {name} needs "
            f"{found[1] or found[0]}: install a torch with CUDA (https://pytorch.org/get-started/locally)"
        )
    words = [w for f in cflags for w in _words(f)]
    texts = [t for s in mine for t in architectures.texts(s.text, s.path, words)]
    return Cuda(nvcc.find("CUDA code on torch::Tensor"), architectures.chosen(words, texts)[0])


def headers_of(
    sources: Sequence[Source], *, extra_cflags: Sequence[str] = (), extra_include_paths: Sequence[str] = (), **_: object
) -> dict[str, str]:
    """The user's headers that these sources include, by path, with their digests as they are now."""
    words = [w for f in extra_cflags for w in _words(f)]
    given = [os.path.abspath(f) for f in (*extra_include_paths, *flags.folders(words, ""))]
    found: dict[str, str] = {}
    for s in sources:
        found |= includes.digests(s.text, [*([os.path.abspath(s.path)] if s.path else []), *given], given)
    return found


@dataclass(frozen=True)
class Unit:
    """One source with all that goes into its object."""

    source: Source
    number: int
    options: Options
    compiler: Compiler
    macros: str
    after: str
    count: int
    cuda: Cuda | None = None

    @property
    def is_cuda(self) -> bool:
        return self.source.language == "cuda"

    @property
    def file(self) -> str:
        return f"s{self.number}.{'cu' if self.is_cuda else 'cpp'}"

    @property
    def object(self) -> str:
        return f"s{self.number}.{'cuda.o' if self.is_cuda else 'o'}"

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """Where its quoted includes are looked up."""
        return (os.path.abspath(self.source.path),) if self.source.path else ()

    @cached_property
    def headers(self) -> dict[str, str]:
        """The user's headers that it includes, with their digests."""
        text, options = replace(self.source, text=self.source.text + self.after), self.options
        return headers_of([text], extra_cflags=options.extra_cflags, extra_include_paths=options.extra_include_paths)

    @cached_property
    def header(self) -> str:
        """The header of ours that it begins with, "" for none."""
        texts = [self.source.text + self.after]
        for path in self.headers:
            with open(path, encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
        found = prelude.choose(texts)
        return found or (prelude.ATEN if self.macros and not texts[0].strip() else found)

    def text(self, header: str) -> str:
        """What the compiler reads, with the user's own line numbers."""
        first = [f"#include {h}" for h in prelude.includes(header, [self.source.text, self.after])]
        first += ["#include <cuda.h>"] if self.is_cuda else []
        first += [f'#include "{self.macros}"'] if self.macros else []
        mine = [line_directive(self.source.first_line, self.source.file), self.source.text]
        return "\n".join([*first, *mine, *([self.after] if self.after else []), ""])

    @cached_property
    def key(self) -> str:
        """Of its object. The name that torch puts into TORCH_EXTENSION_NAME is in the key of those that say it."""
        return store.key({
            **flags.identity(self.compiler, "full", self.options.extra_cflags),
            **self._of_cuda,
            "text": self.unlabelled, "layout": LAYOUT, "headers": sorted(self.headers.items()),
            "ours": sorted((os.path.basename(p), d) for p, d in self.our_headers.items()),
            "folders": [os.path.abspath(f) for f in self.options.extra_include_paths],
        })  # fmt: skip

    @property
    def _of_cuda(self) -> dict[str, Any]:
        """For keys: what makes nvcc's object another one."""
        if self.cuda is None or not self.is_cuda:
            return {}
        return {"nvcc": self.cuda.nvcc.identity, "arch": self.cuda.arch, "nvccs": self.options.extra_cuda_cflags}

    @property
    def unlabelled(self) -> str:
        """Its text whatever the cell is called: the same text in a later cell is the same build.

        What TORCH_CHECK says of the place may then name the earlier cell: half a minute is too much for that.
        """
        text = self.text(self.header)
        return text if NAMES_ITS_FILE.search(text) else Lines(text, self.source.file).unlabelled

    @property
    def our_headers(self) -> dict[str, str]:
        first = "\n".join(f'#include "{h}"' for h in (self.header, self.macros) if h)
        return includes.digests(first + "\n" + self.after, [headers.FOLDER])

    @cached_property
    def cflags(self) -> tuple[str, ...]:
        """The words of the user's flags, for those of the precompiled header."""
        given = self.options.extra_cuda_cflags if self.is_cuda else self.options.extra_cflags
        return tuple(w for f in given for w in _words(f))

    def own_flags(self, header: str) -> tuple[str, ...]:
        return () if self.is_cuda else prelude.optimisation(self.cflags)

    def precompiled(self, header: str) -> str:
        """nvcc takes none."""
        return (
            "" if self.is_cuda else headers.find(self.compiler, "full", header, (*self.own_flags(header), *self.cflags))
        )

    def refuse(self, header: str) -> None:
        headers.refuse(header, (*self.own_flags(header), *self.cflags))

    def request_header(self) -> None:
        """Have its header precompiled for the next edit, in the background."""
        if self.header and not self.is_cuda and not self.precompiled(self.header):
            headers.request(self.compiler, "full", self.header, (*self.own_flags(self.header), *self.cflags))

    def ninja_flags(self, header: str, precompiled: str) -> tuple[str, ...]:
        if self.is_cuda:
            return self._nvcc_flags(header)
        quoted = tuple(w for f in self.folders for w in ("-iquote", f))
        ours = ("-iquote", headers.FOLDER) if self.macros and not header else ()
        return (*self.own_flags(header), *quoted, *prelude.folders(header, precompiled), *ours)

    def _nvcc_flags(self, header: str) -> tuple[str, ...]:
        """Beside torch's own for nvcc: no unique and few visible symbols, as in C++, and what ptxas has to say."""
        hosts = [f for f in flags.full(self.compiler) if f.startswith("-f")]
        ours = (headers.FOLDER,) if header or self.macros else ()
        slim = (prelude.SLIM,) if header not in ("", prelude.REAL) else ()
        folders = (f"-I{f}" for f in (*self.folders, *ours, *slim))
        return ("-ccbin", nvcc.host_compiler(self.compiler), f"-Xcompiler={','.join(hosts)}", "-Xptxas=-v", *folders)


@dataclass(frozen=True)
class Extension:
    """All sources of a shared object, and how they are linked."""

    name: str
    units: tuple[Unit, ...]
    options: Options
    compiler: Compiler
    cuda: Cuda | None = None

    @cached_property
    def lines(self) -> Lines:
        texts = "\n".join(u.text(u.header) for u in self.units)
        folders = tuple(dict.fromkeys(
            os.path.abspath(f) for u in self.units for f in (*u.folders, *self.options.extra_include_paths)
        ))  # fmt: skip
        return Lines(texts, self.units[0].source.file, folders)

    @cached_property
    def key(self) -> str:
        parts = {"layout": LAYOUT, "name": self.name, "objects": [u.key for u in self.units]}
        return store.key({**parts, "ldflags": self.options.extra_ldflags, "kind": "full"})

    @property
    def for_ninja(self) -> torch_ninja.Cuda | None:
        if self.cuda is None:
            return None
        return torch_ninja.Cuda(self.cuda.nvcc.home, self.cuda.arch, self.options.extra_cuda_cflags)

    @property
    def speaks_python(self) -> bool:
        return any(u.header in ("", prelude.PYBIND, prelude.REAL) for u in self.units)


def _words(text: str) -> list[str]:
    """A flag as the shell reads it: torch takes `"-DA=1 -DB=2"` as one string too."""
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


__all__ = ["Extension", "Options", "Unit", "build"]
