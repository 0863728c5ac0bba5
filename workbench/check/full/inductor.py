"""Inductor, asked for no more than a check needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def scalar_code() -> Iterator[None]:
    """Inductor writes C++ without vector instructions.

    To find those that work here it starts a Python that imports torch for each, again in each process: up to 40 s on
    a machine with many of them and a slow disk. Where it has looked already, nothing is changed.
    """
    from torch._inductor import config, cpu_vec_isa

    if cpu_vec_isa.valid_vec_isa_list.cache_info().currsize:
        yield
        return
    try:
        with config.patch({"cpp.vec_isa_ok": False}):
            yield
    finally:  # that there are none is true of this check alone
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        for isa in cpu_vec_isa.supported_vec_isa_list:
            getattr(type(isa).__bool__, "cache_clear", lambda: None)()
