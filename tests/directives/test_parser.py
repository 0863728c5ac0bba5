"""What directive lines mean, and what each wrong one says."""

from __future__ import annotations

import ast

import pytest

from tests.directives.cells import CELLS, SCHEMAS, cell, declare, lines
from workbench.directives import Allocate, Kind, Launch, Let, Require, Tune, Unpack, parse, shape_key
from workbench.errors import SchemaError
from workbench.source import Source


def refused(*directives: str) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        lines(*directives)
    return caught.value


def test_rmsnorm_statement_by_statement():
    d = cell("rmsnorm")
    unpack, rows, require, tune, y, rstd = d.statements
    assert isinstance(unpack, Unpack)
    assert (unpack.names, unpack.value.kind, unpack.value.text, unpack.line) == (
        ("*_", "cols"),
        Kind.INTS,
        "x.shape",
        2,
    )
    assert isinstance(rows, Let)
    assert (rows.name, rows.value.kind, rows.value.text) == ("rows", Kind.INT, "prod(x.shape[:-1])")
    assert isinstance(require, Require)
    assert (require.value.text, require.value.kind, require.line) == ("w.shape == (cols,)", Kind.BOOL, 4)
    assert tune == Tune("BLOCK", (256, 128, 512), 5)
    assert isinstance(y, Allocate)
    assert (y.role, y.zeroed, y.like, y.dtype, [s.text for s in y.sizes or ()]) == (
        "output",
        False,
        None,
        None,
        ["x.shape"],
    )
    assert isinstance(rstd, Allocate)
    assert rstd.dtype is not None
    assert (rstd.role, rstd.dtype.text, [s.text for s in rstd.sizes or ()]) == ("saved", "float32", ["rows"])
    (launch,) = d.launches
    assert isinstance(launch, Launch)
    assert (launch.function, [g.text for g in launch.grid], [b.text for b in launch.block]) == (
        "rmsnorm",
        ["rows"],
        ["BLOCK"],
    )
    assert [f.name for f in d.functions] == ["rmsnorm"]


def test_values_come_in_slot_order():
    assert {n: k.value for n, k in cell("rmsnorm").values.items()} == {
        "x": "tensor", "w": "tensor", "eps": "float", "cols": "int", "rows": "int", "BLOCK": "int", "y": "tensor",
        "rstd": "tensor",
    }  # fmt: skip
    assert list(cell("rmsnorm").values) == ["x", "w", "eps", "cols", "rows", "BLOCK", "y", "rstd"]


def test_a_backward_sees_gradients_arguments_outputs_and_saved():
    d = cell("rmsnorm.backward")
    assert [(a.name, a.type) for a in d.arguments] == [
        ("grad_y", "Tensor?"), ("x", "Tensor"), ("w", "Tensor"), ("eps", "float"), ("y", "Tensor"), ("rstd", "Tensor"),
    ]  # fmt: skip
    assert (d.outputs, d.saved, d.gradients, d.workspace) == ((), (), ("grad_x", "grad_w"), ("part",))
    assert d.tensors == ("grad_y", "x", "w", "y", "rstd", "grad_x", "grad_w", "part")
    assert [(x.function, x.shared.text if x.shared else None) for x in d.launches] == [
        ("by_rows", "cols * 4"),
        ("fold", None),
    ]


def test_a_backward_of_a_mutating_op_sees_gradients_of_what_was_mutated():
    d = declare("//! grad_k = empty_like(k)", "kv_write_", entry="backward", bind=False)
    assert [a.name for a in d.arguments][:3] == ["grad_k_cache", "grad_v_cache", "k"]
    assert not any(a.mutated for a in d.arguments)


def test_a_backward_cannot_make_the_gradient_that_comes_in():
    with pytest.raises(
        SchemaError, match="grad_k_cache is the gradient that comes in for k_cache.*leave it out"
    ) as caught:
        declare(
            "//! grad_k = empty_like(k)\n//! grad_k_cache = empty_like(k_cache)",
            "kv_write_",
            entry="backward",
            bind=False,
        )
    assert caught.value.line == 3


