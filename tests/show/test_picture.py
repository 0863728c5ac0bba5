"""The picture of a mismatch: its map, the borders of blocks, the histogram, and the row of a check that holds it."""

from __future__ import annotations

import dataclasses
import re

from tests.show.samples import never_written
from workbench.reports.report import Check, Mismatch, Row
from workbench.show import html, picture, text


def blocks(**changes) -> Mismatch:
    """64 columns, the last 8 wrong, with errors."""
    errors = tuple(tuple(1.0 if c >= 56 else 1e-7 for c in range(64)) for _ in range(4))
    wrong = tuple(tuple(float(c >= 56) for c in range(64)) for _ in range(4))
    made = Mismatch(
        "out", (4, 64), 32, 256, 0, (((0, 56), 0.0, 1.5),), wrong, errors, ((None, 200), (-7, 24), (0, 32)),
        ("x[0, 56]=0.75",), (16,),
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def test_borders_are_drawn_at_the_blocks_that_a_kernel_declares():
    assert picture.borders_of(blocks()) == ([], [16.0, 32.0, 48.0])
    assert picture.borders_of(blocks(borders=(64, 512, 32))) == ([], [32.0])
    assert picture.borders_of(blocks(borders=(2,))) == ([], []), "31 lines would hide the cells"
    assert picture.borders_of(never_written())[1] == [32, 64], "a period in the errors themselves comes first"


def test_rounding_is_not_drawn():
    svg = picture.error_map(blocks())
    assert svg.count("<path") == 1 and 'opacity="0.9"' in svg and "M56 0h8v1h-8z" in svg
    assert svg.count("<line") == 3


def test_what_is_not_wrong_is_not_drawn_beside_nan():
    """The largest finite error is then one of rounding, and a share of it says nothing."""
    errors = tuple(tuple(1.0 if c >= 56 else 0.8 for c in range(64)) for _ in range(4))
    svg = picture.error_map(blocks(errors=errors, worst=(((0, 56), float("nan"), 1.5),)))
    assert svg.count("<path") == 1 and "M56 0h8v1h-8z" in svg and "M0 0" not in svg


def test_a_tall_map_stays_on_the_page():
    def high(rows: int, columns: int) -> int:
        wrong = tuple((1.0,) * columns for _ in range(rows))
        svg = picture.error_map(blocks(wrong=wrong, errors=(), shape=(rows, columns)))
        return int(re.search(r'height="(\d+)"', svg)[1])

    assert (high(64, 3), high(20, 3), high(64, 96), high(1, 96)) == (256, 240, 256, 14)


def test_the_histogram_is_logarithmic_and_says_its_counts():
    svg = picture.histogram(blocks())
    assert re.findall(r"<title>([\d,]+)</title>", svg) == ["200", "24", "32"]
    assert re.findall(r">(0|1e-7|1e0)</text>", svg) == ["0", "1e-7", "1e0"]
    heights = [int(h) for h in re.findall(r'height="(\d+)"><title>', svg)]
    assert heights[0] == picture.HIGH and heights[1] > picture.HIGH / 2
    assert svg.count('class="off"') == 1, "only what is no rounding stands out"
    assert picture.histogram(blocks(histogram=())) == ""


def test_a_failed_row_shows_it():
    check = Check("lab::f", (Row("sizes", "odd", "fail", "differs", "Look.", blocks(inputs=("<b>=1",))),))
    shown = html.check(check)
    assert "<svg" in shown and "&lt;b&gt;=1" in shown and "dashes every 16 columns, a block" in shown
    said = text.check(check)
    assert "relative errors, from 0 up by powers of ten: 0: 200; 1e-7: 24; 1e0: 32" in said
    assert re.search(r"\[0, 56\]\s+0\.0000\s+1\.5000\s+<b>=1", said)
    assert check.to_dict()["rows"][0]["mismatch"]["total"] == 256
