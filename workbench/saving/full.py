"""Code on `at::Tensor` as a package has it: it fits one torch alone, which the package pins. Pure text."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from .. import blocks
from ..build import host as live
from ..build.prelude import _PYTHON
from ..errors import SaveError
from ..source import Source, code
from . import flags, sources
from .host import _inside
from .model import Native, Unit
from .origin import Origin, digest
from .support import own

_MODULE = re.compile(r'^WB_FULL_MODULE\("(\w+)", (\w+), (.*)\)$', re.MULTILINE)
_NAMED = re.compile(r'm\.impl\("(\w+)"')
_LINE = re.compile(r"^#line .*\n", re.MULTILINE)
_INCLUDES = re.compile(r"^[ \t]*#[ \t]*include[^\n]*$", re.MULTILINE)
HEADER = "#include <torch/extension.h>"  # all that code on at::Tensor may count on, but for Python
WITHOUT_PYTHON = "without_python/torch/extension.h"
NVCC = ("--expt-relaxed-constexpr", "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__",
        "-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__")  # fmt: skip


def native(kernel: Any, number: int = 0) -> Native:
    """The files of a function on at::Tensor that fills a slot."""
    schema, slot, device = kernel.schema, kernel.slot, kernel.device
    _without_python(kernel.source, schema.qualname)
    if kernel._launched:
        raise SaveError(
            f"{schema.qualname}: {kernel.function.name} is void, and directives make its outputs; in a package a function on "
            "at::Tensor returns its results: make them with at::empty and return them",
            line=kernel.function.line, file=kernel.source.file,
        )  # fmt: skip
    stem, suffix = f"{schema.name}_{slot}_{device}", "cu" if device == "cuda" else "cpp"
    kept = sources.of(kernel.source, schema, slot, kernel.declaration.flags, kernel.headers)
    given = _flags(kernel, kernel.declaration.flags, kept.files, device)
    text = _inside(kernel.text(live.CPU), kernel, stem)
    found = _MODULE.search(text)
    assert found is not None, "the wrapper registers itself"
    layout = f'"wb_layout::{schema.namespace}__'
    text = re.sub(
        rf'{re.escape(layout)}(\w+)"', rf'"{schema.namespace}::\1_layout"', _LINE.sub("", _MODULE.sub("", text))
    )
    text = re.sub(r"  wb::arrive\(.*\);\n", "  (void)v;\n", text).replace("wb_cell", f"{stem}_wrapper")
    rows = "wb::ask_always = true; " * kernel.layout + found[3].replace("wb_cell", f"{stem}_wrapper")
    body = "\n".join([
        f"// {schema.qualname}, {slot} on {'GPUs' if device == 'cuda' else 'the CPU'}: the function of {kept.main} as torch calls it.",
        HEADER,
        '#include "support/full_call.h"',
        *sources.included(kernel.source, kept.main, f"{stem}_text", kernel.declaration.flags),
        "",
        text.strip(),
        f"static void {stem}_register(torch::Library& m) {{ {rows} }}",
        f"static const torch::detail::TorchLibraryInit {stem}_registered(",
        f'    torch::Library::IMPL, &{stem}_register, "{found[1]}", c10::DispatchKey::{found[2]}, __FILE__, __LINE__);',
        "",
    ])  # fmt: skip
    names = tuple((name, "") for name in _NAMED.findall(found[3]))
    unit = Unit(
        f"csrc/{stem}.{suffix}",
        (*_pybind(kernel.source), *(NVCC if device == "cuda" else ()), *given.compiling),
    )
    return Native(
        slot, device, kernel.source.language, "full", {**kept.files, f"csrc/{stem}.{suffix}": own(body, kernel)}, (unit,), names,
        kept.origins, ("wb_full_call.h", WITHOUT_PYTHON), given.linking, full=True,
        number=number,
    )  # fmt: skip


def block(kernel: Any, device: str, number: int = 0) -> Native:
    """The files of sources whose TORCH_LIBRARY blocks define the op themselves: as they are."""
    schema, first = kernel.schema, kernel.sources[0]
    if kernel.others():
        raise SaveError(
            f"{schema.qualname}: its namespace is shared by several libraries, which a package does not take along: "
            "write their blocks into one source"
        )
    if not any(blocks.defines(s, schema.qualname) for s in kernel.sources):
        raise SaveError(
            f"{schema.qualname}: no TORCH_LIBRARY({schema.namespace}, ...) block of its source defines it, so that nothing would in "
            f"a package: write one, or give the function to a cell of its own, %%cpp {schema.qualname}",
            line=first.first_line, file=first.file,
        )  # fmt: skip
    files: dict[str, str] = {}
    origins: dict[str, Origin] = {}
    units: list[Unit] = []
    linked: list[str] = []
    for source in kernel.sources:
        _without_python(source, schema.qualname)
        found = _as_it_is(kernel, source)
        files |= found.files
        origins |= found.origins
        given = _flags(kernel, _options(kernel, source), found.files, "cuda" if source.language == "cuda" else "cpu")
        more = NVCC if source.language == "cuda" else ()
        units.append(Unit(found.main, (*_pybind(source), *more, *given.compiling)))
        linked += given.linking
    return Native(
        "forward", device, first.language, "block", files, tuple(units), (), origins, (WITHOUT_PYTHON,), tuple(dict.fromkeys(linked)),
        full=True, number=number,
    )  # fmt: skip


def _as_it_is(kernel: Any, source: Source) -> sources.Kept:
    """A source with its headers, and the file that is compiled, which includes it behind torch's own header."""
    suffix = "cu" if source.language == "cuda" else "cpp"
    name = f"{kernel.schema.namespace}_{digest(source.text)[:8]}.{suffix}"
    main, around = f"csrc/kernels/{name}", f"csrc/{name}"
    kept = sources.of(source, kernel.schema, "forward", _options(kernel, source), kernel.headers)
    files = {p: t for p, t in kept.files.items() if t.rstrip() != source.text.rstrip()}
    files[main] = source.text if source.text.endswith("\n") else source.text + "\n"
    origins = {p: o for p, o in kept.origins.items() if p in files} | {
        main: Origin.of(source.text, source.file, source.first_line)
    }
    files[around] = (
        f'// kernels/{name} as it is: its blocks define and register its ops.\n{HEADER}\n#include "kernels/{name}"\n'
    )
    return sources.Kept(around, files, origins)