def test_strides_that_are_read():
    assert cell("kv_write_").strides_read == {"k_cache", "v_cache"}
    assert cell("rmsnorm").strides_read == set()
    assert lines("z = x", "s = z.stride(0)").strides_read == {"x"}
    assert lines("a, *_ = x.stride()").strides_read == {"x"}


@pytest.mark.parametrize("name", CELLS)
def test_every_cell_of_the_examples_parses(name):
    d = cell(name)
    assert d.functions
    assert shape_key(d)


def test_roles_by_name():
    d = cell("topk")
    assert (d.outputs, d.workspace) == (("values", "indices"), ("used",))
    assert [a.zeroed for a in d.allocations] == [False, False, True]


def test_outputs_come_in_the_schemas_order():
    text = "//! scale = empty((), dtype=float32)\n//! q = empty_like(x)"
    assert declare(text, "quantise", bind=False).outputs == ("q", "scale")


def test_aliases():
    d = lines("epsilon = p", "again = epsilon", "z = x", "out = empty_like(z)")
    assert d.aliases == {"epsilon": "p", "again": "p", "z": "x"}
    assert d.values["again"] is Kind.FLOAT
    assert d.values["z"] is Kind.TENSOR
    assert d.tensors == ("x", "b", "out")
    assert d.first_tensor == "x"


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("x.numel() // 2", "int"), ("x.numel() / 2", "float"), ("k * p", "float"), ("-k % 3", "int"),
        ("x.shape[k]", "int"), ("x.shape[-1]", "int"), ("x.stride(-1)", "int"), ("x.stride()[0]", "int"),
        ("x.dim() + x.element_size()", "int"), ("cdiv(k, 4)", "int"), ("min(k, 4, 5)", "int"), ("max(k, 0.5)", "float"),
        ("prod(x.shape)", "int"), ("prod((k, 2))", "int"), ("sqrt(k)", "float"), ("next_power_of_2(k)", "int"),
        ("2 * sm_count", "int"), ("1 if flag else 0", "int"), ("1 if flag else 0.5", "float"), ("not flag", "bool"),
        ("0 <= k < x.dim()", "bool"), ("x.shape[1:] == (2, k)", "bool"), ("x.shape == (*x.shape[:-1], k)", "bool"),
        ("x.dtype == float32 or x.dtype != torch.int8", "bool"), ("b is None", "bool"), ("b is not None and k > 0", "bool"),
        ("1.0 if scale is None else scale", "float"), ("scale if scale is not None else 2", "float"),
        ("scale is None or scale > 0", "bool"), ("not (scale is None) and scale > 0", "bool"),
        ("1.0 if scale is None or scale < 0 else scale", "float"), ("flag == True", "bool"), ("flag", "bool"), ("k", "int"),
    ],
)  # fmt: skip
def test_kinds(expression, kind):
    assert lines(f"v = {expression}").values["v"].value == kind


@pytest.mark.parametrize(
    ("directive", "sizes", "dtype"),
    [
        ("out = empty(())", [], None), ("out = empty(3)", ["3"], None), ("out = empty((k, 2))", ["k", "2"], None),
        ("out = zeros(*x.shape[:-1], k, dtype=torch.float16)", ["x.shape[:-1]", "k"], "float16"),
        ("out = empty((*x.shape[:-1], k), dtype=x.dtype)", ["x.shape[:-1]", "k"], "x.dtype"),
        ("out = empty(x.shape, dtype=float32 if flag else x.dtype)", ["x.shape"], "float32 if flag else x.dtype"),
        ("out = empty(x.shape) // the result", ["x.shape"], None), ("out = empty(k // 2) // half // of it", ["k // 2"], None),
        ("out = empty(x.shape)//result", ["x.shape"], None),
    ],
)  # fmt: skip
def test_allocations(directive, sizes, dtype):
    (made,) = lines(directive).allocations
    assert [s.text for s in made.sizes or ()] == sizes
    assert (made.dtype.text if made.dtype else None) == dtype
    assert made.zeroed == ("zeros" in directive)


