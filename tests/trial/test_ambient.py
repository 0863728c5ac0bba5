"""What a process changed of itself: told in words, and nothing where nothing is changed."""

from __future__ import annotations

import ctypes
import locale
import os
import signal
import threading

import pytest

from workbench.build.arithmetic import Arithmetic
from workbench.trial import ambient
from workbench.trial.ambient import Ambient

UPWARD = {"x86_64": 0x800, "aarch64": 0x400000}.get(os.uname().machine, 0)


def test_nothing_changed_is_nothing_told():
    before = Ambient.now()
    with open(os.devnull) as file:
        assert file.read() == ""
    assert Ambient.now().changes(before) == []


def test_what_changed_is_told_by_name(tmp_path, monkeypatch):
    before = Ambient.now()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WB_AMBIENT_TEST", "1")
    monkeypatch.setenv("__WB_QUIET", "1")  # runtimes note things for themselves in such names
    former, handler = os.umask(0o77), signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        assert Ambient.now().changes(before) == [
            f"the working directory, now {tmp_path}", "the environment variable WB_AMBIENT_TEST", "the handler of SIGUSR2",
            "which signals are blocked", "the umask, now 077",
        ]  # fmt: skip
    finally:
        os.umask(former)
        signal.signal(signal.SIGUSR2, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


def test_a_locale_and_a_closed_file():
    former = locale.setlocale(locale.LC_NUMERIC)
    other = "C" if former != "C" else "C.UTF-8"
    extra = os.open(os.devnull, os.O_RDONLY)
    before = Ambient.now()
    locale.setlocale(locale.LC_NUMERIC, other)
    os.close(extra)
    try:
        told = Ambient.now().changes(before)
    finally:
        locale.setlocale(locale.LC_NUMERIC, former)
    assert told[0].startswith("the locale, now ")
    assert told[1] == f"closed file descriptors: {extra}"


@pytest.mark.skipif(not UPWARD, reason="the floating-point environment is read on x86-64 and aarch64")
def test_the_floating_point_environment_is_put_back():
    libm = ctypes.CDLL("libm.so.6")
    usual = libm.fegetround()
    with Arithmetic() as numbers:
        libm.fesetround(UPWARD)
        assert libm.fegetround() == UPWARD
    assert numbers.changed and libm.fegetround() == usual
    with Arithmetic() as numbers:
        assert 1.0 / 3.0 > 0  # sets a sticky flag, which is no change
    assert not numbers.changed


def test_threads_that_wait_are_no_threads_at_work(monkeypatch):
    monkeypatch.setattr(ambient, "SETTLE_S", 0.05)
    known, stop, begun = ambient.threads(), threading.Event(), threading.Event()
    waiting = threading.Thread(target=stop.wait)
    waiting.start()
    assert ambient.at_work(known) == 0
    read, write = os.pipe()

    def work():
        begun.set()
        os.read(read, 1)

    working = threading.Thread(target=work)
    working.start()
    begun.wait()
    try:
        assert ambient.at_work(known) == 1
    finally:
        os.write(write, b"x")
        stop.set()
        working.join()
        waiting.join()


def test_children_are_seen_also_when_they_are_gone():
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ambient.children()
    os.waitpid(pid, 0)
