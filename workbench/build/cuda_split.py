"""A CUDA text of the host tier as two: kernels for NVRTC, functions on `Tensor` for the C++ compiler.

Pure text, except that the user's quoted headers are read into it. What a kernel is to its host half is a stub with its
signature, which `wb_host_cuda.h` launches. Text that cannot be parted is nvcc's, and `Whole` says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import cuda_marks
from ..source import Source, _parser, functions
from . import cuda_launches, cuda_reasons
from .cuda_pieces import Piece, Row, rows_of
from .cuda_stubs import rewritten, stub

UNNAMED = "wb_unnamed"
# Members of a type that only the host half knows make that type host-only.
_HOST_WORDS = re.compile(
    r"\bTensor\b|\btorch::|\bstd::(?:string|vector|optional|map|set|unordered_\w+|tuple|pair|function|atomic|array|deque|"
    r"list|thread|complex|span|variant|bitset|chrono|regex|any|once_flag|future|promise|filesystem|initializer_list|"
    r"\w+_ptr|\w*stream|\w*mutex|\w+_error|exception)\b"
)
_DEVICE_HEADERS = re.compile(
    r"<(?:cuda|cuda_\w+|cooperative_groups|cooperative_groups/[\w/]+|cub|cub/[\w/]+|cuda/[\w/]+|nv/target|mma|math_constants|"
    r"sm_\w+|curand\w*|device_\w+|vector_types|vector_functions|driver_types|texture_\w+|cute/\S+|cutlass/\S+)(?:\.h|\.hpp|\.cuh)?>"
)
_DEVICE_WORDS = re.compile(
    r"\bcooperative_groups\b|\bcg::|\bcub::|\bnvcuda\b|\bcuda::|\bwmma\b|\bcurandState\w*|\bcute::|\bcutlass::"
)
_ONLY_NAMES = re.compile(r"<(?:cuda_runtime(?:_api)?|cuda|device_launch_parameters|driver_types|vector_types)\.h>")
_BOTH_HEADERS = re.compile(
    r"<(?:c?stdint|c?math|c?float|climits|limits|limits\.h|type_traits|c?stddef|c?assert)(?:\.h)?>"
)
_COSTLY = re.compile(r"#\s*include\s*<(?:limits|type_traits)>")  # libcu++ has these: 0.1 s
_INTO = frozenset({"namespace_definition", "declaration_list", "linkage_specification", "preproc_if", "preproc_ifdef",
                   "preproc_else", "preproc_elif", "preproc_elifdef", "translation_unit"})  # fmt: skip
_TYPES = frozenset({"struct_specifier", "class_specifier", "union_specifier", "enum_specifier", "type_definition",
                    "alias_declaration", "using_declaration", "static_assert_declaration", "namespace_alias_definition",
                    "concept_definition", "template_instantiation", "friend_declaration"})  # fmt: skip


_BRACED = frozenset({"struct_specifier", "class_specifier", "union_specifier", "enum_specifier"})


@dataclass(frozen=True)
class Whole:
    """A text that only nvcc can compile."""

    because: str


@dataclass(frozen=True)
class Halves:
    """Both halves, as pieces with the user's lines. `kernels` are the qualified names of the `__global__` functions."""

    device: tuple[Piece, ...]
    host: tuple[Piece, ...]
    kernels: tuple[str, ...]


def split(source: Source, folders: Sequence[str] = ()) -> Halves | Whole:
    """Part a text; quoted headers that lie in `folders` are read into it.

    >>> split(Source("__global__ void k(int* x) { *x = 1; }\\nvoid f(Tensor& x) { k<<<1, 1>>>(...); }", "cuda")).kernels
    ('k',)
    """
    rows = rows_of(source, folders)
    text = cuda_marks.expanded("".join(r.text + "\n" for r in rows))
    because = cuda_reasons.first(text)
    if because:
        return Whole(because)
    return _Splitter(text, rows).split()


