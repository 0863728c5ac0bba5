"""A benchmark as text, html and pictures, from plain data."""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from workbench.measure import advice
from workbench.reports.measurement import COPY, MATRIX, Bench, BenchRow, Ceiling, Work
from workbench.show import bench_plot, html

OWN = BenchRow(
    "llama", "bfloat16", "forward", "v7", time_us=41.2, low_us=41.0, high_us=41.4, ratio=1.0, ratio_low=1.0,
    ratio_high=1.0, gb_per_s=3741.0, share=0.87, ceiling=COPY, launch_us=3.1, peak_mb=67.1, samples=40, own=True,
)  # fmt: skip


def rival(name, ratio, verdict, **changes):
    made = replace(
        OWN, contestant=name, own=False, time_us=41.2 * ratio, low_us=41.0 * ratio, high_us=41.4 * ratio, ratio=ratio,
        ratio_low=ratio - 0.02, ratio_high=ratio + 0.02, verdict=verdict, gb_per_s=3741 / ratio, share=0.87 / ratio,
    )  # fmt: skip
    return replace(made, **changes)


def report(**changes):
    rows = (
        OWN, rival("v6", 1.14, "FASTER"), rival("torch.compile", 1.0, "SAME"), rival("reference", 0.9, "SLOWER"),
        BenchRow("llama", "bfloat16", "forward", "<mine>", "differs", detail="out: 3 of 4 elements differ"),
    )  # fmt: skip
    made = Bench(
        "lab::rmsnorm", "cuda", "NVIDIA H200", "v7", rows, cold=True, clock="clock steady at 1,980 MHz", seconds=3.14,
        ceilings=(Ceiling(COPY, 4280.0),), notes=("noisy: the middle half of the times of v7 on llama is 31 % wide",),
        work=((("llama", "bfloat16", "forward"), Work(134e6, 0, "its tensors")),),
        advice=("13 % to copy bandwidth on llama bfloat16: `rmsnorm.inspect()` shows its loads and loops.",),
    )  # fmt: skip
    return replace(made, **changes)


def sweep(flops=0.0):
    rows = []
    for n in (256, 1024, 4096):
        values = (("cols", n),)
        at = {"case": f"cols={n}", "values": values, "gflop_per_s": flops}
        rows += [replace(OWN, **at), rival("v6", 1.14, "UNCLEAR", **at)]
    work = tuple(((r.case, r.dtype, r.slot), Work(1e6, 1e6 * bool(flops))) for r in rows if r.own)
    ceilings = (Ceiling(COPY, 4280.0), Ceiling(MATRIX, 700e3, "bfloat16"))
    return report(rows=tuple(rows), sweep=("cols",), work=work, ceilings=ceilings)


def test_as_text():
    lines = str(report()).splitlines()
    assert lines[0] == "lab::rmsnorm bench | v7 on NVIDIA H200 | 3.1 s"
    assert lines[1].split() == ["on", "time", "ratio", "95", "%", "verdict", "rate", "share", "peak"]
    assert [re.sub(r"  +", " | ", line.strip()) for line in lines[2:7]] == [
        "llama bf16 | v7 | 41.2 us | 3,741 GB/s | 87 % of copy | 67.1 MB",
        "v6 | 47 us | 1.14 | 1.12 to 1.16 | v7 FASTER | 3,282 GB/s | 76 % of copy | 67.1 MB",
        "torch.compile | 41.2 us | 1.00 | 0.98 to 1.02 | SAME | 3,741 GB/s | 87 % of copy | 67.1 MB",
        "reference | 37.1 us | 0.90 | 0.88 to 0.92 | v7 SLOWER | 4,157 GB/s | 97 % of copy | 67.1 MB",
        "<mine> | differs",
    ]
    assert lines[7:] == [
        "  <mine> on llama bf16: out: 3 of 4 elements differ",
        "  launch cost 3.1 us apart; 40 samples in turn; cold L2; clock steady at 1,980 MHz; NVIDIA H200;",
        "    intervals of 95 %",
        "  ceilings measured here: copy 4,280 GB/s",
        "  note: noisy: the middle half of the times of v7 on llama is 31 % wide",
        "  next: 13 % to copy bandwidth on llama bfloat16: rmsnorm.inspect() shows its loads and loops.",
    ]


