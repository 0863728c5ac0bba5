import dataclasses
import re

import profiled
import pytest
from test_html import EVIL, read

from workbench.reports.profiling import Advice, Counters, Phase, ProfileRow, Span
from workbench.show import html, profile_html, profile_timeline, profile_words


def test_as_text():
    assert (
        str(profiled.gpu())
        == """\
lab::rmsnorm on llama bfloat16 | cuda, NVIDIA H200 | 20 calls, 1.2 s
            runs             one call  kernels  launches  dispatch  gaps  peak memory
  forward   v7 raw CUDA       47.2 us  41.2 us         1   11.3 us              64 MB
  backward  reference's vjp    520 us   412 us        11    180 us  7 us       256 MB
  forward: 3,258 GB/s, 76 % of copy
  backward: 489 GB/s, 11 % of copy; 2.43 TFLOP/s

  kernel                                 phase     calls     self  share  regs  shared  block  occupancy  limited by
  vectorized_elementwise_kernel<4, Mul>  backward      8   300 us   73 %    32    none    128      100 %  nothing: all 64 warps are in use
  rmsnorm<float, 512>                    forward       1  41.2 us  100 %    40    1 KB    512       75 %  registers: 40 a thread
  Memset (Device)                        backward      1     2 us    0 %

  op                    phase    calls    self  share  total  its kernels
  lab::rmsnorm_forward  forward      1  8.1 us   27 %   9 us      41.2 us

  kernel               phase       time  occupancy  memory  compute  DRAM  tensor  regs  waits
  rmsnorm<float, 512>  forward  40.9 us       73 %    88 %     31 %  87 %     0 %    40  long scoreboard 61 %, wait 8 %
  forward: bandwidth-bound at 76 % of copy
  backward: 11 kernels where one would do: they take 412 us. Write the backward as one kernel, or
    let `torch.compile` fuse it
  note: something to know"""
    )


def test_on_a_cpu_threads_are_told_and_registers_are_not():
    assert (
        str(profiled.cpu())
        == """\
lab::scale on 4x8 float32 | cpu, 2 threads of Xeon | 3 calls
           runs        one call  kernels  ops  dispatch  peak memory  threads busy
  forward  v1 raw C++    3.1 us   1.2 us    1    1.9 us        128 B     0.98 of 2

  kernel      phase    calls    self  share
  lab::scale  forward      1  1.2 us  100 %

  op          phase    calls    self  share   total
  lab::scale  forward      1  1.2 us   40 %  1.2 us
  note: forward ran 2.9 times as long under the profiler"""
    )


def test_the_html_has_all_of_the_text():
    said = read(html.of(profiled.gpu(timeline=())))
    for part in ("lab::rmsnorm on llama bfloat16", "47.2 µs", "76 % of copy", "rmsnorm<float, 512>", "registers: 40 a thread",
                 "long scoreboard 61 %", "41.2 µs", "something to know", "11 kernels where one would do: they take 412 µs"):  # fmt: skip
        assert part in said, part
    assert said.index("Kernels") < said.index("Ops") < said.index("Counters")


def test_the_advice_comes_last():
    said = read(html.of(profiled.gpu(notes=())))
    assert said.endswith("or let torch.compile fuse it")


def test_as_a_pane_of_a_card_it_does_not_name_the_op_again():
    pane = html.body(profiled.gpu(timeline=()), heading=False)
    assert "<h3>" not in pane and 'class="card' not in pane
    assert "llama bfloat16; cuda, NVIDIA H200; 20 calls" in read(pane)


def test_what_is_empty_has_no_tab():
    assert "Counters" not in read(html.of(profiled.cpu()))
    assert "<svg" not in html.of(profiled.cpu())
    assert read(profile_html.advice(profiled.cpu())) == ""


def test_many_rows_are_folded():
    rows = tuple(ProfileRow(f"aten::op{i}", "op", "forward", 1, 100.0 - i, 100.0, 0.01) for i in range(80))
    said = read(profile_html.tabs(profiled.cpu(ops=rows)))
    assert "68 more rows" in said and "and 32 more" in said
    assert "aten::op47" in said and "aten::op48" not in said
    assert "and 68 more ops" in str(profiled.cpu(ops=rows))


def evil():
    span = Span(EVIL, "kernel", EVIL, 0.0, 9.0, 0, EVIL)
    row = ProfileRow(EVIL, "kernel", EVIL, 1, 1.0, 1.0, 1.0, 1.0, 1, 1, (1,), (1,), 1.0, EVIL)
    return profiled.gpu(
        op=EVIL, case=EVIL, device_name=EVIL, kernels=(row,) * 20, ops=(row,), notes=(EVIL,), timeline=(span, dataclasses.replace(span, kind="phase")),
        phases=(Phase(EVIL, EVIL, 1.0, 9.0, 1.0, 1.0, 1),), advice=(Advice(EVIL, EVIL, f"{EVIL} `{EVIL}`"),),
        counters=(Counters(EVIL, EVIL, 1.0, 1.0, 1.0, 1.0, stalls=((EVIL, 1.0),)),),
    )  # fmt: skip


def test_nothing_of_a_user_is_markup():
    shown = html.of(evil())
    assert shown.count("<script") == 1 and "alert('" not in shown.replace("alert(&#x27;", "")
    assert EVIL in read(re.sub(r"<script>.*?</script>", "", shown, flags=re.DOTALL))


# ---------------------------------------------------------------- the timeline


