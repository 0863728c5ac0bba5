"""Public docstrings are true: each begins with an example, and those that are quick run here and give what they show."""

from __future__ import annotations

import doctest
import inspect
import re

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live
from workbench.adopt.ops import Ops
from workbench.inputs import Tensors
from workbench.op import PUBLIC as OF_AN_OP
from workbench.reports import card, deploying, inspection, measurement, profiling, report, saving, tuning
from workbench.version import Version

KERNEL = """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! require w.shape == (cols,)
//! y    = empty(x.shape)
//! rstd = empty(rows, dtype=float32)
#include <cmath>
template <typename T, typename W>
void rmsnorm(const T* x, const W* w, T* y, float* rstd, float eps, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* from = x + r * cols;
    T* to = y + r * cols;
    float sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += float(from[c]) * float(from[c]);
    rstd[r] = 1 / std::sqrt(sum / cols + eps);
    for (int64_t c = 0; c < cols; ++c) to[c] = T(float(T(from[c] * rstd[r])) * float(w[c]));
  }
}
"""
SCALE = (
    "//! n = x.numel()\n//! out = empty(x.shape)\nvoid scale(const float* x, float* out, double k, int64_t n) {{ {} }}"
)
VERBS = {f"Op.{name}": getattr(wb.Op, name) for name in OF_AN_OP if hasattr(wb.Op, name)}
REPORTS = [report.Report, report.Check, report.Trial, report.Line, measurement.Bench, profiling.Profile, tuning.Tuning,
           inspection.Inspection, inspection.Stage, inspection.Comparison, saving.Saved, deploying.Deployed]  # fmt: skip
PUBLIC = {
    "workbench": wb, **{name: getattr(wb, name) for name in wb.__all__ if name != "ops"}, **VERBS,
    **{each.__name__: each for each in (*REPORTS, Version, Ops, Tensors)},
    "Case.cast": wb.Case.cast, "Profile.export_chrome_trace": profiling.Profile.export_chrome_trace,
}  # fmt: skip
FIELDS = {"Op.qualname", "Op.schema", "Op.name", "Op.torch_op", "Op.reference", "Op.differentiable", "Op.random"}
WITHOUT = FIELDS | {"ToolchainError"}  # one line says it all
# Too slow, or in need of more than an op: notebooks and tests of their own run these.
ELSEWHERE = {"Op.bench", "Op.profile", "Op.tune", "Op.tuned", "cuda", "triton", "load", "load_inline", "fake_class", "Ops",
             "deploy", "doctor", "Bench", "Profile", "Tuning", "Inspection", "Stage", "Deployed", "Tensors",
             "Profile.export_chrome_trace"}  # fmt: skip
MEASURED = {"save"}  # numbers and places differ from run to run
HERE = sorted(PUBLIC.keys() - WITHOUT - ELSEWHERE)


