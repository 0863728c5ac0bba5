"""The notebook's side of the GPU trial: one process that takes the jobs, and a spare one that waits behind it."""

from __future__ import annotations

import atexit
import os
import threading
import time

import torch

from ..errors import ToolchainError
from .answer import answer
from .client import ABANDONED, order_of, same_for_all
from .gpu_process import Process, Starter, spent
from .protocol import Answer, Job
from .wire import Order, Reply


class GpuWorker:
    """A warm process with a CUDA context of its own that runs jobs one at a time.

    >>> GpuWorker().run(Job((Step("aten::add.Tensor", (x, y)),)), limit_s=10).results[0].outputs[0]

    The tensors of a job are CPU tensors, and so are those that come back. A job that loses the context, ends the
    process or never ends costs the process: the spare takes its place at once, and another spare is started.
    `device` is that of the notebook at each job ("cuda"), one by number ("cuda:1"), or "cpu" as a stand-in for tests.
    """

    def __init__(self, device: str = "cuda") -> None:
        self.device = device
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._owner = os.getpid()
        self._starter: Starter | None = None
        self._live: Process | None = None
        self._spare: Process | None = None
        self._dying: list[Process] = []
        self._abandoned = False

    @property
    def pid(self) -> int | None:
        """Of the process that takes the next job."""
        return self._live.pid if self._live else None

    @property
    def spare_pid(self) -> int | None:
        return self._spare.pid if self._spare else None

    def warm(self) -> None:
        """Start the process if there is none; returns at once. The spare comes with the first job."""
        with self._lock:
            if self._owner != os.getpid():
                self._forget()
            if self._live is not None and self._live.dead:
                self._retire()
            if self._live is None:
                self._live = self._start()

    def run(self, job: Job, limit_s: float) -> Answer:
        """Take the steps of `job`, for at most `limit_s` seconds in all.

        Never raises for what the code under trial does: that is in the answer. Raises ToolchainError if no worker
        can be started (no device, no memory left on it), TypeError for a tensor that cannot travel.
        """
        with self._lock:
            order = order_of(job, device=self._device())
            self._abandoned = False
            for _ in range(3):
                process = self._wait()
                started = time.perf_counter()
                try:
                    reply = self._ask(process, order, limit_s)
                except BaseException:  # an interrupt: what is on the wire belongs to nobody now
                    self._retire()
                    raise
                if reply is None or not (reply.frames or reply.hung):  # it died before it read the job
                    self._retire()
                    if self._abandoned:
                        return same_for_all(job, "crash", ABANDONED)
                    continue
                told = answer(job, order, reply, started)
                if spent(reply):
                    self._retire()
                return told
            return same_for_all(job, "crash", "its process died before the first step, three times")

    def abandon(self) -> None:
        """End the job that runs, for whoever waits for it in another thread."""
        live = self._live
        if live is not None and self._owner == os.getpid():
            self._abandoned = True
            live.process.kill()

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            for process in (self._live, self._spare):
                if process is not None:
                    process.close(ours=self._owner == os.getpid())
                    self._dying.append(process)
            self._live = self._spare = None
            if self._owner == os.getpid():
                self._dying = [p for p in self._dying if not p.bury()]

    @staticmethod
    def _ask(process: Process, order: Order, limit_s: float) -> Reply | None:
        try:
            return process.ask(order, limit_s)
        except (ConnectionError, TimeoutError, EOFError):
            return None

    def _device(self) -> str:
        return device_now() if self.device == "cuda" else self.device

    def _start(self) -> Process:
        if self._starter is None:
            self._starter = Starter()
        device = self._device()
        return self._starter.start(lambda: Process(device))

    def _wait(self) -> Process:
        """A process that is ready, with a spare behind it."""
        for attempt in range(2):
            self.warm()
            assert self._live is not None
            try:
                self._live.wait()
                break
            except ToolchainError:
                self._retire()
                if attempt:
                    raise
        if self._spare is not None and self._spare.dead:
            self._spare.close()
            self._spare = None
        if self._spare is None:
            self._spare = self._start()
        assert self._live is not None
        return self._live

    def _retire(self) -> None:
        """The live process goes, the spare takes its place."""
        if self._live is not None:
            self._live.close()
            self._dying.append(self._live)
        self._live, self._spare = self._spare, None
        self._dying = [p for p in self._dying if not p.bury(0)]
        if self._live is not None:
            self._spare = self._start()

    def _forget(self) -> None:
        """Let go of processes that belong to the one that this process was forked from."""
        for process in (self._live, self._spare):
            if process is not None:
                process.close(ours=False)
        self._begin()


def device_now() -> str:
    """The device on which this process works now, without making a context on it.

    >>> device_now()
    'cuda:0'
    """
    return f"cuda:{torch.cuda.current_device() if torch.cuda.is_initialized() else 0}"


_default: GpuWorker | None = None
_guard = threading.Lock()


def gpu_worker() -> GpuWorker:
    """The one GPU worker of this process."""
    global _default
    with _guard:
        if _default is None:
            _default = GpuWorker()
        return _default


def _close_default() -> None:
    if _default is not None and _default._owner == os.getpid():
        _default.close()


def _after_fork() -> None:
    global _guard
    _guard = threading.Lock()
    if _default is not None:
        _default._forget()


atexit.register(_close_default)
os.register_at_fork(after_in_child=_after_fork)
