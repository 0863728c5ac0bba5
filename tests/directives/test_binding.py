"""Parameters to values by name; the function a C++ cell calls; schemas read from signatures."""

from __future__ import annotations

import pytest

from tests.directives.cells import cell, declare
from workbench import schema as schemas
from workbench.directives import bind, infer_schema, parse
from workbench.directives.binding import is_integer
from workbench.errors import SchemaError
from workbench.source import Source, functions

BODY = "//! out = empty_like(x)\n"


def refused(signature: str, above: str = BODY, op: str = "f", **options: str) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        declare(above + signature, op, **options)
    return caught.value


def test_type_parameters_are_taken_from_tensors():
    d = cell("rmsnorm")
    (binding,) = bind(d.functions, d)
    assert binding.types == {"T": ("x", "y"), "W": ("w",)}
    assert binding.values == ("BLOCK",)


def test_each_kernel_binds_by_itself():
    d = cell("rmsnorm.backward")
    assert [b.types for b in bind(d.functions, d)] == [
        {"T": ("grad_y", "x", "grad_x"), "W": ("w",)},
        {"W": ("grad_w",)},
    ]


def test_an_alias_binds_to_what_it_names():
    d = declare(f"{BODY}//! z = x\n//! e = p\ntemplate <typename T> void f(const T* z, T* out, T e) {{}}")
    assert bind(d.functions, d)[0].types == {"T": ("x", "out")}


@pytest.mark.parametrize(
    ("signature", "says"),
    [
        ("void f(const float* x, float* out, int kk) {}", "f: the parameter 'kk' binds to no argument and no directive; did you mean 'k'?"),
        ("void f(const float* x, float* out, int qwerty) {}", "known here: x, b, k, p, flag, scale, kind, sizes, out"),
        ("void f(const float* x, float* out, int) {}", "the parameter 'int' has no name"),
        ("void f(float* x, float* out) {}", "writes through x, which is not declared in mutates; write 'const float* x' or add it"),
        ("void f(float x, float* out) {}", "'float x' is no pointer, x is a tensor: write 'const float* x'"),
        ("void f(const float* k, float* out) {}", "'const float* k' is a pointer, k is an integer: write 'int64_t k'"),
        ("void f(const float* p, float* out) {}", "write 'double p'"), ("void f(const bool* flag, float* out) {}", "write 'bool flag'"),
        ("void f(float** out) {}", "not pointers to pointers"), ("void f(void (*out)(int)) {}", "not pointers to pointers"),
        ("void f(Tensor x, float* out) {}", "a function on Tensor is of the host tier"),
        ("void f(std::vector<float> x, float* out) {}", "host tier"), ("void f(int p, float* out) {}", "would cut off p, which is a float"),
        ("void f(bool p, float* out) {}", "would cut off p"), ("void f(half2 p, float* out) {}", "takes pointers, integers, bool, float"),
        ("void f(float scale, float* out) {}", "scale may be None, which a number cannot say: add for instance"),
        ("void f(int kind, float* out) {}", "kind is a dtype"), ("void f(int sizes, float* out) {}", "sizes is an argument of another type"),
        ("template <typename T> void f(const float* x, float* out) {}", "the type 'T' is taken from no tensor: no parameter is a 'T*'"),
        ("template <int N> void f(const float* x, float* out) {}", "nothing says what the template parameter 'N' is: write '//! N = ...'"),
        ("template <int p> void f(const float* x, float* out) {}", "takes an integer or bool, p is a float"),
        ("template <typename... T> void f(const float* x, float* out) {}", "neither a type nor a number"),
        ("void f(const float* x) {}", "no function takes out, so nothing would write it"),
        ("void g(const float* x, float* out) {}", "no function is called 'f' here; the cell defines g"),
        ("void f(float* out) {}\nvoid f(double* out) {}", "f is defined twice, here and on line 3"),
    ],
)  # fmt: skip
def test_every_parameter_that_does_not_bind(signature, says):
    error = refused(signature)
    assert says in str(error)
    assert error.line >= 3 or "no function takes" in says


def test_the_line_is_the_parameters_own():
    assert refused("void f(const float* x,\n       float* out,\n       int kk) {}").line == 5


