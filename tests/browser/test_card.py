"""The card of the tour's op in JupyterLab: read, clicked, stopped, restored, and read again without its kernel."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest

from tests.browser.lab import THEMES

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]
TOUR = Path(__file__).parents[2] / "notebooks" / "01_tour.ipynb"
STEPS = (
    "Load",
    "An op in plain PyTorch",
    "The forward in C++",
    "One line more",
    "Off by one, on purpose",
    "Check",
    "The card",
)
MORE = (
    "full = rmsnorm.check(level='full')",
    "print(len(full.rows), [r.detail for r in full.rows][-1])",
    "print(rmsnorm.bench(against=['former', 'reference'], budget=2))",
    "_ = rmsnorm.profile('llama')",
    "rmsnorm",
)


def steps() -> list[str]:
    """The sources of the tour's cells under these headings, then ours."""
    heading, found = "", {}
    for cell in nbformat.read(TOUR, as_version=4).cells:
        if cell.cell_type == "markdown":
            heading = (re.findall(r"^#+ (.*)$", cell.source, re.MULTILINE) or [heading])[-1]
        else:
            found[heading] = cell.source
    return [found[name] for name in STEPS] + list(MORE)


@pytest.fixture(scope="module")
def book(lab, open_book):
    """The tour in a browser, run up to its card."""
    opened = open_book(lab.write("tour", steps()))
    opened.ready()
    opened.run(*range(len(STEPS)))
    return opened


CARD, FULL, ROWS, BENCH, PROFILE, AGAIN = (len(STEPS) - 1 + i for i in range(6))


def card(book):
    return book.cell(CARD).locator(".wb-card")


def tab(book, title: str):
    return card(book).locator(".lm-TabBar-tab", has_text=title)


def test_the_card_is_a_widget_and_its_html_hides(book):
    from playwright.sync_api import expect

    expect(card(book)).to_be_visible()
    assert book.cell(CARD).locator("details").count() > 0, "the html is there"
    assert book.cell(CARD).locator(".tabs:visible").count() == 0
    head = card(book).locator("table.slots").inner_text()
    assert re.search(r"forward cpu\s+v2 raw C\+\+\s+(pass)?\s*4 of 4\s+[\d.]+ ms", head), head


def test_each_tab_shows_what_it_is_called(book, pictures):
    from playwright.sync_api import expect

    wanted = {"Check": "agreement", "Code": "#pragma omp parallel for", "History": "what changed"}
    assert [t.strip() for t in card(book).locator(".lm-TabBar-tab").all_inner_texts()] == list(wanted)
    for title, says in wanted.items():
        tab(book, title).click()
        expect(card(book).locator(".widget-tab-contents")).to_contain_text(says)
        card(book).screenshot(path=str(pictures / f"tab_{title.lower()}.png"))


def test_a_row_of_the_ledger_opens_to_what_changed(book):
    tab(book, "History").click()
    card(book).locator(".wb-version", has_text="v2").locator("summary").click()
    assert "#pragma omp parallel for" in card(book).locator("pre.diff:visible").inner_text()


def test_rows_of_the_ledger_line_up(book):
    tab(book, "History").click()
    lefts = [
        [round(c.bounding_box()["x"]) for c in row.locator("th:not(.w), td:not(.w):not(:has(details))").all()]
        for row in card(book).locator("table.ledger tr:visible").all()
    ]
    assert len(lefts) == 4 and all(row == lefts[0] for row in lefts)


def test_the_restore_button_puts_a_version_back(book):
    from playwright.sync_api import expect

    tab(book, "History").click()
    card(book).get_by_role("button", name="Restore").click()
    expect(card(book).locator("table.slots")).to_contain_text("v1 raw C++")
    card(book).get_by_role("button", name="Restore").click()
    expect(card(book).locator("table.slots")).to_contain_text("v2 raw C++")


def test_the_stop_button_of_the_card_ends_a_full_check_and_keeps_its_rows(book, pictures):
    from playwright.sync_api import expect

    book.start(FULL)
    stop = card(book).get_by_role("button", name="Stop")
    stop.wait_for()
    assert re.search(r"\d+ of \d+", card(book).locator(".wb-running").inner_text())
    expect(book.cell(FULL).get_by_role("button", name="Stop")).to_be_visible()
    card(book).screenshot(path=str(pictures / "running.png"))
    stop.click()
    book.finished(FULL)
    assert book.cell(FULL).locator(".jp-RenderedText[data-mime-type*='stderr']").count() == 0
    book.run(ROWS)
    rows, said = book.output(ROWS).inner_text().split(" ", 1)
    assert int(rows) > 0 and "interrupt" in said
    expect(card(book).locator(".wb-running button")).to_have_count(0)
    expect(tab(book, "Check")).to_have_class(re.compile("lm-mod-current"))
    expect(card(book)).to_contain_text("full check")


def test_a_bench_and_a_profile_open_their_tabs_in_the_card_above(book, pictures):
    from playwright.sync_api import expect

    expect(card(book).locator("table.slots")).to_contain_text("rough")
    book.run(BENCH)
    expect(tab(book, "Bench")).to_have_class(re.compile("lm-mod-current"))
    expect(card(book).locator("table.slots")).not_to_contain_text("rough")
    measured = re.search(r"v2 +([\d.]+ m?s)", book.cell(BENCH).locator(".jp-RenderedText").inner_text())[1]
    expect(card(book).locator(".widget-tab-contents")).to_contain_text(measured)
    expect(card(book).locator("svg.plot")).to_be_visible()
    card(book).screenshot(path=str(pictures / "tab_bench.png"))
    book.run(PROFILE)
    expect(tab(book, "Profile")).to_have_class(re.compile("lm-mod-current"))
    expect(card(book).locator(".widget-tab-contents")).to_contain_text("lab::rmsnorm_forward")
    card(book).screenshot(path=str(pictures / "tab_profile.png"))
    tab(book, "History").click()
    expect(card(book).locator(".wb-version", has_text="v2").first).to_contain_text(
        re.compile("FASTER|SLOWER|SAME|UNCLEAR")
    )


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_without_its_kernel_the_numbers_are_still_there(book, lab, open_book, pictures, theme):
    book.run(AGAIN)
    book.save()
    saved = nbformat.read(book.path, as_version=4)
    shown = saved.cells[CARD].outputs
    assert sorted(shown[0]["data"]) == ["text/html", "text/plain"]
    assert len(json.dumps(shown)) < 400_000
    copy = lab.notebooks / f"read_{theme.split()[-1].lower()}.ipynb"
    copy.write_text(book.path.read_text())
    lab.set(THEMES, {"theme": theme})
    reader = open_book(copy)
    opened = reader.cell(CARD)
    opened.locator(".wb .card").wait_for()
    assert "Error displaying widget" not in reader.page.locator(".jp-Notebook").inner_text()
    assert re.search(r"forward cpu\s+v2 raw C\+\+", opened.inner_text())
    opened.locator("summary", has_text="History").click()
    assert "built in" in opened.inner_text()
    opened.screenshot(path=str(pictures / f"{theme.split()[-1].lower()}.png"))