@dataclass
class _Splitter:
    """Walks the syntax tree once and deals its items out to the halves."""

    text: str
    rows: Sequence[Row]
    device: list[Piece] = field(default_factory=list)
    host: list[Piece] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    host_names: set[str] = field(default_factory=set)
    unmarked: dict[int, str] = field(default_factory=dict)  # pieces of the device half: what each of them defines
    because: str = ""

    def __post_init__(self) -> None:
        self.data = self.text.encode()
        self.found = {(f.line, f.name): f for f in functions(self.text, "cuda") if f.is_global}

    def split(self) -> Halves | Whole:
        self.walk(_parser("cuda").parse(cuda_marks.parsable(self.text).encode()).root_node, "")
        unneeded = self.unneeded()
        self.device = [p for n, p in enumerate(self.device) if n not in unneeded]
        if not any("std::" in p.text for p in self.device):
            self.device = [p for p in self.device if not _COSTLY.match(p.text)]
        names = [n for n in self.kernels if self.kernels.count(n) > 1]
        if names:
            self.because = f"{names[0]} is overloaded"
        return (
            Whole(self.because) if self.because else Halves(tuple(self.device), tuple(self.host), tuple(self.kernels))
        )

    # ------------------------------------------------------------ what goes where

    def walk(self, node: Any, namespace: str) -> None:
        """Deal out what `node` holds."""
        inside = namespace
        if node.type == "namespace_definition":
            name = node.child_by_field_name("name")
            inside = "::".join(filter(None, (namespace, self.of(name) if name else UNNAMED)))
        at = node.start_byte  # of what was not dealt out yet
        for child in self.items(node):
            self.frame(node, at, child.start_byte)
            at = child.end_byte
            if child.type in _INTO and (child.type != "linkage_specification" or _is_block(child)):
                self.walk(child, inside)
            else:
                self.item(child, inside)
        self.frame(node, at, node.end_byte)

    def items(self, node: Any) -> Iterator[Any]:
        """What stands in a holder, one by one; its own braces, names and conditions are its frame."""
        condition = [node.child_by_field_name(n) for n in ("name", "condition")]
        for child in node.named_children:
            if child in condition or (
                child.type in ("string_literal", "comment") and node.type == "linkage_specification"
            ):
                continue
            yield child

    def frame(self, node: Any, start: int, end: int) -> None:
        """`namespace a {`, `}`, `#if N`, `#endif`: in both halves."""
        text = self.data[start:end].decode(errors="replace")
        if node.type == "namespace_definition" and not node.child_by_field_name("name"):
            text = re.sub(r"^namespace\b(\s*\{)?", lambda m: f"inline namespace {UNNAMED}{m[1] or ''}", text)
        if text.strip(" \t;\n\r"):
            self.put(start, text, self.device, self.host)

    def item(self, node: Any, namespace: str) -> None:
        inner = node
        while inner.type in ("template_declaration", "linkage_specification"):
            inner = inner.named_children[-1]
        marks = {c.type for c in inner.children}
        words = {self.of(c) for c in inner.children if c.type in ("type_qualifier", "storage_class_specifier", "ERROR")}
        marks |= words
        text = self.of_all(node)
        if node.type == "comment":
            return
        if node.type == "preproc_include":
            self.include(node, text)
        elif "__managed__" in marks:
            self.because = "__managed__ memory"
        elif inner.type == "function_definition":
            self.function(node, inner, marks, namespace)
        elif (
            marks & {"__device__", "__constant__", "__shared__"}
            and "__host__" not in marks
            and inner.type not in _TYPES
        ):
            self.put(node.start_byte, text, self.device)
        elif "__global__" in marks or inner.type in ("preproc_def", "preproc_function_def", "preproc_call", "ERROR"):
            self.put(node.start_byte, text, self.device, self.host)
        elif inner.type == "declaration" and not marks & {"constexpr", "const"}:
            self.only_host(node, inner, text)
        elif self.is_hosts(text):
            self.only_host(node, inner, text)
        else:
            self.where_needed(inner, marks)
            end = ";" * (inner.type in _BRACED and not text.endswith(";"))  # it stands outside of the type's own node
            self.put(node.start_byte, text + end, self.device)
            if not _DEVICE_WORDS.search(cuda_launches.blanked(text)):
                self.put(node.start_byte, self.without_device_members(node) + end, self.host)

    def where_needed(self, inner: Any, marks: set[str]) -> None:
        """The next piece defines a constant or a function without a mark: the device half has it if it names it."""
        node, *others = inner.children_by_field_name("declarator") or [None]
        if inner.type not in ("declaration", "function_definition") or "__device__" in marks or others:
            return
        while node is not None and node.type != "identifier":
            identifier = (c for c in node.named_children if c.type == "identifier")
            node = node.child_by_field_name("declarator") or next(identifier, None)
        if node is not None:
            self.unmarked[len(self.device)] = self.of(node)

    def unneeded(self) -> set[int]:
        """Which pieces of the device half nothing else in it names. What only the host uses may be of any kind."""
        left = dict(self.unmarked)
        waiting = [p.text for n, p in enumerate(self.device) if n not in left]
        while waiting:
            words = set(re.findall(r"\w+", waiting.pop()))
            named = [n for n, name in left.items() if name in words]
            waiting += [self.device[n].text for n in named if left.pop(n)]
        return set(left)

    def include(self, node: Any, text: str) -> None:
        name = text.partition("include")[2].strip()
        if name.startswith('"') or _BOTH_HEADERS.match(name):
            self.put(node.start_byte, text, self.device, self.host)
        elif _DEVICE_HEADERS.match(name):
            if not _ONLY_NAMES.match(name):
                self.put(node.start_byte, text, self.device)
        else:
            self.put(node.start_byte, text, self.host)

    def function(self, node: Any, inner: Any, marks: set[str], namespace: str) -> None:
        text = self.of_all(node)
        if "__global__" in marks:
            self.kernel(node, inner, namespace)
        elif "__device__" in marks and "__host__" not in marks:
            self.put(node.start_byte, text, self.device)
        elif marks & {"__device__", "constexpr"} and not self.is_hosts(text):
            self.where_needed(inner, marks)
            self.put(node.start_byte, text, self.device, self.host)
        else:
            self.put(node.start_byte, text, self.host)

    def is_hosts(self, text: str) -> bool:
        plain = cuda_launches.blanked(text)
        return bool(_HOST_WORDS.search(plain)) or any(re.search(rf"\b{n}\b", plain) for n in self.host_names)

    def only_host(self, node: Any, inner: Any, text: str) -> None:
        name = inner.child_by_field_name("name") or inner.child_by_field_name("declarator")
        if name is not None and inner.type in _TYPES and re.fullmatch(r"\w+", self.of(name)):
            self.host_names.add(self.of(name))
        self.put(node.start_byte, text + ";" * (inner.type in _BRACED and not text.endswith(";")), self.host)

    # ------------------------------------------------------------ texts

    def kernel(self, node: Any, inner: Any, namespace: str) -> None:
        """The kernel itself for the device; for the host a function of the same type that launches it."""
        body = inner.child_by_field_name("body")
        declarator = inner.child_by_field_name("declarator")
        name = declarator.child_by_field_name("declarator") if declarator is not None else None
        line = name.start_point[0] + 1 if name is not None else 0
        found = self.found.get((line, self.of(name) if name is not None else ""))
        self.because = self.because or cuda_reasons.of_kernel(found)
        if found is None or body is None:
            return
        self.kernels.append("::".join(filter(None, (namespace, found.name))))
        hidden = [c for c in inner.children if c.type == "storage_class_specifier" and self.of(c) == "static"]
        whole, head = (self.without(node.start_byte, end, hidden) for end in (node.end_byte, body.start_byte))
        self.put(node.start_byte, whole, self.device)
        self.put(node.start_byte, f"{head.rstrip()} {stub(found)}", self.host)

    def without(self, start: int, end: int, nodes: Sequence[Any]) -> str:
        """The text from `start` to `end` with blanks for these nodes."""
        made = bytearray(self.data[start:end])
        for n in nodes:
            made[n.start_byte - start : n.end_byte - start] = b" " * (n.end_byte - n.start_byte)
        return made.decode(errors="replace")

    def without_device_members(self, node: Any) -> str:
        """A type with `;` for the bodies of what only a GPU can run, its lines as they are."""
        made, at = [], node.start_byte
        for body in self.device_bodies(node):
            removed = self.data[body[0] : body[1]].decode(errors="replace")
            made += [self.data[at : body[0]].decode(errors="replace"), ";", "\n" * removed.count("\n")]
            at = body[1]
        return "".join([*made, self.data[at : node.end_byte].decode(errors="replace")])

    def device_bodies(self, node: Any) -> Iterator[tuple[int, int]]:
        for child in node.named_children:
            if child.type != "function_definition":
                yield from self.device_bodies(child)
                continue
            marks = {c.type for c in child.children} | {self.of(c) for c in child.children if c.type == "ERROR"}
            ends = [c for c in child.children if c.type in ("field_initializer_list", "compound_statement")]
            if ends and "__device__" in marks and "__host__" not in marks:
                yield ends[0].start_byte, child.end_byte

    def put(self, start: int, text: str, *halves: list[Piece]) -> None:
        lead = len(text) - len(text.lstrip("\n\r"))
        line = self.data.count(b"\n", 0, start) + text[:lead].count("\n")
        row = self.rows[min(line, len(self.rows) - 1)]
        for half in halves:
            given = text[lead:].rstrip()
            half.append(Piece(row.file, row.line, rewritten(given) if half is self.host else given))

    def of(self, node: Any) -> str:
        return re.sub(r"\s+", " ", self.of_all(node)).strip()

    def of_all(self, node: Any) -> str:
        return self.data[node.start_byte : node.end_byte].decode(errors="replace")


def _is_block(node: Any) -> bool:
    """`extern "C" { ... }`; without braces it belongs to the one function behind it."""
    return any(c.type == "declaration_list" for c in node.named_children)


__all__ = ["Halves", "Whole", "split"]
