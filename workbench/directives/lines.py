"""One directive line -> one statement of Python's syntax. Text goes in, `ast` comes out; nothing is checked or run."""

from __future__ import annotations

import ast
import re
import warnings

from ..errors import SchemaError

GEOMETRY = ("grid", "block", "shared", "cluster")
MAX_LENGTH, MAX_NODES, MAX_DEPTH = 2000, 400, 40

KEYWORD = re.compile(r"(require|tune|flags)(?:\s+(?!=[^=])|$)(.*)", re.DOTALL)
_TARGETS = re.compile(r"([^=!<>()]*?)=(?!=)")
_MAKER = re.compile(r"\s*\w+\s*=\s*(?:empty|zeros)(?:_like)?\s*\(")
# Two words in a row are prose, not a divisor, and so is what begins with a mark that no divisor begins with.
_PROSE = re.compile(r"\s*[^\w\s()\[\]+*~-]|\s*[\w'-]+[,:;.]?\s+(?!(?:if|else|and|or|not|is|in)\b)[A-Za-z]")


def parse_python(text: str, line: int) -> ast.Module:
    """`ast.parse` with limits, so that huge or odd input fails cleanly: SchemaError, or SyntaxError as it came."""
    if len(text) > MAX_LENGTH:
        raise SchemaError(f"this line has {len(text)} characters; a directive has at most {MAX_LENGTH}", line=line)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError:
        raise
    except (ValueError, MemoryError, RecursionError, UnicodeError) as error:
        raise SchemaError(f"{shorten(text)} does not parse: {error or 'it nests too deep'}", line=line) from None
    _check_size(tree, text, line)
    return tree


def _check_size(tree: ast.AST, text: str, line: int) -> None:
    level: list[ast.AST] = [tree]
    count = depth = 0
    while level:
        count, depth = count + len(level), depth + 1
        if count > MAX_NODES or depth > MAX_DEPTH:
            raise SchemaError(f"{shorten(text)} is too long or nests too deep: give its parts names", line=line)
        level = [child for node in level for child in ast.iter_child_nodes(node)]


def shorten(text: str, limit: int = 80) -> str:
    shown = text if len(text) <= limit else text[: limit - 3] + "..."
    return f"'{shown}'"


def targets(text: str) -> tuple[str, ...]:
    """The names that a directive line defines, from its left side alone: `*_, H, D = q.shape` gives H and D."""
    keyword = KEYWORD.match(text)
    if keyword:
        text = keyword[2] if keyword[1] == "tune" else ""
    left = _TARGETS.match(text)
    names = re.findall(r"[^\W\d]\w*", left[1]) if left else []
    return tuple(n for n in names if n != "_" and n not in GEOMETRY)


def parse_line(text: str, line: int, shown: str) -> ast.stmt:
    """One statement of Python's syntax, a trailing comment left off: `# ...`, or `// ...` where it is no division.

    `//` after a made tensor always begins a comment. After a number it divides, unless the whole does not parse and
    what follows reads as prose: cutting off what may be a mistyped divisor would change sizes without a word.
    """
    text = _after_maker(text)
    try:
        return _only(parse_python(text, line), shown, line)
    except SyntaxError as error:
        first = error
    for mark in reversed(list(re.finditer("//", text))):
        if _PROSE.match(text, mark.end()):
            try:
                return _only(parse_python(text[: mark.start()].rstrip(), line), shown, line)
            except SyntaxError:
                continue
    hint = "; '//' divides here, a comment of one word begins with '#'" if "//" in text else ""
    raise SchemaError(f"{shorten(shown)} does not parse: {first.msg}{hint}", line=line)


def _after_maker(text: str) -> str:
    """`out = empty(M, N) // the result` without its comment; other text as it is."""
    opening = _MAKER.match(text)
    depth = 0
    for position in range(opening.end() - 1, len(text)) if opening else ():
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return text[: position + 1] if text[position + 1 :].lstrip().startswith("//") else text
    return text


def _only(tree: ast.Module, shown: str, line: int) -> ast.stmt:
    if not tree.body:
        raise SchemaError(f"{shorten(shown)}: nothing follows it", line=line)
    if len(tree.body) != 1:
        raise SchemaError(f"{shorten(shown)}: one directive a line", line=line)
    return tree.body[0]
