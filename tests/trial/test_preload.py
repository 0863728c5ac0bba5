"""What a worker imports on request, so that its children have it; and that it has nothing of it before."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch

from workbench.trial import Job, Step, Worker, triton_library


@dataclass(frozen=True)
class Tells:
    """Says, when it is loaded in the child, whether Triton was there from the start."""

    def load(self, allocate):
        raise RuntimeError("there" if "triton.runtime.interpreter" in sys.modules else "missing")


def told(worker: Worker) -> str:
    return worker.run(Job((Step("aten::neg", (torch.ones(2),)),), (Tells(),)), 20.0).results[0].detail


def test_children_have_what_was_preloaded_also_after_the_worker_died():
    worker = Worker()
    try:
        assert told(worker) == "missing"  # C++ alone pays nothing for Triton
        worker.preload(triton_library.__name__)
        assert told(worker) == "there"
        worker.close()
        assert told(worker) == "there"
        worker.preload("there_is_no_such_module")
        assert told(worker) == "there"
        twin = worker.twin()
        assert told(twin) == "there"
        twin.close()
        assert told(twin) == "there"  # and a process of its own, too
        twin.close()
    finally:
        worker.close()
