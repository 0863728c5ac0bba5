import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from workbench.show import plot

NUMBERS = [1, 2, 4, 8]


def line(axes):
    axes.fill_between(NUMBERS, NUMBERS, [2 * n for n in NUMBERS], color=plot.ACCENT, alpha=0.13, linewidth=0)
    axes.plot(NUMBERS, color=plot.ACCENT)
    axes.set_ylabel("GB/s & <more>")


def test_a_plot_is_one_svg_element_in_the_colours_of_the_page():
    made = plot.svg(line, 440, 210, "GB/s over columns")
    root = ET.fromstring(made)
    assert (root.tag, root.get("viewBox"), root.get("width"), root.get("aria-label")) == (
        "svg", "0 0 440 210", "440", "GB/s over columns",
    )  # fmt: skip
    assert "stroke: var(--accent, #0b6bcb)" in made
    assert re.findall(r"#[0-9a-f]{6}\b", re.sub(r"var\(--\w+, #\w{6}\)", "", made)) == [], "colours of its own"
    assert "GB/s &amp; &lt;more&gt;" in made, "text stays text, and is escaped"
    assert "DejaVu" not in made


def test_what_is_written_keeps_its_digits():
    def small(axes):
        axes.plot(NUMBERS)
        axes.set_yticks([2.0], ["0.00125 GFLOP/s"])

    made = plot.svg(small)
    assert ">0.00125 GFLOP/s<" in made and not re.search(r'[ "(]\d+\.\d{3}', made), "places have two digits"


def test_the_same_plot_is_the_same_text_and_another_one_shares_no_id_with_it():
    first, again = plot.svg(line), plot.svg(line)
    other = plot.svg(lambda axes: axes.plot(NUMBERS[::-1], color=plot.BAD))
    ids = [set(re.findall(r'id="([^"]+)"', made)) for made in (first, other)]
    assert first == again
    assert ids[0]
    assert not ids[0] & ids[1]
    assert set(re.findall(r"url\(#([^)]+)\)", first)) <= ids[0]


def test_the_users_style_stays_the_users():
    import matplotlib as mpl

    with mpl.rc_context({"axes.facecolor": "black", "svg.fonttype": "path"}):
        made = plot.svg(line)
        assert mpl.rcParams["svg.fonttype"] == "path"
    assert "<text" in made
    assert "000000" not in made


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        ([], []),
        ([5], [5]),
        ([10, 12, 80], [4.5, 17.5, 80]),
        ([95, 98, 99], [74, 87, 100]),
        ([10, 50, 90], [10, 50, 90]),
    ],
)
def test_labels_are_pushed_apart_as_little_as_need_be(wanted, got):
    assert plot.apart(wanted, 13, 100) == got


def test_names_stand_at_the_ends_of_lines():
    def draw(axes):
        axes.plot([1, 2], [1, 3], color=plot.ACCENT)
        plot.label_ends(axes, [(2, 3, "v7", plot.ACCENT), (2, 2.9, "reference", plot.SOFT)])

    made = plot.svg(draw)
    places = {m[2]: float(m[1]) for m in re.finditer(r'y="([\d.]+)">(v7|reference)</text>', made)}
    assert places["reference"] - places["v7"] >= 12


def test_without_matplotlib_a_report_says_so(tmp_path):
    program = "import sys; sys.modules['matplotlib'] = None\nfrom workbench.show import plot\nprint(plot.svg(print))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == '<p class="cap">not drawn: matplotlib is not installed</p>\n'
