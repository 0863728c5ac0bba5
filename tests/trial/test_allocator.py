"""What C++ code allocates through torch by itself: guarded, poisoned, and told by the name of the output."""

from __future__ import annotations

import pytest
import torch

from workbench.build import cpp
from workbench.tiers.loaded import Module
from workbench.trial import Job, Made, Meta, Step, allocator

# Each takes x and returns tensors that it made itself.
TEXT = r"""
#include "wb_host.h"
#include <thread>
using torch::stable::empty_like, torch::stable::new_empty;
static const float* in(const Tensor& t) { return t.const_data_ptr<float>(); }
static float* into(const Tensor& t) { return t.mutable_data_ptr<float>(); }
static Tensor filled(const Tensor& x, int64_t first, int64_t count) {
  Tensor out = empty_like(x);
  for (int64_t i = first; i < count; ++i) into(out)[i] = 2 * in(x)[0];
  return out;
}
static Tensor twice(Tensor x) {
  Tensor out = empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) into(out)[i] = 2 * in(x)[i];
  return out;
}
static Tensor one_past(Tensor x) { return filled(x, 0, x.numel() + 1); }
static Tensor one_before(Tensor x) { return filled(x, -1, x.numel()); }
static Tensor far_past(Tensor x) { return filled(x, 0, x.numel() + 100000); }
static Tensor holes(Tensor x) { return filled(x, 7, x.numel()); }
static Tensor reads(Tensor x) {
  Tensor out = twice(x);
  for (int64_t i = 0; i < 100000; ++i) into(out)[0] += in(x)[i];
  return out;
}
static Tensor temporary(Tensor x) {
  Tensor spare = new_empty(x, {100});
  for (int64_t i = 0; i < 101; ++i) into(spare)[i] = 1;
  return twice(x);
}
static Tensor after_free(Tensor x) {
  float* gone = into(empty_like(x));
  gone[x.numel()] = 1;
  return twice(x);
}
static std::tuple<Tensor, Tensor> second(Tensor x) {
  Tensor rows = new_empty(x, {x.size(0)});
  for (int64_t i = 0; i < x.size(0) + 1; ++i) into(rows)[i] = 1;
  return {twice(x), rows};
}
static std::vector<Tensor> listed(Tensor x) { return {twice(x), filled(x, 0, x.numel() + 1)}; }
static Tensor kept(Tensor x) {
  static Tensor cache = new_empty(x, {64});
  for (int64_t i = 0; i < 64; ++i) into(cache)[i] = 1;
  return twice(x);
}
static Tensor many(Tensor x) {
  for (int i = 0; i < 5000; ++i) into(new_empty(x, {1 << 18}))[i] = 1;   // 5 GB in all, 1 MB at a time
  return twice(x);
}
static Tensor poison(Tensor x) {
  for (int i = 0; i < 3000; ++i) if (into(empty_like(x))[0] == into(empty_like(x))[0]) throw std::runtime_error("a number");
  return twice(x);
}
static Tensor threads(Tensor x) {
  auto work = [&] { for (int i = 0; i < 50; ++i) into(empty_like(x))[0] = 1; };
  std::thread a(work), b(work);
  work(), a.join(), b.join();
  return twice(x);
}
static Tensor huge(Tensor x) { return new_empty(x, {int64_t(1) << 50}); }
static Tensor nothing(Tensor x) { return new_empty(x, {0}); }
WB_MODULE("wildhost", "CPU", #BODY#)
"""
NAMES = ("twice", "one_past", "one_before", "far_past", "holes", "reads", "temporary", "after_free", "second", "listed",
         "kept", "many", "poison", "threads", "huge", "nothing")  # fmt: skip
RETURNS = {"second": "(Tensor, Tensor)", "listed": "Tensor[]"}


@pytest.fixture(scope="module")
def library() -> Module:
    body = " ".join(f'm.impl("{n}", TORCH_BOX(&{n}));' for n in NAMES)
    return Module(cpp.compile(TEXT.replace("#BODY#", body), kind="host").path)


@pytest.fixture
def run(library, shared_worker, x):
    """Run these kernels one after the other on x; the guarding library is there."""
    assert allocator.wait()
    metas = {"second": (Meta.of(x), Meta(torch.float32, (5,), (1,))), "listed": ()}

    def run(*names: str):
        steps = tuple(Step(f"wildhost::{n}", (x,), case=n, layout=metas.get(n, (Meta.of(x),))) for n in names)
        schemas = tuple(f"wildhost::{n}(Tensor x) -> {RETURNS.get(n, 'Tensor')}" for n in dict.fromkeys(names))
        return shared_worker.run(Job(steps, (library,), schemas), 30.0)

    return run


