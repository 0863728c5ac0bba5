import builtins
import dataclasses
import re
import subprocess
import sys

import ipywidgets
import pytest
import samples

from workbench import show
from workbench.show import widget


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(show, "live", lambda: True)


def everything(box):
    """Each widget below `box` by its class name."""
    found = {}
    for child in getattr(box, "children", ()):
        found.setdefault(type(child).__name__, []).append(child)
        for name, inner in everything(child).items():
            found.setdefault(name, []).extend(inner)
    return found


def test_a_report_outside_a_kernel_has_text_and_html():
    data = show.bundle(samples.card())
    assert sorted(data) == ["text/html", "text/plain"]
    assert data["text/plain"] == str(samples.card())
    assert samples.installed()._repr_mimebundle_()["text/html"].startswith("<style>")


def test_a_card_in_a_kernel_carries_no_view_that_would_be_gone_with_the_kernel(kernel):
    assert sorted(show.bundle(samples.card())) == ["text/html", "text/plain"]


def test_the_widget_of_a_card_is_there_in_a_kernel_alone(kernel):
    assert type(show.widget_of(samples.card())).__name__ in ("VBox", "Box")


def test_outside_a_kernel_the_card_is_its_own_widget():
    card = samples.card()
    assert show.widget_of(card) is card


def test_lines_are_never_widgets(kernel):
    assert sorted(show.bundle(samples.installed())) == ["text/html", "text/plain"]


def test_without_ipywidgets_text_and_html_remain(kernel, monkeypatch):
    for name in [n for n in sys.modules if n.partition(".")[0] == "ipywidgets"] + ["workbench.show.widget"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(show, "widget", raising=False)
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.partition(".")[0] == "ipywidgets":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    card = samples.card()
    assert show.widget_of(card) is card


def test_import_is_light():
    light = "import sys, importlib.util as u; import types; p = types.ModuleType('workbench'); p.__path__ = ['workbench']; sys.modules['workbench'] = p\n"
    light += (
        "import workbench.show; print([m for m in ('torch', 'ipywidgets', 'IPython', 'pygments') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", light],
        capture_output=True,
        text=True,
        check=True,
        cwd=show.__file__.rpartition("/workbench/")[0],
    )
    assert done.stdout.strip() == "[]"


def test_the_tabs_are_those_that_exist():
    box = widget.of(samples.card(opened="Code"))
    (tabs,) = everything(box)["Tab"]
    assert tabs.titles == ("Check", "Code", "History")
    assert tabs.selected_index == 1
    assert "lab::rmsnorm" in box.children[0].value and "<style>" in box.children[0].value
    assert "<style>" not in tabs.children[0].value


def test_a_card_with_nothing_behind_it_has_no_tabs():
    box = widget.of(samples.card(check=None, history=(), code=()))
    assert "Tab" not in everything(box)


def buttons(box):
    return [b for b in everything(box).get("Button", ()) if b.description == "Restore"]


def test_a_version_of_another_schema_has_no_button():
    card = samples.card(opened="History")
    former = [h for h in card.history if h.status == "former"]
    other = tuple(dataclasses.replace(h, status="other schema") if h is former[0] else h for h in card.history)
    assert len(buttons(widget.of(dataclasses.replace(card, history=other), print))) == len(former) - 1


def test_each_former_version_in_sight_has_a_button_that_restores_it():
    asked = []
    box = widget.of(samples.card(), restore=asked.append)
    six, one = buttons(box)
    assert [b.tooltip for b in (six, one)] == ["Make the op run v6 again", "Make the op run v1 again"]
    one.click()
    assert asked == [1] and not one.disabled
    assert any("v1 runs again" in h.value for h in everything(box)["HTML"])


def test_older_versions_are_restored_by_choice():
    asked = []
    box = widget.of(samples.large(), restore=asked.append)
    (choice,) = everything(box)["Dropdown"]
    former = [v for v in range(188, 0, -1) if v % 3]
    assert [value for _, value in choice.options] == former
    choice.value = 5
    buttons(box)[-1].click()
    assert asked == [5]
    assert len(buttons(box)) == sum(v % 3 > 0 for v in range(189, 201)) + 1


def test_rows_of_the_ledger_line_up():
    box = widget.of(samples.card(), restore=print)
    rows = [h.value for h in everything(box)["HTML"] if 'class="ledger' in h.value]
    assert len(rows) == 6 and len({re.search('--cols:([^"]*)', r)[1] for r in rows}) == 1


def test_a_card_that_comes_back_replaces_the_old_one():
    restored = samples.card(name="lab::now", history=samples.card().history[:1])
    box = widget.of(samples.card(opened="History"), restore=lambda version: restored)
    before = buttons(box)
    before[0].click()
    assert "lab::now" in box.children[0].value
    assert before[1].comm is None  # closed, with all that was in it
    assert len(buttons(box)) == 1


def test_only_what_changed_is_sent_again():
    living = widget.Living(samples.card(opened="Code"))
    before, code = living.tabs.children, living.panes["Code"].value
    living.panes["Code"].value = "untouched"
    living.update(samples.card(check=dataclasses.replace(samples.check(), rows=()), opened="Check"))
    assert living.tabs.children == before and living.panes["Code"].value == "untouched"
    assert "nothing checked" in living.panes["Check"].value and living.tabs.selected_index == 0
    living.update(samples.card(check=None, opened="Code", code=()))
    assert living.tabs.titles == ("History",) and code


def test_a_ledger_out_of_sight_may_come_later():
    living = widget.Living(samples.card(opened="Check"), print, later=True)
    assert buttons(living.box) == [] and "History" in living.tabs.titles
    living.complete()
    living.complete()
    assert len(buttons(living.box)) == 2
    assert len(buttons(widget.Living(samples.card(opened="History"), print, later=True).box)) == 2


def test_a_tab_that_was_opened_stays_open_where_nothing_changed():
    living = widget.Living(samples.card(opened="Check"))
    living.tabs.selected_index = 2
    living.update(samples.card(opened="Check", notes=("another note",)))
    assert living.tabs.selected_index == 2 and "another note" in living.head.value


def test_an_error_of_restore_is_shown_and_the_button_works_again():
    def fail(version):
        raise RuntimeError("<no> such version")

    box = widget.of(samples.card(), restore=fail)
    button = buttons(box)[0]
    button.click()
    assert any("&lt;no&gt; such version" in h.value for h in everything(box)["HTML"])
    assert not button.disabled


def test_without_a_callback_there_is_no_button():
    assert "Button" not in everything(widget.of(samples.card()))
    assert isinstance(widget.of(samples.card()), ipywidgets.VBox)
