"""A job whose process a tool of NVIDIA's starts and watches: compute-sanitizer, ncu. What the tool wrote is its log."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .client import order_of
from .gpu_client import device_now
from .gpu_process import Process
from .protocol import Job
from .wire import Order, Reply

START_S = 300.0  # importing torch under the tool


@dataclass(frozen=True)
class Told:
    """What came of it: `log` the tool wrote, `output` the process; `started` is when the job began."""

    log: str
    output: str
    order: Order
    reply: Reply
    started: float


def run(
    prefix: Callable[[str], Sequence[str]], job: Job, limit_s: float, *, device: str = "",
    extra: Mapping[str, str] | None = None,
) -> Told:  # fmt: skip
    """Take the steps of a job in a process of their own, for at most `limit_s` seconds.

    >>> run(lambda log: ("compute-sanitizer", "--log-file", log), job, 120.0).log

    `prefix` makes the words in front of the command, given where the log is to be; `extra` goes into the environment.
    Raises ToolchainError where the process does not start.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-tool-") as folder:
        log, device = os.path.join(folder, "log"), device or device_now()
        process = Process(device, prefix=tuple(prefix(log)), log=log, extra=dict(extra or {}))
        try:
            process.wait(START_S)
            order, started = order_of(job, device=device), time.perf_counter()
            reply = process.ask(order, limit_s)
            if not reply.hung:
                process.bury(limit_s)  # the tool writes the rest of its log at the end
        finally:
            process.close()
            process.bury()
        try:
            with open(log, encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            text = ""
        return Told(text, process.log(), order, reply, started)


__all__ = ["START_S", "Told", "run"]