def test_as_html_table_caption_and_advice():
    made = html.of(report())
    assert "&lt;mine&gt;" in made
    assert '<span class="good">v7 FASTER</span>' in made
    assert '<span class="bad">v7 SLOWER</span>' in made
    assert '<span class="soft">SAME</span>' in made
    assert "launch cost 3.1 µs apart; 40 samples in turn; cold L2; clock steady at 1,980 MHz" in made
    assert '<span class="acc">Next: 13 % to copy bandwidth on llama bfloat16: <code>rmsnorm.inspect()</code>' in made
    assert 'class="plot"' in made
    assert "<h3>lab::rmsnorm</h3>" in made
    assert "<h3>" not in html.body(report(), heading=False), "a card has said it"


def test_rows_alone_need_no_picture():
    alone = report(rows=(OWN,))
    assert bench_plot.pictures(alone) == []
    assert "41.2 µs" in html.of(alone)
    assert html.of(report(rows=()))


def test_a_sweep_is_lines_with_bands_under_the_ceiling():
    ((svg, caption),) = bench_plot.pictures(sweep())
    root = ET.fromstring(svg)
    words = [t.text for t in root.iter() if t.tag.endswith("text")]
    assert {"256", "1k", "4k", "v7", "v6", "copy 4,280"} <= set(words)
    assert caption == "GB/s over cols, bf16, cold L2; bands are 95 % intervals"
    assert svg.count("opacity: 0.13") >= 2
    made = html.of(sweep())
    assert '<th>cols</th><th class="n">time</th>' in made
    assert "1.14 UNCLEAR" in made


def test_a_roofline_places_every_version_where_operations_are_known():
    pictures = bench_plot.pictures(sweep(flops=40_000.0))
    assert len(pictures) == 2
    words = [t.text for t in ET.fromstring(pictures[1][0]).iter() if t.tag.endswith("text")]
    assert {"operations a byte", "bf16 700 TFLOP/s", "v7", "v6"} <= set(words)


def test_dtypes_and_slots_have_plots_of_their_own():
    base = sweep()
    other = tuple(replace(r, dtype="float32") for r in base.rows)
    assert len(bench_plot.pictures(replace(base, rows=base.rows + other))) == 2
    words = [replace(r, values=(("mode", "a" if i < 2 else "b"),)) for i, r in enumerate(base.rows)]
    assert bench_plot.swept(replace(base, rows=tuple(words), sweep=("mode",))) == "", "no axis of numbers"


@pytest.mark.parametrize(
    ("value", "said"), [(256, "256"), (1024, "1k"), (16384, "16k"), (1 << 20, "1M"), (1500, "1500"), (0.5, "0.5")]
)
def test_sizes_on_an_axis(value, said):
    assert bench_plot.thousands(value) == said


def advised(*rows, **changes):
    return advice.advice(report(rows=rows, advice=(), **changes))


def test_advice_follows_from_the_figures():
    assert advised(OWN) == (
        "13 % to copy bandwidth on llama bfloat16: little is left; less data (a smaller dtype, fusing with a neighbour) would help.",
    )
    assert advised(replace(OWN, share=0.3)) == (
        "70 % to copy bandwidth on llama bfloat16: `rmsnorm.profile()` shows what else it waits for.",
    )
    assert advised(replace(OWN, share=3.0))[0].startswith("llama bfloat16 stays in cache")
    small = ((("llama", "bfloat16", "forward"), Work(4096.0)),)
    assert "so small that the call itself" in advised(replace(OWN, share=0.1), work=small)[0]
    assert advised(replace(OWN, share=0, launch_us=90.0)) == (
        "On llama bfloat16 launching takes 90 us, longer than the device works: larger inputs, or a CUDA graph, hide it.",
    )
    assert advised(OWN, rival("reference", 0.5, "SLOWER"))[0] == (
        "reference is 2 times as fast on llama bfloat16: `rmsnorm.profile()` shows where the time goes."
    )
    assert advised(OWN, rival("v6", 1.0, "UNCLEAR"))[-1] == (
        "Unclear against v6 on llama bfloat16: `rmsnorm.bench(budget=20)`, or a quieter machine, would tell."
    )
    assert advised(rival("v6", 1.0, "SAME")) == ()


def test_noise_is_told_only_where_there_is_some():
    assert advice.noise("v7", "llama", [1.0] * 30, "cuda") == (0.0, "")
    assert advice.noise("v7", "llama", [1.0, 1.5] * 20, "cpu")[1] == (
        "noisy: the middle half of the times of v7 on llama is 40 % wide"
    )
    rising = [1.0 + 0.001 * i for i in range(300)]
    assert "drift: the last third of the times of v7 on llama took" in advice.noise("v7", "llama", rising, "cuda")[1]
