"""The shapes of C++ extensions that people paste, unmodified: run, edited, broken, repaired, in one live process.

Compiled for real, so slow; what a re-run does in every detail is in `test_adopt`.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench import define

pytestmark = pytest.mark.slow

MULADD = """\
#include <torch/extension.h>

namespace pasted_muladd {

at::Tensor mymuladd_cpu(const at::Tensor& a, const at::Tensor& b, double c) {
  TORCH_CHECK(a.sizes() == b.sizes());
  TORCH_CHECK(a.dtype() == at::kFloat);
  TORCH_INTERNAL_ASSERT(a.device().type() == at::DeviceType::CPU);
  at::Tensor a_contig = a.contiguous();
  at::Tensor b_contig = b.contiguous();
  at::Tensor result = torch::empty(a_contig.sizes(), a_contig.options());
  const float* a_ptr = a_contig.data_ptr<float>();
  const float* b_ptr = b_contig.data_ptr<float>();
  float* result_ptr = result.data_ptr<float>();
  for (int64_t i = 0; i < result.numel(); i++) {
    result_ptr[i] = a_ptr[i] * b_ptr[i] + c;
  }
  return result;
}

class MulAdd : public torch::autograd::Function<MulAdd> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, at::Tensor a, at::Tensor b, double c) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({a, b});
    static auto op = torch::Dispatcher::singleton()
                         .findSchemaOrThrow("pasted_muladd::mymuladd", "")
                         .typed<decltype(mymuladd_cpu)>();
    return op.call(a, b, c);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx, torch::autograd::tensor_list grads) {
    auto saved = ctx->get_saved_variables();
    return {grads[0] * saved[1], grads[0] * saved[0], at::Tensor()};
  }
};

at::Tensor mymuladd_autograd(const at::Tensor& a, const at::Tensor& b, double c) { return MulAdd::apply(a, b, c); }

TORCH_LIBRARY(pasted_muladd, m) {
  m.def("mymuladd(Tensor a, Tensor b, float c) -> Tensor");
}

TORCH_LIBRARY_IMPL(pasted_muladd, CPU, m) {
  m.impl("mymuladd", &mymuladd_cpu);
}

TORCH_LIBRARY_IMPL(pasted_muladd, Autograd, m) {
  m.impl("mymuladd", &mymuladd_autograd);
}

}  // namespace pasted_muladd
"""
CONV = """\
#include <ATen/ATen.h>
#include <torch/library.h>

using at::Tensor;

Tensor identity_conv(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, at::IntArrayRef stride) {
  TORCH_CHECK(input.dim() == 4, "expected an NCHW input, got ", input.dim(), " dims");
  Tensor out = input.clone(at::MemoryFormat::Contiguous);
  if (bias.has_value()) out.add_(bias->view({1, -1, 1, 1}));
  return out;
}

TORCH_LIBRARY(pasted_conv, m) {
  m.def("convolution(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=[1, 1]) -> Tensor");
}
TORCH_LIBRARY_IMPL(pasted_conv, CompositeExplicitAutograd, m) { m.impl("convolution", TORCH_FN(identity_conv)); }
"""
MODULE = """\
#include <torch/extension.h>

torch::Tensor sigmoid_add(torch::Tensor x, torch::Tensor y) { return torch::sigmoid(x) + torch::sigmoid(y); }
std::vector<torch::Tensor> halves(torch::Tensor x) { return x.chunk(2); }
torch::Tensor scale(const torch::Tensor& x, float factor) { return x * factor; }
struct Counter {
  int n = 0;
  int step() { return ++n; }
};

