"""The text of host cells: wrappers, conversions, thunks, and what is refused on which line. Nothing is compiled here."""

from __future__ import annotations

import pytest

from workbench import directives
from workbench import schema as schemas
from workbench.build import host, host_types
from workbench.errors import SchemaError
from workbench.source import Source, functions


def parts(schema: str, text: str, *, entry: str = "forward", name: str = "", **named):
    made = schemas.parse(schema, **named)
    source = Source(text, "cpp", "cell [3]", 2)
    found = functions(text, "cpp", 2)
    function = next(f for f in found if f.name == (name or ("backward" if entry == "backward" else made.name)))
    return source, made, directives.parse(source, made, entry=entry), function


def rendered(schema: str, text: str, *, gradients=(), register_as: str = "", **options) -> str:
    return host.render(*parts(schema, text, **options), gradients=gradients, name=register_as)


def after_the_cell(text: str) -> list[str]:
    return text[text.index("namespace wb_cell") :].splitlines()


def test_the_whole_text_of_a_forward():
    cell = "// Title\nTensor scale(const Tensor& x, float k) { return x; }"
    assert rendered("lab::scale(Tensor x, float k=2.0) -> Tensor", cell) == (
        '#include "wb_host.h"\n'
        '#line 2 "cell [3]"\n'
        "// Title\n"
        "Tensor scale(const Tensor& x, float k) { return x; }\n"
        '#line 3 "cell [3]"\n'
        "namespace wb_cell {\n"
        '#line 3 "cell [3]"\n'
        "static auto call(Tensor& x, double& k) { return wb::results<Tensor>(::scale(x, "
        'wb::narrow<float>(k, "lab::scale: k", "float k"))); }\n'
        '#line 3 "cell [3]"\n'
        "static auto entry(Tensor x, double k) { wb::arrive(x, k); if (wb::ask(x, k)) { return wb::pick<0>("
        'wb::slowly<false, 0>(wb_cell::call, "wb_layout::lab__scale", x, k)); } return wb::pick<0>(wb_cell::call(x, k)); }\n'
        "}  // namespace wb_cell\n"
        'WB_MODULE("lab", "CPU", m.impl("scale", TORCH_BOX(&wb_cell::entry)); '
        'm.impl("scale_forward", TORCH_BOX(&wb_cell::entry));)\n'
    )


def test_what_is_saved_is_seen_by_backward_alone():
    cell = "//! rstd = empty(3, dtype=float32)\nstd::tuple<Tensor, Tensor> norm(const Tensor& x) { return {x, x}; }"
    lines = after_the_cell(rendered("lab::norm(Tensor x) -> Tensor y", cell, saves="rstd"))
    assert [line for line in lines if not line.startswith("#line")] == [
        "namespace wb_cell {",
        "static auto call(Tensor& x) { return wb::results<Tensor, Tensor>(::norm(x)); }",
        (
            "static auto entry(Tensor x) { wb::arrive(x); if (wb::ask(x)) { return wb::pick<0, 1>("
            'wb::slowly<false, 0>(wb_cell::call, "wb_layout::lab__norm", x)); } return wb::pick<0, 1>(wb_cell::call(x)); }'
        ),
        (
            "static auto seen(Tensor x) { wb::arrive(x); if (wb::ask(x)) { return wb::pick<0>("
            'wb::slowly<false, 0>(wb_cell::call, "wb_layout::lab__norm", x)); } return wb::pick<0>(wb_cell::call(x)); }'
        ),
        "}  // namespace wb_cell",
        (
            'WB_MODULE("lab", "CPU", m.impl("norm", TORCH_BOX(&wb_cell::seen)); '
            'm.impl("norm_forward", TORCH_BOX(&wb_cell::entry));)'
        ),
    ]


def test_a_mutating_function_returns_nothing():
    cell = "namespace mine { void step_(std::vector<Tensor> p, int n) {} }"
    lines = after_the_cell(rendered("lab::step_(Tensor(a!)[] p, Tensor[] g, SymInt n) -> ()", cell))
    assert lines[2] == (
        "static auto call(std::vector<Tensor>& p, std::vector<Tensor>& g, int64_t& n) "
        '{ ::mine::step_(p, wb::narrow<int>(n, "lab::step_: n", "int n")); }'
    )
    entry = "static auto entry(std::vector<Tensor> p, std::vector<Tensor> g, int64_t n) {{ wb::arrive(p, g, n); {}wb_cell::call(p, g, n); }}"
    assert lines[4] == entry.format("")
    reading = cell.replace("{}", "{ p[0].mutable_data_ptr(); }")
    lines = after_the_cell(rendered("lab::step_(Tensor(a!)[] p, Tensor[] g, SymInt n) -> ()", reading))
    assert lines[4] == entry.format('wb::refuse_strided(p, "lab::step_: p"); wb::make_contiguous(g); ')


