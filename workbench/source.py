"""The text of one cell or file: its language, directives, title and functions, with the user's own line numbers.

Signatures are read with tree-sitter. Nothing here compiles anything.
"""

from __future__ import annotations

import functools as _functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .cuda_marks import C_TOKENS, NUMBER, expanded, parsable
from .errors import SchemaError, ToolchainError


@dataclass(frozen=True)
class Parameter:
    """One parameter of a C++ or CUDA function: `const T* __restrict__ x` is ("x", "T", pointer, const)."""

    name: str
    type: str  # the element type without const, pointer or reference marks: "float", "T", "int64_t", "Tensor"
    pointer: bool
    const: bool  # of what a pointer points to, else of the parameter itself
    line: int
    spelled: str = ""  # the whole parameter as written, without its default
    default: str = ""  # as written, "" when there is none


@dataclass(frozen=True)
class TemplateParameter:
    """`typename T` is ("T", "typename"), `int BLOCK` is ("BLOCK", "int")."""

    name: str
    kind: str
    line: int
    default: str = ""  # as written, "" when there is none


@dataclass(frozen=True)
class Function:
    """A function that has a body. `namespace` is "" or "a::b"; `line` is that of its name."""

    name: str
    parameters: tuple[Parameter, ...]
    returns: str
    line: int
    templates: tuple[TemplateParameter, ...] = ()
    is_global: bool = False  # __global__
    is_device: bool = False  # __device__ only: a helper
    namespace: str = ""


LANGUAGE_DEVICES = {"cpp": "cpu", "cuda": "cuda", "triton": "cuda", "python": "cpu"}  # whose slot a cell fills


@dataclass(frozen=True)
class Source:
    """What was typed, where.

    `file` names it in diagnostics (`cell [3]`, `rmsnorm.cpp`); `text` excludes the magic line.

    `first_line` is the number of the first line of `text` as the user counts: 2 in a cell whose line 1 is the magic,
    1 in a file.
    """

    text: str
    language: str  # "cpp", "cuda", "triton"
    file: str = "cell"
    first_line: int = 1
    path: str = ""  # the folder in which quoted includes are looked up


_PYTHON_TOKENS = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | \"{3}.*?(?:\"{3}|\Z) | '{3}.*?(?:'{3}|\Z) | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'""",
    re.DOTALL | re.VERBOSE,
)
_INCLUDE = re.compile(r"#[ \t]*include[ \t]*$")
_DIRECTIVE = re.compile(r"//! (?=[^\W\d]|\*)")


def comments(source: Source) -> Iterator[tuple[int, str, bool]]:
    """Every comment as (user's line number, text with its marks, whether it begins its line)."""
    tokens = _PYTHON_TOKENS if source.language == "triton" else C_TOKENS
    line, seen = source.first_line, 0
    for token in tokens.finditer(source.text):
        if token["comment"] is None:
            continue
        start = token.start()
        line += source.text.count("\n", seen, start)
        seen = start
        before = source.text[source.text.rfind("\n", 0, start) + 1 : start]
        yield line, token["comment"].rstrip(), not before.strip()


def code(text: str, language: str = "cpp") -> str:
    """The text with a blank for every comment and string, so that a search meets code alone; includes stay.

    >>> code('at::Tensor f(); // not at::empty')
    'at::Tensor f();  '
    """

    def blank(token: re.Match) -> str:
        before = text[text.rfind("\n", 0, token.start()) + 1 : token.start()].lstrip()
        return token[0] if token["comment"] is None and _INCLUDE.match(before) else " "

    return (_PYTHON_TOKENS if language == "triton" else C_TOKENS).sub(blank, text)


