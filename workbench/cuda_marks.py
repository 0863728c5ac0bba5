"""Marks in C++ and CUDA (`__device__`, `__restrict__`, ...) as the parser of signatures can read them. Pure text."""

from __future__ import annotations

import re

# Strings are matched so that a comment mark inside one starts no comment.
C_TOKENS = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
      | R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"
      | "(?:\\.|[^"\\\n])*"
      | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'""",
    re.DOTALL | re.VERBOSE,
)
_MARK = re.compile(r"\b__(?:global|device|host|constant|shared|managed|launch_bounds|restrict)__|\b__restrict\b")
NUMBER = re.compile(
    r"(?:std::)?(?:(?:float|double|bool|char|half|bfloat16|nv_bfloat16|_Float16|__half|__nv_\w+|u?int\d+_t|size_t|ptrdiff_t|"
    r"unsigned|signed|short|int|long)(?: |$))+"
)
_DIRECTIVE = re.compile(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*")
_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)(?=\s|\Z)(?P<body>.*)", re.DOTALL)
_UNREAD = re.compile(
    r"\b__(?:cluster_dims|maxnreg|block_size|align|builtin_align)__\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
    r"|\b__nv_pure__|\b__inline_hint__"
)


def expanded(text: str, headers: str = "") -> str:
    """The text with macros that stand for marks, or a number's type, spelled out where used, every line in its place.

    >>> expanded("#define DEV __device__ inline\\nDEV float g();")
    '#define DEV __device__ inline\\n__device__ inline float g();'

    Of several definitions (`#ifdef __CUDACC__`) the first that holds a mark is meant. Preprocessor lines stay.
    `headers` is the text of what it includes, whose macros count too.
    """
    if not re.search(r"#[ \t]*define", text + headers):
        return text
    bare, plain = _blanked(text, strings=False), _blanked(text, strings=True)
    lines = [m.span() for m in _DIRECTIVE.finditer(plain)]
    included = [m[0] for m in _DIRECTIVE.finditer(_blanked(headers, strings=False))]
    meanings = _meanings([*included, *(bare[begin:end] for begin, end in lines)])
    if not meanings:
        return text
    word = re.compile(rf"\b(?:{'|'.join(meanings)})\b")
    made, at = [], 0
    for begin, end in (*lines, (len(text), len(text))):
        for m in word.finditer(plain, at, begin):
            made += [text[at : m.start()], meanings[m[0]]]
            at = m.end()
        made.append(text[at:end])
        at = end
    return "".join(made)


def _meanings(directives: list[str]) -> dict[str, str]:
    """What macros without parameters stand for: those that hold a mark, by themselves or through another macro, and
    those that are one number's type from the first line to the last.
    """
    found: dict[str, str] = {}
    numbers: dict[str, set[str]] = {}
    for definition in filter(None, map(_DEFINE.fullmatch, directives)):
        words = re.compile(rf"\b(?:{'|'.join(found)})\b") if found else None
        name, body = definition["name"], " ".join(definition["body"].replace("\\\n", " ").split())
        meant = words.sub(lambda m: found[m[0]], body) if words else body
        if _MARK.search(meant):
            found.setdefault(name, meant)
        else:
            numbers.setdefault(name, set()).add(meant)
    undone = {d.split()[-1] for d in directives if "undef" in d}
    types = {n: "".join(b) for n, b in numbers.items() if len(b) == 1 and n not in undone and n not in found}
    return found | {name: body for name, body in types.items() if NUMBER.fullmatch(body)}


def parsable(text: str) -> str:
    """The text with blanks for attributes that the grammar misreads, every other character in its place.

    >>> parsable("__global__ void __maxnreg__(32) k(int* x) {}")
    '__global__ void                 k(int* x) {}'
    """
    return _UNREAD.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def _blanked(text: str, *, strings: bool) -> str:
    def blank(token: re.Match) -> str:
        return token[0] if token["comment"] is None and not strings else re.sub(r"[^\n]", " ", token[0])

    return C_TOKENS.sub(blank, text)


def blanked(text: str) -> str:
    """C++ text with comments, strings and line joints blanked, every other character in its place.

    >>> blanked('f("<<<");  // 1')
    'f(     );      '
    """
    return re.sub(r"\\(?=\n)", " ", C_TOKENS.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text))


__all__ = ["C_TOKENS", "NUMBER", "blanked", "expanded", "parsable"]
