import dataclasses

import pytest
import samples

from workbench.reports.card import SlotRow
from workbench.reports.report import Check, Line, Outcome, Row, Trial
from workbench.show import text


def test_the_line_of_the_design():
    assert str(samples.installed()) == (
        "rmsnorm cuda v7 | 52 ms | 6 cases x 3 dtypes agree, closest: odd bf16 at 0.6 of allowed"
        " | 38 regs, no spills | 41 us on llama, v6 47 (rough)"
    )


def test_what_was_not_measured_is_left_out():
    bare = Line("lab::f", "forward", "cpp", 1, True, 0.0, trial=Trial((Outcome("a", "float32", "agree"),)))
    assert str(bare) == "f cpp v1 | 1 case agrees exactly"
    assert str(dataclasses.replace(bare, trial=None)) == "f cpp v1"
    assert str(dataclasses.replace(bare, trial=Trial(()))) == "f cpp v1 | compared with nothing"
    assert "0 us" not in str(samples.installed(rough_us=0.0)) and "v6" not in str(samples.installed(rough_us=0.0))
    assert str(samples.installed(former_us=0.0)).endswith("| 41 us on llama (rough)")


def test_the_former_time_has_a_unit_where_it_is_another():
    assert str(samples.installed(former_us=1300.0)).endswith("| 41 us on llama, v6 1.3 ms (rough)")


def test_slot_tier_and_store_show_where_they_are_not_the_usual():
    shown = str(samples.installed(slot="backward", language="cpp", tier="full", cached=True, seconds=0.009))
    assert shown.startswith("rmsnorm.backward cpp full v7 | 9 ms, cached | ")


def test_a_forced_version_says_what_differs():
    trial = Trial(
        (Outcome("odd", "float32", "mismatch", detail="3 of 9 elements differ"), Outcome("a", "float32", "agree", 0.1))
    )
    assert text.agreement(trial) == "forced: 1 of 2 runs does not agree"


def test_skipped_cases_are_counted():
    assert (
        text.agreement(Trial((Outcome("a", "", "agree", 0.5), Outcome("b", "", "skip"))))
        == "1 case agrees, closest: a at 0.5 of allowed, 1 skipped"
    )
    assert text.agreement(Trial((Outcome("b", "", "skip"),))) == "compared with nothing, 1 case skipped"


def test_a_refusal():
    assert (
        str(samples.refused())
        == """\
rmsnorm cuda v8 not installed | 61 ms | differs on odd float32: 270 of 3,840 elements never written; still v7
  out, 40 x 96: in the last 3 of every 32 columns
    at       got   wanted
    [0, 29]  nan   0.8123
    [0, 30]  nan  -1.2044
    [7, 61]  nan   0.0391
  1 more of 3 runs fails too
  line 9 of the cell: `for (int c = threadIdx.x; c < cols - 3; c += BLOCK)`
  Try it anyway: `rmsnorm.versions[8](x, w)`, or `--force`."""
    )


def test_a_refusal_without_a_sentence_is_told_from_the_trial():
    shown = str(
        samples.refused(
            refused="", hint="", trial=Trial((Outcome("odd", "bfloat16", "crash", detail="SIGSEGV"),)), still=""
        )
    )
    assert shown == "rmsnorm cuda v8 not installed | 61 ms | crashes on odd bf16: SIGSEGV"


def test_diagnostics_show_the_line_and_the_column():
    assert (
        str(samples.uncompiled())
        == """\
rmsnorm.backward cpp v9 not installed | 48 ms | line 9: use of undeclared identifier 'colz'; still v7
    for (int64_t c = 0; c < colz; ++c) s += x[c];
                            ^
  line 12: error: no matching function for call to 'f<float>'
    f<float>(x);
    ^
  line 3: note: candidate template ignored: substitution failure
    void f(T* x) {
         ^
  Did you mean `cols`?"""
    )


def test_notes_come_after_the_line():
    trial = Trial((Outcome("a", "", "agree", 0.5),), printed="i = 0\n", notes=("two runs differ, within tolerance",))
    warning = "cell, line 3: warning: unused variable 's'\n    float s;"
    assert str(samples.installed(trial=trial, notes=("a copy of x was made", warning))).split("\n")[1:] == [
        "  note: a copy of x was made",
        "  note: cell, line 3: warning: unused variable 's'",
        "      float s;",
        "  note: two runs differ, within tolerance",
    ]


def test_a_trial_shows_what_was_printed():
    trial = Trial((Outcome("a", "", "agree", 0.5),), printed="i = 0\ni = 1\n")
    assert str(trial).endswith("  printed:\n  | i = 0\n  | i = 1")


def test_a_trial_lists_failing_runs_first():
    assert (
        str(samples.refused().trial)
        == """\
1 of 3 agrees | 20 ms
  case   dtype  outcome  of allowed
  odd    fp32   differs              270 of 3,840 elements never written
  wide   fp32   differs              3 of 512 elements differ
  small  fp32   agrees          0.3"""
    )


