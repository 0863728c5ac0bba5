"""The GPU that is compiled for, and whether there is one to run on. Asked anew each time, never at import."""

from __future__ import annotations

from dataclasses import dataclass

from . import settings

DEFAULT_ARCH = "sm_90"  # what is compiled for where no GPU and no WORKBENCH_ARCH says otherwise


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
