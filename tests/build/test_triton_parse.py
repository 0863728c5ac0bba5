"""Kernels are parsed in turn, whatever threads compile them."""

from __future__ import annotations

import gc
import sys
import threading
import time

from triton.runtime.jit import JITCallable

from workbench.build import triton_parse


class Slow:
    """Stands for a kernel: tells how many are being parsed at once."""

    now = most = 0


def test_one_at_a_time(monkeypatch):
    def parse(self):
        Slow.now += 1
        Slow.most = max(Slow.most, Slow.now)
        time.sleep(0.01)
        Slow.now -= 1
        return self

    monkeypatch.setattr(JITCallable, "parse", parse)
    triton_parse.in_turn()
    first = JITCallable.parse
    triton_parse.in_turn()
    assert JITCallable.parse is first
    threads = [threading.Thread(target=first, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert Slow.most == 1


def test_a_collection_amid_a_parse_lets_no_other_thread_parse(monkeypatch):
    import ast

    source = "\n".join(f"def f{i}(x):\n    return (x + {i}) * (x - {i}) if x else [x, {{x: x}}]" for i in range(200))
    failed = []

    def parse(self):
        return ast.parse(source)

    def run():
        try:
            for _ in range(10):
                JITCallable.parse(None)
        except SystemError as error:
            failed.append(str(error))

    monkeypatch.setattr(JITCallable, "parse", parse)
    triton_parse.in_turn()
    before, interval, threshold = list(gc.callbacks), sys.getswitchinterval(), gc.get_threshold()
    gc.callbacks.append(lambda phase, info: sum(range(200)))
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    try:
        threads = [threading.Thread(target=run) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        gc.callbacks[:] = before
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
    assert not failed
