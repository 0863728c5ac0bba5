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

from .. import toolchain
from ..errors import SchemaError
from ..source import Source
from ..toolchain import Compiler
from . import cache, extension_run, flags, headers, includes, prelude, store
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
    """Compile and link C++ sources to `NAME.so`, as `torch.utils.cpp_extension.load` does; nothing is loaded.

    >>> build([Source(text, "cpp", file="cell [3]")], name="muladd", extra_cflags=["-O3"]).path
    '/home/me/.cache/workbench/objects/5e/5e0c.../muladd.so'

    The options have torch's names. `Source.path` is the folder of its quoted includes, which are in the key. `macros`
    names a header of this package that every source includes first; `after` is text behind the first source.
    Optimisation is -O1 where `extra_cflags` do not say.

    Raises BuildError with the compiler's messages on the user's lines, also for what the linker does not find and
    after `limit_s` seconds; ToolchainError without a compiler or ninja; SchemaError for CUDA sources, so far.
    """
    if not sources:
        raise SchemaError(f"the extension {name} has no sources")
    if not name.isidentifier() or not name.isascii():
        raise SchemaError(f"an extension's name becomes a file and a symbol, so it is an identifier; got {name!r}")
    for s in sources:
        if s.language != "cpp":
            raise SchemaError(f"{s.file} is CUDA: an extension is built from C++ sources so far", file=s.file)
    options = Options(*map(tuple, (extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths)))
    compiler = toolchain.compiler()
    units = tuple(
        Unit(s, i, options, compiler, macros, after if i == 0 else "", len(sources)) for i, s in enumerate(sources)
    )
    whole = Extension(name, units, options, compiler)
    built = cache.build(whole.key, lambda folder: extension_run.make(whole, folder, limit_s), whole.lines.labels)
    for u in units:
        u.request_header()
    return built


def headers_of(
    sources: Sequence[Source], *, extra_cflags: Sequence[str] = (), extra_include_paths: Sequence[str] = (), **_: object
) -> dict[str, str]:
    """The user's headers that these sources include, by path, with their digests as they are now."""
    words = [w for f in extra_cflags for w in _words(f)]
    given = [os.path.abspath(f) for f in (*extra_include_paths, *flags.folders(words))]
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

    @property
    def file(self) -> str:
        return f"s{self.number}.cpp"

    @property
    def object(self) -> str:
        return f"s{self.number}.o"

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
        first += [f'#include "{self.macros}"'] if self.macros else []
        label = self.source.file.replace("\\", "\\\\").replace('"', '\\"')
        mine = [f'#line {self.source.first_line} "{label}"', self.source.text]
        return "\n".join([*first, *mine, *([self.after] if self.after else []), ""])

    @cached_property
    def key(self) -> str:
        """Of its object. The name that torch puts into TORCH_EXTENSION_NAME is in the key of those that say it."""
        return store.key({
            **flags.identity(self.compiler, "full", self.options.extra_cflags),
            "text": self.unlabelled, "layout": LAYOUT, "headers": sorted(self.headers.items()),
            "ours": sorted((os.path.basename(p), d) for p, d in self.our_headers.items()),
            "folders": [os.path.abspath(f) for f in self.options.extra_include_paths],
        })  # fmt: skip

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
        return tuple(w for f in self.options.extra_cflags for w in _words(f))

    def own_flags(self, header: str) -> tuple[str, ...]:
        return prelude.optimisation(self.cflags)

    def precompiled(self, header: str) -> str:
        return headers.find(self.compiler, "full", header, (*self.own_flags(header), *self.cflags))

    def refuse(self, header: str) -> None:
        headers.refuse(header, (*self.own_flags(header), *self.cflags))

    def request_header(self) -> None:
        """Have its header precompiled for the next edit, in the background."""
        if self.header and not self.precompiled(self.header):
            headers.request(self.compiler, "full", self.header, (*self.own_flags(self.header), *self.cflags))

    def ninja_flags(self, header: str, precompiled: str) -> tuple[str, ...]:
        quoted = tuple(w for f in self.folders for w in ("-iquote", f))
        ours = ("-iquote", headers.FOLDER) if self.macros and not header else ()
        return (*self.own_flags(header), *quoted, *prelude.folders(header, precompiled), *ours)


@dataclass(frozen=True)
class Extension:
    """All sources of a shared object, and how they are linked."""

    name: str
    units: tuple[Unit, ...]
    options: Options
    compiler: Compiler

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
    def speaks_python(self) -> bool:
        return any(u.header in ("", prelude.PYBIND, prelude.REAL) for u in self.units)


def _words(text: str) -> list[str]:
    """A flag as the shell reads it: torch takes `"-DA=1 -DB=2"` as one string too."""
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


__all__ = ["Extension", "Options", "Unit", "build"]