def test_the_timeline_has_tracks_spans_and_memory():
    drawn, left_out = profile_timeline.picture(profiled.gpu())
    assert left_out == 0
    assert re.findall(r'class="t">([^<]+)</text>', drawn) == ["CPU", "GPU", "memory, 12 KB at most"]
    assert "<title>rmsnorm&lt;float, 512&gt;: 41 µs</title>" in drawn
    assert '<svg x="20%"' in drawn and 'width="41%"' in drawn  # in percent: it is zoomed by its width alone
    assert '<path class="m" fill="#0b6bcb" opacity=".3" d="M0 44H0V44H80V29.33H520V0H900V29.33H1000V44z"/>' in drawn


def test_it_is_in_sight_without_a_script_and_without_styles():
    shown = profile_timeline.timeline(profiled.gpu(), script=False)
    assert "<script" not in shown
    read(shown)
    assert 'svg width="100%"' in shown  # the whole call
    assert 'class="k" fill="#0b6bcb"' in shown and 'opacity=".14"' in shown  # colours that need no stylesheet
    assert shown.count('type="radio"') == 4 and shown.count(" checked") == 1


def test_its_script_asks_for_nothing_from_elsewhere():
    assert "http" not in profile_timeline.SCRIPT and "import" not in profile_timeline.SCRIPT
    assert len(profile_timeline.SCRIPT) < 1000


def test_two_on_one_page_do_not_share_their_buttons():
    names = {re.search(r'name="(wb-\w+)"', profile_timeline.timeline(profiled.gpu()))[1] for _ in range(5)}
    assert len(names) == 5


def test_a_long_call_stays_small_and_says_what_it_leaves_out():
    spans = tuple(
        Span(f"aten::op_number_{i}", "op", "CPU", i * 10.0, 9.0 if i % 7 else 9.5, i % 12, "forward")
        for i in range(2000)
    )
    report = profiled.gpu(timeline=spans, memory=tuple((float(i), i) for i in range(1000)))
    drawn, left_out = profile_timeline.picture(report)
    assert len(html.of(report)) < 60_000
    kept = drawn.count("<title>aten::")
    assert kept + left_out == 2000 and kept > 100
    assert f"{left_out:,} short ones are left out" in profile_timeline.timeline(report)


def test_ticks_are_at_round_times():
    assert [profile_timeline.round_step(x) for x in (0.3, 1.0, 34, 101, 7e4)] == [0.5, 1.0, 50.0, 200.0, 1e5]
    drawn, _ = profile_timeline.picture(profiled.gpu(timeline=(Span("f", "op", "CPU", 0.0, 70.0),)))
    first = re.search(r'<g class="z1 t".*?</g>(.*?)</g>', drawn)[1]
    assert re.findall(r">([^<]+)</text>", first) == [f"{n} µs" for n in range(10, 70, 10)]


def test_memory_that_is_freed_is_drawn_below_zero():
    drawn, _ = profile_timeline.picture(profiled.gpu(memory=((0.0, 0), (10.0, -4096), (50.0, 4096))))
    assert "memory, 4 KB at most, 4 KB freed" in drawn and "M0 22" in drawn


@pytest.mark.parametrize(
    ("count", "said"), [(0, "none"), (128, "128 B"), (4198400, "4 MB"), (1 << 36, "64 GB"), (1536, "1.5 KB")]
)
def test_sizes(count, said):
    assert profile_words.size(count) == said


def test_blocks_and_names():
    assert [profile_words.shape(s) for s in ((256, 1, 1), (16, 16, 1), (1, 1, 1), ())] == ["256", "16 x 16", "1", ""]
    assert profile_words.clipped("a" * 100) == "a" * 44 + " ... " + "a" * 11
    assert profile_words.clipped("short") == "short"


@pytest.fixture
def page(opened):
    """Opens a report's html in a browser, with or without scripts."""
    return lambda report, scripts: opened(html.of(report), scripts)


def widths(page):
    outer, inner = page.locator(".scroll").bounding_box(), page.locator(".scroll > svg").bounding_box()
    return round(inner["width"] / (outer["width"] - 20))


def test_it_is_zoomed_without_a_script(page):
    span = Span("aten::short", "kernel", "CPU", 50.0, 0.6, 0, "forward")
    shown = page(profiled.gpu(timeline=(*profiled.gpu().timeline, span)), scripts=False)
    name = shown.locator("svg text:text-is('aten::short')")
    assert widths(shown) == 1 and not name.is_visible()  # it has no room for its name
    assert shown.locator("svg text:text-is('lab::rmsnorm_forward')").is_visible()
    shown.click(".zoom label:nth-of-type(3)")
    assert widths(shown) == 16 and name.is_visible()
    shown.click(".zoom label:nth-of-type(1)")
    assert widths(shown) == 1


def test_the_wheel_zooms_around_the_pointer(page):
    shown = page(profiled.gpu(), scripts=True)
    box = shown.locator(".scroll").bounding_box()
    shown.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    shown.keyboard.down("Control")
    for _ in range(3):
        shown.mouse.wheel(0, -200)
    shown.keyboard.up("Control")
    shown.wait_for_function("parseFloat(document.querySelector('.scroll > svg').style.width) > 350")
    place = shown.evaluate(
        "(() => { const s = document.querySelector('.scroll'); return (s.scrollLeft + s.clientWidth / 2) / s.scrollWidth })()"
    )
    assert place == pytest.approx(0.5, abs=0.03)
    assert shown.locator(".zoom .z4, .zoom .z16").evaluate_all("buttons => buttons.some(b => b.checked)")


def test_what_stays_in_cache_has_no_share_of_memory():
    found = profiled.gpu()
    quick = dataclasses.replace(found, copy_gb_per_s=found.phases[0].gb_per_s / 2)
    assert profile_words.reached(quick)[0] == "forward: 3,258 GB/s, in cache"
