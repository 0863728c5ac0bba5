import pytest

from benchmarks import extension_latency, notebook

BUILDS = {"first": 3.0, "ours": [2.0, 9.0, 1.0], "theirs": [12.0, 20.0], "revert": [0.01]}
SAMPLES = {
    "first_load_inline": {"seconds": 20.0},
    "edits": {"first": 12.0, "edit": [3.0, 3.4, 3.1], "revert": [0.004], "compilers": 0},
    "restart": [
        {"seconds": 0.03, "compilers": 0},
        {"seconds": 0.09, "compilers": 1},
        {"seconds": 0.07, "compilers": 0},
    ],
    "builds": {"function": {**BUILDS, "theirs": [15.0]}, "TORCH_LIBRARY": BUILDS, "PYBIND11_MODULE": BUILDS},
    "sources": {"all": 9.0, "one": 2.0, "compiled": 4},
    "long_run": {"seconds": [2.0, 2.2, 2.4], "more_mb": 12.0, "slowdown": 1.3},
}


def test_figures_are_medians_and_ratios_beside_what_is_wanted():
    rows = extension_latency.figures(SAMPLES)
    named = {f.what: f for f in rows}
    assert (named["full-tier edit, ATen headers"].value, named["full-tier edit, ATen headers"].holds) == (3.1, True)
    assert named["first use after a restart"].value == 0.07
    assert named["  over the first load_inline"].value == pytest.approx(0.6)
    assert named["  over the first load_inline"].note == "which takes 20.0 s"
    faster = [(f.value, f.wanted, f.holds) for f in rows if f.what == "  faster than load_inline"]
    assert faster == [(7.5, 8.0, False), (8.0, 8.0, True), (8.0, 3.5, True)]
    assert named["  more memory"].note == "3 edits, 2.20 s each"
    assert {f.what for f in rows if not f.holds} == {
        "first use after a restart",
        "compilers run in these two",
        "  faster than load_inline",
        "four sources, one edited: compiled",
        "many edits of a TORCH_LIBRARY cell: last over first",
    }


def test_each_kind_of_extension_differs_by_its_block_alone():
    function = extension_latency.text("function", "lab").format(edit=7)
    assert function.startswith("#include <torch/extension.h>\ntorch::Tensor leaky(torch::Tensor x, double alpha) {\n")
    assert "edit = 7.0f" in function
    library = extension_latency.text("TORCH_LIBRARY", "lab").format(edit=7)
    assert library.removeprefix(function).startswith("TORCH_LIBRARY(lab, m) {\n")
    module = extension_latency.text("PYBIND11_MODULE", "lab").format(edit=7)
    assert module.removeprefix(function).startswith("PYBIND11_MODULE(lab, m) {\n")


def test_compiled_counts_the_objects_of_a_ninja_file():
    text = "rule compile\n  command = $cxx\n\nbuild s0.o: compile s0.cpp\nbuild s1.o: compile s1.cpp\nbuild lab.so: link s0.o s1.o\n"
    assert notebook.compiled(text) == 2
    assert notebook.compiled("build lab.so: link s0.o\n") == 0
