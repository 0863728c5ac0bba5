import dataclasses
import re

import inspected
import ipywidgets
import pytest
from test_html import EVIL, read

from workbench import show
from workbench.reports.inspection import Entry, Finding, Stage
from workbench.show import code, html, inspect_html, inspect_widget, inspect_words
from workbench.source import Source


def test_the_summary_says_numbers_findings_and_what_can_be_printed():
    assert (
        str(inspected.kernel())
        == """\
lab::scale v3 forward cuda | raw CUDA, float32 | sm_90, NVRTC 13.0 | 260 ms
  kernel             regs  spills  stack  shared  block  occupancy  limited by
  scale<float, 256>    38    none   none    1 KB    256       75 %  registers: 38 a thread
  line 8: spills 8 bytes a thread
  with `__launch_bounds__` more warps would fit
  sass: 1 global load of 4 bytes, 12 FMA
  stages: ptx (1 line), sass (8 lines); print(report.stage("sass")); report.at(8) is what became of
    line 8
  note: also built for bfloat16: `inspect(dtype=...)`"""
    )


def test_the_summary_of_functions():
    assert str(inspected.function()).splitlines()[:4] == [
        "lab::scale v1 forward cpu | raw C++, float32 | x86_64, gcc 12 -O3",
        "  function  instructions  loops  vectorized  widest vector",
        "  scale               41      2           1  32 bytes",
        "  helper               3      0           0  none",
    ]


def test_a_stage_prints_source_lines_in_the_margin():
    assert str(inspected.kernel().stage("sass")).splitlines()[2:6] == [
        "7 |    @P0  EXIT",
        "  | .L_x_0:",
        "8 |         LDG.E R2, desc[UR4][R2.64]",
        "3 |         FADD R5, R2, R2",
    ]


def test_what_one_line_became():
    assert inspected.kernel().at(8) == {
        "ptx": ("ld.global.f32 %f1, [%rd1];",),
        "sass": ("LDG.E R2, desc[UR4][R2.64]", "FADD R5, R2, R2", "STL [R1], R5"),
    }
    assert inspected.kernel().at(2) == inspected.kernel().at(0) == {}


def test_shared_memory_that_only_a_call_tells():
    row = inspected.kernel().rows[0]
    assert inspect_words.shared(dataclasses.replace(row, dynamic_shared=-1)) == "1 KB + what the call asks for"
    assert inspect_words.shared(dataclasses.replace(row, shared=0, dynamic_shared=16384)) == "16 KB"
    assert inspect_words.shared(dataclasses.replace(row, shared=0)) == "none"


def test_one_of_a_thing_is_singular():
    names = {"global loads of 4 bytes": "global load of 4 bytes", "asynchronous copies": "asynchronous copy",
             "instructions on vectors of 32 bytes": "instruction on vectors of 32 bytes", "FMA": "FMA",
             "divisions and roots": "division or root"}  # fmt: skip
    assert {n: inspect_words.counts(Stage("sass", (), ((n, 1),))) for n in names} == {
        n: f"1 {one}" for n, one in names.items()
    }


def test_two_versions_as_text():
    lines = str(inspected.both()).splitlines()
    assert lines[0] == "lab::scale forward | v3 beside v5 | raw CUDA"
    assert [" ".join(line.split()) for line in lines[2:4]] == ["regs 38 32", "spills none none"]
    # `FADD R5, R2, R2` and `FADD R9, R4, R4` are alike: registers move with everything before them.
    assert lines[-2:] == [
        "  ptx: 0 lines alike, 1 only in v3, 0 only in v5",
        "  sass: 6 lines alike, 2 only in v3, 1 only in v5",
    ]


def test_the_html_has_source_and_stages_and_no_script():
    shown = html.of(inspected.kernel())
    said = read(shown)
    assert "<script" not in shown
    assert "lab::scale v3 forward cuda" in said and "registers: 38 a thread" in said
    assert "out[i] = 2 * x[i];" in said and "LDG.E R2, desc[UR4][R2.64]" in said
    assert said.index("__global__") < said.index("LDG.E")  # also where styles are stripped
    assert '<span class="bad">spills 8 bytes a thread</span>' in shown
    assert re.search(r'<span class="i spill l8">.*STL', shown)


def test_a_line_that_became_nothing_has_no_button():
    shown = html.of(inspected.kernel())
    group = re.search(r'id="(wb-\w+)">', shown)[1]
    assert f'id="{group}-8"' in shown and f'id="{group}-3"' in shown
    assert f'id="{group}-2"' not in shown
    assert f"#{group}:has(#{group}-8:checked) .s8" in shown


