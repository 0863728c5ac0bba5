"""Host cells in CUDA without a GPU: their device half compiled for the host, behind the driver that records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.build.cuda_tools import PRELUDE, Fake, fake_driver
from tests.build.native_tools import compiled
from workbench import gpu, tiers, toolchain
from workbench.build import headers, nvrtc
from workbench.build.result import Build
from workbench.source import Source
from workbench.tiers.host_cuda import HostCudaKernel

CALLS = """
#include <utility>
template <typename... P, size_t... I> void fake_one(void (*f)(P...), void** p, std::index_sequence<I...>) {
  f(*static_cast<std::remove_const_t<P>*>(p[I])...);
}
template <typename... P> void fake_all(void (*f)(P...), void** p, const uint32_t* g, const uint32_t* b) {
  gridDim = {g[0], g[1], g[2]}, blockDim = {b[0], b[1], b[2]};
  for (unsigned i = 0; i < g[0] * g[1] * g[2]; ++i) for (unsigned j = 0; j < b[0] * b[1] * b[2]; ++j) {
    blockIdx = {i % g[0], i / g[0] % g[1], i / g[0] / g[1]}, threadIdx = {j % b[0], j / b[0] % b[1], j / b[0] / b[1]};
    fake_one(f, p, std::index_sequence_for<P...>());
  }
}
template <typename... P> constexpr int fake_count(void (*)(P...)) { return sizeof...(P); }
"""
SHIMS = "#define __restrict__\n#define __launch_bounds__(...)\n#define __forceinline__ inline\n#define __constant__\n#define __host__\n"


def device_half(text: str, names: Sequence[str]) -> str:
    """A device half as host text, with a FakeKernel for each of these C++ names: kernel_0, kernel_1, ..."""
    plain = "\n".join(row for row in text.split("\n") if "#include" not in row)
    rows = ["#include <algorithm>", "#include <type_traits>", PRELUDE, SHIMS, plain, CALLS]
    for i, name in enumerate(names):
        rows.append(f"""static void run_{i}(void** p, const uint32_t* g, const uint32_t* b) {{ fake_all(&::{name}, p, g, b); }}
extern "C" __attribute__((visibility("default"))) FakeKernel kernel_{i};
FakeKernel kernel_{i} = {{run_{i}, fake_count(&::{name}), 0, 1024, 32}};""")
    return "\n".join(rows)


def fake_compile(text: str, *, arch: str, names: Sequence[str] = (), **_: object) -> Build:
    """What NVRTC would give: a "cubin" that the fake driver loads."""
    path = compiled(device_half(text, names))
    cubin = Path(f"{path}.cubin")
    cubin.write_bytes(f"FAKE {path}\0".encode())
    return Build(path, str(cubin), "cuda", 0.1, False, names=tuple(f"kernel_{i}" for i in range(len(names))))


@contextmanager
def pretended_gpu() -> Iterator[Fake]:
    """This process has a GPU, whose tensors are those of the CPU."""
    headers.make(toolchain.compiler(), "host-cuda", "wb_host_cuda.h", ())
    with fake_driver() as fake, pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvrtc, "compile", fake_compile)
        patch.setattr(gpu, "present", lambda: True)
        patch.setattr(gpu, "target", lambda: gpu.Target("sm_90", "pretended"))
        patch.setattr(HostCudaKernel, "key", "CPU")
        yield fake


def installed(op, text: str, slot: str = "forward", **options: object) -> HostCudaKernel:
    """A cell's kernel, built and put behind the op's name; the trial is left out."""
    kernel = tiers.kernel(Source(text, "cuda", "cell [3]", 2), op.schema, slot, **options)
    assert isinstance(kernel, HostCudaKernel)
    kernel.build([])
    if kernel.left_out:
        op.registration.name_partial(kernel.native_schema.name, "cpu")

    def arrived(dtypes):
        kernel.build([dtypes])
        kernel.refresh()

    kernel.install(arrived)
    return kernel
