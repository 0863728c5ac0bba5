"""The GPU that is compiled for, and whether there is one to run on. Asked anew each time, never at import."""

from __future__ import annotations

from dataclasses import dataclass

from . import settings

DEFAULT_ARCH = "sm_90"  # what is compiled for where no GPU and no WORKBENCH_ARCH says otherwise
# Multiprocessors of the usual card of each architecture: A100, A6000, L40S, H100, B200, RTX PRO 6000, ...
SM_COUNTS = {70: 80, 75: 40, 80: 108, 86: 84, 89: 142, 90: 132, 100: 148, 103: 160, 120: 188, 121: 48}


@dataclass(frozen=True)
class Target:
    """`arch` is what is compiled for; `because` says who chose it.

    >>> target()
    Target(arch='sm_90', because='no GPU here, and WORKBENCH_ARCH is not set')
    """

    arch: str
    because: str

    @property
    def number(self) -> int:
        """90 for sm_90 and sm_90a."""
        return int("".join(c for c in self.arch if c.isdigit()))


def present() -> bool:
    """Is there a CUDA device that torch can use?"""
    import torch

    return torch.cuda.is_available()


def target() -> Target:
    """WORKBENCH_ARCH, else the architecture of the current device, else sm_90.

    Raises ToolchainError where WORKBENCH_ARCH is no architecture.
    """
    named = settings.arch()
    if named:
        return Target(named, "WORKBENCH_ARCH")
    if present():
        import torch

        major, minor = torch.cuda.get_device_capability()
        return Target(f"sm_{major}{minor}", torch.cuda.get_device_name())
    return Target(DEFAULT_ARCH, "no GPU here, and WORKBENCH_ARCH is not set")


def wanted() -> str:
    """The architecture that code is to run on: that of the GPU here, else WORKBENCH_ARCH, "" where nothing says.

    Of several that a cell names it decides, where `target` would name another one.
    """
    if present():
        import torch

        return "sm_{}{}".format(*torch.cuda.get_device_capability())
    return settings.arch() or ""


def sm_count(index: int | None = None) -> int:
    """The multiprocessors of a GPU, the current one without an index.

    >>> sm_count(0)
    132

    Where there is none: those of the usual card of the architecture that is compiled for.
    """
    if present():
        import torch

        return torch.cuda.get_device_properties(index).multi_processor_count
    return SM_COUNTS.get(target().number, SM_COUNTS[90])