def directives_of(source: Source) -> tuple[tuple[int, str], ...]:
    """The directive lines as (user's line number, text after the marker).

    >>> directives_of(Source("//! n = x.numel()\\n//!note\\nvoid f() {}", "cpp", first_line=2))
    ((2, 'n = x.numel()'),)

    A directive stands alone on its line; after `//! ` comes a letter, `_` or `*`. Anything else is a comment, and so
    is what stands inside `/* */`. Triton cells have none.
    """
    if source.language == "triton":
        return ()
    return tuple((line, text[4:].strip()) for line, text, alone in comments(source) if alone and _DIRECTIVE.match(text))


def title(source: Source) -> str:
    """The first line of the first plain comment: `// Vectorised: 16 bytes a load` names the version; "" without one."""
    for _, text, _ in comments(source):
        if text.startswith("//!"):
            continue
        for row in text.removesuffix("*/").splitlines():
            words = row.strip().lstrip("/*#!-= \t").rstrip("*-= \t")
            if words:
                return words
    return ""


def functions(text: str, language: str, first_line: int = 1, headers: str = "") -> tuple[Function, ...]:
    """The functions that `text` defines, in text order, with the user's line numbers; bodies are not looked into.

    >>> functions("void scale(const float* x, float* out, int64_t n) {}", "cpp")[0].parameters[0]
    Parameter(name='x', type='float', pointer=True, const=True, line=1, spelled='const float* x')

    Declarations without a body, methods and explicit specialisations are left out. Text that is no C++ gives what
    could be read of it: its errors are the compiler's to tell. `headers` is the text of the headers that it includes,
    whose macros may stand for marks and types. Raises ToolchainError without tree-sitter.
    """
    data = parsable(expanded(text, headers)).encode()
    tree = _parser(language).parse(data)
    reader = _Reader(data, first_line)
    return tuple(reader.functions(tree.root_node))


@_functools.cache
def _parser(language: str) -> Any:
    if language not in ("cpp", "cuda"):
        raise SchemaError(f"signatures are read from C++ and CUDA text, not from {language!r}")
    try:
        import tree_sitter

        grammar = __import__(f"tree_sitter_{language}")
        return tree_sitter.Parser(tree_sitter.Language(grammar.language()))
    except ImportError as error:
        missing = (error.name or f"tree_sitter_{language}").replace("_", "-")
        raise ToolchainError(
            f"reading C++ signatures needs {missing}, which is not installed: pip install tree-sitter "
            f"tree-sitter-{language}"
        ) from None


