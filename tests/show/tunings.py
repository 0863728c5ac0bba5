"""Tunings as they come from `op.tune`, made by hand."""

from __future__ import annotations

from workbench.reports.tuning import Tuning, TuningRow

CASE = "1024 float32"


def rows(case=CASE):
    return (
        TuningRow({"BLOCK": 128, "UNROLL": 1}, "timed", 60.0, case=case, registers=38, shared=1024, is_default=True),
        TuningRow({"BLOCK": 256, "UNROLL": 1}, "timed", 40.0, case=case, registers=40, final=True),
        TuningRow({"BLOCK": 512, "UNROLL": 1}, "timed", 39.0, case=case, registers=40, remembered=True),
        TuningRow({"BLOCK": 1024, "UNROLL": 1}, "resources", reason="f takes 80 registers x 1024 threads", case=case),
        TuningRow({"BLOCK": 2048, "UNROLL": 1}, "pruned", reason="require BLOCK < 2048 is not met", case=case),
        TuningRow({"BLOCK": 256, "UNROLL": 4}, "mismatch", reason="out: 5 of 10 elements differ", case=case),
        TuningRow({"BLOCK": 512, "UNROLL": 4}, "not reached", reason="the budget ended before it", case=case),
    )


def tuning(**more):
    told = {"line": "//! tune BLOCK = 256, 128", "trials": 5, "seconds": 3.2, "machine": "NVIDIA H200", "frozen": True,
            "ended": "the budget of 3 s ended"}  # fmt: skip
    return Tuning("lab::f", "forward", "cuda", 3, "cuda", (CASE,), rows(), **{**told, **more})


def failed():
    row = TuningRow({"BLOCK": 1}, "build", reason="line 3: no such thing", case=CASE)
    return Tuning("lab::f", "forward", "cpu", 1, "cpp", (CASE,), (row, row))
