"""Names in torch that come and go while handles on them are held: what stays for ever, what the holders are told."""

from __future__ import annotations

import torch
from torch.library import Library

# Destroying the last registration of a name and then calling a held overload is a crash: one stays for ever.
_kept_alive: dict[str, Library] = {}


def forget_name(namespace: str, name: str) -> None:
    """Let torch.ops look the name up anew; handles that somebody kept say that they are of the past."""
    space = getattr(torch.ops, namespace)
    if name in vars(space):
        packet = getattr(space, name)
        for held in (packet, *(getattr(packet, o) for o in packet.overloads())):
            held._op = _never
        delattr(space, name)
        space._dir.remove(name)  # torch walks this list, and trips over a name that is gone


def destroy_library(library: Library) -> None:
    library._destroy()
    library._op_defs.clear()  # or its finaliser would take the names from their next owner
    library._op_impls.clear()


def keep_alive(qualname: str) -> None:
    """Let torch keep its entry of that name for ever: a held overload of a name that is gone raises."""
    namespace, _, name = qualname.partition("::")
    if qualname not in _kept_alive:
        _kept_alive[qualname] = Library(namespace, "IMPL")
        _kept_alive[qualname].impl(name, _never, "FPGA")


def _never(*args, **kwargs):
    raise RuntimeError("this op is gone or was defined again with another schema; fetch it anew from torch.ops")