@pytest.mark.parametrize(
    ("directive", "text"),
    [
        ("n = k // 4  // four elements a thread", "k // 4"), ("n = k  // rows of x, one a block", "k"),
        ("n = k // 4  # quarter", "k // 4"), ("n = k  // <- from the caller", "k"), ("n = k // 4 // 2", "k // 4 // 2"),
        ("n = k // 2 // of these two are used", "k // 2"),
    ],
)  # fmt: skip
def test_trailing_comments_and_divisions(directive, text):
    assert lines(directive).statements[0].value.text == text


@pytest.mark.parametrize(
    "directive", ["n = k // (4", "n = k // 4 4", "n = k // max(4, k", "n = k // 4 if flag", "n = k //"]
)
def test_a_mistyped_divisor_is_never_taken_for_a_comment(directive):
    assert "does not parse" in str(refused(directive))


@pytest.mark.parametrize("flag", ["-c", "-S", "-o", "-oscale.o", "-fsyntax-only", "--version"])
def test_a_flag_that_has_the_compiler_make_something_else(flag):
    assert f"flags {flag}: what the compiler makes, and where, is settled" in str(refused(f"flags -O3 {flag} x"))


def test_flags_travel():
    text = "//! flags -O3 -march=native   // for this machine\n//! flags '-DNAME=a b'"
    assert declare(text, bind=False).flags == ("-O3", "-march=native", "-DNAME=a b")


def test_tuned_values():
    d = lines("tune A = 1", "tune B = 0.5, 1", "tune C = -1, 2  // the first is the default")
    assert [t.values for t in d.tunes.values()] == [(1,), (0.5, 1.0), (-1, 2)]
    assert [d.values[n].value for n in "ABC"] == ["int", "float", "int"]


def test_literals_have_positions():
    d = cell("rmsnorm.backward")
    assert d.literals == (1, 2, 256, 4, 256, 256)
    nodes = [n for e in d.expressions for n in ast.walk(e.tree) if isinstance(n, ast.Constant)]
    assert [d.literal_index(n) for n in nodes] == [0, 1, 2, 3, 4, 5]


def test_torch_dtypes_become_plain_names():
    assert "torch" not in ast.dump(lines("out = empty(1, dtype=torch.float32)").allocations[0].dtype.tree)


