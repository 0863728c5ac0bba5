"""The process of the GPU trial: torch and a CUDA context of its own, which live from job to job.

Started by `gpu_client` as `python -m workbench.trial.gpu_worker CONTROL PARENT DEVICE [LOG]`; a context takes
seconds, so that no job gets a process of its own. One whose context is lost says so and is replaced.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import sys
import threading
from types import ModuleType
from typing import NoReturn

import torch

from . import child, gpu_faults
from .gpu_guard import Memory
from .gpu_steps import GpuTrial, ops
from .wire import MemoryFile, Order, receive, send, unpack

IDLE_S = 5.0  # between looks whether the notebook is still there
KEPT_BYTES = 256 << 20  # what torch may keep of a device's memory between jobs
MOST_JOBS = 2000  # then what loaded modules leave behind is got rid of


def main(control: socket.socket, parent: int, device: str, log: str = "") -> NoReturn:
    """Take jobs until the notebook is gone.

    With a `log`, which a tool that watches this process writes: take one, without guards of its own, and exit.
    """
    bare = bool(log)
    if parent:
        child.die_with(parent)
    _, (frames, output, record), _ = receive(control)
    frames, output, record = child.lift(frames), child.lift(output), child.lift(record)
    watcher = threading.Thread(target=_end_with, args=(control, parent), daemon=True)
    watcher.start()
    try:
        memories = {device: _ready(device, bare)}
    except Exception as error:  # no device, or no room on it for another context
        print(f"on {device}: {gpu_faults.first_line(str(error))}", flush=True)
        os._exit(1)
    kept = child.prepare(output, record, exits=bare)
    send(control, b"ready")
    for _ in range(MOST_JOBS):
        known = ops()
        try:
            data, fds, _ = receive(control)
        except (EOFError, OSError):
            break
        order: Order = unpack(data, [MemoryFile(fd) for fd in fds])
        if order.device not in memories:
            memories[order.device] = _ready(order.device, bare)
        if not take(order, frames, output, memories[order.device], known, log) or bare:
            break
        del order
        _tidy()
    _leave(0 if kept or bare else 1, bare)


def _leave(code: int, orderly: bool) -> NoReturn:
    if orderly:
        sys.exit(code)
    os._exit(code)


def take(order: Order, frames: int, output: int, memory: Memory, known: set[str], log: str = "") -> bool:
    """One job; whether this process can take another one. `known` are the ops of torch before it."""
    child.settle(order)
    if memory.device != "cpu":
        torch.cuda.set_device(memory.device)
    modules = dict(sys.modules)
    trial = GpuTrial(order, frames, output, memory, log)
    trial.run()
    if trial.broken:
        trial.tell("spent", "its context is lost")
        trial.end()
        _leave(0, orderly=memory.bare)  # at once: destructors would only fail
    trial.end()  # nobody need wait for the rest; if we end on it, the notebook finds us dead
    problem = trial.leave(known)
    _forget(modules)
    return not problem


def _forget(before: dict[str, ModuleType]) -> None:
    """Modules that a job imported from beside the notebook are read anew by the next one."""
    roots = tuple({sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.dirname(torch.__file__))})
    for name in sys.modules.keys() - before.keys():
        file = getattr(sys.modules[name], "__file__", None) or ""
        if (
            file.endswith(".py")
            and not file.startswith(roots)
            and name.partition(".")[0] != __package__.partition(".")[0]
        ):
            del sys.modules[name]
    importlib.invalidate_caches()


def _ready(device: str, bare: bool) -> Memory:
    memory = Memory(device, bare)
    if device != "cpu":
        if not torch.cuda.is_available():
            raise RuntimeError("there is no CUDA device that torch can use (torch.cuda.is_available() is False)")
        torch.cuda.set_device(device)
    memory.warm()
    memory.synchronise()
    gc.collect()
    gc.freeze()
    return memory


def _tidy() -> None:
    """After the answer is out: memory that the job took."""
    gc.collect()
    try:
        if torch.cuda.is_initialized() and torch.cuda.memory_reserved() > KEPT_BYTES:
            torch.cuda.empty_cache()
    except Exception:  # the context is lost, and soon this process
        pass


def _end_with(control: socket.socket, parent: int) -> None:
    """End this process, also amid a step, when the notebook has hung up or is dead."""
    hung_up = select.poll()
    hung_up.register(control, select.POLLRDHUP)
    while not hung_up.poll(int(IDLE_S * 1000)) and (not parent or os.getppid() == parent):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def _preload(device: str) -> None:
    """Import what jobs need; Triton where it is installed and there is a GPU for it."""
    names = ["workbench.build.native", "workbench.directives"]
    names += ["workbench.trial.triton_library", "triton"] if device != "cpu" else []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            if name != "triton":
                raise


def _control(said: str) -> socket.socket:
    """A descriptor's number, or the path of a socket that the notebook listens on."""
    if said.isdigit():
        return socket.socket(fileno=int(said))
    made = socket.socket(socket.AF_UNIX)
    made.connect(said)
    return made


if __name__ == "__main__":
    _preload(sys.argv[3])
    main(_control(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
