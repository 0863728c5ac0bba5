"""Reads directive lines one by one into statements and launches; what a line may name is what stands above it."""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..errors import SchemaError
from ..schema import Argument, Schema
from ..source import Function, Source
from . import slips
from .allocate import allocation
from .expressions import check
from .lines import GEOMETRY, KEYWORD, parse_line, shorten
from .nodes import Expression, Kind, Launch, Let, Require, Statement, Tune, Unpack, is_number, kind_of
from .vocabulary import CPP_WORDS, MAKERS, WORDS, Scope, a_kind, why_no_name

_MAKES_OTHER = frozenset({"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "--version", "--help", "-###"})


@dataclass
class Reader:
    """Holds what the lines so far have said."""

    source: Source
    schema: Schema
    entry: str
    arguments: tuple[Argument, ...]
    functions: tuple[Function, ...]
    later: frozenset[str] = frozenset()
    kinds: dict[str, Kind] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)  # of declared names
    maybe_none: set[str] = field(default_factory=set)
    statements: list[Statement] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    geometry: dict[str, dict[str, tuple[int, tuple[Expression, ...]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kinds.update({a.name: kind_of(a) for a in self.arguments})
        self.maybe_none.update(a.name for a in self.arguments if a.optional)
        self.kernels = tuple(f for f in self.functions if f.is_global)

    @property
    def scope(self) -> Scope:
        return Scope(dict(self.kinds), frozenset(self.maybe_none), self.later, constants=self.constants)

    @cached_property
    def constants(self) -> dict[str, str]:
        return slips.constants(self.source.text)

    def read(self, line: int, text: str) -> None:
        keyword = KEYWORD.match(text)
        if keyword:
            {"require": self.require, "tune": self.tune, "flags": self.add_flags}[keyword[1]](line, keyword[2].strip())
        elif re.match(r"(tensor_map|cooperative)\b", text):
            word = text.partition(" ")[0].partition("=")[0]
            raise SchemaError(f"'{word}' is reserved for a later version: it has no meaning yet", line=line)
        else:
            slips.keyword(line, text)
            self.assign(line, text)

    def require(self, line: int, text: str) -> None:
        tree = parse_line(text, line, f"require {text}".strip())
        if not isinstance(tree, ast.Expr):
            raise SchemaError(f"require takes a condition, got {shorten(text)}; compare with ==", line=line)
        value = check(tree.value, self.scope, line)
        if value.kind is not Kind.BOOL:
            raise SchemaError(f"require takes a condition, {shorten(value.text)} is {a_kind(value.kind)}", line=line)
        self.statements.append(Require(value, line))

    def tune(self, line: int, text: str) -> None:
        tree = parse_line(text, line, f"tune {text}".strip())
        if not isinstance(tree, ast.Assign) or len(tree.targets) != 1 or not isinstance(tree.targets[0], ast.Name):
            raise SchemaError(
                f"tune needs a name and its values, as in 'tune BLOCK = 256, 128': got {shorten(text)}", line=line
            )
        name = tree.targets[0].id
        items = tree.value.elts if isinstance(tree.value, ast.Tuple) else [tree.value]
        values = tuple(_tuned(item, name, self.scope, line) for item in items)
        if not values:
            raise SchemaError(f"tune {name} has no values", line=line)
        if any(isinstance(v, float) for v in values):
            values = tuple(float(v) for v in values)
        repeated = next((v for i, v in enumerate(values) if v in values[:i]), None)
        if repeated is not None:
            raise SchemaError(f"tune {name} names {repeated} twice", line=line)
        self.define(name, Kind.FLOAT if isinstance(values[0], float) else Kind.INT, line)
        self.statements.append(Tune(name, values, line))

    def add_flags(self, line: int, text: str) -> None:
        text = re.split(r"(?:^|\s)//(?:\s|$)", text)[0]
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise SchemaError(f"flags {shorten(text)} do not split into words: {error}", line=line) from None
        if not words:
            raise SchemaError("flags names none: write for instance 'flags -O3 -march=native'", line=line)
        if words[0].startswith("=") or not words[0].startswith("-"):
            raise SchemaError(f"flags are the compiler's and begin with '-', got {words[0]!r}", line=line)
        other = next((w for w in words if w in _MAKES_OTHER or w.startswith("-o")), None)
        if other:
            raise SchemaError(f"flags {other}: what the compiler makes, and where, is settled; leave it out", line=line)
        self.flags += words

    def assign(self, line: int, text: str) -> None:
        tree = parse_line(text, line, text)
        if not isinstance(tree, ast.Assign):
            raise SchemaError(
                f"{shorten(text)} is no directive: write 'name = value', 'require', 'tune' or 'flags'; a comment "
                "begins with '//'",
                line=line,
            )
        if len(tree.targets) != 1:
            raise SchemaError(f"{shorten(text)}: one '=' a line", line=line)
        target, value = tree.targets[0], tree.value
        if isinstance(target, ast.Tuple):
            self.unpack(line, text, target, value)
        elif not isinstance(target, ast.Name):
            raise SchemaError(f"{shorten(ast.unparse(target))} cannot be defined: a name stands left of '='", line=line)
        elif target.id in GEOMETRY:
            self.place(line, target.id, value)
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in MAKERS:
            self.allocate(line, target.id, value)
        else:
            self.let(line, target.id, value)

    def let(self, line: int, name: str, tree: Any) -> None:
        alias = isinstance(tree, ast.Name) and tree.id in self.kinds
        scope = self.scope
        if alias:  # another name of an argument may be None as the argument may
            scope = scope.but_known({tree.id})
        value = check(tree, scope, line)
        if value.kind not in (Kind.INT, Kind.FLOAT, Kind.BOOL) and not (
            alias and value.kind in (Kind.TENSOR, Kind.DTYPE)
        ):
            cure = {Kind.INTS: "unpack it, as in '*_, cols = x.shape'", Kind.DTYPE: "write it where it is needed"}
            raise SchemaError(
                f"{name} would be {a_kind(value.kind)}: a name holds an integer, float, bool or tensor; "
                f"{cure.get(value.kind, 'drop the line')}",
                line=line,
            )
        self.define(name, value.kind, line)
        if alias and tree.id in self.maybe_none:
            self.maybe_none.add(name)
        self.statements.append(Let(name, value, line))

    def unpack(self, line: int, text: str, target: ast.Tuple, tree: ast.expr) -> None:
        names = []
        for item in target.elts:
            plain = item.value if isinstance(item, ast.Starred) else item
            if not isinstance(plain, ast.Name):
                raise SchemaError(f"{shorten(text)}: only plain names can be unpacked into", line=line)
            if item is not plain and plain.id != "_":
                raise SchemaError(
                    f"*{plain.id}: a star drops sizes and is always '*_'; write x.shape[:-1] for them", line=line
                )
            names.append(plain.id if item is plain else "*_")
        if names.count("*_") > 1:
            raise SchemaError(f"{shorten(text)}: one star a line", line=line)
        value = check(tree, self.scope, line)
        if value.kind is not Kind.INTS or isinstance(tree, ast.Tuple):
            raise SchemaError(f"{shorten(value.text)} has nothing to unpack: x.shape and x.stride() have", line=line)
        for name in names:
            if name not in ("_", "*_"):
                self.define(name, Kind.INT, line)
        self.statements.append(Unpack(tuple(names), value, line))

    def allocate(self, line: int, name: str, call: ast.Call) -> None:
        lone = not any(a.is_tensor for a in self.schema.arguments)
        made = allocation(name, call, self.scope, line, self.role(name), needs_dtype=lone)
        self.define(name, Kind.TENSOR, line)
        self.statements.append(made)

    def role(self, name: str) -> str:
        if self.entry == "backward":
            of = self.schema.argument(name.removeprefix("grad_")) if name.startswith("grad_") else None
            return "gradient" if of is not None and of.is_tensor else "workspace"
        return "output" if name in self.schema.outputs else "saved" if name in self.schema.saves else "workspace"

    def define(self, name: str, kind: Kind, line: int) -> None:
        """Take `name` into scope, or say why it cannot be."""
        if name in self.lines:
            raise SchemaError(f"{name} is defined twice: line {self.lines[name]} has it already", line=line)
        if name in self.kinds:
            self.shadowed(name, line)
        if name in WORDS or name in CPP_WORDS or not name.isascii() or name.startswith("__"):
            raise SchemaError(f"{name!r} cannot be a name here: {why_no_name(name)}", line=line)
        self.kinds[name], self.lines[name] = kind, line

    def shadowed(self, name: str, line: int) -> None:
        of = name.removeprefix("grad_")
        if self.entry == "backward" and name.startswith("grad_") and of in self.schema.mutated:
            raise SchemaError(
                f"{name} is the gradient that comes in for {of}, which the op mutates; the one that goes out for {of} "
                "would have the same name, so leave it out: it then comes from the reference",
                line=line,
            )
        if self.schema.argument(name):
            raise SchemaError(f"{name} is an argument of {self.schema.name} already: choose another name", line=line)
        raise SchemaError(f"{name} comes in to this backward cell already: choose another name", line=line)

    def place(self, line: int, word: str, tree: ast.expr) -> None:
        """grid, block, shared or cluster, for the next `__global__` function."""
        if self.source.language != "cuda":
            raise SchemaError(
                f"{word} belongs to a __global__ function of a CUDA cell; a C++ cell calls the function that is "
                f"named {'backward' if self.entry == 'backward' else self.schema.name}, once",
                line=line,
            )
        kernel = next((k for k in self.kernels if k.line >= line), None)
        if kernel is None:
            raise slips.no_kernel(self.functions, word, line)
        items = tree.elts if isinstance(tree, ast.Tuple) else [tree]
        if not 1 <= len(items) <= (1 if word == "shared" else 3):
            raise SchemaError(
                f"{word} takes {'one size in bytes' if word == 'shared' else 'one to three sizes'}, got {len(items)}",
                line=line,
            )
        sizes = tuple(check(item, self.scope, line) for item in items)
        for size in sizes:
            if size.kind is not Kind.INT:
                cure = "; divide with cdiv(a, b), which rounds up, or with //" if size.kind is Kind.FLOAT else ""
                raise SchemaError(
                    f"{word} takes integers, {shorten(size.text)} is {a_kind(size.kind)}{cure}", line=line
                )
        said = self.geometry.setdefault(kernel.name, {})
        if word in said:
            raise SchemaError(f"{kernel.name} has a {word} already, on line {said[word][0]}", line=line)
        said[word] = (line, sizes)

    def launches(self) -> tuple[Launch, ...]:
        made = []
        for kernel in self.kernels:
            said = self.geometry.get(kernel.name)
            if not said:
                continue
            first = min(line for line, _ in said.values())
            for word in ("grid", "block"):
                if word not in said:
                    raise slips.missing(self.source, self.lines, kernel.name, word, first)
            parts = {word: sizes for word, (_, sizes) in said.items()}
            made.append(
                Launch(
                    kernel.name,
                    parts["grid"],
                    parts["block"],
                    parts.get("shared", (None,))[0],
                    parts.get("cluster", ()),
                    said["grid"][0],
                )
            )
        return tuple(made)


def _tuned(item: Any, name: str, scope: Scope, line: int) -> int | float:
    text = check(item, Scope({}), line).text
    negative = isinstance(item, ast.UnaryOp) and isinstance(item.op, ast.USub)
    number = item.operand if negative else item
    if not is_number(number):
        raise SchemaError(f"tune {name} lists numbers, got {shorten(text)}", line=line)
    value: Any = number.value
    return -value if negative else value