@pytest.mark.parametrize(
    "signature",
    [
        "void f(const float* x, float* out, int64_t k, float p, bool flag, const float* b) {}",
        "void f(const float* x, const float* out, unsigned long long k, const double p, int flag) {}",
        "template <typename T, typename U = float, bool flag> void f(const T* x, T* out, T p) {}",
        "namespace a { static inline void f(const float* __restrict__ x, float* __restrict__ out, double k) {} }",
        'extern "C" void f(const std::int32_t* x, signed char out[]) {}',
    ],
)
def test_signatures_that_bind(signature):
    assert [f.name for f in declare(BODY + signature).functions] == ["f"]


def test_a_mutated_argument_may_be_written():
    assert cell("kv_write_").functions
    changed = "//! B, H, D = k.shape\n//! grid = B\n//! block = 1\n__global__ void w(float* k) {}"
    assert "writes through k, which is not declared in mutates" in str(
        refused(changed, "", "kv_write_", language="cuda")
    )


def test_an_alias_is_no_way_around_const():
    assert "writes through z" in str(refused("void f(float* z, float* out) {}", f"{BODY}//! z = x\n"))


def test_a_backward_writes_only_what_it_makes():
    text = "//! grad_x = empty_like(x)\nvoid backward(const float* grad_y, float* {0}, float* grad_x) {{}}"
    for name in ("x", "y", "rstd"):
        error = refused(text.format(name), "", "rmsnorm", entry="backward")
        assert f"writes through {name}, which comes in to a backward and stays as it is" in str(error)


def test_names_of_the_called_function():
    text = "//! grad_x = empty_like(x)\nvoid rmsnorm(const float* grad_y, float* grad_x) {}"
    assert "no function is called 'backward' here" in str(refused(text, "", "rmsnorm", entry="backward"))
    assert "did you mean 'rmsnorm'?" in str(
        refused("//! y = empty_like(x)\nvoid rms_norm(float* y) {}", "", "rmsnorm")
    ).replace("rms_norm'?", "rmsnorm'?")
    named = Source(f"{BODY}void other(const float* x, float* out) {{}}", "cpp")
    schema = schemas.parse("lab::g(Tensor x) -> Tensor")
    d = parse(named, schema, functions=functions(named.text, "cpp"), function="other")
    assert d.functions[0].name == "other"


def test_a_cuda_cell_launches_something():
    assert "k has no grid, nothing would be launched" in str(
        refused("__global__ void k(float* out) {}", language="cuda")
    )
    assert "no __global__ function to launch" in str(refused("void k(float* out) {}", language="cuda"))


@pytest.mark.parametrize(
    ("type_", "says"), [("Tensor[]", "std::vector<Tensor>"), ("Scalar", "annotate it float or int")]
)
def test_arguments_of_the_host_tier(type_, says):
    text = "//! out = empty(1, dtype=float32)\nvoid g(float* out) {}"
    with pytest.raises(SchemaError) as caught:
        parse(Source(text, "cpp"), schemas.parse(f"lab::g({type_} x) -> Tensor"), functions=functions(text, "cpp"))
    assert says in str(caught.value)
    assert caught.value.line == 2


@pytest.mark.parametrize(
    "type_", ["int", "long long", "unsigned", "unsigned long long int", "int64_t", "std::uint8_t", "size_t", "char"]
)
def test_integers(type_):
    assert is_integer(type_)


@pytest.mark.parametrize("type_", ["float", "double", "T", "int4", "bool", "long double", ""])
def test_no_integers(type_):
    assert not is_integer(type_)


def inferred(text: str, language: str = "cpp", name: str = "lab::f") -> str:
    return str(infer_schema(Source(text, language), functions(text, language), name))


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("//! n = x.numel()\n//! out = empty_like(x)\nvoid f(const float* x, float* out, double by, int64_t n, bool on) {}",
         "lab::f(Tensor x, float by, bool on) -> Tensor"),
        ("//! n = x.numel()\nvoid f(float* x, const float* y, int64_t n) {}", "lab::f(Tensor(a!) x, Tensor y) -> ()"),
        ("//! out0 = empty_like(x)\n//! out1 = empty(k)\nvoid f(const float* x, int k, float* out0, float* out1) {}",
         "lab::f(Tensor x, SymInt k) -> (Tensor, Tensor)"),
        ("//! part = empty(4)\n//! out = empty_like(x)\ntemplate <typename T> void f(const T* x, T* out, float* part) {}",
         "lab::f(Tensor x) -> Tensor"),
    ],
)  # fmt: skip
def test_a_schema_from_a_signature(text, schema):
    assert inferred(text) == schema


