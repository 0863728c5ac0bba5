"""The directive language of raw cells: `//! name = expression` lines, parsed with `ast` and never evaluated as code.

>>> declaration = parse(source, schema, functions=functions(source.text, "cpp", source.first_line))
"""

from .nodes import (
    Allocate,
    Declaration,
    Expression,
    Kind,
    Launch,
    Let,
    Require,
    Statement,
    Tune,
    Unpack,
)

__all__ = ["Allocate", "Declaration", "Expression", "Kind", "Launch", "Let", "Require", "Statement", "Tune", "Unpack"]
