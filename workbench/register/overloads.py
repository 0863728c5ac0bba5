"""One Python object for each name in `torch.ops`, also after a definition with another schema.

Torch's C++ side remembers the object that it handed to the first dispatch mode and would go on handing out the old
one, old schema and all; whoever held it would call with the old arguments. So the old object is given the new content.
"""

from __future__ import annotations

import torch

_packets: dict[str, torch._ops.OpOverloadPacket] = {}


def renewed(namespace: str, name: str) -> torch._ops.OpOverload:
    """The overload of `ns::name` as it is defined now, in the object that everybody holds already."""
    space = getattr(torch.ops, namespace)
    found = getattr(space, name)
    overload = found.default
    held = _packets.setdefault(f"{namespace}::{name}", found)
    if held is found:
        return overload
    kept = held.default
    for old, new in ((kept, overload), (held, found)):
        vars(old).clear()
        vars(old).update(vars(new))
    held.default, kept._overloadpacket = kept, held
    setattr(space, name, held)
    return kept
