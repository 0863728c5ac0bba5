"""What a text says that it defines, read before anything is built."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench import blocks
from workbench.build import wrappers
from workbench.source import Source

LIBRARY = """\
// TORCH_LIBRARY(no, m) { m.def("commented(Tensor x) -> Tensor"); }
#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)
/* TORCH_LIBRARY(neither, m) {
*/
TORCH_LIBRARY(lab, m) {
  m.def("f(Tensor x) -> Tensor");
  m.def(
      "g(Tensor x, str s=\\"}\\") -> Tensor", &g);
}
TORCH_LIBRARY_FRAGMENT(other, library) { library.def("lab::h", &h); library.def(TORCH_SELECTIVE_SCHEMA("k() -> ()")); }
TORCH_LIBRARY_IMPL(lab, Autograd, m) { m.impl("f", &f); }
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) { m.def("e", &e); }
"""
MODULE = """\
#include <torch/extension.h>
namespace inside { at::Tensor add(const at::Tensor& x, float k) { return x + k; } }
std::vector<at::Tensor> split(at::Tensor x, int64_t n) { return {x}; }
std::map<int, int> info() { return {}; }
int twice(int x) { return x; }
at::Tensor twice(at::Tensor x) { return x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("add_k", &inside::add, "adds", py::arg("x"), py::arg("amount") = 1.5f);
  m.def("split", torch::wrap_pybind_function(split));
  m.def("info", &info);
  m.def("twice", &twice);
  m.def("lambda", [](int x) { return x; });
}
"""


def source(text: str) -> Source:
    return Source(text, "cpp", file="cell [2]", first_line=2)


def test_blocks_and_lines():
    found = blocks.read([source(LIBRARY)], "ext")
    assert [(b.kind, b.namespace, b.key, b.line) for b in found.blocks] == [
        ("def", "lab", "", 6),
        ("fragment", "other", "", 11),
        ("impl", "lab", "Autograd", 12),
        ("def", "ext", "", 13),
    ]
    assert found.lines == {"lab::f": 7, "lab::g": 9, "lab::h": 11, "other::k": 11, "ext::e": 13}
    assert found.spaces == ("lab", "other", "ext") and found.module == ""


def test_brackets_in_characters_and_raw_strings_end_no_block():
    text = """\
TORCH_LIBRARY(lab, m) {
  m.def("f", [](at::Tensor x) { return is('}') ? x : x + '"'; });
  m.def("g", [](at::Tensor x) { return say(R"(} // " TORCH_LIBRARY(no, m) {)"), x; });
  m.def("h", &h);
}
"""
    found = blocks.read([Source(text, "cpp")])
    assert found.lines == {"lab::f": 2, "lab::g": 3, "lab::h": 4}


def test_what_a_target_means():
    assert blocks.defines(source(LIBRARY), "lab::f") and not blocks.defines(source(LIBRARY), "lab::nothing")
    assert blocks.has_blocks(source(LIBRARY)) and not blocks.has_blocks(source("// TORCH_LIBRARY(a, m) {"))


@pytest.mark.parametrize("namespace", ["aten", "prim", "torch", "_"])
def test_torchs_own_namespaces_are_refused(namespace):
    with pytest.raises(wb.SchemaError) as caught:
        blocks.read([source(f'\nTORCH_LIBRARY_IMPL({namespace}, CPU, m) {{ m.impl("add", &f); }}')])
    assert (caught.value.line, caught.value.file) == (3, "cell [2]")


def test_a_cell_that_registers_into_aten_builds_nothing():
    with pytest.raises(wb.SchemaError, match="the namespace 'aten' belongs to PyTorch") as caught:
        wb.cpp(None, '\n\nTORCH_LIBRARY_FRAGMENT(aten, m) {\n  m.def("mine(Tensor x) -> Tensor");\n}')
    assert caught.value.line == 3


def test_blocks_that_cannot_be_taken_back_are_refused():
    with pytest.raises(wb.SchemaError, match="write TORCH_LIBRARY$"):
        blocks.read([source("STABLE_TORCH_LIBRARY(lab, m) {}")])


def test_a_cell_that_says_nothing():
    with pytest.raises(wb.SchemaError, match="nothing here says what it defines"):
        wb.cpp(None, "at::Tensor f(at::Tensor x) { return x; }")


def test_python_functions_as_ops():
    text = blocks.read([source(MODULE)], "ext")
    assert text.module == "ext"
    made, plain = blocks.ops_of(text, [source(MODULE)], "ext")
    assert [str(schema) for schema, _ in made] == [
        "ext::add_k(Tensor x, float amount=1.5) -> Tensor",
        "ext::split(Tensor x, SymInt n) -> Tensor[]",
    ]
    assert sorted(plain) == ["info", "twice"] and plain["twice"] == "it is overloaded" and "std::map" in plain["info"]


def test_the_block_of_python_functions():
    text = blocks.read([source(MODULE)], "ext")
    made, _ = blocks.ops_of(text, [source(MODULE)], "ext")
    rendered = wrappers.render(made[:1])
    assert rendered.splitlines() == [
        '#include "wb_full_call.h"',
        "namespace wb_op_0 {",
        "using F = decltype(&::inside::add);",
        "static void entry(const c10::OperatorHandle&, torch::jit::Stack* stack) {",
        "  const c10::IValue* v = stack->data() + (stack->size() - 2);",
        "  wb::Values out;",
        '  wb::GivenTo<F, 0> a0(v[0], "x");',
        '  wb::GivenTo<F, 1> a1(v[1], "amount");',
        (
            "  auto all = ::inside::add(static_cast<wb::ParameterOf<F, 0>&&>(a0.value), "
            "static_cast<wb::ParameterOf<F, 1>&&>(a1.value));"
        ),
        "  wb::put_all(out, std::move(all));",
        "  wb::apart(out, v, 2);",
        '  wb::give(stack, 2, out, 1, 1, "ext::add_k");',
        "}",
        "}  // namespace wb_op_0",
        "WB_BLOCK(DEF, ext, std::nullopt, m, C10_UID) {",
        '  m.def("add_k(Tensor x, float amount=1.5) -> Tensor");',
        "}",
        "WB_BLOCK(IMPL, ext, std::make_optional(c10::DispatchKey::CPU), m, C10_UID) {",
        '  m.impl("add_k", torch::CppFunction::makeFromBoxedFunction<&wb_op_0::entry>());',
        "}",
    ]
