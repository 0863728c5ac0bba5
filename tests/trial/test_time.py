"""What a trial costs. The limit is far above the usual 5 to 10 ms, for machines that are busy with other tests."""

from __future__ import annotations

import statistics
import time

import torch

from workbench.trial import Job, Parcel, Step


def test_three_cases_take_a_breath(shared_worker):
    parcels = [Parcel.of({"x": torch.randn(*shape)}) for shape in ((5, 123), (4, 128), (64, 1000))]
    job = Job(tuple(Step("aten::relu", (p["x"],)) for p in parcels))
    seconds = []
    for _ in range(5):
        time.sleep(0.2)  # as between two edits: the next child is ready
        started = time.perf_counter()
        assert shared_worker.run(job, 20).ok
        seconds.append(time.perf_counter() - started)
    assert statistics.median(seconds) < 0.1
