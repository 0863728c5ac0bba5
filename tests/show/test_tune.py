"""How a tuning looks: the best configuration first, every other with its reason, the line to paste."""

from __future__ import annotations

import dataclasses
import json
import re
import sys

import pytest
import tunings
from test_html import EVIL, read

import workbench as wb
from workbench import show
from workbench.reports.card import Card
from workbench.reports.tuning import Tuning, TuningRow
from workbench.show import html, text, tune_text, tune_words


def test_as_text():
    assert (
        str(tunings.tuning())
        == """\
lab::f forward cuda v3 tuned for 1024 float32 | 3.2 s | NVIDIA H200
  BLOCK=256, UNROLL=1: 40 us, 1.50 x as fast as the first one
  7 configurations: 3 timed, 1 does not fit, 1 pruned, 1 differs, 1 not reached; 1 known from before
          time  of best  BLOCK  UNROLL  regs  shared
         40 us   1.00 x    256       1    40
         39 us   0.97 x    512       1    40
         60 us   1.50 x    128       1    38    1 KB
  does not fit            1024       1                f takes 80 registers x 1024 threads
       differs             256       4                out: 5 of 10 elements differ
        pruned            2048       1                require BLOCK < 2048 is not met
   not reached             512       4                the budget ended before it
  to paste:
    //! tune BLOCK = 256, 128
  note: the budget of 3 s ended; 1 configuration not reached, the next call goes on with them"""
    )


def test_the_best_is_the_fastest_of_those_timed_head_to_head():
    report = tunings.tuning()
    assert report.best is report.rows[1] and report.ok
    assert report.speedup == 1.5
    alone = dataclasses.replace(report, rows=tuple(dataclasses.replace(r, final=False) for r in report.rows))
    assert alone.best.config == {"BLOCK": 512, "UNROLL": 1}


def test_over_several_cases_the_best_loses_least():
    def row(case, block, us):
        return TuningRow({"BLOCK": block}, "timed", us, case=case)

    rows = (
        row("a", 1, 10.0),
        row("a", 2, 11.0),
        row("a", 3, 40.0),
        row("b", 1, 90.0),
        row("b", 2, 31.0),
        row("b", 3, 30.0),
    )
    report = Tuning("lab::f", "forward", "cpu", 1, "cpp", ("a", "b"), rows)
    assert {case: r.config["BLOCK"] for (case, _), r in report.winners.items()} == {"a": 1, "b": 3}
    assert report.best is rows[1] and report.ok
    assert not Tuning("lab::f", "forward", "cpu", 1, "cpp", ("a", "b"), rows[:3]).ok
    assert "  a\n" in str(report) and "  b\n" in str(report)


def over(*dtypes):
    """A tuning in which the first two dtypes gain 1.00 and 1.20 x, each further one as much as the second."""
    gains = {d: 1.0 if i == 0 else 1.2 for i, d in enumerate(dtypes)}
    rows = [
        TuningRow(
            {"UNROLL": n},
            "timed",
            1080.0 * (gain if n == 1 else 1.0),
            case=f"big {dtype}",
            is_default=n == 1,
            final=n == 8,
        )
        for dtype, gain in gains.items()
        for n in (1, 8)
    ]
    return Tuning("lab::f", "forward", "cpu", 1, "cpp", tuple(f"big {d}" for d in dtypes), tuple(rows))


def test_of_several_dtypes_the_headline_says_which():
    report = over("float32", "bfloat16")
    said = "UNROLL=8: 1.08 ms on big float32, as fast as the first one; 1.20 x as fast on big bfloat16"
    assert tune_words.verdict(report) == said and f"  {said}\n" in str(report)
    assert said.replace(" x ", " × ") in read(html.of(report))
    assert tune_words.verdict(over("float32")) == "UNROLL=8: 1.08 ms, as fast as the first one"
    assert tune_words.verdict(over(*"abcdef")).endswith(
        "on big b; 1.20 x as fast on big c; 1.20 x as fast on big d; and 2 cases below"
    )


def test_of_several_dtypes_the_first_one_that_is_best_says_on_which():
    rows = tuple(TuningRow({"BLOCK": 1}, "timed", 10.0, case=c, is_default=True) for c in "ab")
    report = Tuning("lab::f", "forward", "cpu", 1, "cpp", ("a", "b"), rows)
    assert tune_words.verdict(report) == "BLOCK=1: 10 us on a, which is the first one"


