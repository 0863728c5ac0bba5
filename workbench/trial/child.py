"""What runs in the fork: prepare everything that costs time, wait for one job, take its steps, exit.

This process may be killed at any instruction by the code that it tries, so that each result leaves as soon as it
exists, and nothing here is worth a clean-up.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import resource
import signal
import socket
import sys
from typing import NoReturn

import torch

from . import faults
from .steps import Trial
from .wire import MemoryFile, Order, receive, unpack

HIGH = 400  # our descriptors lie up here, out of the way of code that writes to any small number
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# What code under trial may allocate: far more than a case needs, and never the last that the machine has.
MEMORY_BYTES, MEMORY_FACTOR, SPARE_BYTES = 4 << 30, 64, 256 << 20


def main(channel: socket.socket, frames: int, output: int, record: int, owner: int) -> NoReturn:
    """Live and die as the child of `owner`, which sends one order over `channel`."""
    frames, output, record = lift(frames), lift(output), lift(record)
    _belong(owner)
    kept = prepare(output, record)
    gc.disable()
    torch.ones(1 << 16).exp_().sum()  # starts the threads
    try:
        data, fds, _ = receive(channel)
    except (EOFError, OSError):
        os._exit(0)
    order: Order = unpack(data, [MemoryFile(fd) for fd in fds])
    settle(order)
    _limit_memory(order)
    trial = Trial(order, frames, output)
    trial.run()
    trial.end()
    os._exit(0 if kept else 1)  # `kept` lives until here


def lift(fd: int) -> int:
    """The same file under a number that code under trial hardly hits; `fd` is closed."""
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH)
    os.close(fd)
    return high


def _belong(owner: int) -> None:
    os.setpgid(0, 0)
    die_with(owner)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what code under trial starts stays in sight


def die_with(owner: int) -> None:
    """End when the thread ends that started this process, which is one of `owner`."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != owner:  # it died before the line above
        os._exit(0)


def prepare(output: int, record: int, *, exits: bool = False) -> object:
    """Make this process one that takes steps: it prints into `output`, and its faults are told to `record`.

    `exits`: with an orderly end, destructors and all. Keep what is returned.
    """
    libc = ctypes.CDLL(None)
    os.dup2(output, 1)
    os.dup2(output, 2)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, 2, 0)  # _IONBF: nothing is lost in a crash
    if hasattr(libc, "on_exit") and not exits:  # a kernel's exit() leaves at once, without the destructors of torch
        libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))  # 1, not 0: only this stops a core_pattern that is a pipe
    kept = faults.watch(record)
    torch.set_grad_enabled(False)
    torch.set_num_threads(max(2, torch.get_num_threads()))  # with one thread races hide
    return kept


def settle(order: Order) -> None:
    """The surroundings that the notebook has right now."""
    sys.path[:] = order.path
    here = dict(os.environ)
    if here.keys() - order.environment.keys():
        os.environ.clear()
        here = {}
    os.environ.update(order.environment.items() - here.items())
    if not order.environment.get("OMP_NUM_THREADS", "").isdigit() or int(order.environment["OMP_NUM_THREADS"]) < 2:
        os.environ["OMP_NUM_THREADS"] = str(order.threads)  # for an OpenMP that a kernel brings along
    try:
        os.chdir(order.directory)
    except OSError:
        pass


def _limit_memory(order: Order) -> None:
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # when memory runs out, this process goes first
        wanted = MEMORY_BYTES + MEMORY_FACTOR * sum(os.fstat(f.fd).st_size for f in (*order.files, order.loose.file))
        limit = _data_bytes() + min(wanted, max(available_bytes() - SPARE_BYTES, SPARE_BYTES))
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    except (OSError, ValueError):
        pass


def available_bytes() -> int:
    """Memory that is free for this process: of the machine, or of its control group if that is less."""
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    try:
        with open("/sys/fs/cgroup/memory.max") as most, open("/sys/fs/cgroup/memory.current") as now:
            return min(free, int(most.read()) - int(now.read()))
    except (OSError, ValueError):  # another version, or "max"
        return free


def _data_bytes() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData"))