def _evil():
    stage = Stage("sass", (Entry(EVIL, 2), Entry(EVIL)), ((EVIL, 2),))
    return inspected.kernel(
        op=EVIL, how=EVIL, dtype=EVIL, target=EVIL, toolchain=EVIL, source=Source(EVIL, "cuda", EVIL, 2), stages=(stage,),
        rows=(dataclasses.replace(inspected.kernel().rows[0], kernel=EVIL, limiter=EVIL, assumed=EVIL),),
        findings=(Finding(2, f"{EVIL} `{EVIL}`", bad=True),) * 12, notes=(EVIL,), others=(EVIL,),
    )  # fmt: skip


def test_nothing_of_a_user_or_a_compiler_is_markup():
    one = _evil()
    for report in (
        one,
        inspected.both().__class__(one, dataclasses.replace(one, dtype="x", stages=inspected.kernel().stages[1:])),
    ):
        shown = html.of(report)
        assert "<script" not in shown
        assert EVIL in read(shown)


def test_a_long_stage_is_cut_and_says_how_to_see_the_rest():
    many = Stage("sass", tuple(Entry(f"NOP {i}", 5) for i in range(inspect_html.SHOWN_LINES + 7)))
    shown = inspect_html.stage(many)
    assert "7 more lines" in shown and "print(report.stage(" in shown
    assert f"NOP {inspect_html.SHOWN_LINES}" not in shown


def test_lines_of_code_close_their_colours():
    pytest.importorskip("pygments")
    assert code.lines("int a; /* one\ntwo */ int b;", "cpp") == [
        '<span class="k">int </span>a; <span class="c">/* one</span>',
        '<span class="c">two */ </span><span class="k">int </span>b;',
    ]


def test_a_diff_sets_off_what_changed_and_folds_what_did_not():
    shown = inspect_html.diff(inspected.both(), "sass")
    assert "6 lines alike but for registers and labels, 2 only in v3, 1 only in v5" in read(shown)
    assert shown.count('class="new mono"') == 3
    same = Stage("sass", tuple(Entry(f"OP{i} X", 5) for i in range(60)))
    report = inspected.both()
    report = type(report)(
        dataclasses.replace(report.left, stages=(same,)), dataclasses.replace(report.right, stages=(same,))
    )
    assert "48 lines alike" in read(inspect_html.diff(report, "sass"))


# ---------------------------------------------------------------- the widget


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(show, "live", lambda: True)


def below(box, kind):
    found = [box] if isinstance(box, kind) else []
    for child in getattr(box, "children", ()):
        found += below(child, kind)
    return found


def test_outside_a_kernel_the_report_is_its_own_widget():
    report = inspected.kernel()
    assert report.widget() is report


def test_a_chosen_line_shows_what_became_of_it(kernel):
    widget = inspected.kernel().widget()
    (lines,), (stage,) = below(widget, ipywidgets.Select), below(widget, ipywidgets.ToggleButtons)
    shown = below(widget, ipywidgets.HTML)[-1]
    assert stage.value == "sass"
    assert "S2R R0" in shown.value
    lines.value = 8
    assert "LDG.E R2" in shown.value and "S2R R0" not in shown.value
    stage.value = "ptx"
    assert "ld.global.f32" in shown.value and "LDG" not in shown.value
    stage.value = "sass"
    below(widget, ipywidgets.Checkbox)[0].value = True
    assert "S2R R0" in shown.value and shown.value.count('class="i on l8"') == 1  # the load, set off among the others


def test_the_lines_are_offered_with_how_much_became_of_them():
    offered = {n: text.replace("\N{NO-BREAK SPACE}", " ") for text, n in inspect_widget.options(inspected.kernel())}
    assert offered[0] == "all lines"
    assert offered[8] == "8    3      out[i] = 2 * x[i];"
    assert offered[2] == "2       //! out = empty_like(x)"


def test_two_versions_as_a_widget(kernel):
    widget = inspected.both().widget()
    (stage,) = below(widget, ipywidgets.ToggleButtons)
    assert stage.options == ("ptx", "sass")
    assert "LDG.E.128" in below(widget, ipywidgets.HTML)[-1].value


# ---------------------------------------------------------------- in a browser


def test_a_click_on_a_line_shows_its_instructions_alone(opened):
    page = opened(html.of(inspected.kernel()))

    def seen():
        return [row.strip() for row in page.locator(".i .t:visible").all_inner_texts()]

    assert len(seen()) == 8
    page.click("label.s8")
    assert seen() == ["LDG.E R2, desc[UR4][R2.64]", "FADD R5, R2, R2", "STL [R1], R5"]
    page.click("summary:has-text('ptx')")
    assert seen() == ["ld.global.f32 %f1, [%rd1];"]
    page.click("summary:has-text('sass')")
    page.click("label.ctx")
    assert len(seen()) == 8
    page.click("label.ctx")
    page.click("label.all")
    assert len(seen()) == 8