PYBIND11_MODULE(pasted_module, m) {
  m.def("sigmoid_add", &sigmoid_add, "sigmoid(x) + sigmoid(y)");
  m.def("halves", &halves);
  m.def("scale", &scale, py::arg("x"), py::arg("factor") = 2.0f);
  py::class_<Counter>(m, "Counter").def(py::init<>()).def("step", &Counter::step);
}
"""
X = torch.arange(6.0).reshape(2, 3)


def forget(*qualnames: str) -> None:
    for name in qualnames:
        if name in wb.ops:
            define.forget(wb.ops[name])


def test_a_functional_multiply_add_with_its_gradient():
    op = wb.cpp(None, MULADD)
    assert op is wb.ops["pasted_muladd::mymuladd"] and torch.equal(op(X, X, 1.0), X * X + 1)

    @wb.op("pasted_muladd::mymuladd")
    def mymuladd(a: Tensor, b: Tensor, c: float) -> Tensor:
        return a * b + c

    @mymuladd.cases
    def _(t):
        yield t(4, 8), t(4, 8), 0.5

    assert mymuladd is op
    op.fake(lambda a, b, c: torch.empty_like(a))
    a, b = (t.clone().requires_grad_() for t in (X, X + 1))
    call = torch.compile(lambda a, b: op(a, b, 1.0) * 2, fullgraph=True, backend="aot_eager")
    assert torch.autograd.grad(call(a, b).sum(), a)[0].tolist() == (2 * b).tolist()
    assert op.check().ok

    with pytest.raises(wb.BuildError) as caught:
        wb.cpp(None, MULADD.replace("return result;", "return result"))
    assert caught.value.line in (18, 19)
    with pytest.raises(wb.TrialError, match="grad_a"):
        wb.cpp(None, MULADD.replace("{grads[0] * saved[1],", "{grads[0] + saved[1],"))
    assert torch.autograd.grad(call(a, b).sum(), a)[0].tolist() == (2 * b).tolist()

    # Another schema: the reference does not fit any more, and goes.
    other = MULADD.replace(", float c)", ", float c, bool negate)").replace("double c)", "double c, bool negate)")
    other = other.replace("decltype(mymuladd_cpu)", "at::Tensor(const at::Tensor&, const at::Tensor&, double, bool)")
    other = other.replace("op.call(a, b, c)", "op.call(a, b, c, negate)").replace(
        "apply(a, b, c)", "apply(a, b, c, negate)"
    )
    other = other.replace("at::Tensor()};", "at::Tensor(), at::Tensor()};").replace("+ c;", "+ (negate ? -c : c);")
    assert wb.cpp(None, other) is op and op.reference is None
    assert torch.equal(op(X, X, 1.0, True), X * X - 1)
    assert torch.autograd.grad(op(a, b, 1.0, True).sum(), a)[0].tolist() == b.tolist()


def test_an_identity_convolution():
    op = wb.cpp(None, CONV)
    image = torch.randn(1, 2, 3, 3)
    assert torch.equal(op(image, torch.ones(2)), image)
    assert torch.equal(torch.ops.pasted_conv.convolution(image, torch.ones(2), torch.ones(2)), image + 1)
    with pytest.raises(RuntimeError, match="expected an NCHW input, got 2 dims"):
        op(X, X)
    assert torch.equal(torch.compile(lambda x: op(x, x) + 0, fullgraph=True, backend="aot_eager")(image), image)

    more = CONV.replace(
        "TORCH_LIBRARY(pasted_conv, m) {",
        'TORCH_LIBRARY(pasted_conv, m) {\n  m.def("negate(Tensor x) -> Tensor", &negate);',
    )
    more = more.replace("TORCH_LIBRARY(", "static Tensor negate(const Tensor& x) { return -x; }\nTORCH_LIBRARY(", 1)
    found = wb.cpp(None, more)
    assert found.convolution is op and torch.equal(found.negate(X), -X)
    assert wb.cpp(None, CONV) is op and not hasattr(torch.ops.pasted_conv, "negate")


def test_a_python_module_of_three_functions():
    found = wb.cpp(None, MODULE)
    assert dir(found) == ["Counter", "halves", "scale", "sigmoid_add"]
    assert torch.equal(found.sigmoid_add(X, X), 2 * torch.sigmoid(X))
    assert [t.tolist() for t in found.halves(X)] == [[X[0].tolist()], [X[1].tolist()]]
    assert torch.equal(torch.ops.pasted_module.scale(X), 2 * X) and torch.equal(found.scale(X, factor=3.0), 3 * X)
    old = found.Counter()
    assert (old.step(), old.step()) == (1, 2)

    again = wb.cpp(None, MODULE.replace("return x * factor;", "return x * factor + 1;").replace("++n;", "n += 10;"))
    assert torch.equal(found.scale(X), 2 * X + 1) and again.Counter().step() == 10 and old.step() == 3
    with pytest.raises(wb.SchemaError, match="is defined by"):
        wb.cpp(None, 'TORCH_LIBRARY_FRAGMENT(pasted_module, m) {\n  m.def("scale(Tensor x) -> Tensor");\n}')

    renamed = wb.cpp(None, MODULE.replace("pasted_module", "pasted_renamed"))
    assert torch.equal(renamed.scale(X), 2 * X) and torch.equal(found.scale(X), 2 * X + 1)


def test_two_sources_with_a_shared_header(tmp_path):
    (tmp_path / "shared.h").write_text(
        "#pragma once\n#include <torch/torch.h>\ntorch::Tensor twice(const torch::Tensor& x);\n"
    )
    (tmp_path / "twice.cpp").write_text(
        '#include "shared.h"\ntorch::Tensor twice(const torch::Tensor& x) { return x * 2; }\n'
    )
    (tmp_path / "ops.cpp").write_text(
        '#include "shared.h"\n#include <torch/library.h>\n'
        "torch::Tensor four(const torch::Tensor& x) { return twice(twice(x)); }\n"
        'TORCH_LIBRARY(pasted_two, m) { m.def("four", &four); }\n'
    )
    [op] = wb.load(tmp_path, sources=["ops.cpp", "twice.cpp"])
    assert str(op.schema) == "pasted_two::four(Tensor _0) -> Tensor" and torch.equal(op(X), 4 * X)
    (tmp_path / "twice.cpp").write_text(
        '#include "shared.h"\ntorch::Tensor twice(const torch::Tensor& x) { return x * 3; }\n'
    )
    wb.load(tmp_path, sources=["ops.cpp", "twice.cpp"])
    assert torch.equal(op(X), 9 * X)
    (tmp_path / "twice.cpp").write_text(
        '#include "shared.h"\ntorch::Tensor nothing(const torch::Tensor& x) { return x; }\n'
    )
    with pytest.raises(wb.BuildError, match="twice"):
        wb.load(tmp_path, sources=["ops.cpp", "twice.cpp"])
    assert torch.equal(op(X), 9 * X)


def test_kernels_in_a_cell_of_their_own():
    head = "#include <ATen/ATen.h>\n#include <torch/library.h>\n"
    definition = head + 'TORCH_LIBRARY(pasted_apart, m) {\n  m.def("f(Tensor x) -> Tensor");\n}\n'
    kernels = head + (
        "static at::Tensor f(const at::Tensor& x) { return x + 1; }\n"
        'TORCH_LIBRARY_IMPL(pasted_apart, CPU, m) { m.impl("f", &f); }\n'
    )
    op = wb.cpp(None, definition)
    wb.cpp(None, kernels)
    assert torch.equal(op(X), X + 1)

    @wb.op("pasted_apart::f")
    def f(x: Tensor) -> Tensor:
        return x + 1

    @f.cases
    def _(t):
        yield t(3)

    assert op.runs().trial.ok
    with pytest.raises(wb.TrialError, match="f with these kernels differs on 3 float32"):
        wb.cpp(None, kernels.replace("x + 1", "x + 5"))
    assert torch.equal(op(X), X + 1)
