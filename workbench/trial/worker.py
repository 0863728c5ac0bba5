"""The warm process: imports torch once, runs no tensor op, and keeps one forked child ready for the next job.

Started by `client` as `python -m workbench.trial.worker SOCKET PARENT`. It reads no job: it hands the bytes to the
child, gathers what the child says and prints, and watches over its end.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import socket
import sys
import warnings
from typing import NoReturn

from .faults import TIME_IS_UP
from .watch import Watch
from .wire import PRELOAD, TWIN, receive, send

IDLE_S = 5.0  # between looks whether the notebook is still there
QUIET_S = 0.02  # without a job, before time is spent on forks
PR_SET_CHILD_SUBREAPER = 36


class Child:
    """A forked child that waits for its job, and the near ends of its pipes."""

    def __init__(self, control: socket.socket, wakeup: tuple[int, int], others: list[Child]) -> None:
        near, far = socket.socketpair()
        frames, output, record = os.pipe(), os.pipe(), os.pipe()
        owner = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                foreign = [control.detach(), near.detach(), *(fd for c in others for fd in c.detach())]
                for fd in (*foreign, *wakeup, frames[0], output[0], record[0]):
                    os.close(fd)
                from . import child

                child.main(far, frames[1], output[1], record[1], owner)
            finally:
                import traceback

                traceback.print_exc()
                os._exit(1)
        self.wakeup = wakeup[0]
        self.code: int | None = None
        far.close()
        for _, fd in (frames, output, record):
            os.close(fd)
        self.channel, self.frames, self.output, self.record = near, frames[0], output[0], record[0]
        for fd in (self.frames, self.output, self.record):
            os.set_blocking(fd, False)

    def close(self) -> None:
        self.channel.close()
        for fd in (self.frames, self.output, self.record):
            os.close(fd)

    def detach(self) -> tuple[int, ...]:
        """The descriptors held for it, which a fork closes: they belong to the process that watches."""
        return self.channel.detach(), self.frames, self.output, self.record

    def dead(self) -> bool:
        return self.code is not None or os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def exit_code(self) -> int | None:
        try:
            while os.read(self.wakeup, 1 << 10):
                pass
        except BlockingIOError:
            pass
        return self.reap() if self.dead() else None

    def interrupt(self) -> str:
        """Have it say where it is, and end; the state that its main thread was in."""
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                state = file.read().rpartition(")")[2].split()[0]
            os.kill(self.pid, TIME_IS_UP)
        except (OSError, IndexError):
            return ""
        return state

    def kill(self) -> None:
        """End the child and its process group."""
        for send_to in (os.killpg, os.kill) if self.code is None else ():
            try:
                send_to(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass

    def reap(self) -> int:
        """Its exit code; whoever is left of its process group goes too, while the number is still taken."""
        if self.code is None:
            self.kill()
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code


class Nursery:
    """The children that wait for a job. Two, so that a second job right after the first need not wait for a fork."""

    SIZE = 2
    SPENT = 4  # at most wait to be buried: each holds descriptors, and jobs may follow each other without a pause

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.waiting: list[Child] = []
        self.spent: list[Child] = []
        self.twins: set[int] = set()  # processes like this one, with children of their own
        self.wakeup = os.pipe()
        for fd in self.wakeup:
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self.wakeup[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def take(self) -> Child:
        """One that is alive."""
        while self.waiting:
            child = self.waiting.pop(0)
            if not child.dead():
                return child
            self.spent.append(child)
        return self._fork()

    def renew(self) -> None:
        """Those that wait are of a process that had less in it."""
        while self.waiting:
            self.spend(self.waiting.pop())

    def spend(self, child: Child) -> None:
        child.kill()
        self.spent.append(child)

    def leave(self) -> None:
        """What a fork of this process does first: none of it is the fork's."""
        signal.set_wakeup_fd(-1)
        for fd in (
            *self.wakeup,
            self.control.detach(),
            *(fd for c in (*self.waiting, *self.spent) for fd in c.detach()),
        ):
            os.close(fd)

    def tidy(self) -> None:
        """Bury one that is spent, with all that it left behind, or else raise another one."""
        if self.spent:
            self._bury()
        elif len(self.waiting) < self.SIZE:
            self.waiting.append(self._fork())

    def bury_most(self) -> None:
        while len(self.spent) > self.SPENT:
            self._bury()

    def _bury(self) -> None:
        child = self.spent.pop(0)
        child.reap()
        child.close()
        self._end_strays()

    @property
    def tidied(self) -> bool:
        return not self.spent and len(self.waiting) == self.SIZE

    def _fork(self) -> Child:
        return Child(self.control, self.wakeup, [*self.waiting, *self.spent])

    def bury_twins(self) -> None:
        """Those that have ended, with the children that they left."""
        ended = {pid for pid in self.twins if os.waitpid(pid, os.WNOHANG)[0]}
        self.twins -= ended
        if ended:
            self._end_strays()

    def _end_strays(self) -> None:
        """End processes that a job left outside its group: they became our children when their own parent died."""
        try:
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                pids = {int(pid) for pid in file.read().split()}
        except OSError:
            return
        for pid in pids - {c.pid for c in (*self.waiting, *self.spent)} - self.twins:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass


