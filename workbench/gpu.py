"""The GPU that is compiled for, and whether there is one to run on. Asked anew each time, never at import."""

from __future__ import annotations

from dataclasses import dataclass

from . import settings

DEFAULT_ARCH = "sm_90"  # what is compiled for where no GPU and no WORKBENCH_ARCH says otherwise


@dataclass(frozen=True)
class Limits:
    """What one multiprocessor of an architecture holds, and how many of them the usual card has (`count`).

    From the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". `shared_kb` is for all
    blocks: `shared_bytes` says what one can have.
    """

    warps: int
    blocks: int
    shared_kb: int
    count: int


# The usual cards: V100, T4, A100, A6000, Orin, L40S, H100, B200, B300, Thor, RTX PRO 6000, Spark.
LIMITS = {
    70: Limits(64, 32, 96, 80), 75: Limits(32, 16, 64, 40), 80: Limits(64, 32, 164, 108), 86: Limits(48, 16, 100, 84),
    87: Limits(48, 16, 164, 16), 89: Limits(48, 24, 100, 142), 90: Limits(64, 32, 228, 132),
    100: Limits(64, 32, 228, 148), 103: Limits(64, 32, 228, 160), 110: Limits(48, 24, 228, 20),
    120: Limits(48, 24, 100, 188), 121: Limits(48, 24, 100, 48),
}  # fmt: skip


def reserved_bytes(arch: int) -> int:
    """What the system takes of the shared memory of each block, from compute capability 8 on."""
    return 1024 if arch >= 80 else 0


def shared_bytes(arch: int) -> int:
    """The most shared memory that one block can have; 0 for an architecture that is not known here.

    >>> shared_bytes(90)
    232448
    """
    return LIMITS[arch].shared_kb * 1024 - reserved_bytes(arch) if arch in LIMITS else 0


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
    return LIMITS.get(target().number, LIMITS[90]).count