@pytest.mark.parametrize(
    ("body", "counts_on_it"),
    [
        ("x.const_data_ptr<float>()[0];", True),
        ("x.const_data_ptr<float>()[0];  // whatever its stride", True),
        ("x.const_data_ptr<float>()[x.stride(0)];", False),
        ("torch::stable::contiguous(x).const_data_ptr<float>();", False),
        ("STD_TORCH_CHECK(x.is_contiguous()); x.const_data_ptr<float>();", False),
        ("torch::stable::clone(x);", False),
    ],
)
def test_who_counts_on_contiguous_tensors(body, counts_on_it):
    source = Source(f"Tensor f(const Tensor& x) {{ {body}\n }}", "cpp")
    assert host.reads_no_strides(source) is counts_on_it


def test_a_backward_returns_one_gradient_for_each_tensor_argument():
    schema = "lab::f(Tensor x, Tensor index, Tensor[] more, float k) -> Tensor"
    cell = "std::tuple<Tensor, std::vector<Tensor>> backward(const Tensor& grad_out, Tensor x, double k) { return {}; }"
    lines = after_the_cell(rendered(schema, cell, entry="backward", gradients=("x", "more")))
    assert lines[2] == (
        "static auto call(std::optional<Tensor>& grad_out, Tensor& x, Tensor& index, std::vector<Tensor>& more, double& k, "
        'Tensor& out) { auto wb_got = ::backward(wb::given(grad_out, "lab::f: grad_out", "const Tensor& grad_out"), x, k); '
        'return std::make_tuple(wb::gradient(std::get<0>(wb_got), "lab::f: grad_x"), wb::absent(), '
        'wb::gradient(std::get<1>(wb_got), "lab::f: grad_more")); }'
    )
    assert lines[4].endswith(
        "{ wb::arrive(grad_out, x, index, more, k, out); wb::make_contiguous(grad_out); return wb::pick<0, 1, 2>(wb_cell::call(grad_out, x, index, more, k, out)); }"
    )
    assert lines[-1] == 'WB_MODULE("lab", "CPU", m.impl("f_backward", TORCH_BOX(&wb_cell::entry));)'


def test_one_that_leaves_gradients_out_registers_beside_the_ops():
    cell = "std::optional<Tensor> backward(const Tensor& x) { return std::nullopt; }"
    text = rendered("lab::f(Tensor x) -> Tensor", cell, entry="backward", gradients=("x",), register_as="f_partial")
    assert (
        'wb::slowly<false, 0>(wb_cell::call, "wb_layout::lab__f_partial_backward", grad_out, x, out)' in text
        and 'm.impl("f_partial_backward"' in text
    )


def test_arguments_that_cpp_has_other_uses_for():
    cell = "//! other = default\nTensor f(const Tensor& x, double other, bool wb_all_) { return x; }"
    text = rendered("lab::f(Tensor x, float default, bool wb_all_) -> Tensor", cell)
    assert "entry(Tensor x, double default_, bool wb_all_)" in text and "::f(x, default_, wb_all_)" in text


def test_a_thunk_takes_its_values_from_the_launcher():
    cell = (
        "//! y = empty_like(x)\n//! epsilon = eps\n"
        "void norm(Tensor x, const std::optional<Tensor>& w, Tensor& y, float epsilon, int n) {}"
    )
    source, _, declaration, function = parts("lab::norm(Tensor x, Tensor? w, SymInt n, float eps) -> Tensor y", cell)
    lines = host.thunk(source, declaration, function).splitlines()
    assert lines[5:] == [
        '#line 4 "cell [3]"',
        "WB_EXPORT int wb_call(const wb_value* v) {",
        '#line 4 "cell [3]"',
        (
            "  ::norm(wb::borrow(v[0].p), wb::borrow_optional(v[1].p), (Tensor&)(const Tensor&)wb::borrow(v[4].p), "
            'wb::narrow<float>(v[3].f, "lab::norm: eps", "float epsilon"), wb::narrow<int>(v[2].i, "lab::norm: n", "int n"));'
        ),
        "  return 0;",
        "}",
    ]


