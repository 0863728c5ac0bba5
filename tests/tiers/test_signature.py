"""Schemas that C++ signatures on tensors say."""

from __future__ import annotations

import pytest

from workbench.errors import SchemaError
from workbench.source import functions
from workbench.tiers.signature import infer


def schema(text: str, declared=()) -> str:
    return str(infer(functions(text, "cpp")[0], "lab::f", declared)).removeprefix("lab::f")


def refused(text: str) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        infer(functions(text, "cpp", 2)[0], "lab::f")
    return caught.value


@pytest.mark.parametrize(
    ("cpp", "spelled"),
    [
        ("Tensor", "Tensor"),
        ("const Tensor&", "Tensor"),
        ("torch::Tensor", "Tensor"),
        ("const at::Tensor &", "Tensor"),
        ("torch::stable::Tensor", "Tensor"),
        ("std::optional<Tensor>", "Tensor?"),
        ("const c10::optional< at::Tensor > &", "Tensor?"),
        ("std::vector<Tensor>", "Tensor[]"),
        ("const std::vector<torch::Tensor>&", "Tensor[]"),
        ("at::TensorList", "Tensor[]"),
        ("c10::List<std::optional<at::Tensor>>", "Tensor?[]"),
        ("std::vector<std::optional<Tensor>>", "Tensor?[]"),
        ("double", "float"),
        ("const float", "float"),
        ("std::optional<double>", "float?"),
        ("std::vector<float>", "float[]"),
        ("int", "SymInt"),
        ("long long", "SymInt"),
        ("std::int32_t", "SymInt"),
        ("unsigned", "SymInt"),
        ("size_t", "SymInt"),
        ("uint8_t", "SymInt"),
        ("std::optional<int64_t>", "SymInt?"),
        ("at::IntArrayRef", "SymInt[]"),
        ("std::vector<int64_t>", "SymInt[]"),
        ("std::optional<std::vector<int64_t>>", "SymInt[]?"),
        ("bool", "bool"),
        ("std::vector<bool>", "bool[]"),
        ("std::string", "str"),
        ("const std::string&", "str"),
        ("std::string_view", "str"),
        ("ScalarType", "ScalarType"),
        ("std::optional<at::ScalarType>", "ScalarType?"),
        ("torch::Device", "Device"),
    ],
)
def test_types(cpp, spelled):
    assert schema(f"Tensor f({cpp} a) {{ return {{}}; }}") == f"({spelled} a) -> Tensor"


@pytest.mark.parametrize(
    ("returns", "spelled"),
    [
        ("Tensor", "Tensor"),
        ("std::vector<at::Tensor>", "Tensor[]"),
        ("std::tuple<Tensor, Tensor>", "(Tensor, Tensor)"),
        ("std::tuple<Tensor, std::vector<Tensor>, int64_t, double, bool>", "(Tensor, Tensor[], SymInt, float, bool)"),
        ("std::pair<Tensor, float>", "(Tensor, float)"),
        ("int", "SymInt"),
    ],
)
def test_results(returns, spelled):
    assert schema(f"{returns} f(Tensor x) {{ return {{}}; }}") == f"(Tensor x) -> {spelled}"


def test_a_void_function_mutates_what_it_may_write_to():
    text = "void f(Tensor& out, const Tensor& x, std::vector<Tensor>& all, double k) {}"
    assert schema(text) == "(Tensor(a!) out, Tensor x, Tensor(b!)[] all, float k) -> ()"


def test_a_returning_function_mutates_nothing():
    assert schema("Tensor f(Tensor& x) { return x; }") == "(Tensor x) -> Tensor"


def test_what_directives_define_is_no_argument():
    text = "void f(const Tensor& x, Tensor& out, double k, int64_t n) {}"
    assert schema(text, ["n", "out"]) == "(Tensor x, float k) -> Tensor"
    assert schema("void f(Tensor x, Tensor out0, Tensor out1) {}", ["out0", "out1"]) == "(Tensor x) -> (Tensor, Tensor)"


@pytest.mark.parametrize(
    ("cpp", "spelled"),
    [
        ("double k = 2.5", "float k=2.5"),
        ("float eps = 1e-6f", "float eps=1e-06"),
        ("double k = 3", "float k=3.0"),
        ("float k = -.5f", "float k=-0.5"),
        ("int64_t n = 1'000L", "SymInt n=1000"),
        ("int n = -1", "SymInt n=-1"),
        ("bool b = true", "bool b=True"),
        ("std::optional<Tensor> w = std::nullopt", "Tensor? w=None"),
        ("const c10::optional<at::Tensor>& w = {}", "Tensor? w=None"),
        ("std::optional<double> s = 0.5", "float? s=0.5"),
        ('std::string mode = "mean"', 'str mode="mean"'),
    ],
)
def test_defaults(cpp, spelled):
    assert schema(f"Tensor f(Tensor x, {cpp}) {{ return x; }}") == f"(Tensor x, {spelled}) -> Tensor"


def test_a_default_that_is_no_constant_leaves_the_argument_required():
    text = "Tensor f(Tensor x, double a = 1.0, int64_t n = COUNT, bool b = false) { return x; }"
    assert schema(text) == "(Tensor x, float a, SymInt n, bool b=False) -> Tensor"


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("at::Scalar k", "the parameter 'at::Scalar k' is a Scalar, which no schema can say: write double"),
        ("c10::Half h", "the parameter 'c10::Half h' is a Half, which no schema can say: write double"),
        (
            "std::map<int, int> m",
            "the parameter 'std::map<int, int> m' is a map<int,int>, which no schema can say: use Tensor,",
        ),
        ("std::vector<std::vector<int>> v", "is a vector<vector<int>>, which no schema can say: use Tensor,"),
        ("std::vector<std::optional<Foo>> v", "is a vector<optional<Foo>>, which no schema can say: use Tensor,"),
        ("const float* p", "the parameter 'const float* p' is a pointer, which no schema can say; take a Tensor"),
        ("const char* s", "the parameter 'const char* s' is a pointer, which no schema can say; take a Tensor"),
        (
            "std::optional<std::vector<Tensor>> l",
            "an optional list of tensors has no schema; take a list, and pass an empty one",
        ),
        ("double", "the parameter 'double' has no name, and binding is by name"),
    ],
)
def test_what_no_schema_can_say_is_told_on_its_line(parameter, message):
    error = refused(f"Tensor f(\n  Tensor x,\n  {parameter}) {{ return x; }}")
    assert message in error.message and error.line == 4


def test_results_that_no_op_returns():
    error = refused("\nstd::map<int, int> f(Tensor x) { return {}; }")
    assert (
        error.message == "f returns std::map<int, int>; an op returns Tensors, lists of them and numbers"
        and error.line == 3
    )


def test_a_function_that_gives_nothing():
    error = refused("void f(Tensor x, Tensor y) {}")
    assert error.message == (
        "f returns nothing, and no parameter says that it is written to: return a Tensor, take `Tensor&`, make its "
        "result by a directive ('//! out = empty_like(x)'), or define the op with wb.op first"
    )
