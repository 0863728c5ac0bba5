import builtins
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
    light += "import workbench.show; print([m for m in ('torch', 'ipywidgets', 'IPython', 'pygments') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", light], capture_output=True, text=True, check=True, cwd=show.__file__.rpartition("/workbench/")[0])
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
    assert "Tab" not in everything(box) and len(box.children) == 1


def test_restore_offers_former_versions_newest_first_and_calls_back():
    asked = []
    box = widget.of(samples.card(), restore=asked.append)
    found = everything(box)
    (choice,), (button,) = found["Dropdown"], found["Button"]
    assert [value for _, value in choice.options] == [6, 1]
    choice.value = 1
    button.click()
    assert asked == [1]
    assert any("restored v1" in h.value for h in everything(box)["HTML"])


def test_a_card_that_comes_back_replaces_the_old_one():
    box = widget.of(samples.card(opened="History"), restore=lambda version: samples.card(name=f"lab::now_v{version}"))
    before = everything(box)
    before["Button"][0].click()
    assert "lab::now_v6" in box.children[0].value
    assert before["Tab"][0].comm is None  # closed, with all that was in it
    assert before["Button"][0].comm is None


def test_an_error_of_restore_is_shown_and_the_button_works_again():
    def fail(version):
        raise RuntimeError("<no> such version")

    box = widget.of(samples.card(), restore=fail)
    button = everything(box)["Button"][0]
    button.click()
    assert any("&lt;no&gt; such version" in h.value for h in everything(box)["HTML"])
    assert not button.disabled


def test_without_a_callback_there_is_no_button():
    assert "Button" not in everything(widget.of(samples.card()))
    assert isinstance(widget.of(samples.card()), ipywidgets.VBox)
