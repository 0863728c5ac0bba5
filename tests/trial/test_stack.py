"""The stack of the processes that run code under trial."""

from __future__ import annotations

import resource

import pytest

from workbench.trial.stack import ordinary

LIMITED = ["/bin/sh", "-c", 'ulimit -S -s 8192; exec "$@"', "sh", "python3", "-V"]


@pytest.mark.parametrize(
    ("soft", "command"),
    [
        (8 << 20, ["python3", "-V"]),
        (64 << 20, ["python3", "-V"]),
        (1 << 30, LIMITED),
        (resource.RLIM_INFINITY, LIMITED),
    ],
)
def test_only_a_limit_that_is_out_of_the_ordinary_is_lowered(soft, command, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, resource.RLIM_INFINITY))
    assert ordinary(["python3", "-V"]) == command
