"""The options of NVRTC, as pure functions: ours, and the user's nvcc flags."""

from __future__ import annotations

import re
from collections.abc import Sequence

ALWAYS = (
    "-std=c++20",  # as C++ cells are compiled
    "--ptxas-options=-v",  # registers, spills and shared memory, in the log
    # libcu++ takes 16 where it knows no better, and NVRTC 0.7 s for it; nvcc is given 10.
    "-D_CCCL_META_UNROLL_LIMIT=10",
    "-diag-suppress=47",  # a macro of wb_cuda.h defined anew, by libcu++ or in pasted text
)
# What cooperative_groups.h takes from libcu++ costs 0.2 s; NVIDIA's own name for leaving it out.
LIMITED = "-D_CG_LIMIT_INCLUDED_DEPENDENCIES"
_NEEDS_LIBCU = re.compile(r"\bcuda::|\bthread_scope|_(?:update|atomic)\b|<(?:cuda|cub|thrust)/")
HOST_AS_DEVICE = "-default-device"

# nvcc's, which say something to the host's compiler or allow what NVRTC allows anyway.
_DROPPED = re.compile(
    r"-O\d?|--optimize(?:=.*)?|--?expt-(?:relaxed-constexpr|extended-lambda)|--?extended-lambda|-Xcompiler=.*|"
    r"--compiler-options=.*|-ccbin(?:=.*)?|--threads(?:=.*)?|-t=?\d+|-Xfatbin=.*|--?generate-code=.*|-gencode=.*|-f?PIC|"
    r"--?gpu-architecture=.*|--?arch=.*|-code=.*|--?gpu-code=.*|-x=?cu"
)
_DROPPED_WITH_VALUE = {"-Xcompiler", "--compiler-options", "-ccbin", "--threads", "-t", "-x", "-gencode", "-Xfatbin",
                       "--generate-code", "-arch", "--arch", "--gpu-architecture", "-code", "--gpu-code", "-O",
                       "--optimize"}  # fmt: skip
_PTXAS = {"-Xptxas", "--ptxas-options"}
_WITH_VALUE = {"-I", "--include-path", "-D", "--define-macro", "-U", "--undefine-macro", "-std", "--std", "-include",
               "--pre-include", "-maxrregcount", "--maxrregcount"}  # fmt: skip


def options(
    arch: str,
    flags: Sequence[str],
    folders: Sequence[str],
    *,
    line_info: bool = False,
    timed: bool = False,
) -> tuple[str, ...]:
    """All options of one run, the user's flags last.

    >>> options("sm_90", ("-O3", "-use_fast_math"), ("/home/me",))
    ('-arch=sm_90', '-std=c++20', ..., '-I/home/me', '-use_fast_math')
    """
    given = translated(flags)
    ours = [o for o in ALWAYS if not any(_same(o, g) for g in given)]
    return (
        f"-arch={arch}",
        *ours,
        *(["-lineinfo"] if line_info and not {"-lineinfo", "--generate-line-info", "-G"} & set(given) else []),
        *(["-time=-"] if timed else []),
        *(f"-I{f}" for f in folders),
        *given,
    )


def _same(ours: str, given: str) -> bool:
    """Does the user set it himself? NVRTC warns of what it is told twice."""
    name = ours.partition("=")[0]
    if name == "--ptxas-options":
        return given == ours
    return name != "-diag-suppress" and (given.startswith((f"{name}=", f"-{name}=")) or given == name)


def translated(flags: Sequence[str]) -> tuple[str, ...]:
    """nvcc's flags as NVRTC takes them: values joined to their options, what means nothing to it left out.

    >>> translated(("-O3", "-Xptxas", "-v,-warn-spills", "-maxrregcount", "32", "-Xcompiler", "-fPIC"))
    ('--ptxas-options=-v', '--ptxas-options=-warn-spills', '-maxrregcount=32')
    """
    made, rest = [], list(flags)
    while rest:
        flag = rest.pop(0)
        name, _, value = flag.partition("=")
        if name in _PTXAS:
            value = value or (rest.pop(0) if rest else "")
            made += [f"--ptxas-options={part}" for part in value.split(",") if part]
        elif flag in _DROPPED_WITH_VALUE:
            rest[:1] = []
        elif _DROPPED.fullmatch(flag):
            continue
        elif flag in _WITH_VALUE and rest:
            value = rest.pop(0)
            made.append(f"{flag}{value}" if len(flag) == 2 else f"{flag}={value}")
        else:
            made.append(flag)
    return tuple(made)


def limits_cooperative_groups(texts: Sequence[str]) -> bool:
    """May cooperative_groups.h leave libcu++ out? Where it then lacks a name, it is included whole after all."""
    return any("cooperative_groups" in t for t in texts) and not any(_NEEDS_LIBCU.search(t) for t in texts)
