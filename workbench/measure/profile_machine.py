"""What a profile wants to know of the machine and of the work: its ceiling, its architecture, Tensor Cores."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import torch

from .. import gpu
from ..reports.profiling import Counters, ProfileRow
from . import ceilings

# In the names of kernels of cuBLAS, cuDNN and CUTLASS that multiply on Tensor Cores.
ON_TENSOR_CORES = re.compile(r"tensorop|s\d+816|s16816|h16816|i16832|hmma|wgmma|gmma|nvjet|xmma|tensor_op|umma|tcgen")


def arch(device: str) -> int:
    """90 for sm_90; 0 for a CPU."""
    if device != "cuda":
        return 0
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def multiprocessors(device: str) -> int:
    return gpu.sm_count() if device == "cuda" else 0


def copy_gb_per_s(device: str) -> float:
    """The measured bandwidth of a copy on this device; 0.0 where there is no memory to measure it in."""
    found = ceilings.copy_bandwidth(device)
    return found.value if found is not None else 0.0


@functools.cache
def computes(name: str) -> bool:
    """Has an op of torch code of its own for the CPU? Others only call ops.

    >>> computes("aten::addmm"), computes("aten::linear")
    (True, False)
    """
    namespace, _, bare = name.partition("::")
    try:
        packet = getattr(getattr(torch.ops, namespace), bare)
        names = [getattr(packet, o)._schema for o in packet.overloads()]
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        return any(has(f"{s.name}.{s.overload_name}" if s.overload_name else s.name, "CPU") for s in names)
    except (AttributeError, RuntimeError):
        return False


def tensor_cores(
    op, device: str, phase: str, kernels: Sequence[ProfileRow], counters: Sequence[Counters]
) -> bool | None:
    """Do the kernels of a phase use Tensor Cores? None where that is not known."""
    if device != "cuda":
        return None
    if any(c.tensor_share > 0 for c in counters) or any(ON_TENSOR_CORES.search(k.name) for k in kernels):
        return True
    if counters:
        return False
    version = op.runs(phase, device)
    if not version.number:
        return False  # kernels of torch say it in their names
    return _in_machine_code(op, version)


def _in_machine_code(op, version) -> bool | None:
    from ..errors import WorkbenchError
    from ..inspect import inspect

    try:
        looked = inspect(op, version, None, version.slot)
    except WorkbenchError:
        return None
    counts = {name: n for s in getattr(looked, "stages", ()) if s.name == "sass" for name, n in s.counts}
    return counts.get("tensor core operations", 0) > 0 if counts else None
