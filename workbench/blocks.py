"""What a text says that it defines: its TORCH_LIBRARY and PYBIND11_MODULE blocks, read before anything is built.

Read for lines in messages and for the functions of a Python module. What the compiler makes of macros is told by the
built object itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .build.reload import Block
from .errors import SchemaError
from .schema import RESERVED_NAMESPACES, Schema
from .source import C_TOKENS, Function, Source, functions
from .tiers import signature

EXTENSION_NAME = "TORCH_EXTENSION_NAME"
_TOKEN_OR_BRACKET = re.compile(rf"{C_TOKENS.pattern} | (?P<bracket>[{{}}()])", C_TOKENS.flags)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_BLOCK = re.compile(
    r"\b(TORCH_LIBRARY\w*|STABLE_TORCH_LIBRARY\w*|PYBIND11_MODULE)\s*\(\s*(\w+)\s*,\s*(\w+)[^)]*\)\s*\{"
)
_NAMED = re.compile(r'\.\s*def\s*\(\s*(?:\w+\s*\(\s*)?"(?:(\w+)::)?(\w+)')
_CLASS = re.compile(r'\.\s*class_\s*<[^;"]*>\s*\(\s*"(\w+)"')
_CLASS_AT_ONCE = re.compile(r"\btorch\s*::\s*class_\s*<")
_PYTHON_DEF = re.compile(
    r'\.\s*def\s*\(\s*"(\w+)"\s*,\s*(?:torch::wrap_pybind_function(?:_no_gil)?\s*\(\s*)?&?\s*([\w:]+)\s*([,)])'
)
_PYTHON_ARGUMENT = re.compile(r'(?:\barg\(\s*"(\w+)"\s*\)|"(\w+)"_a)(?:\.noconvert\(\))?\s*(?:=\s*([^,()]+(?:\(\))?))?')


@dataclass(frozen=True)
class Text:
    """`blocks` in text order; `lines` gives the line where a block names an op, "lab::f"; `exported` the Python
    functions of its module: (name in Python, name in C++, the rest of its def, line).
    """

    blocks: tuple[Block, ...]
    lines: dict[str, int]
    exported: tuple[tuple[str, str, str, int], ...] = ()
    classes: dict[str, int] = field(default_factory=dict)  # the line of each custom class, by name

    @property
    def module(self) -> str:
        return next((b.namespace for b in self.blocks if b.kind == "pybind"), "")

    @property
    def spaces(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(b.namespace for b in self.blocks if b.kind != "pybind"))


def read(sources: Sequence[Source], name: str = "") -> Text:
    """The blocks of these sources; `name` is what TORCH_EXTENSION_NAME stands for.

    SchemaError, on its line, for a block in a namespace of torch's own and for one that could not be taken back.
    """
    blocks: list[Block] = []
    lines: dict[str, int] = {}
    exported: list[tuple[str, str, str, int]] = []
    classes: dict[str, int] = {}
    for source in sources:
        plain = _plain(source.text)
        _refuse_class_at_once(source, plain)
        for m in _BLOCK.finditer(plain):
            block = _block(m, source, plain, name)
            blocks.append(block)
            body, start = _enclosed(plain[m.end() :], "{", "}"), m.end()
            for d in _NAMED.finditer(body) if block.kind in ("def", "fragment") else ():
                lines.setdefault(f"{d[1] or block.namespace}::{d[2]}", _line(source, plain, start + d.start(2)))
            for d in _CLASS.finditer(body) if block.kind in ("def", "fragment") else ():
                classes.setdefault(f"{block.namespace}::{d[1]}", _line(source, plain, start + d.start(1)))
            for d in _PYTHON_DEF.finditer(body) if block.kind == "pybind" else ():
                rest = _enclosed(body[d.end() - 1 :], "(", ")")
                exported.append((d[1], d[2], rest, _line(source, plain, start + d.start(1))))
    return Text(tuple(blocks), lines, tuple(exported), classes)


def _refuse_class_at_once(source: Source, plain: str) -> None:
    """SchemaError for a class that is registered by name, outside what can be taken back."""
    found = _CLASS_AT_ONCE.search(plain)
    if found:
        raise SchemaError(
            'torch::class_<T>("ns", "Name") registers a class for as long as the process lives, so the cell could not '
            'be run again: write m.class_<T>("Name") in TORCH_LIBRARY(ns, m)',
            line=_line(source, plain, found.start()), file=source.file,
        )  # fmt: skip


def defines(source: Source, qualname: str) -> bool:
    """Does a block of the text define this op itself?"""
    if "TORCH_LIBRARY" not in source.text:
        return False
    return qualname in read([source]).lines


def has_blocks(source: Source) -> bool:
    return bool(_BLOCK.search(_plain(source.text)))


def has_classes(source: Source) -> bool:
    return ".class_" in source.text and bool(_CLASS.search(_plain(source.text)))


def _block(m: re.Match, source: Source, plain: str, name: str) -> Block:
    line = _line(source, plain, m.start())
    macro, namespace = m[1], m[2]
    if macro.startswith("STABLE_"):
        raise SchemaError(
            f"{macro} registers while it is loaded and cannot be taken back: write {macro.removeprefix('STABLE_')}",
            line=line, file=source.file,
        )  # fmt: skip
    if namespace == EXTENSION_NAME and name:
        namespace = name
    kind = (
        "pybind"
        if macro == "PYBIND11_MODULE"
        else "impl"
        if "IMPL" in macro
        else "fragment"
        if "FRAGMENT" in macro
        else "def"
    )
    if kind != "pybind":
        refuse_reserved(namespace, line, source.file)
    return Block(kind, namespace, m[3] if kind == "impl" else "", line, source.file)


def refuse_reserved(namespace: str, line: int, file: str) -> None:
    """SchemaError for a namespace in which nobody but torch registers."""
    if namespace in RESERVED_NAMESPACES:
        raise SchemaError(f"the namespace {namespace!r} belongs to PyTorch: register your ops in one of your own, "
                          "e.g. 'lab'", line=line, file=file)  # fmt: skip
    if namespace == "_":
        raise SchemaError("a fallback for all namespaces would change every op of this process: register it for yours",
                          line=line, file=file)  # fmt: skip


# ---------------------------------------------------------------- Python functions as ops


def ops_of(
    text: Text, sources: Sequence[Source], namespace: str
) -> tuple[list[tuple[Schema, Function]], dict[str, str]]:
    """The functions of a Python module that can be ops, with their schemas; why the others cannot, by name."""
    found = [f for s in sources for f in functions(s.text, s.language, s.first_line)]
    names = [e[0] for e in text.exported]
    made, plain = [], {}
    for name, target, rest, _ in text.exported:
        named = [f for f in found if f.name == target.rpartition("::")[2]]
        if names.count(name) > 1 or len(named) != 1:
            plain[name] = (
                "it is overloaded" if names.count(name) > 1 or named else f"{target} is no function of this text"
            )
            continue
        try:
            schema = schema_of(named[0], f"{namespace}::{name}")
            made.append((with_python_names(schema, rest), named[0]))
        except SchemaError as error:
            plain[name] = error.message
    return made, plain


def schema_of(function: Function, qualname: str) -> Schema:
    """The schema that a function's signature says; SchemaError where none can."""
    if function.templates:
        raise SchemaError(f"{function.name} is a template", line=function.line)
    schema = signature.infer(function, qualname)
    if not schema.tensors:
        raise SchemaError(f"{function.name} takes no tensor", line=function.line)
    return schema