def test_a_right_kernel_is_right(run, x):
    answer = run("twice", "twice")
    assert answer.guarded and [r.status for r in answer.results] == ["ok", "ok"]
    assert torch.equal(answer.results[1].outputs[0], 2 * x) and answer.results[1].unwritten == (0,)


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("one_past", "writes past the end of out (shape (5, 123), float32): flat element 615 of 615, 4 bytes"),
        ("one_before", "writes 4 bytes before the start of out (shape (5, 123), float32)"),
        ("far_past", "writes past the end of out (shape (5, 123), float32): flat element 624 of 615"),
        ("reads", "reads past the end of x (shape (5, 123), float32): flat element 624 of 615"),
        ("temporary", "writes past the end of an output or workspace of 400 bytes: 0 bytes behind it, 4 bytes"),
        ("after_free", "writes past the end of an output or workspace of 2460 bytes: 0 bytes behind it, 4 bytes"),
        ("second", "writes past the end of out1 (shape (5,), float32): flat element 5 of 5, 4 bytes"),
        ("listed", "writes past the end of out[1] (shape (5, 123), float32): flat element 615 of 615, 4 bytes"),
    ],
)
def test_what_is_touched_beside_a_tensor(run, name, detail):
    before, result = run("twice", name).results
    assert before.ok and (result.status, result.detail) == ("overrun", detail)


def test_what_is_never_written_is_seen(run):
    [result] = run("holes").results
    assert result.ok and result.unwritten == (7,)


def test_what_the_code_keeps_for_its_next_call_stays_writable(run):
    assert [r.status for r in run("kept", "twice", "kept").results] == ["ok", "ok", "ok"]


def test_without_end(run, x):
    """Nothing is given back, so what is guarded has a bound; beyond it torch's own memory is poisoned as well."""
    for name in ("many", "poison"):
        [result] = run(name).results
        assert (result.status, result.detail) == ("ok", "") and torch.equal(result.outputs[0], 2 * x)


def test_in_threads_of_its_own(run, x):
    [result] = run("threads").results
    assert result.ok and torch.equal(result.outputs[0], 2 * x)


def test_more_than_there_is(run):
    failed, after = run("huge", "twice").results
    assert (
        failed.status == "error"
        and "can't allocate memory: you tried to allocate 4503599627370496 bytes" in failed.detail
    )
    assert after.ok


def test_an_empty_tensor(run):
    [result] = run("nothing").results
    assert result.ok and result.outputs[0].shape == (0,)


def test_a_saved_tensor_goes_to_a_later_step(run, library, shared_worker, x):
    steps = (Step("wildhost::second", (x,), outputs=("y", "rows")), Step("wildhost::twice", (Made(0, 1),)))
    schemas = ("wildhost::second(Tensor x) -> (Tensor, Tensor)", "wildhost::twice(Tensor x) -> Tensor")
    first, then = shared_worker.run(Job(steps, (library,), schemas), 30.0).results
    assert first.detail == "writes past the end of rows (shape (5,), float32): flat element 5 of 5, 4 bytes"
    assert then.outputs[0].tolist() == [2.0] * 5


def test_torch_may_take_and_give_back_raw_pointers(run, library, shared_worker):
    """A product in bfloat16 does, for its scratch memory."""
    a, b = torch.ones(16, 24, dtype=torch.bfloat16), torch.ones(24, 32, dtype=torch.bfloat16)
    answer = shared_worker.run(Job((Step("aten::mm", (a, b)),), (library,)), 30.0)
    assert answer.results[0].ok, answer.results[0].detail
    assert torch.equal(answer.results[0].outputs[0], a @ b)


def test_before_it_is_ready_a_trial_goes_on_without(run, x, monkeypatch):
    monkeypatch.setattr(allocator, "_path", "")
    answer = run("twice", "one_past")
    assert not answer.guarded and [r.status for r in answer.results] == ["ok", "ok"]
    assert torch.equal(answer.results[0].outputs[0], 2 * x)


def test_no_compiler_no_guard_and_no_error(monkeypatch):
    def broken(*_, **__):
        raise OSError("no room")

    monkeypatch.setattr(allocator, "_path", "")
    monkeypatch.setattr(cpp, "compile", broken)
    allocator._build()
    assert allocator.path() == ""