def serve(control: socket.socket, parent: int) -> NoReturn:
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    nursery = Nursery(control)
    nursery.tidy()
    asked = select.poll()  # other than select.select it takes descriptors above 1023, as a notebook with many has
    asked.register(control, select.POLLIN)
    send(control, b"ready")
    while True:
        if not asked.poll(1000 * (IDLE_S if nursery.tidied else QUIET_S)):
            if os.getppid() != parent:
                os._exit(0)
            nursery.bury_twins()
            if not nursery.tidied:
                nursery.tidy()
            continue
        try:
            data, fds, limit_s = receive(control)
        except (EOFError, OSError):
            os._exit(0)
        if limit_s == PRELOAD:
            more(data.decode())
            nursery.renew()
            continue
        if limit_s == TWIN:
            nursery.twins.add(twin(nursery, *fds))
            continue
        for _ in range(nursery.SIZE + 1):
            child = nursery.take()
            try:
                send(child.channel, data, fds)
            except OSError:  # it died just now: `Watch` will see that
                pass
            reply = Watch(child, nursery.wakeup[0], control).until_end(limit_s)
            nursery.spend(child)
            if reply.frames or reply.hung:
                break  # else it was killed while it waited, and never read the job
        for fd in fds:
            os.close(fd)
        send(control, pickle.dumps(reply, pickle.HIGHEST_PROTOCOL))
        nursery.bury_most()


def twin(nursery: Nursery, channel: int, errors: int) -> int:
    """The number of a fork of this process, which serves the notebook on a channel of its own."""
    parent = os.getpid()
    from .child import die_with

    pid = os.fork()
    if pid == 0:
        try:
            nursery.leave()
            os.setsid()  # signals to its parent's group are not for it; its parent's end is
            die_with(parent)
            for fd in (1, 2):
                os.dup2(errors, fd)
            os.close(errors)
            serve(socket.socket(fileno=channel), parent)
        finally:
            os._exit(1)
    for fd in (channel, errors):
        os.close(fd)
    return pid


def preload() -> None:
    """Import what children need, so that each of them has it from the start."""
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    import importlib

    for name in ("torch", "torch.library", "workbench.trial.child", "workbench.build.native", "workbench.directives"):
        try:
            importlib.import_module(name)
        except ImportError:
            if name in ("torch", "workbench.trial.child"):
                raise
    gc.collect()
    gc.freeze()


def more(name: str) -> None:
    """Import what some jobs need beside that; a module may have a `warm` for what else is paid for once."""
    import importlib

    try:
        module = importlib.import_module(name)
        getattr(module, "warm", lambda: None)()
    except Exception:
        return  # the child says it better
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    preload()
    for name in sys.argv[3:]:
        more(name)
    serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
