"""The headers that NVRTC is given: ours in place of the C headers that it lacks, and where the CUDA ones are."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
from collections.abc import Sequence

from .. import settings
from ..errors import ToolchainError
from . import nvrtc_library

FOLDER = os.path.dirname(os.path.abspath(__file__))
OWN = ("wb_cuda.h", "wb_cuda_std.h")

# NVRTC knows by itself what these declare for device code, or wb_cuda.h says it.
_C = """
    assert cassert cctype cerrno cfloat climits cstddef cstdint cstdio cstdlib cstring ctime ctype.h errno.h assert.h
    float.h inttypes.h cinttypes limits.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h strings.h time.h
    sys/types.h initializer_list iostream istream ostream sstream fstream iomanip memory new string string_view vector
    stdexcept exception builtin_types.h channel_descriptor.h common_functions.h cuda_runtime.h cuda_runtime_api.h
    cuda_device_runtime_api.h device_functions.h device_launch_parameters.h device_types.h driver_types.h
    host_config.h host_defines.h math_functions.h vector_functions.h vector_types.h crt/device_functions.h
    crt/math_functions.h device_atomic_functions.h
""".split()  # noqa: SIM905  so many names read better without quotes
_DRIVER = """#pragma once
#include "wb_cuda.h"
struct alignas(64) CUtensorMap {
  uint64_t opaque[16];
};
"""
_STD = ("cmath", "math.h", "algorithm")
# libcu++ has these for device code.
_LIBCU = ("array", "atomic", "barrier", "bit", "complex", "concepts", "functional", "iterator", "limits", "numeric",
          "optional", "ratio", "span", "tuple", "type_traits", "utility", "variant")  # fmt: skip
# <cub/cub.cuh> refuses NVRTC for what it has for the host; this is what kernels call.
_CUB = {"block": "adjacent_difference discontinuity exchange histogram load merge_sort radix_rank radix_sort reduce "
                 "scan shuffle store",
        "warp": "exchange load merge_sort reduce scan store", "thread": "load operators reduce scan store"}  # fmt: skip
_WHOLE_CUB = "cub/cub.cuh"
LIGHT = re.compile(r"cuda_(?:fp\d+|bf16|pipeline|awbarrier)\w*\.h|mma\.h|math_constants\.h|nv/target")
_PACKAGES = (
    (re.compile(r"curand"), "nvidia-curand"),
    (re.compile(r"(?:cub|cuda|thrust|nv)/"), "nvidia-cuda-cccl"),
    (re.compile(r"cuda_|cooperative_groups|mma\.h|math_constants"), "nvidia-cuda-runtime"),
)


@functools.cache
def stand_ins() -> dict[str, str]:
    """Name in `#include` -> text: our own headers, and one for each C and C++ header that device code may name.

    >>> stand_ins()["stdint.h"]
    '#include "wb_cuda.h"\\n'
    """
    made = {}
    for name in OWN:
        with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
            made[name] = file.read()
    made |= dict.fromkeys(_C, '#include "wb_cuda.h"\n') | dict.fromkeys(_STD, '#include "wb_cuda_std.h"\n')
    made |= dict.fromkeys(["cuda.h"], _DRIVER)
    for name in _LIBCU:
        made[name] = f"#pragma once\n#include <cuda/std/{name}>\nnamespace std {{ using namespace ::cuda::std; }}\n"
    made[_WHOLE_CUB] = "#pragma once\n" + "".join(f"#include <{name}>\n" for name in of_cub())
    return made


def of_cub() -> tuple[str, ...]:
    """The headers of CUB that device code takes: `cub/block/block_reduce.cuh`, ..."""
    return tuple(f"cub/{kind}/{kind}_{name}.cuh" for kind, names in _CUB.items() for name in names.split())


def of_cuda(names: Sequence[str]) -> tuple[str, ...]:
    """Of the headers that a text names outside the user's folders, those that come from CUDA's.

    >>> of_cuda(("cstdint", "limits", "cub/block/block_reduce.cuh"))
    ('limits', 'cub/block/block_reduce.cuh')
    """
    ours = stand_ins()
    return tuple(n for n in names if n not in ours or n in (*_LIBCU, _WHOLE_CUB))


def folders() -> tuple[str, ...]:
    """Where CUDA's headers are, best first: the toolkit that the user names, what NVRTC carries, wheels, /usr/local.

    >>> folders()
    ('/home/me/.cache/workbench/cuda-headers-13.5/cccl', '/home/me/.cache/workbench/cuda-headers-13.5', ...)
    """
    asked = settings.cuda_homes(), str(settings.cache_dir()), nvrtc_library.version()
    found = _folders(*asked)
    if not all(map(os.path.isdir, found)):  # someone has cleared the cache
        _folders.cache_clear()
        found = _folders(*asked)
    return found


def for_hosts() -> str:
    """The first of these folders whose headers a C++ compiler can take: NVRTC carries parts. "" where there is none."""
    wanted = ("cuda_fp16.h", "driver_types.h", os.path.join("crt", "host_defines.h"))
    return next((f for f in folders() if all(os.path.isfile(os.path.join(f, w)) for w in wanted)), "")


@functools.lru_cache(maxsize=4)
def _folders(homes: tuple[str, ...], cache: str, version: tuple[int, int]) -> tuple[str, ...]:
    roots = [os.path.join(home, "include") for home in homes]
    roots += _carried(cache, version)
    roots += [f for place in _package("nvidia") for f in _wheels(place, version[0])]
    roots += ["/usr/local/cuda/include"]
    roots += [os.path.join(place, "backends", "nvidia", "include") for place in _package("triton")]
    found = [f for root in roots for f in (os.path.join(root, "cccl"), root) if os.path.isdir(f)]
    return tuple(dict.fromkeys(found))


def _carried(cache: str, version: tuple[int, int]) -> list[str]:
    folder = os.path.join(cache, "cuda-headers-{}.{}".format(*version))
    try:
        settings.private(settings.cache_dir())
        return [folder] if nvrtc_library.unpack_headers(folder) else []
    except (OSError, ToolchainError):
        return []  # no cache to write to: the others may have them


def _wheels(place: str, major: int) -> list[str]:
    names = [f"cu{major}", "cuda_runtime", "cuda_cccl", "curand"]
    return [os.path.join(place, name, "include") for name in names]


def _package(name: str) -> list[str]:
    """Where a package is, without importing it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    return list(spec.submodule_search_locations or ()) if spec else []


def identity() -> tuple[tuple[str, int], ...]:
    """For keys: the folders, and when their headers were written."""
    return tuple((f, _written(f)) for f in folders())


def _written(folder: str) -> int:
    for name in ("cuda_fp16.h", "cub/version.cuh", "curand_kernel.h"):
        try:
            return os.stat(os.path.join(folder, name)).st_mtime_ns
        except OSError:
            continue
    return 0


def package_of(header: str) -> str:
    """The package that brings a CUDA header, "" where we know of none.

    >>> package_of("curand_kernel.h")
    'nvidia-curand'
    """
    return next((package for pattern, package in _PACKAGES if pattern.match(header)), "")
