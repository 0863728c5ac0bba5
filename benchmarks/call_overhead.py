"""What one call costs on 16 floats: `torch.mul`, a C++ op, a `custom_op`, and ours through the handle and `torch.ops`.

    python -m benchmarks.call_overhead [--quick]

All of them multiply two tensors and are called in turn, round after round; ratios are taken within a round. With a
gradient wanted the forward call alone is timed, with what it records; then the way back alone. `--quick` leaves out the
C++ op, whose build takes 25 s. Needs no GPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import timeit
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.common import Figure, interleaved, ratio, say, table, write

ELEMENTS = 16
NAMES = {
    "torch.mul": "torch.mul",
    "cpp": "C++ op (TORCH_LIBRARY)",
    "cpp_autograd": "C++ op with register_autograd",
    "custom_op": "torch.library.custom_op",
    "ours": "ours, op(...)",
    "ours_ops": "ours, torch.ops",
    "stable": "C++ op, stable ABI (STABLE_TORCH_LIBRARY)",
    "host": "ours, host tier, op(...)",
    "host_ops": "ours, host tier, torch.ops",
    "reference": "ours, the gradient from the reference",
    "cell": "ours, a backward cell",
}
WANTED = {("ours", False): 2.5, ("ours_ops", False): 5.5}
NO_GRADIENT = ("cpp", "stable")
HOST_WANTED = 1.1  # times the same function behind a plain TORCH_LIBRARY; against the stable ABI for comparison

EXTENSION = """\
#include <torch/library.h>
torch::Tensor mul(const torch::Tensor& x, const torch::Tensor& y) {
  auto out = torch::empty_like(x);
  const float *a = x.const_data_ptr<float>(), *b = y.const_data_ptr<float>();
  float* o = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) o[i] = a[i] * b[i];
  return out;
}
TORCH_LIBRARY(bench_overhead_cpp, m) {
  m.def("mul(Tensor x, Tensor y) -> Tensor");
  m.def("mul_autograd(Tensor x, Tensor y) -> Tensor");
}
TORCH_LIBRARY_IMPL(bench_overhead_cpp, CPU, m) {
  m.impl("mul", mul);
  m.impl("mul_autograd", mul);
}
"""
FUNCTION = """\
Tensor mul(const Tensor& x, const Tensor& y) {
  Tensor out = torch::stable::empty_like(x);
  const float *a = x.const_data_ptr<float>(), *b = y.const_data_ptr<float>();
  float* o = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) o[i] = a[i] * b[i];
  return out;
}
"""
STABLE = f"""\
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
{FUNCTION}
STABLE_TORCH_LIBRARY(bench_overhead_stable, m) {{ m.def("mul(Tensor x, Tensor y) -> Tensor"); }}
STABLE_TORCH_LIBRARY_IMPL(bench_overhead_stable, CPU, m) {{ m.impl("mul", TORCH_BOX(&mul)); }}
"""
KERNEL = """\
//! n = x.numel()
//! require y.shape == x.shape
//! out = empty(x.shape)
void mul(const float* x, const float* y, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * y[i];
}
"""
BACKWARD = """\
//! n = x.numel()
//! grad_x = empty(x.shape)
//! grad_y = empty(x.shape)
void backward(const float* grad_out, const float* x, const float* y, float* grad_x, float* grad_y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    grad_x[i] = grad_out[i] * y[i];
    grad_y[i] = grad_out[i] * x[i];
  }
}
"""


def save_inputs(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def gradient(ctx, grad):
    x, y = ctx.saved_tensors
    return grad * y, grad * x


def cpp_ops() -> dict[str, Callable]:
    """The op as one writes it in C++ today, without and with a gradient registered from Python."""
    from torch.utils.cpp_extension import load_inline

    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])  # ninja
    load_inline("bench_overhead_cpp", EXTENSION, is_python_module=False)
    torch.library.register_autograd("bench_overhead_cpp::mul_autograd", gradient, setup_context=save_inputs)
    ops = torch.ops.bench_overhead_cpp
    return {"cpp": ops.mul.default, "cpp_autograd": ops.mul_autograd.default}


def custom_op() -> Callable:
    @torch.library.custom_op("bench_overhead_py::mul", mutates_args=())
    def mul(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    mul.register_autograd(gradient, setup_context=save_inputs)
    return mul


def stable_op() -> Callable:
    """The function of the host cell, registered by hand."""
    from workbench.build import cpp

    torch.ops.load_library(cpp.compile(STABLE, kind="host").path)
    return torch.ops.bench_overhead_stable.mul.default


def ours() -> dict[str, Callable]:
    raw, host = defined("mul", KERNEL), defined("host_mul", FUNCTION.replace("mul(", "host_mul("))
    ops = torch.ops.bench_overhead
    return {"ours": raw, "ours_ops": ops.mul.default, "host": host, "host_ops": ops.host_mul.default}


def defined(name: str, kernel: str) -> Callable:
    import workbench as wb

    def mul(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    op = wb.op(f"bench_overhead::{name}")(mul)

    @op.cases
    def _(t):
        yield t(ELEMENTS), t(ELEMENTS)

    return wb.cpp(op, kernel)


def measure(quick: bool) -> dict[str, dict[str, list[float]]]:
    """Seconds a call by name, with no gradient wanted and with one."""
    torch.set_num_threads(1)
    slow_to_build = {} if quick else cpp_ops()
    calls = {"torch.mul": torch.mul, **slow_to_build, "custom_op": custom_op(), "stable": stable_op(), **ours()}
    found = {}
    for wanted in (False, True):
        say(f"gradient {'wanted' if wanted else 'not wanted'} ...")
        x, y = (torch.randn(ELEMENTS, requires_grad=wanted) for _ in range(2))
        for name, call in calls.items():
            result = call(x, y)
            torch.testing.assert_close(result, x * y)
            if name not in NO_GRADIENT and result.requires_grad != wanted:
                raise SystemExit(f"{NAMES[name]}: the result's requires_grad is {result.requires_grad}")
        timers = {
            name: timeit.Timer("call(x, y)", globals={"call": call, "x": x, "y": y})
            for name, call in calls.items()
            if not (wanted and name in NO_GRADIENT)
        }
        number = 1000 if wanted else 2000
        found["gradient" if wanted else "no gradient"] = interleaved(timers, number=number)
    found["backward"] = backwards({n: calls[n] for n in ("torch.mul", "cpp_autograd", "custom_op") if n in calls})
    return found


def backwards(calls: dict[str, Callable]) -> dict[str, list[float]]:
    """Seconds of `torch.autograd.grad` on a result that was computed before."""
    import workbench as wb

    say("backward ...")
    calls = calls | {"reference": defined("mul_reference", KERNEL.replace("mul(", "mul_reference("))}
    calls["cell"] = defined("mul_cell", KERNEL.replace("mul(", "mul_cell("))
    wb.cpp("mul_cell.backward", BACKWARD)
    x, y = (torch.randn(ELEMENTS, requires_grad=True) for _ in range(2))
    sent = torch.randn(ELEMENTS)
    timers = {}
    for name, call in calls.items():
        given = {"grad": torch.autograd.grad, "out": call(x, y), "x": x, "y": y, "sent": sent}
        for got, want in zip(torch.autograd.grad(given["out"], (x, y), sent, True), (sent * y, sent * x), strict=True):
            torch.testing.assert_close(got, want)
        timers[name] = timeit.Timer("grad(out, (x, y), sent, True)", globals=given)
    return interleaved(timers, number=500)


def figures(samples: dict[str, dict[str, list[float]]]) -> list[Figure]:
    rows = []
    for part, found in samples.items():
        for name, seconds in found.items():
            times = ratio(found, name, "torch.mul")
            note = f"{statistics.median(seconds) * 1e6:.2f} us"
            wanted = WANTED.get((name, part == "gradient"))
            rows.append(Figure(f"{NAMES[name]}, {part}", times, "x", wanted, note=note))
    plain = samples["no gradient"]
    for name in ("host", "host_ops"):
        for base in (b for b in ("stable", "cpp") if name in plain and b in plain):
            wanted = HOST_WANTED if (name, base) == ("host", "cpp") else None
            rows.append(Figure(f"{NAMES[name]}, against the {NAMES[base]}", ratio(plain, name, base), "x", wanted))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without the C++ op, whose build takes 25 s")
    options = parser.parse_args()
    samples = measure(options.quick)
    rows = figures(samples)
    print(table(f"One call on {ELEMENTS} floats, CPU, against torch.mul", rows))
    print(f"\nwritten to {os.path.relpath(write('call_overhead', rows, samples))}\n")
    return 0 if all(f.holds for f in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