@pytest.mark.parametrize(
    ("directive", "says"),
    [
        ("n = colz", "nothing is called 'colz'; did you mean 'cols'?"),
        ("n = qqqqq", "nothing is called 'qqqqq'; known here: x, b, k, p, flag"),
        ("n = later", "later is used before the line that defines it"),
        ("n = n + 1", "n is used before the line that defines it"),
        ("cols = 1", "cols is defined twice: line 2 has it already"),
        ("_, cols = x.shape", "cols is defined twice"),
        ("a, a = x.shape", "a is defined twice: line 3"),
        ("x = empty(1)", "x is an argument of f already"),
        ("min = 3", "'min' cannot be a name here: it is a word of the directive language"),
        ("flags = 3", "'flags' cannot be a name here"),
        ("double = 3", "'double' cannot be a name here: it is a keyword of C++"),
        ("é = 3", "names have ASCII letters"),
        ("__n = 3", "do not begin with two underscores"),
        ("n = x", None), ("n = k + x", "'+' takes numbers, 'x' is a tensor"),
        ("n = x.shape", "n would be a shape: a name holds an integer, float, bool or tensor; unpack it"),
        ("n = x.dtype", "n would be a dtype"), ("n = None", "n would be None"), ("n = 'text'", "is no number"),
        ("n = 1j", "'1j' is no number"), ("n = ...", "is no number"), ("n = b'x'", "is no number"),
        ("n = k.shape", "'k.shape': k is an integer, not a tensor"), ("n = x.size(0)", "write x.shape[i]"),
        ("n = x.ndim", "write x.dim()"), ("n = len(x.shape)", "write x.dim()"), ("n = x.numel", "write x.numel()"),
        ("n = x.shape()", "shape is no method, leave out the ()"), ("n = x.data", "is not in the directive language"),
        ("n = x.stride(0, 1)", "write x.stride()"), ("n = x.numel(1)", "write x.numel()"), ("n = x.stride", "write x.stride()"),
        ("n = x[0]", "only x.shape and x.stride() have items"), ("n = x.shape[0][0]", "only x.shape and x.stride() have items"),
        ("n = prod(x.shape[::2])", "a slice with a step"), ("n = x.shape[0.5]", "an index takes integers, '0.5' is a float"),
        ("n = x.shape[0, 1]", "an index takes integers"), ("n = x.T.shape[0]", "only a tensor's own name"),
        ("n = k // 0.5", "'//' takes integers, '0.5' is a float"), ("n = k ** 2", "the operators are + - * / // %"),
        ("n = k << 2", "the operators are"), ("n = ~k", "'~' is not in the directive language"), ("n = -flag", "a sign takes numbers"),
        ("n = flag + 1", "'+' takes numbers, 'flag' is a bool"), ("n = not k", "'k' is an integer: write k != 0"),
        ("n = 1 if k else 2", "a condition is needed, 'k' is an integer: write k != 0"), ("n = 1 if flag else x", "'if' chooses between"),
        ("n = k in (1, 2)", "'in' is not in the directive language"), ("n = k is 1", "'is' compares an argument with None"),
        ("n = k is None", "k is never None: it is an integer that always comes"), ("n = (k + 1) is None", "is never None"),
        ("n = zz is None", "nothing is called 'zz'"), ("n = b == None", "by 'is None'"), ("n = x.shape == k", "write (k,)"),
        ("n = x.shape < (1,)", "do not compare so"), ("n = x.dtype == 1", "a dtype and an integer do not compare so"),
        ("n = x == x", "a tensor and a tensor do not compare so"), ("n = scale * 2", "scale may be None here: write for instance"),
        ("n = scale if scale is None else 1.0", "scale may be None here"), ("n = scale is None and scale > 0", "scale may be None here"),
        ("n = sizes", "a type that directives cannot use"), ("n = sizes.shape[0]", "a list of tensors needs the host tier"), ("n = cdiv(1)", "cdiv takes two integers, got 'cdiv(1)'"),
        ("n = min(1)", "min takes two or more numbers"), ("n = min(x.shape, 1)", "min takes numbers, 'x.shape' is a shape"),
        ("n = prod(k)", "prod takes one shape"), ("n = cdiv(1.5, 2)", "cdiv takes integers"), ("n = prod(*x.shape)", "keywords and stars"),
        ("n = min", "min is a function: write min(...)"), ("n = sm_count()", "sm_count is a number: write it without ()"),
        ("n = cdif(k, 2)", "did you mean 'cdiv'?"), ("n = f(1)", "'f' is no function of the directive language"),
        ("n = math.sqrt(2)", "write sqrt(v), without a module"), ("n = (lambda: 1)()", "is no function"), ("n = (m := 3)", "is not in the directive"),
        ("n = [1, 2]", "is not in the directive language"), ("n = f'{k}'", "is not in the directive language"),
        ("n = {}", "is not in the directive language"), ("n = empty(1) + 1", "a tensor is made on a line of its own"),
        ("n = __import__('os').system('true')", "only a tensor's own name"), ("n = 9223372036854775808", "does not fit in 64 bits"),
        ("n = 1e999", "too large for a float"), ("n = ", "does not parse"), ("n", "is no directive"), ("n += 1", "is no directive"),
        ("n: int = 1", "is no directive"), ("import os", "is no directive"), ("del x", "is no directive"), ("a = c = 1", "one '=' a line"),
        ("a = 1; c = 2", "one directive a line"), ("x.n = 1", "cannot be defined"), ("This is a note", "does not parse"),
        ("*a, c = x.shape", "*a: a star drops sizes and is always '*_'"), ("a, c = k", "has nothing to unpack"),
        ("a, c = 1, 2", "has nothing to unpack"), ("a, *_, *_ = x.shape", "one star a line"), ("a, x.b = x.shape", "only plain names"),
        ("require", "'require': nothing follows it"), ("require k", "require takes a condition, 'k' is an integer"), ("require k = 1", "compare with =="),
        ("tune", "'tune': nothing follows it"), ("tune A", "tune needs"), ("tune A = k", "nothing is called 'k'"),
        ("tune A = 1 + 1", "tune A lists numbers"), ("tune A = 1, 1", "tune A names 1 twice"), ("tune A = ()", "tune A has no values"),
        ("tune A = True, False", "lists numbers"), ("tune cols = 1", "cols is defined twice"), ("tune A, B = 1, 2", "tune needs"),
        ("flags", "flags names none"), ("flags O3", "begin with '-', got 'O3'"), ("flags '-O3", "do not split"),
        ("t = empty()", "empty takes sizes"), ("t = empty(x)", "'x' is a tensor"), ("t = empty(x.shape, 1)", "splat it: *x.shape"),
        ("t = empty(*k)", "a star needs a shape"), ("t = empty(1.5)", "takes integer sizes, '1.5' is a float"),
        ("t = empty(1, device=x)", "takes dtype= and nothing else by keyword, got device="), ("t = empty(1, **x)", "nothing else by keyword"),
        ("t = empty(1, dtype=float)", "'float' is not in the directive language: the dtype is float"), ("t = empty(1, dtype=torch.half)", "'torch.half': write float16"),
        ("t = empty(1, dtype=torch.complex64)", "'torch.complex64' is no dtype of the directive language; it has float32"),
        ("out = torch.empty_like(x)", "'torch.empty_like(x)': write empty_like(x), without torch"),
        ("out = torch.zeros(k, 2, dtype=torch.int)", "'torch.zeros(k, 2, dtype=torch.int)': write zeros(k, 2, dtype=torch.int), without torch"),
        ("n = torch.sqrt(k)", "'torch.sqrt(k)': write sqrt(k), without torch"), ("out = torch.empty", "write empty(...), without torch"),
        ("out = torch.ones(k)", "'torch.ones(k)' is not in the directive language; it has empty(), zeros(), empty_like()"),
        ("n = torch.float32", "n would be a dtype"),
        ("t = empty(1, dtype=k)", "dtype= takes a dtype"), ("t = empty_like(k)", "takes a tensor, k is an integer"),
        ("t = empty_like(x, b)", "takes the name of one tensor"), ("t = empty_like(zzz)", "nothing is called 'zzz'"),
        ("tensor_map = 1", "'tensor_map' is reserved for a later version"), ("cooperative", "'cooperative' is reserved"),
        ("grid = 1", "grid belongs to a __global__ function of a CUDA cell"),
    ],
)  # fmt: skip
def test_every_mistake_is_told_on_its_line(directive, says):
    if says is None:
        assert lines("cols = 1", directive, "later = 1").values["n"] is Kind.TENSOR
        return
    error = refused("cols = 1", directive, "later = 1")
    assert says in str(error)
    assert error.line == 3
    assert str(error).startswith("cell, line 3: ")