def _options(kernel: Any, source: Source) -> list[str]:
    """What the source was built and linked with, as words; folders of headers are seen from the source's own."""
    names = "extra_cuda_cflags" if source.language == "cuda" else "extra_cflags", "extra_ldflags"
    words = [w for n in names for given in kernel.options.get(n, ()) for w in shlex.split(given)]
    words += [f"-I{folder}" for folder in kernel.options.get("extra_include_paths", ())]
    beside = f"{os.path.abspath(source.path)}/"
    return [re.sub(rf"^(-I|-iquote|-isystem){re.escape(beside)}", r"\1", w) for w in words]


def _flags(kernel: Any, words: Sequence[str], texts: Iterable[str], device: str) -> flags.Flags:
    """With the architecture that the text needs; those in the flags stay, as torch has it too."""
    if device == "cpu":
        return flags.for_cpp(words, kernel.source, texts)
    return flags.for_cuda(words, kernel.source, texts, kernel.compiled_for, as_named=True)


def _pybind(source: Source) -> tuple[str, ...]:
    return ("-DHOST_CODE_PYBIND",) if "PYBIND11_MODULE" in code(source.text) else ()


def _without_python(source: Source, qualname: str) -> None:
    """SaveError for code that calls Python: a package's library has none in it."""
    text = _without_module(_INCLUDES.sub("", code(source.text)))
    found = _PYTHON.search(text)
    if found:
        line = source.first_line + max(0, source.text[: source.text.find(found[0])].count("\n"))
        raise SaveError(
            f"{qualname}: {found[0]} calls Python from C++, which the library of a package does not: take and return tensors, "
            "numbers and strings, and leave pybind11 out",
            line=line, file=source.file,
        )  # fmt: skip


def _without_module(text: str) -> str:
    """The text without its PYBIND11_MODULE block, which is left out."""
    start = text.find("PYBIND11_MODULE")
    if start < 0:
        return text
    depth, at = 0, text.find("{", start)
    while 0 <= at < len(text):
        depth += (text[at] == "{") - (text[at] == "}")
        at += 1
        if not depth:
            return text[:start] + text[at:]
    return text[:start]