def norm() -> wb.Op:
    """An op with cases: defined again, as here, after an example that defined it otherwise; what fills its slots stays."""

    @wb.op("lab::rmsnorm", returns="y", saves="rstd")
    def rmsnorm(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    @rmsnorm.cases(dtypes=(torch.float32, torch.bfloat16))
    def _(t):
        yield t(4, 128), t(128)
        yield wb.case("odd", t(5, 123), t(123))
        yield wb.case("llama", t(64, 1024), t(1024), bench=True)

    return rmsnorm


@pytest.fixture(scope="module")
def versions():
    """Two versions of it."""
    live.gone("lab::rmsnorm")
    wb.cpp(norm(), KERNEL)
    wb.cpp("rmsnorm", f"{KERNEL}// the second\n")
    yield
    live.gone("lab::rmsnorm")


@pytest.fixture
def scope(versions, monkeypatch, tmp_path):
    """What the examples take as there: ops with cases, inputs, and cells that are wrong."""
    monkeypatch.chdir(tmp_path)
    rmsnorm = norm().restore(2)
    for name in ("scale", "topk"):
        live.gone(f"lab::{name}")

    @wb.op("lab::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    @scale.cases
    def _(t):
        yield t(4, 128)

    @wb.op("lab::topk", returns=("values", "indices"))
    def topk(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return torch.topk(x, k)

    broken_text, wrong_text = SCALE.format("out[0] = nope;"), SCALE.format("out[0] = k;")
    case, x, w = rmsnorm.case_list()[0], torch.randn(4, 128), torch.randn(128)
    yield {**locals(), "torch": torch, "wb": wb, "Tensor": Tensor}
    for name in ("scale", "topk"):
        live.gone(f"lab::{name}")


class Shown(doctest.OutputChecker):
    """Where an example shows nothing, anything may come."""

    def check_output(self, want: str, got: str, flags: int) -> bool:
        return not want or super().check_output(want, got, flags)


class Likely(Shown):
    """Numbers, units of time and folders come as they come."""

    def check_output(self, want: str, got: str, flags: int) -> bool:
        return super().check_output(*map(self.like, (want, got)), flags)

    @staticmethod
    def like(text: str) -> str:
        text = re.sub(r", cached|/\S+/", "", text)
        return re.sub(r"\d[\d.,]*( (us|ms|s)\b)?", "N", text)


@pytest.mark.parametrize("name", HERE)
def test_what_an_example_shows_is_what_it_gives(name, scope):
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(PUBLIC[name]), scope, name, None, 0)
    assert test.examples
    said: list[str] = []
    runner = doctest.DocTestRunner(
        Likely() if name in MEASURED else Shown(), optionflags=doctest.IGNORE_EXCEPTION_DETAIL
    )
    assert runner.run(test, out=said.append).failed == 0, "".join(said)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_has_a_docstring_with_an_example(name):
    doc = inspect.getdoc(PUBLIC[name])
    assert re.match(r"[A-Z`]", doc or "")
    assert name in WITHOUT or re.search(r"^>>> ", doc, re.MULTILINE)


def test_what_one_reads_of_a_report_or_a_case_says_what_it_is():
    modules = report, measurement, profiling, tuning, inspection, saving, deploying, card
    classes = [c for m in modules for c in vars(m).values() if inspect.isclass(c) and c.__module__ == m.__name__]
    read = {f"{c.__name__}.{n}": v for c in (*classes, wb.Case, Version) for n, v in vars(c).items()
            if not n.startswith("_") and (isinstance(v, property) or inspect.isfunction(v))}  # fmt: skip
    assert len(read) > 50 and [name for name, v in read.items() if not v.__doc__] == []


def test_the_lists_above_name_nothing_else():
    assert (FIELDS | WITHOUT | ELSEWHERE | MEASURED) - {"Op.name"} <= PUBLIC.keys()


def test_completion_offers_what_is_public(scope):
    shown = [n for n in dir(scope["rmsnorm"]) if not n.startswith("_")]
    assert shown == sorted(OF_AN_OP) and all(hasattr(scope["rmsnorm"], n) for n in shown)
    assert {n for n in dir(type(scope["rmsnorm"])) if not n.startswith("_")} < set(shown)
    assert [n for n in dir(wb) if not n.startswith("_")] == sorted(wb.__all__)
    assert all(hasattr(wb, n) for n in dir(wb))


def test_a_docstring_says_every_parameter():
    """Of verbs and functions; `t` and torch's own arguments are told elsewhere."""
    unsaid = {}
    for name, thing in PUBLIC.items():
        if inspect.isfunction(thing) and name not in {"load_inline", "Case.cast"}:
            names = [n for n in inspect.signature(thing).parameters if n not in {"self", "function", "arguments"}]
            doc = inspect.getdoc(thing)
            also = inspect.getdoc(wb.cpp) if name in {"cuda", "triton"} else ""
            unsaid[name] = [n for n in names if not re.search(rf"\b{n}\b", doc + also)]
    assert {name: names for name, names in unsaid.items() if names} == {}
