"""One worker for all tests of a run, and a shared object full of bad kernels."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from tests.trial.rogue import Rogue
from workbench.trial import Answer, Job, Meta, Step, Worker


@pytest.fixture(scope="session")
def rogue_path(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("rogue") / "rogue.so"
    source = Path(__file__).with_name("rogue.cpp")
    subprocess.run(["g++", "-O1", "-w", "-shared", "-fPIC", "-pthread", str(source), "-o", str(path)], check=True)
    return str(path)


@pytest.fixture(scope="session")
def shared_worker():
    worker = Worker()
    worker.warm()
    yield worker
    worker.close()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(5 * 123, dtype=torch.float32).reshape(5, 123)


@pytest.fixture
def run(shared_worker, rogue_path):
    """Run the named bad kernels one after the other on one input, and `twice` behind each if `then` is set."""

    def run(*names: str, x: torch.Tensor, limit_s: float = 20.0) -> Answer:
        layout = (Meta.of(x),)
        steps = tuple(Step(f"rogue::{n}", (x,), case=f"case {i}", layout=layout) for i, n in enumerate(names))
        schemas = tuple(f"rogue::{n}(Tensor x) -> Tensor" for n in dict.fromkeys(names))
        library = Rogue(rogue_path, tuple(dict.fromkeys(names)))
        return shared_worker.run(Job(steps, (library,), schemas), limit_s)

    return run
