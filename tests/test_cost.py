"""Why a cell is in its tier, what an edit takes there, and what a faster one would need."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from tests import live
from workbench import cells, describe, edit_times, schema, settings, tiers
from workbench.judge import cost
from workbench.show import words
from workbench.source import Source

ADD = schema.parse("lab::add(Tensor x, Tensor? y, float k=1.0) -> Tensor")
LISTS = schema.parse("lab::add(Tensor[] xs, int n) -> Tensor")
MEASURED = {"raw": 0.061, "host": 0.7, "full": 2.6}


@pytest.mark.parametrize(("tier", "reasons", "seconds", "said"), [
    ("full", ["torch::Tensor"], MEASURED, "`torch::Tensor` in the signature: 2.6 s an edit; `Tensor` would be about 0.7 s"),
    ("full", ["<torch/types.h>", "at::Tensor"], MEASURED, "`at::Tensor` in the signature: 2.6 s an edit; `Tensor` would be about 0.7 s"),
    ("full", ["<torch/types.h>"], MEASURED, "`<torch/types.h>` in the text: 2.6 s an edit; `Tensor` without it would be about 0.7 s"),
    ("full", ["torch::Tensor", "at::relu", "c10::Half", "AT_DISPATCH_ALL_TYPES"], MEASURED,
     "`at::relu`, `c10::Half` and 2 more in the text: 2.6 s an edit; `Tensor` with the stable ABI alone would be about 0.7 s"),
    ("full", ["torch::Tensor", "TORCH_LIBRARY", "TORCH_LIBRARY_IMPL"], MEASURED,
     "a `TORCH_LIBRARY` block: 2.6 s an edit; a function on `Tensor` without it would be about 0.7 s"),
    ("full", ["torch::Tensor"], {"full": 2.6}, "`torch::Tensor` in the signature: 2.6 s an edit; `Tensor` would be faster"),
    ("full", ["torch::Tensor"], {"host": 0.7}, "`torch::Tensor` in the signature; `Tensor` would be about 0.7 s an edit"),
    ("full", ["torch::Tensor"], {}, "`torch::Tensor` in the signature; `Tensor` would be faster"),
    ("full", ["torch::Tensor"], {"full": 0.5, "host": 0.7}, "`torch::Tensor` in the signature: 500 ms an edit"),
    ("host", [], MEASURED, "`Tensor` in the signature: 700 ms an edit; pointers with directives would be about 61 ms"),
    ("raw", [], MEASURED, ""),
])  # fmt: skip
def test_the_sentence(tier, reasons, seconds, said):
    assert cost.sentence(tier, reasons, ADD, seconds).replace("0.7 s", "700 ms") == said.replace("0.7 s", "700 ms")


def test_what_only_the_host_tier_takes_is_said_without_a_faster_way():
    assert cost.sentence("host", [], LISTS, MEASURED) == "`Tensor[]` needs the host tier: 700 ms an edit"
    assert cost.sentence("host", [], LISTS, {}) == ""


def test_what_only_the_full_tier_builds_is_found_in_the_code_alone():
    text = """#include <torch/extension.h>
#include<ATen/Parallel.h>
// at::relu in a comment
torch::Tensor f(const torch::Tensor& x) { TORCH_CHECK(x.dim(), "at::Tensor"); return at::relu(x); }
TORCH_LIBRARY(lab, m) { m.def("f", &f); }
"""
    assert tiers.full_only(Source(text, "cpp")) == (
        "<torch/extension.h>", "<ATen/Parallel.h>", "torch::Tensor", "at::relu", "TORCH_LIBRARY",
    )  # fmt: skip
    assert (
        tiers.full_only(Source("#include <torch/csrc/stable/tensor.h>\nTensor f(Tensor x) { return x; }", "cpp")) == ()
    )


def test_seconds_are_the_median_of_the_last_nine(fresh_cache):
    assert edit_times.typical() == {}
    for seconds in (9.0, 1.0, 2.0, 3.0, 2.0, 2.5, 2.0, 2.0, 3.0, 3.0, 3.0):
        edit_times.remember("full", seconds)
    edit_times.remember("host", 0.7)
    assert edit_times.typical() == {"full": 2.5, "host": 0.7}


@pytest.mark.parametrize("content", ["", "[1]", '{"a": 3}', "\x00", '{"a": {"raw": "x"}}', "null"])
def test_a_file_that_says_something_else_counts_for_nothing(fresh_cache, content):
    edit_times.remember("raw", 1.0)
    (settings.cache_dir() / edit_times.FILE).write_text(content)
    assert edit_times.typical() == {}
    edit_times.remember("raw", 2.0)
    assert edit_times.typical() == {"raw": 2.0}


def test_another_machine_with_the_same_folder_has_its_own(fresh_cache, monkeypatch):
    edit_times.remember("raw", 1.0)
    monkeypatch.setattr(edit_times.platform, "node", lambda: "another")
    assert edit_times.typical() == {}
    edit_times.remember("raw", 5.0)
    monkeypatch.undo()


def test_no_folder_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file" / "cache"))
    edit_times.remember("raw", 1.0)
    assert edit_times.typical() == {}


HOST = """\
Tensor scale(const Tensor& x, double k) {
  Tensor out = torch::stable::empty_like(x);
  const float* from = x.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] * k;
  return out;
}
"""


def test_the_line_says_it_when_the_tier_is_new_and_the_card_always(fresh_cache):
    op, told = live.scale(), []
    with cells.telling(told.append):
        for text in (live.SCALE, HOST):
            wb.cpp(op, text)
            assert edit_times.typical() == ({"raw": 0.06} if text == HOST else {})  # the first of a tier is no edit
            edit_times.remember("raw", 0.06)
        wb.cpp(op, HOST.replace("from[i] * k", "k * from[i]"))
    assert torch.equal(op(torch.ones(3), 3.0), torch.full((3,), 3.0))
    said = "`Tensor` in the signature; pointers with directives would be about 60 ms an edit"
    assert [line.cost for line in told] == ["", said, ""] and f"\n  note: {said}" in str(told[1])
    measured = edit_times.typical()["host"]
    assert measured > 0.06
    said = (
        f"`Tensor` in the signature: {words.duration(measured)} an edit; pointers with directives would be about 60 ms"
    )
    [row] = [r for r in describe.card(op).slots if r.slot == "forward cpu"]
    assert row.cost == said and f" forward cpu: {said} version " in " ".join(str(describe.card(op)).split())
