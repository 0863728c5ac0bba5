"""A kernel on `Tensor` as a package has it: the cell's text and the wrapper of its function, on torch's stable ABI.

Text is that of the live build with its registration apart, where all of a package's stand together.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ..build import host as live
from ..build import launcher
from ..errors import SaveError
from . import flags, raw, sources
from .model import Native, Unit
from .support import own
from .tables import code, statements

_MODULE = re.compile(r'^WB_MODULE\("(\w+)", "(\w+)", (.*)\)$', re.MULTILINE)
_IMPL = re.compile(r'm\.impl\("(\w+)", TORCH_BOX\(&wb_cell::(\w+)\)\);')
_LINE = re.compile(r"^#line .*\n", re.MULTILINE)
KEYS = {"cpu": "CPU", "cuda": "CUDA"}


def native(kernel: Any, number: int = 0) -> Native:
    """The files of a kernel on Tensor."""
    schema, slot, device = kernel.schema, kernel.slot, kernel.device
    stem, suffix = f"{schema.name}_{slot}_{device}", "cu" if device == "cuda" else "cpp"
    words = kernel.declaration.flags
    kept = sources.of(kernel.source, schema, slot, words, kernel.headers)
    if device == "cuda":
        given = flags.for_cuda(words, kernel.source, kept.files, kernel.arch)
    else:
        given = flags.for_cpp(words, kernel.source, kept.files)
    header = "wb_host_gpu.h" if device == "cuda" else "wb_host.h"
    text = "\n".join(sources.included(kernel.source, kept.main, f"{stem}_text", words)) + "\n"
    room = live.Room(header, KEYS[device], text, (kept.main, 1), guard=device == "cuda")
    if kernel._launched:
        files, names = _launched(kernel, stem, suffix, room)
    else:
        files, names = _wrapped(kernel, stem, suffix, room)
    path = f"csrc/{stem}{'_kernels' * kernel._launched}.{suffix}"
    units = [Unit(path, given.compiling)]
    units += [Unit(f"csrc/{stem}.cpp")] if kernel._launched else []
    return Native(
        slot, device, kernel.source.language, "host", {**kept.files, **files}, tuple(units), names, kept.origins,
        (header, *(["launcher.h"] if kernel._launched else [])),
        given.linking, partial=kernel.native_schema.name if kernel.left_out else "", number=number,
    )  # fmt: skip


def _main(room: live.Room) -> str:
    return room.place[0] if room.place else ""


def _inside(text: str, kernel: Any, stem: str) -> str:
    """The wrapper's calls of the cell's function, where it is now."""
    if sources.in_no_namespace(kernel.source):
        return text
    name = live._name(kernel.function)
    return re.sub(rf"(?<![\w:]){re.escape(name)}\b", f"::{stem}_text{name}", text)


def _wrapped(
    kernel: Any, stem: str, suffix: str, room: live.Room
) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """A function that returns its results: its wrapper, boxed for torch."""
    text = _inside(kernel.text(room), kernel, stem)
    found = _MODULE.search(text)
    assert found is not None, "the wrapper registers itself"
    pairs = _IMPL.findall(found[3])
    boxes = [
        f"void {entry}(StableIValue* stack, uint64_t inputs, uint64_t outputs) {{ TORCH_BOX(&::{stem}_wrapper::{entry})(stack, inputs, outputs); }}"
        for entry in dict.fromkeys(entry for _, entry in pairs)
    ]  # fmt: skip
    layouts = f'"wb_layout::{kernel.schema.namespace}__'
    text = _LINE.sub("", _MODULE.sub("", text)).replace("WB_HOST_CUDA\n", "")
    text = re.sub(rf'{re.escape(layouts)}(\w+)"', rf'"{kernel.schema.namespace}::\1_layout"', text)
    text = re.sub(r"wb::arrive\([^)]*\); ", "", text).replace("wb_cell", f"{stem}_wrapper")
    if kernel.layout:
        text = text.replace("wb::ask(", "wb::always(")
    what = f"// {kernel.schema.qualname}, {kernel.slot} on {'GPUs' if suffix == 'cu' else 'the CPU'}: the function of {_main(room)} as torch calls it."
    body = "\n".join([what, text.rstrip(), "", f"namespace {stem} {{", *boxes, f"}}  // namespace {stem}", ""])
    return {f"csrc/{stem}.{suffix}": own(body, kernel)}, tuple((name, f"{stem}::{entry}") for name, entry in pairs)


def _launched(
    kernel: Any, stem: str, suffix: str, room: live.Room
) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """A void function whose outputs its directives make: a thunk, and the host code that allocates and calls it."""
    if kernel.device == "cuda":
        raise SaveError(
            f"{kernel.schema.qualname}: {kernel.function.name} of {kernel.source.file} is void and its outputs are made by "
            "directives; on a GPU a package takes functions that return their results: return the tensors",
            line=kernel.function.line, file=kernel.source.file,
        )  # fmt: skip
    declaration, schema = kernel.declaration, kernel.native_schema
    entry, main = f"{stem}_entry", _main(room)
    thunk = _LINE.sub("", _inside(kernel.text(room), kernel, stem)).replace(
        "WB_EXPORT int wb_call(const wb_value* v) {", f'extern "C" int {entry}(const wb_value* v) {{'
    )
    instance = kernel._instance()
    rows = ", ".join(f"{{{v}, {code(t)}, 0}}" for v, t in instance.body.parameters[0]) or "{}"
    shown = replace(declaration, functions=())
    host = "\n".join([
        f"// Host code of {schema.qualname}, {kernel.slot} on the CPU: checks, allocates and calls the function of {main}.",
        '#include "launcher.h"', "", f'extern "C" int {entry}(const wb::Value*);', "", f"namespace {stem} {{",
        *launcher.what_it_does(
            schema, declaration, kernel.slot, "cpu", kernel._gradients(), layout=raw.layout_op(schema, kernel.slot), numbers=True
        ),
        f"static const wb::Parameter parameters[] = {{{rows}}};",
        f'static const wb::Function functions[] = {{{{{entry}, "{kernel.function.name}", {len(instance.body.parameters[0])}, parameters, nullptr}}}};',
        f"static const int8_t dtypes[] = {{{', '.join(['wb::any_dtype'] * len(declaration.tensors))}}};",
        "static const wb::Instance instances[] = {{dtypes, functions}};",
        *statements(shown),
        "static const wb::Descriptor descriptor = {",
        f"    .layout = {int(kernel.layout)}, .handles = {kernel._handles}, .instance_count = 1, .instances = instances,",
        "    .function_count = 1, .statements = statements,", "};", "",
        *launcher.call(declaration, "cpu", static=False, descriptor="descriptor"),
        f"}}  // namespace {stem}", "",
    ])  # fmt: skip
    files = {f"csrc/{stem}_kernels.{suffix}": own(thunk, kernel), f"csrc/{stem}.cpp": own(host, kernel)}
    return files, raw.names(kernel, stem)
