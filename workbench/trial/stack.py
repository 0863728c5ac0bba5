"""An ordinary stack for the processes that run code under trial, whatever limit the notebook was started with."""

from __future__ import annotations

import resource
from collections.abc import Sequence

ORDINARY_BYTES = 8 << 20
MOST_BYTES = 64 << 20


def ordinary(command: Sequence[str]) -> list[str]:
    """A command that starts the same with a stack in which an endless recursion ends soon.

    >>> ordinary(["python3", "-V"])             # after `ulimit -s unlimited`, as clusters have it
    ['/bin/sh', '-c', 'ulimit -S -s 8192; exec "$@"', 'sh', 'python3', '-V']

    Without a limit a recursion fills the memory of the machine first. The limit must be set before the process
    begins, which lays out its memory by it.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if soft != resource.RLIM_INFINITY and soft <= MOST_BYTES:
        return list(command)
    return ["/bin/sh", "-c", f'ulimit -S -s {ORDINARY_BYTES >> 10}; exec "$@"', "sh", *command]