@pytest.mark.parametrize(
    ("argument", "parameter", "expression"),
    [
        ("Tensor", "const Tensor& a", "a"),
        ("Tensor", "torch::stable::Tensor a", "a"),
        ("Tensor", "const torch :: stable :: Tensor & a", "a"),
        ("Tensor?", "const std::optional<Tensor>& a", "a"),
        ("Tensor?", "Tensor a", 'wb::given(a, "lab::f: a", "Tensor a")'),
        ("Tensor[]", "const std::vector<torch::stable::Tensor>& a", "a"),
        ("Tensor?[]", "std::vector<std::optional<Tensor>> a", "a"),
        ("float", "double a", "a"),
        ("float", "const float a", 'wb::narrow<float>(a, "lab::f: a", "const float a")'),
        ("float?", "std::optional<float> a", 'wb::narrow_optional<float>(a, "lab::f: a", "std::optional<float> a")'),
        ("float?", "float a",
         'wb::narrow<float>(wb::given(a, "lab::f: a", "float a"), "lab::f: a", "float a")'),
        ("float[]", "std::vector<float> a", 'wb::narrow_list<float>(a, "lab::f: a", "std::vector<float> a")'),
        ("float[]", "const std::vector<double>& a", "a"),
        ("SymInt", "int64_t a", "a"),
        ("SymInt", "std::int64_t a", "a"),
        ("int", "unsigned int a", 'wb::narrow<unsigned int>(a, "lab::f: a", "unsigned int a")'),
        ("SymInt", "size_t a", 'wb::narrow<size_t>(a, "lab::f: a", "size_t a")'),
        ("SymInt[]", "std::vector<int64_t> a", "a"),
        ("SymInt[2]", "std::vector<int> a", 'wb::narrow_list<int>(a, "lab::f: a", "std::vector<int> a")'),
        ("SymInt[]?", "std::optional<std::vector<int64_t>> a", "a"),
        ("bool", "bool a", "a"),
        ("bool?", "std::optional<bool> a", "a"),
        ("str", "const std::string& a", "a"),
        ("str", "std::string_view a", "a"),
        ("ScalarType", "torch::headeronly::ScalarType a", "a"),
        ("ScalarType?", "std::optional<ScalarType> a", "a"),
        ("Device", "Device a", "a"),
        ("Device", "torch::stable::Device a", "a"),
    ],
)  # fmt: skip
def test_conversions(argument, parameter, expression):
    p = functions(f"void f({parameter}) {{}}", "cpp")[0].parameters[0]
    assert host_types.converted(p, schemas.Argument("a", argument), "a", "lab::f") == expression


@pytest.mark.parametrize(
    ("argument", "parameter", "message"),
    [
        (
            "float",
            "int a",
            "the parameter 'int a' cannot take a, which is a float in the schema: write it as 'double a'",
        ),
        ("Tensor", "std::vector<Tensor> a", "which is a Tensor in the schema: write it as 'Tensor a'"),
        ("Tensor[]", "const Tensor& a", "which is a Tensor[] in the schema: write it as 'std::vector<Tensor> a'"),
        ("SymInt", "bool a", "which is a SymInt in the schema: write it as 'int64_t a'"),
        ("str", "double a", "write it as 'std::string a'"),
        ("float?", "std::optional<int> a", "write it as 'std::optional<double> a'"),
        ("Scalar", "double a", "a is a Scalar, which host cells cannot take: write float"),
        ("Scalar?", "double a", "a is a Scalar?, which host cells cannot take: write float"),
        (
            "Generator?",
            "double a",
            "a is a Generator?, which host cells cannot take: write the function on torch::Tensor (the full tier)",
        ),
    ],
)
def test_what_no_conversion_exists_for(argument, parameter, message):
    p = functions(f"void f(\n{parameter}) {{}}", "cpp", 7)[0].parameters[0]
    with pytest.raises(SchemaError) as caught:
        host_types.converted(p, schemas.Argument("a", argument), "a", "lab::f")
    assert message in caught.value.message and caught.value.line == 8


