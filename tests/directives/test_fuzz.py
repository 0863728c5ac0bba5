"""Odd text of every sort: only SchemaError comes out, and nothing that stands in a directive is ever run."""

from __future__ import annotations

import ast
import builtins
import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.directives.cells import CELLS, SCHEMAS, declare
from workbench.directives import infer_schema, shape_key, structure
from workbench.errors import SchemaError
from workbench.source import Source, functions

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ATOMS = st.sampled_from(
    [
        "x",
        "b",
        "k",
        "p",
        "flag",
        "scale",
        "sizes",
        "n",
        "out",
        "cols",
        "x.shape",
        "x.shape[-1]",
        "x.stride()",
        "x.numel()",
        "x.dtype",
        "0",
        "1",
        "-1",
        "2.5",
        "None",
        "True",
        "float32",
        "torch.float32",
        "sm_count",
        "cdiv",
        "min",
        "prod",
        "empty",
        "zeros_like",
        "(",
        ")",
        "[",
        "]",
        ",",
        "=",
        "==",
        "!=",
        "<",
        "<=",
        "is",
        "not",
        "and",
        "or",
        "if",
        "else",
        "in",
        ":",
        "*",
        "**",
        "+",
        "-",
        "/",
        "//",
        "%",
        ".",
        "_",
        "*_",
        "lambda",
        "__import__",
        "'os'",
        "require",
        "tune",
        "flags",
        "grid",
        "block",
        "#",
        ";",
        "@",
        "\\",
        '"',
        "1e999",
        "0x",
        "99999999999999999999",
    ]
)
LINES = st.one_of(
    st.lists(ATOMS, max_size=14).map(" ".join),
    st.lists(ATOMS, max_size=10).map("".join),
    st.text(max_size=60),
    st.builds(
        "{} = {}".format,
        st.sampled_from(["n", "out", "grad_x", "*_, n", "tune n", "_"]),
        st.lists(ATOMS, max_size=8).map(" ".join),
    ),
    st.builds("require {}".format, st.lists(ATOMS, max_size=8).map(" ".join)),
)


@contextlib.contextmanager
def only_schema_errors():
    """Inside, SchemaError is swallowed, and running or compiling any text fails the test."""
    assert structure  # imported above, since an import compiles
    functions("void f() {}", "cpp"), functions("void f() {}", "cuda")  # imports, which do run code
    real = builtins.compile

    def only_parsing(source, filename, mode, flags=0, *args, **kwargs):
        assert flags & ast.PyCF_ONLY_AST, "a directive was compiled to code"
        return real(source, filename, mode, flags, *args, **kwargs)

    def never(*args, **kwargs):
        raise AssertionError("a directive was run as code")

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SchemaError):
        patch.setattr(builtins, "compile", only_parsing)
        patch.setattr(builtins, "eval", never)
        patch.setattr(builtins, "exec", never)
        yield


@QUICK
@given(st.lists(LINES, max_size=4), st.sampled_from(["f", "rmsnorm", "kv_write_"]), st.sampled_from(["forward", "backward"]),
       st.sampled_from(["cpp", "cuda"]), st.booleans())  # fmt: skip
def test_only_schema_errors_escape(directives, op, entry, language, bind):
    text = "\n".join(f"//! {d}" for d in directives) + "\n__global__ void f(const float* x, float* out, int n) {}"
    with only_schema_errors():
        assert shape_key(declare(text, op, entry=entry, language=language, bind=bind))


@QUICK
@given(st.sampled_from(sorted(CELLS)), st.data())
def test_cells_with_pieces_missing_or_swapped(name, data):
    text = CELLS[name]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))
    text = text[:start] + data.draw(st.one_of(st.text(max_size=8), ATOMS)) + text[end:]
    op, _, slot = name.partition(".")
    with only_schema_errors():
        declare(text, op, entry=slot or "forward", language="cuda")


@QUICK
@given(st.text(max_size=200), st.sampled_from(["cpp", "cuda"]))
def test_any_text_is_read_and_inferred(text, language):
    with only_schema_errors():
        infer_schema(Source(text, language), functions(text, language), "lab::f")


@pytest.mark.parametrize(
    "expression",
    ["__import__('os').system('touch /tmp/never')", "[].__class__.__base__", "(lambda: 1)()", "open('x')", "eval('1')", "x.__class__",
     "x.storage()", "print(1)", "exec", "{**x}", "[i for i in x.shape]", "f'{x}'", "x if (y := 1) else x"],
)  # fmt: skip
def test_code_is_refused(expression):
    with pytest.raises(SchemaError):
        declare(f"//! n = {expression}", bind=False)


def test_the_schemas_are_those_of_the_cells():
    assert {name.partition(".")[0] for name in CELLS} <= set(SCHEMAS)