def with_python_names(schema: Schema, rest: str) -> Schema:
    """The schema with the names and defaults that `py::arg("k") = 2.0` gives."""
    told = [(m[1] or m[2], m[3]) for m in _PYTHON_ARGUMENT.finditer(rest)]
    if len(told) != len(schema.arguments):
        return schema
    arguments = tuple(
        replace(a, name=name, default=signature.default(value or "", a.type))
        for a, (name, value) in zip(schema.arguments, told, strict=True)
    )
    return replace(schema, arguments=arguments)


# ---------------------------------------------------------------- text


def _plain(text: str) -> str:
    """The text with comments and macro definitions blanked, every character in its place."""
    blank = lambda m: re.sub(r"[^\n]", " ", m[0])  # noqa: E731
    return _DEFINE.sub(blank, C_TOKENS.sub(lambda m: m[0] if m["comment"] is None else blank(m), text))


def _enclosed(text: str, opening: str, closing: str) -> str:
    """From behind an opening bracket to its closing one; those in strings and characters are none."""
    depth = 1
    for m in _TOKEN_OR_BRACKET.finditer(text):
        depth += {opening: 1, closing: -1}.get(m["bracket"], 0)
        if not depth:
            return text[: m.start()]
    return text


def _line(source: Source, plain: str, position: int) -> int:
    return source.first_line + plain.count("\n", 0, position)