class _Reader:
    """Walks a syntax tree. Kept apart from `functions` because every step needs the bytes and the first line."""

    def __init__(self, data: bytes, first_line: int) -> None:
        self.data = data
        self.first_line = first_line
        self.aliases: dict[str, str] = {}  # `using real = float;` outside of functions

    def text(self, node: Any) -> str:
        return re.sub(r"\s+", " ", self.data[node.start_byte : node.end_byte].decode(errors="replace")).strip()

    def line(self, node: Any) -> int:
        return node.start_point[0] + self.first_line

    def functions(self, root: Any) -> Iterator[Function]:
        """Depth first over what may hold functions. A loop, since pasted text may nest without end."""
        waiting: list[tuple[Any, str, Any]] = [(root, "", None)]
        while waiting:
            node, namespace, template = waiting.pop()
            if node.type == "function_definition":
                found = self.function(node, namespace, template)
                if found:
                    yield found
                continue
            if node.type in ("alias_declaration", "type_definition") and not template:
                self.alias(node)
            if node.type == "namespace_definition":
                name = node.child_by_field_name("name")
                namespace = "::".join(filter(None, (namespace, self.text(name) if name else "")))
            if node.type == "template_declaration":
                template = node.child_by_field_name("parameters")
            if node.type in _HOLDERS:
                waiting.extend((child, namespace, template) for child in reversed(node.named_children))

    def alias(self, node: Any) -> None:
        """A name for a number's type. One that is given to two types is none: which one holds the compiler knows."""
        name = node.child_by_field_name("name") or node.child_by_field_name("declarator")
        meant = self.text(node.child_by_field_name("type"))
        meant = self.aliases.get(meant, meant)
        if name.type == "type_identifier" and NUMBER.fullmatch(meant):
            same = self.aliases.setdefault(self.text(name), meant) == meant
            self.aliases |= {} if same else {self.text(name): self.text(name)}

    def function(self, node: Any, namespace: str, template: Any) -> Function | None:
        returns = self.text(node.child_by_field_name("type")) if node.child_by_field_name("type") else ""
        declarator = node.child_by_field_name("declarator")
        while declarator is not None and declarator.type in ("pointer_declarator", "reference_declarator"):
            returns += "*" if declarator.type == "pointer_declarator" else "&"
            declarator = _inner(declarator)
        if declarator is None or declarator.type != "function_declarator":
            return None
        name = declarator.child_by_field_name("declarator")
        if name is None or name.type != "identifier":  # a method, an operator or a specialisation
            return None
        trailing = next((c for c in declarator.named_children if c.type == "trailing_return_type"), None)
        if trailing:
            returns = self.text(trailing).removeprefix("->").strip()
        parameters = declarator.child_by_field_name("parameters")
        marks = {c.type for c in node.children} | {self.text(c) for c in node.children if c.type == "ERROR"}
        templates = [self.template(p) for p in template.named_children if p.type != "comment"] if template else []
        known = {n: type_ for n, type_ in self.aliases.items() if n not in {t.name for t in templates}}
        taken = [p for p in parameters.named_children if p.type in _PARAMETERS and self.text(p) != "void"]
        return Function(
            self.text(name),
            tuple(self.parameter(p, known) for p in taken),
            returns,
            self.line(name),
            tuple(templates),
            is_global="__global__" in marks,
            is_device="__device__" in marks and "__host__" not in marks,
            namespace=namespace,
        )

    def parameter(self, node: Any, aliases: dict[str, str]) -> Parameter:
        type_node = node.child_by_field_name("type")
        declarator = node.child_by_field_name("declarator")
        default = node.child_by_field_name("default_value")
        end = default.start_byte if default else node.end_byte
        spelled = re.sub(r"\s+", " ", self.data[node.start_byte : end].decode(errors="replace")).strip(" =")
        const = any(c.type == "type_qualifier" and self.text(c) in ("const", "constexpr") for c in node.children)
        stars = 0
        while declarator is not None and declarator.type != "identifier":
            stars += declarator.type in ("pointer_declarator", "abstract_pointer_declarator", "array_declarator")
            if declarator.type == "function_declarator":
                stars += 2  # a pointer to a function: never a tensor
            declarator = _inner(declarator)
        element = self.text(type_node) if type_node else ""
        element = aliases.get(element, element)
        return Parameter(
            self.text(declarator) if declarator is not None else "",
            element + "*" * (stars - 1),
            stars > 0,
            const,
            self.line(declarator if declarator is not None else node),
            spelled,
            self.text(default) if default else "",
        )

    def template(self, node: Any) -> TemplateParameter:
        kind, _, default = (part.strip() for part in self.text(node).partition("="))
        words = re.fullmatch(r"(.*?)\s*(\w*)", kind, re.DOTALL)
        before, name = (words[1], words[2]) if words else (kind, "")
        return TemplateParameter(name, before, self.line(node), default)


_PARAMETERS = ("parameter_declaration", "optional_parameter_declaration", "variadic_parameter_declaration")
_HOLDERS = frozenset({"translation_unit", "namespace_definition", "declaration_list", "template_declaration",
                      "linkage_specification", "preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif",
                      "preproc_elifdef", "ERROR"})  # fmt: skip


def _inner(declarator: Any) -> Any:
    """What a pointer, reference, array or parenthesised declarator declares."""
    named = declarator.child_by_field_name("declarator")
    if named is not None:
        return named
    kinds = ("identifier", "pointer_declarator", "reference_declarator", "array_declarator", "function_declarator",
             "parenthesized_declarator", "abstract_pointer_declarator")  # fmt: skip
    return next((c for c in declarator.named_children if c.type in kinds), None)
