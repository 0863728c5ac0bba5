"""The ledger's columns: what each says, how wide it may be, and how the static card looks with wide content."""

from __future__ import annotations

import dataclasses
import re

import pytest
import samples

from workbench.show import html, ledger

TALL_PX = 90  # a row with a sentence of two lines below it


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        (samples.RESOURCES, "24 regs"),
        ("38 regs, no spills, 1 KB shared", "38 regs"),
        ("255 regs, spills 40 bytes, 1 KB shared", "255 regs, spills 40 bytes"),
        ("interpreted", "interpreted"),
        ("", ""),
    ],
)
def test_the_column_of_registers_is_short(resources, said):
    assert ledger.taken(resources) == said


def test_what_it_leaves_out_is_its_title():
    shown = html.of(samples.wide())
    assert (
        '<span class="soft" title="interpreted, compiled for sm_90: 24 regs, no spills, 16 bytes shared">24 regs</span>'
        in shown
    )
    assert '<span class="soft">raw C++</span>' in shown


def test_no_column_is_wider_than_its_bound():
    row = dataclasses.replace(samples.wide().history[2], how="x" * 300, resources="y" * 300)
    rows = [row]
    used = ledger.used_columns(rows)
    assert max(ledger.widths(rows, used)) <= 0.9 * ledger.WIDEST + 3.4
    assert ledger.cells(rows)[0][2] == f'<span class="soft long">{"x" * 300}</span>', "it wraps"


def test_where_much_is_told_what_changed_stands_below():
    few, many = samples.card().history[:1], samples.wide().history
    assert [ledger.is_tight(rows, ledger.used_columns(rows)) for rows in (few, many)] == [False, True]
    assert re.findall('class="ledger( tight)?"', ledger.table(few) + ledger.table(many)) == ["", " tight"]
    parts = ledger.separate(many, ledger.used_columns(many))
    assert all('class="ledger tight"' in part for part in parts)


@pytest.fixture
def page(opened):
    """The wide card by itself, at the width that JupyterLab leaves it in a window of 1280 px, or another."""
    return opened(html.of(samples.wide()))


@pytest.mark.parametrize("width", [720, 846, 1920])
def test_the_static_card_holds_all_of_it(page, width):
    page.set_viewport_size({"width": width, "height": 1200})
    assert page.locator(".ledger").evaluate("e => e.scrollWidth <= e.clientWidth")
    rows = [r.bounding_box() for r in page.locator("table.ledger tr:visible").all()]
    assert len(rows) == 6 and max(r["height"] for r in rows) < TALL_PX
    refusal = page.locator(".ledger summary", has_text="out of bounds").first.bounding_box()
    assert refusal["width"] > 0.5 * rows[0]["width"]
    page.locator("summary", has_text="Code").click()
    box, card = (page.locator(s).first.bounding_box() for s in ("pre:visible", ".card"))
    assert box["x"] + box["width"] < card["x"] + card["width"]
