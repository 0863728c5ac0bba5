"""The card: what an op has to show for itself, at each stage of its life."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live
from tests.live import NORM, NORM_PARTIAL, SCALE, SCALE_BACKWARD
from workbench import describe, gpu
from workbench.reports.measurement import Bench, BenchRow
from workbench.reports.report import Check, Row
from workbench.show import html

CUDA = """\
//! n = x.numel()
//! out = empty(x.shape)
//! grid = cdiv(n, 256)
//! block = 256
template <typename T> __global__ void scale(const T* x, T* out, float k, long long n) {
  long long i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) out[i] = T(float(x[i]) * k);
}
"""
TRITON = """\
@triton.jit
def kernel(x, out, k, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * k, i < n)

def scale(x, k=2.0):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 256),)](x, out, k, x.numel(), BLOCK=256)
    return out

def backward(grad_out, k):
    return scale(grad_out.contiguous(), k)
"""


def rows(op) -> dict[str, tuple]:
    return {s.slot: (s.runs, s.how, s.agrees, s.ok) for s in describe.card(op).slots}


def test_a_new_op_runs_its_reference():
    card = describe.card(live.scale())
    assert card.name == "live::scale" and card.signature == "(Tensor x, float k=2.0) -> Tensor"
    assert rows(live.scale()) == {"forward": ("reference", "", "", True), "backward": ("reference's vjp", "", "", True)}
    assert card.history == () and card.check is None and card.ok
    assert [(slot, language) for slot, language, _ in card.code] == [("reference", "python")]
    assert "return x * k" in card.code[0][2]


def test_an_op_of_a_schema_alone_runs_nothing_yet():
    live.gone("live::later")
    op = wb.op("live::later(Tensor x) -> Tensor")
    assert rows(op)["forward"] == ("nothing yet", "", "", True)
    assert str(describe.card(op)).splitlines()[3].split(maxsplit=1) == ["forward", "nothing yet"]


def test_a_cell_has_a_row_a_time_a_place_in_history_and_its_code():
    scale = live.scale()
    wb.cpp(scale, SCALE)
    card = describe.card(scale)
    assert rows(scale)["forward cpu"] == ("v1", "raw C++", "2 of 2", True) and card.slots[0].time_us > 0
    [history] = card.history
    assert (history.version, history.slot, history.status, history.agrees, history.title) == (
        1,
        "forward cpu",
        "installed",
        "2 of 2",
        "Times k",
    )
    assert card.code[0] == ("forward cpu v1", "cpp", SCALE) and card.opened == "Code"


def test_cases_that_the_kernel_has_no_form_for_are_counted(namespace):
    op = wb.op(f"{namespace}::twice")(_times)
    op.cases(dtypes=(torch.float32, torch.bfloat16))(lambda t: [t(4, 8), t(5, 3)])
    wb.cpp(
        op,
        SCALE.replace("void scale", "void twice")
        .replace("template <typename T>\n", "")
        .replace("double k, ", "")
        .replace("T*", "float*")
        .replace("T(x[i] * k)", "x[i] * 2"),
    )
    card = describe.card(op)
    assert card.slots[0].agrees == card.history[0].agrees == "2 of 2, 2 skipped" and card.slots[0].ok
    assert '2 of 2, <span class="warn">2 skipped</span>' in html.of(card)
    assert any(n.endswith("; a call like this case raises") for n in op.last_line.notes)


def _times(x: Tensor) -> Tensor:
    return x * 2


def test_what_prints_is_not_timed(namespace, capfd):
    op = wb.op(f"{namespace}::twice")(_times)
    op.cases(lambda t: [t(3)])
    text = (
        SCALE.replace("void scale", "void twice")
        .replace("template <typename T>\n", "")
        .replace("double k, ", "")
        .replace("T*", "float*")
    )
    wb.cpp(
        op, "#include <cstdio>\n" + text.replace("out[i] = T(x[i] * k)", 'printf("i=%d\\n", (int)i), out[i] = x[i] * 2')
    )
    assert op.last_line.rough_us == 0 and "not timed: it prints" in op.last_line.notes
    assert "".join(capfd.readouterr()).count("i=1") <= 1  # the trial's own


def test_history_tells_what_was_refused_and_what_was_before():
    scale = live.scale()
    wb.cpp(scale, SCALE)
    wb.cpp(scale, SCALE.replace("// Times k", "// Once more"))
    with pytest.raises(wb.TrialError):
        wb.cpp(scale, SCALE.replace("x[i] * k", "x[i]"))
    card = describe.card(scale)
    assert [(h.version, h.status, h.agrees) for h in card.history] == [
        (1, "former", "2 of 2"),
        (2, "installed", "2 of 2"),
        (3, "refused", "0 of 2"),
    ]
    assert card.history[2].detail.startswith("differs on 4x8 float32") and card.opened == "History"


def test_versions_of_another_schema_are_told_and_not_offered(namespace):
    text = SCALE.replace("scale", "grow")

    @wb.op(f"{namespace}::grow")
    def grow(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    grow.cases(lambda t: [t(4, 8)])
    op = wb.cpp(grow, text)

    @wb.op(f"{namespace}::grow")
    def grow(x: Tensor, by: float = 2.0) -> Tensor:
        return x * by

    wb.cpp(op, re.sub(r"\bk\b", "by", text))
    card = describe.card(op)
    assert [h.status for h in card.history] == ["other schema", "installed"]
    assert "other schema" in html.of(card) and "restore(1)" not in html.of(card)
    with pytest.raises(wb.SchemaError, match="was made for another schema"):
        op.restore(1)


def test_the_check_opens_when_it_was_last():
    scale = live.scale()
    scale.check()
    card = describe.card(scale)
    assert card.check.ok and card.opened == "Check" and "agreement" in str(card)


def test_where_the_gradient_comes_from():
    scale, norm = live.scale(), live.norm()
    wb.cpp("scale.backward", SCALE_BACKWARD)
    assert rows(scale)["backward cpu"] == ("v1", "raw C++", "2 of 2", True) and "backward" not in rows(scale)
    wb.cpp(norm, NORM)
    wb.cpp("norm.backward", NORM_PARTIAL)
    [row] = [s for s in describe.card(norm).slots if s.slot == "backward cpu"]
    assert row.resources == "grad of x: reference's vjp"
    scale.restore(0)
    scale.backward(lambda grad_out, k: grad_out * k)
    assert rows(scale)["backward"][0] == "@op.backward, in Python"


def test_ops_without_a_gradient_say_why():
    live.gone("live::noise")

    @wb.op("live::noise")
    def noise(x: Tensor) -> Tensor:
        return x + torch.rand_like(x)

    noise(torch.ones(2))
    assert rows(noise)["backward"][0] == "none: the reference is random"
    live.gone("live::bare")
    bare = wb.op("live::bare(Tensor x) -> Tensor")
    assert rows(bare)["backward"][0] == "none: there is no reference"


def test_the_card_is_text_html_and_json():
    scale = live.scale()
    wb.cpp(scale, SCALE)
    bundle = scale._repr_mimebundle_()
    assert (
        bundle["text/plain"].startswith("live::scale(Tensor x, float k=2.0) -> Tensor")
        and "v1 raw C++" in bundle["text/plain"]
    )
    assert "Times k" in bundle["text/html"]
    data = json.loads(json.dumps(describe.card(scale).to_dict()))
    assert data["ok"] and data["slots"][0]["runs"] == "v1" and data["history"][0]["version"] == 1


def benched(op, version: str, *rows: BenchRow) -> Bench:
    """A bench as `op.bench()` leaves it."""
    op.last_bench = Bench(op.qualname, "cpu", "2 threads", version, rows)
    return op.last_bench


def row(contestant: str, time_us: float, case: str = "llama", **more) -> BenchRow:
    return BenchRow(case, "bfloat16", "forward", contestant, time_us=time_us, **more)


def test_a_bench_is_in_the_head_and_in_the_ledger():
    scale = live.scale()
    wb.cpp(scale, SCALE)
    wb.cpp(scale, SCALE.replace("// Times k", "// Once more"))
    assert describe.card(scale).slots[0].rough and describe.card(scale).history[1].rough
    benched(
        scale, "v2", row("v2", 2.0, "small", own=True), row("v2", 41.2, own=True, share=0.87, ceiling="copy bandwidth"),
        row("v1", 46.9, ratio=1.14, verdict="FASTER"), row("reference", 204.0, ratio=4.96, verdict="FASTER"),
    )  # fmt: skip
    card = describe.card(scale)
    head = card.slots[0]
    assert (head.time_us, head.case, head.share, head.ceiling, head.rough) == (
        41.2,
        "llama bf16",
        0.87,
        "copy bandwidth",
        False,
    )
    assert card.opened == "Bench" and card.bench is scale.last_bench
    one, two = card.history
    assert (two.time_us, two.case, two.rough, two.verdict, two.ratio, two.against) == (
        41.2,
        "llama bf16",
        False,
        "FASTER",
        1.14,
        1,
    )
    assert (one.time_us, one.rough, one.verdict) == (46.9, False, "")
    benched(scale, "v2", row("v2", 40.0, own=True), row("reference", 204.0, ratio=5.1, verdict="FASTER"))
    card = describe.card(scale)
    assert (card.history[1].time_us, card.history[1].verdict, card.history[1].ratio) == (40.0, "FASTER", 1.14)
    sweep = row("v2", 900.0, "cols=4096", own=True, values=(("cols", 4096),))
    scale.last_bench = dataclasses.replace(scale.last_bench, rows=(sweep,), sweep=("cols",))
    assert describe.card(scale).slots[0].time_us == 40.0, "a case says more than a point of a sweep"
    wb.cpp(scale, SCALE.replace("// Times k", "// And again"))
    card = describe.card(scale)
    assert card.slots[0].rough, "the bench was of another version"
    assert card.history[1].verdict == "FASTER" and card.history[2].rough, "what was measured of a version stays with it"


def test_the_reference_has_its_times_too():
    scale = live.scale()
    benched(scale, "reference", row("scale", 204.0, own=True, share=0.2, ceiling="copy bandwidth"))
    head = describe.card(scale).slots[0]
    assert (head.slot, head.runs, head.time_us, head.share, head.rough) == ("forward", "reference", 204.0, 0.2, False)


def test_it_opens_at_what_changed_last_or_failed():
    scale = live.scale()
    wb.cpp(scale, SCALE)
    assert describe.card(scale).opened == "Code"
    scale.last_check = Check(scale.qualname, ())
    assert describe.card(scale).opened == "Check"
    assert describe.card(scale).opened == "Check", "nothing changed"
    benched(scale, "v1", row("v1", 1.0, own=True))
    describe.notice(scale)
    with pytest.raises(wb.TrialError):
        wb.cpp(scale, SCALE.replace("x[i] * k", "x[i]"))
    assert describe.card(scale).opened == "History"
    scale.restore(0)
    assert describe.card(scale).opened == "History"
    scale.last_check = Check(scale.qualname, (Row("agreement", "", "fail"),))
    benched(scale, "v1", row("v1", 1.0, own=True))
    assert describe.card(scale).opened == "Check", "of two at once the one that failed"


def test_a_check_of_what_no_longer_runs_says_so():
    scale = live.scale()
    scale.check()
    assert describe.card(scale).check.was == ""
    wb.cpp(scale, SCALE)
    assert describe.card(scale).check.was.startswith("made while forward cpu ran the reference; ")
    scale.check()
    wb.cpp("scale.backward", SCALE_BACKWARD)
    wb.cpp(scale, SCALE.replace("// Times k", "// Once more"))
    made = describe.card(scale)
    said = "made while forward cpu ran v1 and backward cpu ran the reference; `scale.check()` looks at what runs now"
    assert made.check.was == said and said in str(made)
    assert f'<span class="warn">{said.replace("`scale.check()`", "<code>scale.check()</code>")}</span>' in html.of(made)
    scale.check()
    assert describe.card(scale).check.was == scale.last_check.was == ""


def test_the_ledger_has_each_source_beside_the_one_before_it():
    scale = live.scale()
    wb.cpp(scale, SCALE)
    wb.cpp("scale.backward", SCALE_BACKWARD)
    wb.cpp(scale, SCALE.replace("// Times k", "// Once more"))
    first, backward, second = describe.card(scale).history
    assert (first.before, backward.before) == ("", "") and second.before == SCALE == first.text
    assert "text" not in describe.card(scale).to_dict()["history"][0]


@pytest.mark.skipif(gpu.present(), reason="what is said where there is no GPU")
def test_a_kernel_that_was_not_run_and_a_cell_in_several_slots(namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    @scale.cases
    def _(t):
        yield t(4, 8)

    wb.cuda(scale, CUDA)
    [row, _] = describe.card(scale).slots
    assert (row.slot, row.agrees, row.unrun, row.ok) == (
        "forward cuda",
        "compiled for sm_90, not run: no GPU here",
        True,
        True,
    )
    assert [(h.status, h.agrees) for h in describe.card(scale).history] == [("installed", "not run")]
    assert str(scale.versions[1]) == "v1 forward cuda raw CUDA compiled, not run"
    wb.triton(scale, TRITON)
    card = describe.card(scale)
    assert [(s.slot, s.agrees, s.unrun) for s in card.slots[:2]] == [
        ("forward cpu", "1 of 1", False),
        ("forward cuda", "1 of 1", False),
    ]
    assert card.code[0][:2] == ("forward cpu v2, forward cuda v2, backward cpu v3, backward cuda v3", "triton")
    assert [language for _, language, _ in card.code] == ["triton", "python"]


INDEXED = """\
//! n, d = x.shape
//! grad_x = zeros(n, d)
void backward(const float* grad_out, const int64_t* index, float* grad_x, int64_t n, int64_t d) {
  for (int64_t i = 0; i < n; ++i) for (int64_t j = 0; j < d; ++j) grad_x[index[i] * d + j] += grad_out[i * d + j];
}
"""


def test_an_integer_has_no_gradient_that_a_backward_could_leave_out(namespace):
    @wb.op(f"{namespace}::rows")
    def rows_of(x: Tensor, index: Tensor) -> Tensor:
        return x[index]

    @rows_of.cases
    def _(t):
        yield t(4, 3), torch.tensor([2, 0, 0, 1])

    wb.cpp(f"{namespace}::rows.backward", INDEXED)
    assert "comes from the reference" not in str(rows_of.last_line)
    assert "backward" in str(describe.card(rows_of)) and "reference's vjp" not in str(describe.card(rows_of))
