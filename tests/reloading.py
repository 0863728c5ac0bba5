"""Builds of extensions without a compiler: one object, compiled once, that does what its file name says.

A text for it says `// variant: NAME` on its first line and has the blocks that the object will register.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

import workbench as wb
from workbench.adopt import adoption, extensions
from workbench.build import extension, reload
from workbench.build.result import Build
from workbench.source import Source

OBJECT = r"""
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/empty_like.h>
#include <dlfcn.h>
#include <torch/autograd.h>
#include <torch/library.h>
#include <unistd.h>

static std::string variant() {
  Dl_info info;
  dladdr(reinterpret_cast<void*>(&variant), &info);
  std::string path = info.dli_fname;
  path = path.substr(path.rfind('-') + 1);
  return path.substr(0, path.rfind('.'));
}
static const std::string kind = variant();
static bool is(const char* name) { return kind == name; }
struct Early {
  Early() {
    if (is("throws")) throw std::runtime_error("no table");
    if (is("crashes")) *static_cast<volatile int*>(nullptr) = 1;
    if (is("hangs")) for (;;) sleep(1);
    if (is("exits")) exit(3);
  }
} early;

static at::Tensor plus(const at::Tensor& x) { return at::add(x, is("plus2") ? 2 : 1); }
static at::Tensor plus_n(const at::Tensor& x, int64_t n) { return at::add(x, n); }
static at::Tensor scaled(const at::Tensor& x, double k) {
  if (is("bad")) return at::mul(x, k + 1);
  if (is("faults")) *static_cast<volatile int*>(nullptr) = 1;
  return at::mul(x, k);
}
struct Scale : torch::autograd::Function<Scale> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, double k) {
    context->saved_data["k"] = k;
    at::AutoDispatchBelowADInplaceOrView below;
    return c10::Dispatcher::singleton().findSchemaOrThrow("adopted::scaled", "")
        .typed<at::Tensor(const at::Tensor&, double)>().call(x, k);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    return {at::mul(grads[0], context->saved_data["k"].toDouble() * (is("badgrad") ? 3 : 1)), at::Tensor()};
  }
};
static at::Tensor scaled_autograd(const at::Tensor& x, double k) { return Scale::apply(x, k); }
static void bump(at::Tensor& x) { x.add_(1); }

TORCH_LIBRARY(adopted, m) {
  if (is("none")) return;
  if (is("schema")) m.def("plus(Tensor x, int n) -> Tensor", &plus_n);
  else m.def("plus(Tensor x) -> Tensor");
  if (is("twice")) m.def("plus(Tensor x) -> Tensor");
  if (!is("fewer") && !is("schema")) m.def("scaled(Tensor x, float k=2.0) -> Tensor");
  if (is("more")) {
    m.def("bump(Tensor(a!) x) -> ()", &bump);
    m.def("plus.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)");
  }
}
TORCH_LIBRARY_IMPL(adopted, CPU, m) {
  if (is("none")) return;
  if (!is("schema")) m.impl("plus", &plus);
  if (!is("fewer") && !is("schema")) m.impl("scaled", &scaled);
}
TORCH_LIBRARY_IMPL(adopted, Autograd, m) {
  if (is("grad") || is("badgrad")) m.impl("scaled", &scaled_autograd);
}
"""


def text(variant: str) -> str:
    """The cell that this variant of the object would be the build of."""
    rows = {
        "none": [],
        "schema": ["plus(Tensor x, int n) -> Tensor"],
        "fewer": ["plus(Tensor x) -> Tensor"],
        "twice": ["plus(Tensor x) -> Tensor", "plus(Tensor x) -> Tensor", "scaled(Tensor x, float k=2.0) -> Tensor"],
        "more": ["plus(Tensor x) -> Tensor", "scaled(Tensor x, float k=2.0) -> Tensor", "bump(Tensor(a!) x) -> ()"],
    }.get(variant, ["plus(Tensor x) -> Tensor", "scaled(Tensor x, float k=2.0) -> Tensor"])
    defs = "".join(f'  m.def("{row}");\n' for row in rows)
    return f"// variant: {variant}\nTORCH_LIBRARY(adopted, m) {{\n{defs}}}\n"


@pytest.fixture(scope="session")
def compiled() -> str:
    """The object, compiled once."""
    source = Source(OBJECT, "cpp", file="object.cpp")
    return extension.build([source], name="adopted", macros=reload.MACROS, after=reload.EXPORTS).path


@pytest.fixture
def cells(compiled, monkeypatch, tmp_path):
    """`cells(variant)` runs the cell of a variant; afterwards none of its ops is left."""

    def build(sources, *, name, **_) -> Build:
        said = sources[0].text
        digest = hashlib.sha256(said.encode()).hexdigest()
        path = Path(tmp_path) / f"{digest[:12]}-{said.partition('variant: ')[2].split()[0]}.so"
        cached = path.exists()
        if not cached:
            shutil.copyfile(compiled, path)
        return Build(digest, str(path), "full", 0.0, cached)

    monkeypatch.setattr(adoption.extension, "build", build)

    def run(variant: str, more: str = "", **options):
        return wb.cpp(None, text(variant) + more, **options)

    for name in [n for n in wb.ops if n.startswith("adopted::")]:
        pytest.fail(f"{name} is left from another test")
    yield run
    run("none")
    extensions._live.clear()  # the next test meets its ops for the first time
