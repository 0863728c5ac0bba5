"""The directive language of raw cells: `//! name = expression` lines, parsed with `ast` and never evaluated as code.

>>> declaration = parse(source, schema, functions=functions(source.text, "cpp", source.first_line))
"""

from .binding import Binding, bind
from .evaluate import fake
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
    bound_names,
    expressions_of,
    kind_of,
)
from .parser import parse
from .signature import infer_schema
from .structure import shape_key

__all__ = [
    "Allocate",
    "Binding",
    "Declaration",
    "Expression",
    "Kind",
    "Launch",
    "Let",
    "Require",
    "Statement",
    "Tune",
    "Unpack",
    "bind",
    "bound_names",
    "expressions_of",
    "fake",
    "infer_schema",
    "kind_of",
    "parse",
    "shape_key",
]
