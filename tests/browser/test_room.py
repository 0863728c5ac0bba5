"""Cards with wide content in JupyterLab: what does not fit is wrapped or scrolls inside; and what is left when the
kernel is gone. The reports are made up: nothing is built here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]
LOAD = f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[1] / 'show')!r})\nimport inspected, samples\nfrom workbench.show import widget, inspect_widget"
CELLS = (
    LOAD,
    "widget.of(samples.wide(), restore=print)",
    "inspect_widget.of(inspected.wide())",
    "inspect_widget.of(inspected.wide_pair())",
)
CARD, INSPECTION, PAIR = 1, 2, 3
WIDTHS = (1280, 1920)
# The box of an element's text, which may be smaller or larger than the element.
TEXT_BOX = (
    "e => { const r = document.createRange(); r.selectNodeContents(e); return r.getBoundingClientRect().toJSON() }"
)


@pytest.fixture(scope="module")
def book(lab, open_book):
    opened = open_book(lab.write("room", CELLS))
    opened.ready()
    opened.run(*range(len(CELLS)))
    return opened


@pytest.fixture(params=WIDTHS)
def window(request, book):
    book.page.set_viewport_size({"width": request.param, "height": 1400})
    return request.param


def card(book, cell: int = CARD):
    return book.cell(cell).locator(".wb-card")


def tab(book, title: str) -> None:
    card(book).locator(".lm-TabBar-tab", has_text=title).click()


def inner_right(box) -> float:
    """The right edge of what a card holds."""
    return box.evaluate("e => e.getBoundingClientRect().right - parseFloat(getComputedStyle(e).paddingRight)")


def test_the_ledger_of_a_triton_kernel_is_readable(book, window, pictures):
    tab(book, "History")
    card(book).screenshot(path=str(pictures / f"ledger_{window}.png"))
    assert card(book).evaluate("e => e.scrollWidth <= e.clientWidth")
    rows = card(book).locator(".wb-version").all()
    assert len(rows) == 6
    assert max(row.bounding_box()["height"] for row in rows) < 100
    for cell in card(book).locator("table.ledger :is(td, th, summary):visible").all():
        assert cell.evaluate(TEXT_BOX)["right"] <= inner_right(card(book)) + 1
    refusal = card(book).locator(".ledger :is(td.w, summary):visible", has_text="out of bounds").last
    assert refusal.bounding_box()["width"] > 300
    registers = card(book).locator(".ledger span[title*='compiled for']").first
    assert (registers.inner_text(), registers.get_attribute("title").rpartition(", ")[2]) == (
        "24 regs",
        "16 bytes shared",
    )


def test_a_button_of_the_ledger_covers_no_text(book, window):
    tab(book, "History")
    buttons = [row for row in card(book).locator(".wb-version").all() if row.locator(".wb-restore").count()]
    assert len(buttons) == 2
    for row in buttons:
        left = row.locator(".wb-restore").bounding_box()["x"]
        texts = [c.evaluate(TEXT_BOX)["right"] for c in row.locator(":is(td, summary):visible").all()]
        assert max(texts) <= left, row.inner_text()


def test_code_scrolls_inside_the_card(book, window, pictures):
    tab(book, "Code")
    card(book).screenshot(path=str(pictures / f"code_{window}.png"))
    (box,) = card(book).locator("pre:visible").all()
    right, bottom = (box.evaluate(f"e => e.getBoundingClientRect().{edge}") for edge in ("right", "bottom"))
    assert right <= inner_right(card(book)) + 1
    bars = box.evaluate("e => [e.offsetWidth - e.clientWidth, e.offsetHeight - e.clientHeight]")
    assert min(bars) >= 8, "both scrollbars are in sight"
    box.evaluate("e => e.scrollTo(e.scrollWidth, e.scrollHeight)")
    text = box.locator("code").evaluate(TEXT_BOX)
    assert text["right"] <= right and text["bottom"] <= bottom, "the end of the code can be reached"


def test_the_panes_of_an_inspection_scroll_inside_it(book, window, pictures):
    shown = card(book, INSPECTION)
    shown.screenshot(path=str(pictures / f"inspect_{window}.png"))
    for pane in (shown.locator("select"), shown.locator("pre.stage")):
        box = pane.bounding_box()
        assert box["x"] + box["width"] <= inner_right(shown) + 1
        assert pane.evaluate("e => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX") == "auto"
        assert pane.evaluate("e => { e.scrollLeft = 1e5; return e.scrollLeft }") > 0
        pane.evaluate("e => { e.scrollLeft = 0 }")


def test_two_versions_side_by_side_are_told_in_full(book, window, pictures):
    shown = card(book, PAIR)
    shown.screenshot(path=str(pictures / f"pair_{window}.png"))
    cells = shown.locator(".diff td:visible")
    assert cells.count() > 0
    assert cells.evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)") == []
    assert shown.locator(".diff").evaluate("e => e.scrollWidth <= e.clientWidth")


def test_without_its_kernel_a_card_keeps_what_it_showed(book, pictures):
    """The last of this file: the kernel is a new one after it."""
    tab(book, "History")
    book.page.keyboard.press("Escape")
    book.page.get_by_role("button", name="Restart the kernel").first.click()
    book.page.get_by_role("button", name="Confirm Kernel Restart").click()
    card(book).and_(book.page.locator(".jupyter-widgets-disconnected")).wait_for()
    for cell in (CARD, INSPECTION, PAIR):
        marks = ":is(.wb-card, .wb-card *).jupyter-widgets-disconnected"
        drawn = "all => all.filter(e => getComputedStyle(e, '::before').display != 'none').length"
        found = book.cell(cell).locator(marks)
        assert found.count() > 3
        assert found.evaluate_all(drawn) == 0, "JupyterLab's broken links"
        assert "kernel" in card(book, cell).evaluate("e => getComputedStyle(e, '::after').content")
    assert card(book).locator("button:visible").count() == 0, "nothing to press that would do nothing"
    assert "out of bounds" in card(book).inner_text()
    tab(book, "Code")
    assert "kernel(x, y, n" in card(book).locator("pre:visible").inner_text()
    card(book).screenshot(path=str(pictures / "kernel_gone.png"))
