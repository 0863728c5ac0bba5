"""How slow work shows itself: a line in a terminal, a line with a stop button in a notebook, and in the cards there."""

from __future__ import annotations

import io
import signal
import sys
import threading
import time
from dataclasses import dataclass

import pytest
import samples

from workbench.show import open_cards, progress, widget_running


@dataclass
class Step:
    op: str = "lab::rmsnorm"
    at: str = "sizes"
    done: int = 12
    of: int = 48
    seconds: float = 3.2


@dataclass
class Tuned(Step):
    best: str = "BLOCK=<64>, 41.2 us"
    left_s: float = 20.0


@pytest.fixture
def places(monkeypatch):
    """What is shown below the cell, one bundle after the other."""
    seen: list[dict] = []
    monkeypatch.setattr(progress, "place", lambda: lambda shown: seen.append(shown._repr_mimebundle_()))
    monkeypatch.setattr(progress, "followers", [])
    return seen


def test_progress_is_one_line():
    assert progress.line(Step()) == "lab::rmsnorm [####            ] 12 of 48, 3.2 s: sizes"
    assert len(progress.line(Step(at="x" * 200))) == 78


def test_progress_is_written_over_and_gone_at_the_end():
    stream = io.StringIO()
    with progress.shown(stream, live=True) as tell:
        tell(Step())
        tell(Step())  # too soon after the first
    assert stream.getvalue().count("lab::rmsnorm") == 1 and stream.getvalue().endswith("\r" + " " * 78 + "\r")
    quiet = io.StringIO()
    with progress.shown(quiet) as tell:
        tell(Step())
    assert quiet.getvalue() == ""


def test_time_left_is_what_the_work_says_or_its_pace():
    assert progress.counted(Step()) == "12 of 48, 3.2 s, about 9.6 s left"
    assert progress.counted(Tuned()) == "12 of 48, 3.2 s, about 20 s left"
    assert progress.counted(Step(done=1)) == "1 of 48, 3.2 s", "too early to guess"
    assert progress.counted(Step(done=0, of=0, seconds=0.0)) == "0 of 0, 0 ns"


def test_below_a_cell_is_a_line_with_a_stop_button_and_nothing_at_the_end(places):
    with progress.shown() as tell:
        tell(Tuned())
        tell(Tuned())  # too soon after the first
    first, last = places
    assert "application/vnd.jupyter.widget-view+json" in first and first["text/plain"] == ""
    assert "12 of 48, 3.2 s, about 20 s left: sizes" in first["text/html"] and "width:25%" in first["text/html"]
    assert "best so far BLOCK=&lt;64&gt;, 41.2 us" in first["text/html"]
    assert last == {"text/plain": "", "text/html": ""}
    with progress.shown():
        pass
    assert len(places) == 2, "what tells nothing takes no place"


def test_without_widgets_it_is_a_sentence(places, monkeypatch):
    monkeypatch.setattr(progress, "_strip", lambda: None)
    with progress.shown() as tell:
        tell(Tuned())
    assert "best so far BLOCK=&lt;64&gt;, 41.2 us; an interrupt keeps what is there" in places[0]["text/html"]


def test_the_stop_button_interrupts_the_work_that_runs(places):
    strip = widget_running.Strip()
    strip.tell(Step())
    (button,) = [w for w in strip.box.children if hasattr(w, "click")]
    button.click()  # nothing runs: nothing happens
    kept, begun = [], time.monotonic()
    with progress.shown() as tell:
        threading.Timer(0.2, button.click).start()  # as JupyterLab's message comes, in another thread
        try:
            while time.monotonic() - begun < 60:
                tell(Step())
                kept.append(1)
                time.sleep(0.01)
        except KeyboardInterrupt:
            kept.append("stopped")
    assert kept[0] == 1 and kept[-1] == "stopped"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    strip.end()
    assert strip.box.children == () and button.comm is None
    strip.close()


# ---------------------------------------------------------------- cards on the page


@pytest.fixture
def page(monkeypatch):
    """The bundles that cards put below their cells."""
    seen: list[dict] = []
    monkeypatch.setattr(open_cards, "publish", seen.append)
    monkeypatch.setattr(open_cards, "live", lambda: True)
    yield seen
    open_cards.forget()


class Looks:
    """An op that changes when it is told to."""

    def __init__(self):
        self.now, self.card = object(), samples.card()

    def __call__(self, seen):
        return None if seen is self.now else (self.now, self.card)

    def change(self, **changes):
        self.now, self.card = object(), samples.card(**changes)


def living(name="lab::rmsnorm"):
    return list(open_cards._open[name].cards)


def test_a_card_is_html_that_stays_and_a_widget_that_follows(page):
    look = Looks()
    open_cards.show("lab::rmsnorm", look, print)
    still, view = page
    assert sorted(still) == ["text/html", "text/plain"] and "two elements per thread" in still["text/html"]
    own = still["text/html"].partition('id="')[2].partition('"')[0]
    assert view["text/html"] == view["text/plain"] == "" and "application/vnd.jupyter.widget-view+json" in view
    assert f"#{own}" in living()[0].head.value and "display: none" in living()[0].head.value
    look.change(notes=("taken out",))
    open_cards.refresh()
    assert "taken out" in living()[0].head.value


def test_nothing_is_drawn_again_where_nothing_changed(page, monkeypatch):
    open_cards.show("lab::rmsnorm", Looks(), print)
    monkeypatch.setattr(living()[0], "update", lambda report: pytest.fail("drawn again"))
    open_cards.refresh()


def test_only_the_newest_cards_of_an_op_follow_it(page):
    look = Looks()
    for _ in range(5):
        open_cards.show("lab::rmsnorm", look, print)
    assert len(living()) == open_cards.FOLLOWED


def test_work_shows_in_the_cards_of_its_op(page, places):
    open_cards.show("lab::rmsnorm", Looks(), print)
    open_cards.show("lab::other", Looks(), print)
    progress.followers.append(open_cards.follow)
    (mine,), (other,) = living(), living("lab::other")
    with progress.shown() as tell:
        tell(Step())
        assert "12 of 48" in mine.strip.line.value and len(mine.strip.box.children) == 2
        assert other.strip.box.children == ()
    assert mine.strip.box.children == ()


def test_outside_a_notebook_ipython_is_asked_to_go_on():
    with pytest.raises(NotImplementedError):
        open_cards.show("lab::rmsnorm", Looks(), print)


def test_without_widgets_the_html_remains(page, monkeypatch):
    monkeypatch.setitem(sys.modules, "workbench.show.widget", None)
    open_cards.show("lab::rmsnorm", Looks(), print)
    assert len(page) == 1 and "lab::rmsnorm" in page[0]["text/html"]