def test_a_check():
    assert (
        str(samples.check())
        == """\
lab::kv_write_ quick check | 3 pass, 1 fails, 2 not run | 1.2 s
  pass  agreement                12 cases x 3 dtypes  largest error 0.8 of allowed (scaled, float16)
  FAIL  mutation                 views of one base    writes v, which is not declared.
                                                      Add it to `mutates`, or write to a copy. Line
                                                      14.
  pass  strides, fake, aliasing  9 layouts            real and fake agree for transposed, sliced,
                                                      expanded, padded
  pass  compiled = eager         dynamic shapes       1 graph for 5 sizes
  skip  gradients                                     in-place op, no argument wants a gradient
  skip  memcheck                                      compute-sanitizer is not installed:
                                                      `check(sanitize=True)` would use it"""
    )


def test_a_long_name_takes_a_line_of_its_own():
    row = Row("a check with a very long name indeed", "and a case", "pass", "proved")
    assert (
        str(Check("lab::f", (row,)))
        == """\
lab::f quick check | 1 passes
  pass  a check with a very long name indeed  and a case
                                                  proved"""
    )


def test_a_card():
    shown = str(samples.card(check=None))
    assert (
        shown
        == """\
lab::rmsnorm(Tensor x, Tensor w, float eps=1e-06) -> Tensor
  Root mean square norm over the last dimension.

  slot          runs             agrees    time, llama  of copy bandwidth  resources
  forward cuda  v7 raw CUDA      18 of 18      41.2 us               87 %  38 regs, 1.1 KB shared
  forward cpu   v2 raw C++       18 of 18       9.8 ms               63 %  AVX-512, OpenMP
  backward      reference's vjp  6 of 6         412 us               21 %  11 launches: worth a kernel

  version  slot          status        time  against           built in  takes    agrees    title
  v8       forward cuda  refused                                  61 ms  38 regs  17 of 18  differs on odd float32
  v7       forward cuda  installed  41.2 us  FASTER 1.14 x v6     52 ms  38 regs  18 of 18  two elements per thread
  v6       forward cuda  former     46.9 us                       50 ms  32 regs  18 of 18  one row a block
  v2       forward cpu   installed   9.8 ms  FASTER 2.00 x v1    120 ms           18 of 18  OpenMP over rows
  v1       forward cpu   former     19.6 ms                       1.1 s           18 of 18  the reference, as loops
  note: The backward is still the reference's."""
    )


def test_columns_that_nothing_was_measured_for_are_left_out():
    shown = str(samples.card(slots=(SlotRow("forward cpu", "reference"),), check=None, history=(), notes=(), doc=""))
    assert shown.splitlines()[2:] == ["  slot         runs", "  forward cpu  reference"]


def test_a_slot_that_disagrees_says_so_in_words():
    assert "17 of 18 FAIL" in str(samples.card(slots=(SlotRow("forward cpu", "v3", "raw C++", "17 of 18", ok=False),)))


def test_old_versions_are_counted_and_lines_stay_within_a_terminal():
    shown = str(samples.large())
    assert "and 192 older versions" in shown and "v200" in shown and "v192 " not in shown
    assert max(map(len, shown.splitlines())) <= 104


@pytest.mark.parametrize(
    "report", [samples.installed(), samples.refused(), samples.uncompiled(), samples.check(), samples.card()]
)
def test_text_is_ascii(report):
    assert str(report).isascii()


def test_what_the_tier_costs_is_a_note_of_the_line_and_stands_under_the_slots():
    said = "`torch::Tensor` in the signature: 2.6 s an edit; `Tensor` would be about 0.7 s"
    assert str(samples.installed(cost=said)).split("\n")[1:] == [f"  note: {said}"]
    slots = tuple(dataclasses.replace(s, cost=said if "cpu" in s.slot else "") for s in samples.card().slots)
    shown = str(samples.card(slots=slots)).split("\n")
    assert shown[shown.index(f"  forward cpu: {said}") - 1].startswith("  backward ")
    both = tuple(dataclasses.replace(s, cost=said) for s in samples.card().slots[:2])
    assert f"  forward cuda, forward cpu: {said.partition(' would')[0]}" in "\n".join(
        line for line in str(samples.card(slots=both)).split("\n")
    )


def test_a_full_check_has_its_failure_on_top_and_what_was_seen_below_each_name():
    rows = (
        Row("sizes", "odd", "pass", "4 inputs: as the reference's, exactly"),
        Row("compiled, dynamic shapes", "6 sizes", "pass", "1 graph for 4 sizes from 2 up"),
        Row("values", "NaN", "fail", "differs: " + "a long sentence " * 6, "Look at -ffast-math."),
    )
    assert (
        str(Check("lab::f", rows, "full"))
        == """\
lab::f full check | 2 pass, 1 fails
  FAIL  values                    NaN
        differs: a long sentence a long sentence a long sentence a long sentence a long sentence a
        long sentence
        Look at -ffast-math.
  pass  sizes                     odd
        4 inputs: as the reference's, exactly
  pass  compiled, dynamic shapes  6 sizes
        1 graph for 4 sizes from 2 up"""
    )
