"""The texts that the benchmarks run: cells of each tier, the same function for the others, extensions.

Braces are for `str.format`: `edit` is a number that makes each text a new one and changes no result.
"""

REFERENCE = """\
@wb.op("{space}::{name}")
def {name}(x: Tensor, alpha: float = 0.5) -> Tensor:
    return torch.where(x > 0, x, alpha * x)

@{name}.cases
def _(t):
    for shape in {shapes}:
        yield t(*shape)
"""
CELL = """\
%%cpp {name}
//! n = x.numel()
//! out = empty(x.shape)
void {name}(const float* x, float* out, double alpha, int64_t n) {{
  const float a = alpha, edit = {edit}.0f;
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] > 0 ? x[i] : a * x[i] + 0 * edit;
}}
"""
CELL_CMATH = """\
%%cpp {name}
#include <cmath>
//! n = x.numel()
//! out = empty(x.shape)
void {name}(const float* x, float* out, double alpha, int64_t n) {{
  const float a = alpha, edit = {edit}.0f;
  for (int64_t i = 0; i < n; ++i) out[i] = std::fmax(x[i], 0.0f) + a * std::fmin(x[i], 0.0f) + 0 * edit;
}}
"""
CELL_HOST = """\
%%cpp {name}
Tensor {name}(const Tensor& x, float alpha) {{
  Tensor out = torch::stable::empty_like(x);
  const float *p = x.const_data_ptr<float>(), edit = {edit}.0f;
  float* o = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) o[i] = p[i] > 0 ? p[i] : alpha * p[i] + 0 * edit;
  return out;
}}
"""
TORCH_CPP = """\
torch::Tensor leaky(torch::Tensor x, double alpha) {{
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const float *p = in.data_ptr<float>(), a = alpha, edit = {edit}.0f;
  float* o = out.data_ptr<float>();
  for (int64_t i = 0; i < in.numel(); ++i) o[i] = p[i] > 0 ? p[i] : a * p[i] + 0 * edit;
  return out;
}}
"""
TVM_CPP = """\
void leaky(tvm::ffi::TensorView x, tvm::ffi::TensorView out, double alpha) {{
  const float *p = static_cast<const float*>(x.data_ptr()), a = alpha, edit = {edit}.0f;
  float* o = static_cast<float*>(out.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) o[i] = p[i] > 0 ? p[i] : a * p[i] + 0 * edit;
}}
"""

# ---------------------------------------------------------------- the full tier

FULL_CPP = TORCH_CPP.replace("torch::", "at::")
CELL_FULL = f"%%cpp leaky\n{FULL_CPP}"
INCLUDE = "#include <torch/extension.h>\n"
LIBRARY = """\
TORCH_LIBRARY({space}, m) {{
  m.def("leaky(Tensor x, float alpha=0.5) -> Tensor", &leaky);
}}
"""
MODULE = """\
PYBIND11_MODULE({space}, m) {{
  m.def("leaky", &leaky, py::arg("x"), py::arg("alpha") = 0.5);
}}
"""
CELL_LONG = """\
%%cpp
TORCH_LIBRARY(bench_long, m) {{
  m.def("plus(Tensor x) -> Tensor", [](const at::Tensor& x) {{ return x + {edit}; }});
}}
"""
SOURCE = """\
#include <torch/library.h>
at::Tensor plus{number}(const at::Tensor& x) {{ return x + {edit}; }}
TORCH_LIBRARY_FRAGMENT(bench_sources, m) {{ m.def("plus{number}(Tensor x) -> Tensor", &plus{number}); }}
"""
