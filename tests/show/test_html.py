import dataclasses
import re
import time
from html.parser import HTMLParser

import profiled
import pytest
import samples

from workbench.errors import Diagnostic
from workbench.reports.card import TABS, Card, HistoryRow, SlotRow
from workbench.reports.measurement import Bench, BenchRow
from workbench.reports.report import Check, Line, Mismatch, Outcome, Row, Trial
from workbench.show import code, diff, html, ledger, picture, style

EVIL = "<script>alert('&')</script>"
VOID = {"br", "path", "line", "input"}


class Balance(HTMLParser):
    """Fails on a tag that closes another than the one last opened."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)


def read(shown):
    """The text that a browser would show, after checking that every tag is closed in order."""
    parser = Balance()
    parser.feed(shown)
    parser.close()
    assert parser.open == []
    return " ".join("".join(parser.text).split())


def _evil():
    mismatch = Mismatch(EVIL, (2, 2), 1, 4, 0, (((0, 1), 1.0, 2.0),), ((0.0, 1.0), (0.0, 0.0)))
    trial = Trial((Outcome(EVIL, EVIL, "mismatch", 2.0, EVIL, mismatch), Outcome(EVIL, EVIL, EVIL)), 1.0, EVIL, (EVIL,))
    told = dict(  # noqa: C408  keywords as they are written in a call
        op=EVIL, slot=EVIL, language=EVIL, version=1, seconds=1.0, resources=EVIL, rough_us=1.0, rough_case=EVIL,
                refused=EVIL, still=EVIL, hint=f"{EVIL} `{EVIL}`", notes=(EVIL,), title=EVIL, tier=EVIL,
    )  # fmt: skip
    said = (Diagnostic(EVIL, 1, 1, EVIL, EVIL, EVIL),) * 2
    check = Check(EVIL, (Row(EVIL, EVIL, EVIL, EVIL, EVIL), Row(EVIL, EVIL, "fail", EVIL, EVIL)), EVIL)
    yield Line(installed=True, trial=dataclasses.replace(trial, outcomes=(Outcome(EVIL, EVIL, "agree", 0.5),)), **told)
    yield Line(installed=True, trial=trial, **told)
    yield Line(installed=False, trial=trial, **told)
    yield samples.Uncompiled(installed=False, diagnostics=said, **told)
    yield trial
    yield check
    yield Card(
        EVIL, EVIL, (SlotRow(EVIL, EVIL, EVIL, EVIL, False, 1.0, 0.5, EVIL),),
        (HistoryRow(1, EVIL, EVIL, EVIL, 1.0, EVIL, EVIL, EVIL),), check, ((EVIL, "cpp", EVIL), (EVIL, EVIL, EVIL)), EVIL, (EVIL,), EVIL,
    )  # fmt: skip


@pytest.mark.parametrize("report", list(_evil()), ids=lambda r: type(r).__name__)
def test_nothing_of_a_user_is_markup(report):
    shown = html.of(report)
    assert "<script" not in shown
    assert EVIL in read(shown)


def test_quotes_cannot_leave_an_attribute():
    shown = html.line(samples.installed(title='" onmouseover="x'))
    assert 'title="&quot; onmouseover=&quot;x"' in shown


def test_the_line_says_what_the_text_says():
    assert read(html.line(samples.installed())) == (
        "rmsnorm cuda v7 | 52 ms | agrees on 6 cases × 3 dtypes (odd bf16 0.6 of allowed) | 38 regs, no spills | 41 µs llama, v6 47, rough"
    )


def test_what_was_not_measured_is_left_out():
    assert read(html.line(samples.installed(rough_us=0.0, resources="", trial=None))) == "rmsnorm cuda v7 | 52 ms"


def test_a_refusal_shows_the_picture_the_elements_and_the_hint_last():
    shown = html.line(samples.refused())
    said = read(shown)
    assert said.startswith(
        "rmsnorm cuda v8 not installed | 61 ms | differs on odd float32: 270 of 3,840 elements never written; still v7"
    )
    assert "on <b>odd</b> float32" in shown and "<svg" in shown
    assert "[0, 30]nan−1.2044" in said
    assert said.endswith("Try it anyway: rmsnorm.versions[8](x, w), or --force.")


def test_other_diagnostics_are_folded_away():
    shown = html.line(samples.uncompiled())
    assert "<summary>2 more messages</summary>" in shown
    assert shown.index("colz;") < shown.index("<details>") < shown.index("no matching function")
    assert read(shown).endswith("Did you mean cols?")


def test_the_error_map_draws_runs_and_block_borders():
    drawn = picture.error_map(samples.never_written())
    assert drawn.count("<path") == 1 and "M29 0h3v1h-3z" in drawn
    assert drawn.count("<line") == 2 and 'x1="32"' in drawn and 'x1="64"' in drawn


def test_cells_that_are_partly_wrong_are_fainter():
    drawn = picture.error_map(Mismatch("out", (99, 99), 9, 9801, 0, (), ((0.1, 0.5, 1.0, 0.0),)))
    assert re.findall(r'opacity="([\d.]+)" d="([^"]+)"', drawn) == [
        ("0.35", "M0 0h1v1h-1z"),
        ("0.6", "M1 0h1v1h-1z"),
        ("0.9", "M2 0h1v1h-1z"),
    ]


def test_the_largest_map_stays_small():
    board = tuple(tuple(float((r + c) % 2) for c in range(96)) for r in range(64))
    drawn = picture.error_map(Mismatch("out", (6400, 9600), 1, 2, 0, (), board))
    assert len(drawn) < 60_000
    assert picture.error_map(Mismatch("out", (4,), 1, 4, 0, ())) == ""


def test_a_failing_check_is_bold_with_its_cure():
    shown = html.check(samples.check())
    assert (
        "<b>mutation</b>" in shown
        and '<span class="bad">writes v, which is not declared.</span> Add it to <code>mutates</code>' in shown
    )
    assert "12 cases × 3 dtypes" in shown
    assert "3 pass, 1 fails, 2 not run; quick check, 1.2 s" in read(shown)
    assert "pass agreement" in read(shown)  # the word stands where a stylesheet does not


def test_a_card_has_its_tabs_and_opens_the_one_asked_for():
    shown = html.of(samples.card(opened="History"))
    assert re.findall(r"<details name=\"wb-\w+\"( open)?><summary>(\w+)", shown) == [
        ("", "Check"),
        ("", "Code"),
        (" open", "History"),
    ]
    assert shown.index(">v8<") < shown.index(">v7<", shown.index(">v8<"))
    assert "41.2 µs" in shown and "87 %" in shown
    assert html.of(samples.card(opened="Bench")).count(" open>") == 1


def test_a_card_of_an_op_that_is_all_reference():
    shown = html.of(samples.card(slots=(SlotRow("forward", "reference"),), history=(), check=None, code=(), notes=()))
    assert "tabs" not in shown.partition("</style>")[2]
    assert "of the ceiling" not in shown and "not compared" not in shown
    assert "not compared" in html.of(samples.card(slots=(SlotRow("forward cpu", "v1", "raw C++"),)))


def test_what_was_not_run_has_an_empty_dot_and_not_a_green_one():
    row = SlotRow(
        "forward cuda",
        "v2",
        "raw CUDA",
        "compiled for sm_90, not run: no GPU here",
        resources="interpreted | 38 regs",
        unrun=True,
    )
    shown = html.of(samples.card(slots=(row,), history=(), check=None, code=(), notes=())).partition("</style>")[2]
    assert '<span class="dot s">' in shown
    assert '<span class="soft">compiled for sm_90, not run: no GPU here</span>' in shown
    assert "dot p" not in shown
    assert "interpreted, 38 regs" in shown


def test_what_an_interpreted_kernel_takes_are_parts_of_the_line():
    shown = html.of(samples.installed(resources="interpreted | compiled for sm_90: 38 regs"))
    assert re.search(
        r"</span>interpreted</span> <span class=.part.><span class=.sep.>\| </span>compiled for sm_90: 38 regs</span>",
        shown,
    )


def test_two_cards_do_not_close_each_other():
    names = {re.search(r'name="(wb-\w+)"', html.of(samples.card()))[1] for _ in range(2)}
    assert len(names) == 2


def test_a_large_card_is_small_and_quick():
    html.of(samples.large())  # reads the stylesheet and Pygments' lexers
    start = time.perf_counter()
    shown = html.of(samples.large())
    assert time.perf_counter() - start < 0.3
    assert len(shown.encode()) < 400_000
    assert "188 older versions" in shown and ">v1<" in shown


def test_a_history_without_end_is_cut():
    rows = tuple(HistoryRow(v, "forward cpu", "raw C++", "former", 0.1, "", "<t>" * 1000) for v in range(1, 2001))
    shown = html.of(samples.card(history=rows))
    assert "and 1,700 before them" in shown and len(shown) < 800_000


def test_code_is_coloured_and_keeps_its_text():
    shown = code.pre(samples.CELL, "cpp")
    assert '<span class="k">template </span>' in shown
    assert '<span class="d">//! *_, cols = x.shape\n//! require w.shape' in shown
    assert '<span class="c">// a row at a time' in shown
    parser = Balance()
    parser.feed(shown)
    assert "".join(parser.text) == samples.CELL.rstrip()


def test_code_without_pygments_is_plain(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pygments.lexers.c_cpp", None)
    assert code.pre("a < b", "cpp") == "<pre><code>a &lt; b</code></pre>"


def test_long_code_is_cut_and_says_so():
    assert "4,000 more lines are not shown" in code.pre("int x;\n" * 5000 + "int y;\n" * 4714, "cpp")


def test_the_stylesheet_is_scoped_and_knows_both_themes():
    sheet = style.sheet("report")
    assert "/*" not in sheet and "prefers-color-scheme: dark" in sheet and '[data-jp-theme-light="false"]' in sheet
    outside = re.sub(r"(\.wb){3} \{.*\}", "", sheet)
    for selector in re.findall(r"([^{}]+)\{", outside):
        assert ".wb" in selector or "@media" in selector


def test_what_the_tier_costs_is_a_quiet_line():
    said = "`at::Tensor` in the signature: 2.6 s an edit; `Tensor` would be about 0.7 s"
    caption = '<p class="cap">{}<code>at::Tensor</code> in the signature: 2.6 s an edit; <code>Tensor</code> would be about 0.7 s</p>'
    assert caption.format("") in html.line(samples.installed(cost=said))
    slots = tuple(dataclasses.replace(s, cost=said if "cpu" in s.slot else "") for s in samples.card().slots)
    assert "</table>" + caption.format("forward cpu: ") in html.of(samples.card(slots=slots))


def test_a_full_check_that_fails_folds_what_passed():
    rows = (
        Row("sizes", "odd", "pass", "ok"),
        Row("vmap", "odd", "pass", "ok"),
        Row("values", "NaN", "fail", "differs"),
    )
    shown = html.check(Check("lab::f", (*rows, Row("streams", "odd", "skip", "no GPU here")), "full"))
    assert (
        shown.index("<b>values</b>")
        < shown.index("<details><summary>2 checks passed</summary>")
        < shown.index("streams")
    )
    assert "<details>" not in html.check(Check("lab::f", rows[:2], "full")), "nothing is hidden where nothing failed"
    assert "<details>" not in html.check(Check("lab::f", rows)), "a quick check is short"


def test_above_what_memory_gives_the_head_says_so():
    slots = (dataclasses.replace(samples.card().slots[0], share=7.36), samples.card().slots[1])
    shown = read(html.of(samples.card(slots=slots)))
    assert "41.2 µsin cache38 regs" in shown and "63 %" in shown and "736" not in shown
    assert "in cache" in str(samples.card(slots=slots))


def test_the_ledger_opens_to_what_changed_in_the_source():
    shown = html.of(samples.card())
    assert '<span class="add">+   #pragma omp parallel for</span>' in shown
    said = read(shown)
    assert "FASTER 2.00 × v1" in said and "FASTER 1.14 × v6" in said and "OpenMP over rows +1" in said
    assert "same source" in read(
        html.of(samples.card(history=(dataclasses.replace(samples.card().history[0], before=samples.CELL),)))
    )


def test_differences_are_those_of_the_newest_while_there_is_room(monkeypatch):
    monkeypatch.setattr(ledger, "DIFFS_B", 3000)
    shown = html.of(samples.large())
    assert 3 <= shown.count('<pre class="diff">') <= 20
    assert "s = 200.f" in shown and "s = 100.f" not in shown


def test_a_difference_is_cut_and_says_so():
    before, after = "\n".join(f"a{i}" for i in range(90)), "\n".join(f"b{i}" for i in range(90))
    assert diff.counts(before, after) == (90, 90)
    assert "and 132 more lines" in diff.pre(before, after)
    text = "abcdefghi"
    assert diff.changes("\n".join(text), "\n".join("abcdXefghY")) == (
        (" ", "d"), ("+", "X"), (" ", "e"), (diff.GAP, ""), (" ", "h"), ("-", "i"), ("+", "Y"),
    )  # fmt: skip
    assert "&lt;b&gt;" in diff.pre("a", "<b>")


def test_a_card_has_its_measurements_as_panes_with_their_stylesheets():
    bench = Bench(
        "lab::rmsnorm",
        "cpu",
        "2 threads",
        "v2",
        (BenchRow("llama", "float32", "forward", "v2", time_us=41.2, own=True),),
    )
    shown = html.of(samples.card(bench=bench, profile=profiled.cpu(), opened="Bench"))
    assert [t for t in re.findall(r"<summary>(\w+)</summary>", shown) if t in TABS] == [
        "Check",
        "Bench",
        "Profile",
        "Code",
        "History",
    ]
    assert '" open><summary>Bench' in shown and "<script" not in shown and style.sheet("profile") in shown
    assert "lab::rmsnorm bench | v2 on 2 threads" in str(samples.card(bench=bench))