@pytest.mark.parametrize(
    ("schema", "cell", "message", "line"),
    [
        ("lab::f(Tensor x) -> Tensor", "Tensor f(Tensor z) { return z; }",
         "f: the parameter 'z' binds to no argument; the arguments are x", 2),
        ("lab::f(Tensor x, float alpha) -> Tensor", "Tensor f(Tensor x,\n  double alfa) { return x; }",
         "f: the parameter 'alfa' binds to no argument; did you mean 'alpha'?", 3),
        ("lab::f(Tensor x) -> Tensor", "Tensor f(Tensor x,\n const float* w) { return x; }",
         "f: the parameter 'w' binds to no argument; the arguments are x", 3),
        ("lab::f(Tensor x, Tensor w) -> Tensor", "Tensor f(Tensor x,\n const float* w) { return x; }",
         "f: 'const float* w' is a pointer beside a Tensor; take the Tensor and ask it for const_data_ptr<float>()", 3),
        ("lab::f(Tensor x) -> Tensor", "Tensor f(Tensor) { return {}; }",
         "f: the parameter 'Tensor' has no name, and binding is by name", 2),
        ("lab::f(Tensor x) -> Tensor", "\nvoid f(Tensor x) {}", "f returns void, 0 results; lab::f needs 1: out", 3),
        ("lab::f(Tensor x) -> (Tensor, Tensor)", "Tensor f(Tensor x) { return x; }",
         "f returns Tensor, 1 results; lab::f needs 2: out0, out1", 2),
        ("lab::f(Tensor x) -> Tensor y", "double f(Tensor x) { return 1; }",
         "f returns a double as y, which is a Tensor in the schema", 2),
        ("lab::f(Tensor x) -> (Tensor, float)", "std::tuple<Tensor, Tensor> f(Tensor x) { return {}; }",
         "f returns a Tensor as out1, which is a double in the schema", 2),
        ("lab::f(Tensor x) -> Tensor", "template <typename T>\nTensor f(Tensor x) { return x; }",
         ("f is a template, which nothing calls by itself: write a function that looks at scalar_type(), and name that one "
         "with --entry"), 3),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_on_its_line(schema, cell, message, line):
    with pytest.raises(SchemaError) as caught:
        rendered(schema, cell)
    assert (caught.value.message, caught.value.line) == (message, line)


def test_gradients_are_counted():
    cell = "Tensor backward(Tensor x) { return x; }"
    with pytest.raises(
        SchemaError,
        match="backward returns Tensor, 1 gradients; the floating-point tensor arguments are x, w: return one",
    ):
        rendered("lab::f(Tensor x, Tensor w) -> Tensor", cell, entry="backward", gradients=("x", "w"))
    with pytest.raises(SchemaError, match="lab::f takes no floating-point tensor, so that there is no gradient"):
        rendered("lab::f(Tensor x) -> Tensor", "void backward(Tensor x) {}", entry="backward", gradients=())


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("void f(Tensor x, Tensor out, double n) {}", "the parameter 'double n' cannot take n, which is int here"),
        ("void f(Tensor x, Tensor out, float* n) {}", "'float* n' is a pointer beside a Tensor; take the Tensor and ask it for its data"),
        ("void f(Tensor x, Tensor oot) {}", "f: the parameter 'oot' binds to no argument and no directive; did you mean 'out'?"),
        ("void f(Tensor x, Tensor out, std::vector<int64_t> dims) {}",
         "the parameter 'std::vector<int64_t> dims' cannot take dims, which is opaque here; a function that returns its results can"),
    ],
)  # fmt: skip
def test_what_a_thunk_cannot_pass(cell, message):
    text = "//! out = empty_like(x)\n//! n = x.numel()\n" + cell
    source, _, declaration, function = parts("lab::f(Tensor x, SymInt[] dims) -> Tensor", text)
    with pytest.raises(SchemaError) as caught:
        host.thunk(source, declaration, function)
    assert (caught.value.message, caught.value.line) == (message, 4)


@pytest.mark.parametrize(
    ("returns", "found"),
    [
        ("void", []),
        ("Tensor", ["Tensor"]),
        ("const torch::stable::Tensor&", ["Tensor"]),
        ("std::vector<Tensor>", ["std::vector<Tensor>"]),
        (
            "std::tuple<Tensor, std::vector<Tensor>, std::tuple<int, int>>",
            ["Tensor", "std::vector<Tensor>", "std::tuple<int,int>"],
        ),
        ("std::pair<Tensor, std::optional<Tensor>>", ["Tensor", "std::optional<Tensor>"]),
        ("auto", ["auto"]),
    ],
)
def test_results_of_a_signature(returns, found):
    function = functions(f"{returns} f() {{}}", "cpp")[0]
    assert host_types.result_types(function) == found and host.results(function) == len(found)
