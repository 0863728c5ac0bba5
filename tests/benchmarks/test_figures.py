import pytest

from benchmarks import call_overhead, edit_latency, trust_speed

EDITS = {
    "first cell in an empty cache": [2.0],
    "reference cell": [0.01],
    "new op": [1.0, 1.4, 1.1],
    "raw edit": [0.1, 0.2, 0.1],
    "raw edit <cmath>": [0.3],
    "revert": [0.02],
    "compilers run by reverts": 1,
}
SAMPLES = {
    "edits": EDITS,
    "restart": [
        {"restart": 0.01, "compilers": 0},
        {"restart": 0.05, "compilers": 1},
        {"restart": 0.02, "compilers": 0},
    ],
    "host": {
        "first host cell": [3.0],
        "host edit": [0.8, 1.2, 0.7],
        "host revert": [0.06],
        "compilers run by reverts": 0,
    },
    "host_restart": [{"restart": 0.03, "compilers": 0}],
    "long_run": {"slowdown": 1.1, "more_mb": 61.0, "seconds": []},
    "import": [{"seconds": 0.1}, {"seconds": 0.2}, {"seconds": 0.12}],
}


def test_edit_figures_are_medians_beside_what_is_wanted():
    rows = {f.what: f for f in edit_latency.figures(SAMPLES)}
    assert rows["raw edit"].value == 0.1
    assert rows["raw edit"].note == "0.100 to 0.200 over 3"
    assert rows["new raw op, launcher built too"].value == 1.1
    assert rows["first use after a restart"].value == 0.02
    assert rows["import workbench beyond torch"].value == 0.12
    assert (rows["host edit"].value, rows["host edit"].wanted) == (0.8, 0.9)
    missed = {what for what, f in rows.items() if not f.holds}
    assert missed == {
        "raw edit, body with <cmath>",
        "compilers run in these two",
        "300 edits: more memory",
        "host, back to an earlier text",
    }


@pytest.mark.parametrize(("theirs", "holds"), [(11.9, False), (12.1, True)])
def test_load_inline_must_take_120_times_as_long(theirs, holds):
    rows = edit_latency.figures({**SAMPLES, "load_inline": {"default": [theirs], "pch": [5.0]}})
    faster = [f for f in rows if f.what == "  raw edit is faster"]
    assert [f.wanted for f in faster] == [120, None]
    assert faster[0].value == pytest.approx(theirs / 0.1)
    assert faster[0].holds is holds


def test_call_figures_are_ratios_to_mul_within_a_round():
    found = {"torch.mul": [1e-6, 2e-6, 1e-6], "ours": [2e-6, 4e-6, 9e-6], "ours_ops": [6e-6, 12e-6, 6e-6]}
    rows = call_overhead.figures({"no gradient": found, "gradient": found})
    values = {f.what: (f.value, f.wanted, f.holds) for f in rows}
    assert values["ours, op(...), no gradient"] == (pytest.approx(2), 2.5, True)
    assert values["ours, torch.ops, no gradient"] == (pytest.approx(6), 5.5, False)
    assert values["ours, op(...), gradient"][1:] == (None, True)


def test_a_host_op_stands_beside_the_same_function_behind_plain_libraries():
    found = {"torch.mul": [1e-6] * 2, "cpp": [2e-6] * 2, "stable": [4e-6, 2e-6], "host": [4.2e-6, 2.1e-6]}
    rows = {f.what: f for f in call_overhead.figures({"no gradient": found, "gradient": {"torch.mul": [1e-6] * 2}})}
    beside = rows["ours, host tier, op(...), against the C++ op, stable ABI (STABLE_TORCH_LIBRARY)"]
    assert (beside.value, beside.wanted) == (pytest.approx(1.05), None)
    plain = rows["ours, host tier, op(...), against the C++ op (TORCH_LIBRARY)"]
    assert (plain.value, plain.wanted, plain.holds) == (pytest.approx(1.575), 1.1, False)


TRUST = {
    "checks": {"quick": [2.0, 0.08, 0.09, 0.2], "full": [21.0, 15.0, 19.0]},
    "mutants": {
        "whole": True,
        "mutants": 96,
        "missed": [],
        "ops": 21,
        "alarms": ["norm: a gradient"],
        "seconds": 400.0,
    },
    "deaths": {"ways": 72, "attempts": 1440, "wrong": ["exit: it died"], "seconds": 300.0},
    "load": 1.5,
}


def test_what_trust_costs_is_measured_after_the_first_and_what_it_misses_is_named():
    rows = {f.what: f for f in trust_speed.figures(TRUST)}
    assert rows["quick check after an edit"].value == 0.09
    assert rows["quick check after an edit"].note == "0.080 to 0.200 over 3, load 1.5"
    assert rows["full check of rmsnorm"].value == 19.0
    assert {what for what, f in rows.items() if not f.holds} == {"false alarms", "deaths, hangs, wrong verdicts"}
    assert rows["false alarms"].note == "on 21 correct ops; norm: a gradient"
    assert rows["attempts to die"].value == 1440
