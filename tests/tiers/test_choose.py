"""The tier of a cell, from its text: what decides, and what does not."""

from __future__ import annotations

import pytest

from workbench.source import Source, functions
from workbench.tiers.choose import Tier, full_only, tier

RAW = "void f(const float* x, float* out, int64_t n) {}\n"
HOST = "Tensor f(const Tensor& x, double k) { return x; }\n"


def chosen(text: str) -> Tier:
    return tier(Source(text, "cpp"), functions(text, "cpp"))


@pytest.mark.parametrize(
    ("text", "name", "because"),
    [
        ("__global__ void f(const float* x, float* out) {}", "raw", ""),
        ("__device__ float g(float x) { return x; }\n__global__ void f(const float* x) {}", "raw", ""),
        ("__global__ void k(float* x) {}\nTensor f(const Tensor& x) { k<<<1, 1>>>(p); return x; }", "host",
         "Tensor in the signature of f"),
        ("__global__ void k(float* x) {}\ntorch::Tensor f(torch::Tensor x) { k<<<1, 1>>>(p); }", "full",
         "torch::Tensor in the text"),
        ("__global__ void k(float* x) {}\nTORCH_LIBRARY(lab, m) {}", "full", "a TORCH_LIBRARY block"),
    ],
)  # fmt: skip
def test_cuda_has_the_same_three(text, name, because):
    assert tier(Source(text, "cuda"), functions(text, "cuda")) == Tier(name, because)


def test_pointers_are_raw():
    assert chosen(RAW) == Tier("raw")
    assert chosen('#include <cmath>\n#include <vector>\n#include "mine.h"\n' + RAW) == Tier("raw")


@pytest.mark.parametrize(
    "text",
    [
        HOST,
        "void f(Tensor& x) {}",
        "void f(std::vector<Tensor> xs, float k) {}",
        "std::tuple<Tensor, Tensor> f(double k) { return {}; }",
        "std::optional<Tensor> backward(int64_t n) { return {}; }",
        "torch::stable::Tensor f(torch::stable::Tensor x) { return torch::stable::empty_like(x); }",
        "#include <torch/csrc/stable/tensor.h>\n#include <torch/headeronly/util/Half.h>\n" + HOST,
        "using torch::headeronly::ScalarType;\n" + HOST,
        'STABLE_TORCH_LIBRARY_IMPL(theirs, CPU, m) { m.impl("f", TORCH_BOX(&f)); }\n' + HOST,
        "namespace theirs { " + HOST + "}",
    ],
)
def test_tensors_of_the_stable_abi_are_host(text):
    assert chosen(text).name == "host"


def test_the_reason_names_the_function():
    assert chosen("static float helper(float v) { return v; }\n" + HOST) == Tier("host", "Tensor in the signature of f")


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("torch::Tensor f(torch::Tensor x) { return x; }", "torch::Tensor in the text"),
        ("at::Tensor f(at::Tensor x) { return x; }", "at::Tensor in the text"),
        (HOST + "void g() { c10::InferenceMode guard; }", "c10::InferenceMode in the text"),
        ("#include <torch/extension.h>\n" + HOST, "#include <torch/extension.h>"),
        ('#  include "ATen/ATen.h"\n' + HOST, '# include "ATen/ATen.h"'),
        ("#include <c10/util/Half.h>\n" + RAW, "#include <c10/util/Half.h>"),
        ("#include <pybind11/pybind11.h>\n" + RAW, "#include <pybind11/pybind11.h>"),
        (RAW + "TORCH_LIBRARY(lab, m) {}", "a TORCH_LIBRARY block"),
        (RAW + "TORCH_LIBRARY_IMPL (lab, CPU, m) {}", "a TORCH_LIBRARY block"),
        (RAW + "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}", "a PYBIND11_MODULE block"),
        ('void f() { AT_DISPATCH_FLOATING_TYPES(t, "f", [&] {}); }', "AT_DISPATCH_FLOATING_TYPES in the text"),
        ("using namespace torch;\n" + HOST, "using namespace torch in the text"),
    ],
)
def test_what_only_the_full_tier_builds(text, because):
    assert chosen(text) == Tier("full", because)


@pytest.mark.parametrize(
    "quiet",
    [
        "// at::Tensor would be slower\n",
        "/* TORCH_LIBRARY(lab, m)\n   #include <ATen/ATen.h> */\n",
        'static const char* hint = "torch::Tensor";\n',
        'static const char* hint = R"(at::Tensor "quoted" PYBIND11_MODULE(x, m))";\n',
        "//! flags -DNAME=at::Tensor\n",
    ],
)
def test_comments_and_strings_decide_nothing(quiet):
    assert chosen(quiet + RAW) == Tier("raw")
    assert chosen(quiet + HOST).name == "host"


@pytest.mark.parametrize(
    "loud",
    [
        "char quote = '\"'; at::Tensor t; char other = '\"';\n",
        'const char* slashes = "//"; at::Tensor t;\n',
        "int64_t n = 1'000'000; at::Tensor t; int m = 1'0;\n",
    ],
)
def test_what_stands_beside_them_does(loud):
    assert chosen(loud + RAW) == Tier("full", "at::Tensor in the text")


def test_names_that_only_look_alike():
    assert chosen("struct mytorch { static int Tensor_count; };\nint a = mytorch::Tensor_count;\n" + RAW) == Tier("raw")
    assert chosen("namespace flat { struct V {}; }\nvoid f(const flat::V* x) {}") == Tier("raw")
    assert chosen("void f(const TensorView* x) {}") == Tier("raw")


def test_everything_that_a_faster_tier_would_not_take():
    text = "#include <torch/extension.h>\n// at::empty\nat::Tensor f(at::Tensor x) { return at::relu(x); }\nTORCH_LIBRARY(lab, m) {}\n"
    assert full_only(Source(text, "cpp")) == ("<torch/extension.h>", "at::Tensor", "at::relu", "TORCH_LIBRARY")
    assert full_only(Source(HOST, "cpp")) == ()
