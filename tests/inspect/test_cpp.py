import re

import pytest
import torch
from torch import Tensor

import workbench as wb

ADD = """//! n = x.numel()
//! out = empty_like(x)
//! flags {flags}
static inline {type} twice({type} v) {{ return v + v; }}
void {name}(const {type}* __restrict__ x, {type}* __restrict__ out, int64_t n) {{
  for (int64_t i = 0; i < n; ++i)
    out[i] = twice(x[i]);
}}
"""
X86 = pytest.mark.skipif("x86" not in __import__("platform").machine(), reason="names of x86's vector registers")


def doubling(namespace):
    @wb.op(f"{namespace}::doubled")
    def doubled(x: Tensor) -> Tensor:
        return x + x

    doubled.cases(lambda t: iter([(t(128),), (t(5),)]))
    return doubled


@X86
def test_a_loop_that_is_vectorized_is_said_to_be(namespace):
    op = doubling(namespace)
    wb.cpp(op, ADD.format(name="doubled", type="float", flags="-O3 -mavx2"))
    report = op.inspect()
    assert (report.op, report.version, report.how, report.dtype) == (f"{namespace}::doubled", 1, "raw C++", "float32")
    (row,) = report.rows
    assert (row.function, row.vector_bytes) == ("doubled", 32)
    assert row.vectorized >= 1
    assert [(f.line, f.text) for f in report.findings] == [(6, "loop vectorized: vectors of 32 bytes")]
    assert any("ymm" in text for text in report.at(7)["assembly"])
    assert ("instructions on vectors of 32 bytes") in dict(report.stage("assembly").counts)
    assert report.ok


@X86
def test_one_that_is_not_is_said_not_to_be_and_what_to_do(namespace):
    op = doubling(namespace)
    wb.cpp(op, ADD.format(name="doubled", type="float", flags="-O1"))
    report = op.inspect()
    assert report.rows[0].vector_bytes == 0
    assert [f.text for f in report.findings] in (
        [],
        ["loop not vectorized at -O1; `//! flags -O3` lets the compiler try harder"],
    )
    wb.cpp(op, ADD.format(name="doubled", type="float", flags="-O3 -fno-tree-vectorize"))
    assert op.inspect().rows[0].vector_bytes == 0
    assert op.inspect(1, against=2).titles == ("v1", "v2")


@X86
def test_a_sum_that_is_added_in_order_is_told_with_its_cure(namespace):
    @wb.op(f"{namespace}::total")
    def total(x: Tensor) -> Tensor:
        return x.sum().reshape(1)

    total.cases(lambda t: iter([(t(128),)]))
    text = """//! n = x.numel()
//! out = empty(1)
//! flags -O3 -mavx2 FAST
void total(const float* x, float* out, int64_t n) {
  float s = 0;
  for (int64_t i = 0; i < n; ++i) s += x[i] * 3;
  *out = s / 3;
}
"""
    wb.cpp(total, text.replace("FAST", ""))
    (found,) = total.inspect().findings
    assert found.line == 6
    assert found.text.endswith("added in order, one number after the other: `-ffast-math` lets it add whole vectors")
    wb.cpp(total, text.replace("FAST", "-ffast-math"))
    (found,) = total.inspect().findings
    assert found.text == "loop vectorized: vectors of 32 bytes"


def test_what_a_line_became_is_found_at_that_line_and_at_what_it_was_inlined_into(namespace):
    op = doubling(namespace)
    wb.cpp(op, ADD.format(name="doubled", type="float", flags="-O2 -fno-tree-vectorize"))
    stage = op.inspect().stage("assembly")
    adds = [e for e in stage.entries if re.search(r"\bv?adds[sd]|fadd", e.text)]
    assert adds
    assert all(e.line == 4 and 7 in e.callers for e in adds)  # `v + v` of line 4, in the loop of line 7
    assert set(adds) <= set(stage.at(4))
    assert set(adds) <= set(stage.at(7))
    assert not set(adds) & set(stage.at(6))


def test_the_line_of_a_cell_is_the_users_whatever_the_cell_is_called(namespace, tmp_path):
    op = doubling(namespace)
    text = ADD.format(name="doubled", type="float", flags="-O2")
    wb.cpp(op, text, file=str(tmp_path / "one.cpp"))
    first = op.inspect()
    wb.cpp(op, text, file=str(tmp_path / "two.cpp"))
    second = op.inspect()
    assert first.stage("assembly") == second.stage("assembly")
    assert 7 in second.stage("assembly").lines


def test_each_dtype_is_another_text(namespace):
    op = doubling(namespace)
    op.cases(lambda t: iter([(t(128),)]), dtypes=(torch.float64, torch.float32))
    template = "template <typename T>\n" + ADD.format(name="doubled", type="T", flags="-O2").replace(
        "static", "template <typename T> static"
    )
    wb.cpp(
        op,
        template.replace("template <typename T>\n//!", "//!", 1).replace(
            "void doubled", "template <typename T> void doubled"
        ),
    )
    report = op.inspect()
    assert (report.dtype, report.others) == ("float32", ("float64",))
    assert op.inspect(dtype="float64").dtype == op.inspect(dtype=torch.float64).dtype == "float64"
    assert op.inspect(dtype=torch.float64).stage("assembly") != report.stage("assembly")


def test_a_host_cell_shows_the_users_function_alone(namespace):
    op = doubling(namespace)
    wb.cpp(
        op,
        """Tensor doubled(const Tensor& x) {
  Tensor out = torch::stable::empty_like(x);
  const float* from = x.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] + from[i];
  return out;
}""",
    )
    report = op.inspect()
    assert (report.how, report.dtype) == ("host C++", "")
    assert "doubled" in {r.function for r in report.rows}
    assert not [r for r in report.rows if r.function.startswith("wb")]
    assert any(re.search(r"addss|fadd|addps", text) for text in report.at(5)["assembly"])


def test_the_report_is_plain_data(namespace):
    op = doubling(namespace)
    wb.cpp(op, ADD.format(name="doubled", type="float", flags="-O2"))
    data = op.inspect().to_dict()
    assert data["rows"][0]["function"] == "doubled"
    assert {s["name"] for s in data["stages"]} == {"assembly", "remarks"}
    assert data["ok"] is True


def test_a_backward_cell_too(namespace):
    op = doubling(namespace)
    wb.cpp(
        f"{namespace}::doubled.backward",
        """//! n = grad_out.numel()
//! grad_x = empty_like(grad_out)
void backward(const float* grad_out, float* grad_x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) grad_x[i] = 2 * grad_out[i];
}""",
    )
    report = op.inspect(slot="backward")
    assert (report.slot, report.rows[0].function) == ("backward", "backward")
    assert 4 in report.stage("assembly").lines
