"""The threads that compile for another one: how they end."""

from __future__ import annotations

import threading

import pytest

from workbench.build import process


@pytest.mark.parametrize("end", [KeyboardInterrupt, GeneratorExit])
def test_an_interrupt_and_an_end_that_nobody_waits_for_end_what_a_pool_runs(end):
    ended, running = threading.Event(), threading.Event()

    def compiling() -> None:
        running.set()
        try:
            while not ended.wait(0.01):
                process.look_up()
        except KeyboardInterrupt:
            ended.set()

    with pytest.raises(end), process.pool(1) as pool:
        pool.submit(compiling)
        assert running.wait(10)
        raise end
    assert ended.wait(10)


def test_a_block_that_ends_leaves_what_is_under_way_to_its_end():
    until, done = threading.Event(), threading.Event()

    def compiling() -> None:
        until.wait(10)
        process.look_up()
        done.set()

    with process.pool(1) as pool:
        pool.submit(compiling)
    until.set()
    assert done.wait(10)