def test_a_schema_from_several_kernels():
    text = (
        "//! out = empty_like(x)\n//! part = empty(4)\n//! grid = 1\n//! block = 1\n"
        "__global__ void first(const float* x, float* part, int k) {}\n__device__ float helper(int unseen) { return 0; }\n"
        "//! grid = 1\n//! block = 1\n__global__ void second(const float* part, float* out, const float* w) {}\n"
    )
    schema = infer_schema(Source(text, "cuda"), functions(text, "cuda"), "lab::f")
    assert str(schema) == "lab::f(Tensor x, SymInt k, Tensor w) -> Tensor"
    assert parse(Source(text, "cuda"), schema, functions=functions(text, "cuda")).outputs == ("out",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("//! y = empty_like(x)\nvoid f(const float* x, float* y) {}", "would return nothing: name its result 'out'"),
        ("void g(const float* x) {}", "no function is called 'f'"), ("void f(Tensor x) {}", "neither a pointer nor a number"),
        ("void f(const float* lambda, float* x) {}", "'lambda' is a Python keyword"), ("void f(const float*) {}", "has no name"),
        ("//! out0 = empty_like(x)\nvoid f(const float* x, float* out0) {}", "'out', or 'out0', 'out1', ... without a gap; got out0"),
        ("//! out = empty(1)\n//! out0 = empty(1)\nvoid f(const float* x) {}", "got out, out0"),
        ("//! out0 = empty(1)\n//! out2 = empty(1)\nvoid f(const float* x) {}", "got out0, out2"),
    ],
)  # fmt: skip
def test_signatures_that_say_no_schema(text, says):
    with pytest.raises(SchemaError) as caught:
        inferred(text)
    assert says in str(caught.value)
    assert caught.value.line > 0


def test_two_kernels_that_disagree():
    text = "//! grid = 1\n__global__ void a(const float* x) {}\n//! grid = 1\n__global__ void b(int x) {}"
    with pytest.raises(SchemaError, match="'x' is a Tensor in one function and a SymInt in this one"):
        inferred(text, "cuda")


def test_a_bad_name():
    with pytest.raises(SchemaError, match="namespace"):
        inferred("//! out = empty(1)\nvoid f(float* out) {}", name="f")


TWO = schemas.parse("lab::two(Tensor x, Tensor w, Tensor idx) -> (Tensor, Tensor)", returns=("out", "lse"))
ONE = schemas.parse("lab::one(Tensor x, Tensor w) -> Tensor")


@pytest.mark.parametrize(
    ("schema", "parameter", "says"),
    [
        (ONE, "const float* grad_y", "did you mean 'grad_out'? gradients that come in: grad_out; that go out: grad_x, grad_w"),
        (ONE, "const float* dy", "did you mean 'grad_out'? gradients that come in: grad_out; that go out: grad_x, grad_w"),
        (ONE, "const float* grad", "did you mean 'grad_out'? gradients that come in: grad_out;"),
        (ONE, "const float* dOut", "did you mean 'grad_out'? gradients that come in: grad_out;"),
        (ONE, "float* dw", "did you mean 'grad_w'? gradients that come in: grad_out; that go out: grad_x, grad_w"),
        (TWO, "const float* d_lse", "did you mean 'grad_lse'? gradients that come in: grad_out, grad_lse;"),
        (ONE, "const float* gamma", "no directive; known here: grad_out"),
        (ONE, "const float* grad_x2", "did you mean 'grad_out'? gradients that come in: grad_out;"),
        (ONE, "float* grad_xx", "did you mean 'grad_x'?"),
        (ONE, "float* grad_w", "write '//! grad_w = empty_like(w)' above; gradients that come in: grad_out"),
        (TWO, "const float* grad_outs", "did you mean 'grad_out'? gradients that come in: grad_out, grad_lse; that go out: grad_x"),
        (TWO, "const float* grad_q", "no directive; gradients that come in: grad_out, grad_lse; that go out: grad_x, grad_w"),
        (ONE, "const float* ww", "did you mean 'w'?"),
    ],
)  # fmt: skip
def test_a_gradient_by_another_name(schema, parameter, says):
    text = f"//! grad_x = empty_like(x)\nvoid backward({parameter}, float* grad_x) {{}}"
    with pytest.raises(SchemaError) as caught:
        parse(Source(text, "cpp"), schema, entry="backward", functions=functions(text, "cpp", 1))
    assert says in str(caught.value)