@pytest.mark.parametrize(
    ("above", "says"),
    [
        ("//! grid = 1", "k has no block: add '//! block = ...' above it"), ("//! block = 1", "k has no grid"),
        ("//! grid = 1\n//! grid = 2\n//! block = 1", "k has a grid already, on line 2"),
        ("//! grid = 1, 2, 3, 4\n//! block = 1", "grid takes one to three sizes, got 4"),
        ("//! grid = 1.5\n//! block = 1", "grid takes integers, '1.5' is a float"),
        ("//! grid = x.shape\n//! block = 1", "grid takes integers, 'x.shape' is a shape"),
        ("//! grid = ()\n//! block = 1", "grid takes one to three sizes, got 0"),
        ("//! grid = 1\n//! block = 1\n//! shared = 1, 2", "shared takes one size in bytes, got 2"),
    ],
)  # fmt: skip
def test_launch_geometry(above, says):
    with pytest.raises(SchemaError) as caught:
        declare(f"{above}\n__global__ void k(const float* x) {{}}", language="cuda")
    assert says in str(caught.value)


def test_geometry_below_its_function_belongs_to_none():
    with pytest.raises(SchemaError, match="no __global__ function follows this grid") as caught:
        declare("__global__ void k(const float* x) {}\n//! grid = 1", language="cuda")
    assert caught.value.line == 3