def test_where_all_fail():
    report = tunings.failed()
    assert report.best is None and not report.ok and report.speedup == 0.0
    shown = str(report)
    assert "no configuration was found: all of them failed, the reasons are below" in shown
    assert "2 configurations: 2 do not compile" in shown and "line 3: no such thing" in shown
    assert 'class="bad"' in html.of(report)


def test_where_there_is_no_gpu_nothing_failed():
    row = TuningRow({"BLOCK": 1}, "not run", reason="no GPU here", case="a", registers=20)
    report = Tuning("lab::f", "forward", "cuda", 1, "triton", ("a",), (row,))
    assert tune_words.verdict(report) == "nothing was timed: no GPU here" and 'class="bad"' not in html.of(report)


def test_the_default_that_is_best_says_so():
    row = TuningRow({"BLOCK": 1}, "timed", 10.0, case="a", is_default=True)
    report = Tuning("lab::f", "forward", "cpu", 1, "cpp", ("a",), (row,))
    assert tune_words.verdict(report) == "BLOCK=1: 10 us, which is the first one"


def test_as_html():
    shown = html.of(tunings.tuning())
    words = read(shown)
    assert "BLOCK=256, UNROLL=1: 40 µs, 1.50 × as fast as the first one" in words
    assert "//! tune BLOCK = 256, 128" in words and "require BLOCK < 2048 is not met" in words
    assert [int(w) for w in re.findall(r'class="bar" style="width:(\d+)px"', shown)] == [92, 92, 61]
    assert "<script" not in shown and "http" not in shown.replace("http://www.w3.org", "")


def test_a_table_of_many_is_folded_and_cut():
    many = tuple(TuningRow({"BLOCK": n}, "timed", 10.0 + n, case=tunings.CASE) for n in range(600))
    report = dataclasses.replace(tunings.tuning(), rows=many)
    shown = html.of(report)
    assert "388 more" in read(shown) and len(shown) < 300_000
    assert "and 584 more configurations" in str(report)


def test_as_a_pane_of_a_card():
    report = tunings.tuning()
    pane = html.body(report, heading=False)
    assert "lab::f forward" not in pane and "BLOCK=256" in pane
    assert tune_text.tuning(report, heading=False).startswith("  BLOCK=256")
    card = html.of(Card("lab::f", "(Tensor x) -> Tensor", (), tuning=report, opened="Tune"))
    assert "BLOCK=256, UNROLL=1" in read(card)


def test_what_users_and_compilers_wrote_is_escaped():
    row = TuningRow({EVIL: EVIL}, "timed", 1.0, EVIL, EVIL, EVIL, place=EVIL)
    bad = TuningRow({EVIL: EVIL}, EVIL, 0.0, EVIL, EVIL, EVIL)
    report = Tuning(EVIL, EVIL, EVIL, 1, EVIL, (EVIL,), (row, bad), EVIL, machine=EVIL, ended=EVIL, notes=(EVIL,))
    shown = html.of(report)
    assert "<script" not in shown
    read(shown)


def test_the_bundle_and_json():
    report = tunings.tuning()
    assert sorted(show.bundle(report)) == ["text/html", "text/plain"]
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["ok"] and plain["best"] == {"BLOCK": 256, "UNROLL": 1} and plain["rows"][3]["status"] == "resources"


def test_a_data_frame_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(wb.WorkbenchError, match="needs pandas, which is not installed: `pip install pandas`"):
        tunings.tuning().to_dataframe()


def test_as_a_data_frame():
    pytest.importorskip("pandas")
    frame = tunings.tuning().to_dataframe()
    assert list(frame["BLOCK"])[:2] == [128, 256] and list(frame["time_us"])[1] == 40.0


def test_lines_are_not_endless():
    long = TuningRow({"BLOCK": 1}, "crash", reason="x" * 500, case=tunings.CASE)
    shown = str(dataclasses.replace(tunings.tuning(), rows=(long,)))
    assert max(len(line) for line in shown.splitlines()[2:]) <= text.WIDTH
