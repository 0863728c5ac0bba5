import json

import pytest

from tools import figures

RESULT = {
    "date": "2026-01-02",
    "machine": {"cpu": "A Processor", "cores": 2, "system": "Linux"},
    "versions": {"torch": "2.13.0", "g++": "g++ 12.2.0"},
    "figures": [
        {
            "what": "raw edit",
            "value": 0.0812,
            "unit": "s",
            "wanted": 0.15,
            "at_least": False,
            "note": "over 10",
            "holds": True,
        },
        {
            "what": "  raw edit is faster",
            "value": 90.4,
            "unit": "x",
            "wanted": 120,
            "at_least": True,
            "note": "",
            "holds": False,
        },
        {
            "what": "load_inline",
            "value": 25.1,
            "unit": "s",
            "wanted": None,
            "at_least": False,
            "note": "",
            "holds": True,
        },
    ],
}
SHOWN = """\
**Edits**

| | measured | wanted | |
|---|---:|---:|---|
| raw edit | 0.0812 s | <= 0.15 s | over 10 |
| raw edit is faster | 90.4 x | >= 120 x | **missed** |
| load_inline | 25.1 s |  |  |

A Processor, 2 cores; torch 2.13.0, g++ 12.2.0; 2026-01-02."""


def test_a_result_as_a_table():
    assert figures.table("Edits", RESULT) == SHOWN


@pytest.mark.parametrize(("gpus", "said"), [
    (["NVIDIA H200, 580.82.07"], "NVIDIA H200, driver 580.82.07, CUDA 13.0; A Processor, 2 cores; torch 2.13.0, triton 3.6.0, g++ 12.2.0"),
    (["NVIDIA H200, 580.82.07"] * 2, "2 x NVIDIA H200, driver 580.82.07, CUDA 13.0; A Processor, 2 cores; torch 2.13.0, triton 3.6.0, g++ 12.2.0"),
    ([], "A Processor, 2 cores; torch 2.13.0, g++ 12.2.0"),
])  # fmt: skip
def test_what_was_measured_on_a_gpu_names_it_first(gpus, said):
    result = {
        "machine": {**RESULT["machine"], "gpus": gpus, "cuda": "13.0"},
        "versions": {**RESULT["versions"], "triton": "3.6.0"},
    }
    assert figures.measured_on(result) == said


@pytest.mark.parametrize("name", ["gpu_latency", "gpu_speed", "inspect_latency"])
def test_each_benchmark_that_writes_a_result_has_a_title(tmp_path, name):
    (tmp_path / f"{name}.json").write_text(json.dumps(RESULT))
    assert figures.render(tmp_path).startswith(f"**{figures.TITLES[name]}**")


def test_results_come_in_the_order_of_reading(tmp_path):
    assert figures.render(tmp_path) == figures.NOTHING
    (tmp_path / "call_overhead.json").write_text(json.dumps(RESULT))
    (tmp_path / "edit_latency.json").write_text(json.dumps(RESULT))
    shown = figures.render(tmp_path)
    assert (
        0
        == shown.index(f"**{figures.TITLES['edit_latency']}**")
        < shown.index(f"**{figures.TITLES['call_overhead']}**")
    )


def test_only_what_is_between_the_marks_changes():
    text = f"before\n{figures.BEGIN}\nold\n{figures.END}\nafter"
    assert figures.written(text, "new") == f"before\n{figures.BEGIN}\n\nnew\n\n{figures.END}\nafter"
    with pytest.raises(SystemExit, match="no place for them"):
        figures.written("before", "new")


def test_the_readme_says_what_was_measured():
    text = figures.README.read_text()
    assert figures.written(text, figures.front()) == text, "run: .venv/bin/python tools/figures.py"
    said = f"{figures.PREFACE}\n\n{figures.render()}\n"
    assert figures.ALL.read_text() == said, "run: .venv/bin/python tools/figures.py"


def test_the_front_shows_chosen_figures_and_all_that_was_missed(tmp_path):
    rows = [
        {"what": "raw edit", "value": 0.08, "unit": "s", "wanted": 0.15, "at_least": False, "note": "", "holds": True},
        {
            "what": "raw edit is faster",
            "value": 200,
            "unit": "x",
            "wanted": 120,
            "at_least": True,
            "note": "",
            "holds": True,
        },
        {
            "what": "raw edit is faster",
            "value": 12,
            "unit": "x",
            "wanted": None,
            "at_least": True,
            "note": "",
            "holds": True,
        },
        {
            "what": "an edit of <vector>",
            "value": 1,
            "unit": "s",
            "wanted": None,
            "at_least": False,
            "note": "",
            "holds": True,
        },
        {
            "what": "faster than load_inline",
            "value": 3,
            "unit": "x",
            "wanted": 8,
            "at_least": True,
            "note": "10 s",
            "holds": False,
        },
    ]
    (tmp_path / "edit_latency.json").write_text(json.dumps({**RESULT, "figures": rows}))
    assert (
        figures.front(tmp_path)
        == """| | measured | wanted | |
|---|---:|---:|---|
| C++ edit, run to installed and checked | 0.08 s | <= 0.15 s |  |
| ... against `load_inline` | 200 x | >= 120 x |  |
| an edit of `<vector>`, faster than load_inline | 3 x | >= 8 x | **missed** |"""
    )
    assert figures.front(tmp_path / "nowhere") == figures.NOTHING