def test_all_of_a_launch():
    text = "//! out = empty_like(x)\n//! grid = k, 2\n//! block = 32\n//! shared = k * 4\n//! cluster = 2, 1, 1\n"
    (launch,) = declare(text + "__global__ void g(const float* x, float* out) {}", language="cuda").launches
    assert (len(launch.grid), len(launch.block), launch.shared.text, [c.text for c in launch.cluster]) == (
        2,
        1,
        "k * 4",
        ["2", "1", "1"],
    )
    assert launch.line == 3


def test_missing_outputs_say_the_line_to_write():
    f = "void quantise(const float* x, signed char* q) {}"
    with pytest.raises(
        SchemaError, match=r"nothing makes the output 'scale' of lab::quantise: .*'//! scale = empty_like\(x\)'"
    ):
        declare(f"//! q = empty_like(x, dtype=int8)\n{f}", "quantise")
    with pytest.raises(SchemaError, match="nothing makes 'rstd', which lab::rmsnorm saves for backward"):
        declare("//! y = empty_like(x)\nvoid rmsnorm(const float* x, float* y) {}", "rmsnorm")
    with pytest.raises(SchemaError, match=r"makes no gradient \(grad_x, grad_w\): .*'//! grad_x = empty_like\(x\)'"):
        declare("void backward(const float* x) {}", "rmsnorm", entry="backward")


def test_results_that_are_no_tensors_need_the_host_tier():
    from workbench import schema as schemas

    text = "void g(const float* x) {}"
    from workbench.source import functions

    with pytest.raises(SchemaError, match="returns int: a raw kernel returns tensors only"):
        parse(Source(text, "cpp"), schemas.parse("lab::g(Tensor x) -> int"), functions=functions(text, "cpp"))


def test_a_clash_of_an_argument_with_an_incoming_gradient():
    from workbench import schema as schemas

    schema = schemas.parse("lab::g(Tensor x, Tensor grad_out) -> Tensor")
    with pytest.raises(SchemaError, match="the argument grad_out has the name that the gradient of out comes in by"):
        parse(Source("", "cpp"), schema, entry="backward")


def test_an_op_without_tensors_needs_a_dtype():
    from workbench import schema as schemas

    schema = schemas.parse("lab::iota(SymInt n) -> Tensor")
    with pytest.raises(SchemaError, match="out needs a dtype"):
        parse(Source("//! out = empty(n)", "cpp"), schema)
    assert parse(Source("//! out = empty(n, dtype=int64)", "cpp"), schema).first_tensor is None


def test_the_first_tensor_is_one_that_always_comes():
    from workbench import schema as schemas

    schema = schemas.parse("lab::g(Tensor? a, Tensor x) -> Tensor")
    assert parse(Source("", "cpp"), schema).first_tensor == "x"


def test_an_unknown_slot():
    with pytest.raises(SchemaError, match="'forward' or 'backward', got 'vmap'"):
        parse(Source("", "cpp"), SCHEMAS["f"], entry="vmap")


@pytest.mark.parametrize(
    "directive",
    ["n = " + "(" * 900 + "1" + ")" * 900, "n = " + "-" * 1500 + "1", "n = " + "1+" * 900 + "1", "n = " + "9" * 1900,
     "n = " + "x." * 900 + "y", "n = " + "f(" * 90 + "1" + ")" * 90, "n = 1 " + " " * 3000 + "+ 1", "n = \x00", "n = " + "[" * 150,
     "require " + "not " * 400 + "flag", "n = " + "1 if flag else " * 120 + "1"],
)  # fmt: skip
def test_huge_input_fails_cleanly(directive):
    refused(directive)


def test_too_many_lines():
    with pytest.raises(SchemaError, match="501 directives in one cell; at most 500"):
        lines(*(f"n{i} = 1" for i in range(501)))


def test_files_are_named_in_errors():
    with pytest.raises(SchemaError) as caught:
        parse(Source("//! n = zzz", "cpp", file="rmsnorm.cpp"), SCHEMAS["f"])
    assert str(caught.value).startswith("rmsnorm.cpp, line 1: nothing is called 'zzz'")
