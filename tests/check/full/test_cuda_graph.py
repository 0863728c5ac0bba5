"""The CUDA graph row with streams and captures of our own: what it leaves behind, and what waits for what. No GPU."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from workbench.check.full import transforms
from workbench.check.sample import Sample


class Streams:
    """`torch.cuda` as far as the row asks it. A capture replays what was called in it; `fails` ends one as torch does:
    `capture_end` raises, and the context of its stream is never left.
    """

    def __init__(self, monkeypatch, *, fails: bool = False) -> None:
        self.current, self.fails, self.done = "mine", fails, []
        for name in ("current_stream", "set_stream", "stream", "graph", "Stream", "CUDAGraph", "synchronize"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(transforms, "_no_gpu", lambda sample: "")

    def current_stream(self):
        return self.current

    def set_stream(self, stream):
        self.current = stream

    @contextmanager
    def stream(self, stream):
        former, self.current = self.current, stream
        yield
        self.current = former

    @contextmanager
    def graph(self, graph):
        former, self.current = self.current, "capture"
        yield
        if self.fails:
            raise RuntimeError("operation failed due to a previous error during capture")
        self.current = former

    def Stream(self):
        return Side(self)

    def CUDAGraph(self):
        return self

    def replay(self):
        self.done.append("replay")

    def synchronize(self):
        self.done.append("synchronize")


class Side:
    def __init__(self, streams: Streams) -> None:
        self.streams = streams

    def wait_stream(self, other) -> None:
        self.streams.done.append(f"side waits for {other}")


@pytest.fixture
def sample(standin):
    op = standin(twice, None, lambda t: [t(3, 4)])
    return Sample(op, op.case_list()[0], "cpu", "full")


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_a_capture_that_fails_leaves_the_stream_that_was_current(sample, monkeypatch):
    streams = Streams(monkeypatch, fails=True)
    row = transforms.cuda_graph(sample)
    assert row.status == "fail" and "previous error during capture" in row.detail
    assert streams.current == "mine"


def test_the_first_call_waits_for_its_inputs(sample, monkeypatch):
    streams = Streams(monkeypatch)
    row = transforms.cuda_graph(sample)
    assert streams.done[:2] == ["side waits for mine", "synchronize"] and streams.current == "mine"
    assert "replayed graph" in row.detail, "what is replayed here does nothing, so the row finds a difference"
