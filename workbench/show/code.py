"""Source text as coloured html, with Pygments where it is installed, else plain."""

from __future__ import annotations

import html
import importlib
import re

LEXERS = {"cpp": ("pygments.lexers.c_cpp", "CppLexer"), "cuda": ("pygments.lexers.c_like", "CudaLexer")}
MOST_CHARACTERS = 40_000

# Pygments has some eighty token classes; four are told apart here: keyword, comment, literal, directive.
_CLASSES = (("Comment.Preproc", "k"), ("Comment", "c"), ("Literal", "q"), ("Keyword.Constant", "q"), ("Keyword", "k"))


def pre(text: str, language: str) -> str:
    """`<pre>` with the text of one cell; a text longer than 40,000 characters is cut, and says so.

    >>> pre("int x = 1;", "cpp")
    '<pre><code><span class="k">int</span> x = <span class="q">1</span>;</code></pre>'
    """
    left_out = text.count("\n", MOST_CHARACTERS) if len(text) > MOST_CHARACTERS else 0
    cut = f'<p class="cap">{left_out:,} more lines are not shown</p>' if left_out else ""
    return f"<pre><code>{_coloured(text[:MOST_CHARACTERS].rstrip(), language)}</code></pre>{cut}"


def lines(text: str, language: str) -> list[str]:
    """The html of each line of a text; no span reaches over a line's end.

    >>> lines("int x;", "cpp")
    ['<span class="k">int</span> x;']
    """
    made = [""]
    for kind, part in _spans(text, language):
        first, *rest = (_span(kind, piece) if piece else "" for piece in part.split("\n"))
        made[-1] += first
        made += rest
    return made


def _coloured(text: str, language: str) -> str:
    return "".join(_span(kind, part) for kind, part in _spans(text, language))


def _span(kind: str, part: str) -> str:
    return f'<span class="{kind}">{html.escape(part)}</span>' if kind else html.escape(part)


def _spans(text: str, language: str) -> list[tuple[str, str]]:
    """(class or "", text), neighbours of one colour together."""
    module, name = LEXERS.get(language, ("pygments.lexers.python", "PythonLexer"))
    try:
        lexer = getattr(importlib.import_module(module), name)(ensurenl=False, stripnl=False)
    except ImportError:
        return [("", text)]
    spans: list[tuple[str, str]] = []
    for token, part in lexer.get_tokens(text):
        kind = _kind(str(token).removeprefix("Token."), part)
        if spans and (spans[-1][0] == kind or not part.strip()):  # neighbours of one colour share a span
            spans[-1] = spans[-1][0], spans[-1][1] + part
        else:
            spans.append((kind, part))
    return spans


def _kind(token: str, part: str) -> str:
    if token.startswith("Comment") and re.match(r"//! [A-Za-z_*]", part):
        return "d"
    return next((kind for prefix, kind in _CLASSES if token.startswith(prefix)), "")
