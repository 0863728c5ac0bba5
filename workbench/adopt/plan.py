"""What an extension is to be, before any of it is loaded: its name, its blocks, the text behind it, and its build."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from .. import blocks
from .. import source as sources_
from ..build import cuda_launches, extension, flags, reload, torch_ninja, wrappers
from ..build.result import Build
from ..errors import SchemaError, ToolchainError
from ..source import Source
from ..toolchain import torch
from .extensions import Defined, Made

NOTHING = Build("", "", "full", 0.0, False)


@dataclass(frozen=True)
class Wanted:
    """What is to be built: the sources of one extension, its name ("" if the text decides), torch's build options.

    `functions` are the names to make ops of where no block says it (`wb.load_inline`), None: none.
    """

    sources: tuple[Source, ...]
    name: str = ""
    functions: tuple[str, ...] | None = None
    options: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def build_options(self) -> dict[str, Any]:
        """`options`, with what the texts say themselves in `//! flags`."""
        found = {name: list(given) for name, given in (self.options or {}).items()}
        for s in self.sources:
            said = [text[6:] for _, text in sources_.directives_of(s) if text.startswith("flags ")]
            words = flags.absolute([w for text in said for w in shlex.split(text)], s.path)
            kind = "extra_cuda_cflags" if s.language == "cuda" else "extra_cflags"
            for w in words:
                found.setdefault("extra_ldflags" if flags.links(w) else kind, []).append(shlex.quote(w))
                if w.startswith("-fopenmp"):
                    found.setdefault("extra_ldflags", []).append(w)
        return {name: tuple(given) for name, given in found.items()}


def planned(wanted: Wanted) -> tuple[Made, str]:
    """What the text says that it defines, before it is built; and the text to put behind it."""
    text = blocks.read(wanted.sources, wanted.name)
    name = _name(wanted, text)
    text = blocks.read(wanted.sources, name)
    made, plain, after = _functions(wanted, text, name)
    first = wanted.sources[0]
    if not text.blocks and not made and not plain:
        raise SchemaError(
            "nothing here says what it defines: name the op after the magic, or write a TORCH_LIBRARY or "
            "PYBIND11_MODULE block", line=first.first_line, file=first.file,
        )  # fmt: skip
    lines = text.lines | {schema_.qualname: function.line for schema_, function in made}
    names = tuple(Defined(n, n, (), line, first.file, None) for n, line in lines.items())
    module = text.module or (name if plain else "")
    # The functions of a module or of `functions` get blocks of their own.
    generated = tuple(reload.Block("def", name, "", 0) for _ in made[:1])
    found = (*(b for b in text.blocks if b.kind != "pybind"), *generated)
    extension_ = Made(name, wanted.sources, NOTHING, text, found, names, module, plain, options=wanted.build_options)
    keys = ("CPU", "CUDA") if extension_.device == "cuda" else ("CPU",)
    return extension_, "\n".join([*after, wrappers.render(made, keys), reload.EXPORTS])


def refuse_without_cuda(wanted: Wanted) -> None:
    """Such a library defines its ops by being loaded, which a torch without CUDA cannot do."""
    cuda = next((s for s in wanted.sources if s.language == "cuda"), None)
    if cuda is not None and not torch_ninja.has_cuda():
        raise ToolchainError(
            f"torch here ({torch().version}) was built without CUDA, and {cuda.file} needs it: install a torch with "
            "CUDA (https://pytorch.org/get-started/locally). A cell that names the op it fills compiles without"
        )


def built(wanted: Wanted, planned: Made, after: str) -> Build:
    macros = reload.MACROS_PYTHON if planned.module else reload.MACROS
    made = extension.build(wanted.sources, name=planned.name, macros=macros, after=after, **wanted.build_options)
    cuda = [s for s in wanted.sources if s.language == "cuda"]
    said = [d for s in cuda for d in (*cuda_launches.lint(s, "full"), *cuda_launches.lint_guard(s))]
    return replace(made, diagnostics=(*made.diagnostics, *said)) if said else made


def _name(wanted: Wanted, text: blocks.Text) -> str:
    """The extension's name: of its module, which is a symbol in it, else as given, else after its first namespace."""
    module = text.module if text.module != blocks.EXTENSION_NAME else ""
    spaces = [b.namespace for b in text.blocks if b.kind in ("def", "fragment")] or [b.namespace for b in text.blocks]
    spaces = [s for s in spaces if s != blocks.EXTENSION_NAME]
    return module or wanted.name or next(iter(spaces), "") or "extension"


def _functions(wanted: Wanted, text: blocks.Text, name: str) -> tuple[list, dict[str, str], list[str]]:
    """Functions to make ops of, those that stay plain, and the text that a module of these needs."""
    if wanted.functions is None or text.module:
        made, plain = blocks.ops_of(text, wanted.sources, text.module)
        return made, plain, []
    exported = tuple((f, f, "", 0) for f in wanted.functions)
    made, plain = blocks.ops_of(replace(text, exported=exported), wanted.sources, name)
    missing = [f for f, why in plain.items() if why.endswith("no function of this text")]
    if missing:
        found = (
            ", ".join(sorted({f.name for s in wanted.sources for f in sources_.functions(s.text, s.language)}))
            or "none"
        )
        raise SchemaError(f"functions names {missing[0]!r}, which the sources do not define; they define {found}")
    rows = [f'  m.def("{f}", torch::wrap_pybind_function({f}), "{f}");' for f in plain]
    return made, plain, [f"PYBIND11_MODULE({name}, m) {{", *rows, "}"] if plain else []


__all__ = ["Wanted", "built", "planned", "refuse_without_cuda"]
