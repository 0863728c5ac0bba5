"""A GPU that is not there: CUDA cells with kernels compiled for the host, behind a driver that records (fake_driver.cpp).

Kernels that need no `__shared__` memory and no `__syncthreads` run one thread after the other, and give values.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from tests.build.native_tools import Cell, compiled
from workbench import schema as schemas
from workbench.build import body as bodies
from workbench.build import driver, forms, native
from workbench.build import launcher as launchers
from workbench.directives import bind, parse
from workbench.schema import Schema
from workbench.source import Source, functions

LAUNCH, LAUNCH_EX, FILL, SET_CONTEXT, SET_ATTRIBUTE, RETAIN = range(1, 7)
CONTEXT = 0x1000  # of GPU 0
PRELUDE = """\
#include <math.h>
#include <stdint.h>
struct dim3 { unsigned x, y, z; };
static thread_local dim3 gridDim, blockDim, blockIdx, threadIdx;
#define __global__
#define __device__
using std::min; using std::max;
struct FakeKernel { void (*run)(void**, const uint32_t*, const uint32_t*); int32_t parameters, own_shared, max_threads, registers; };
"""
_kept: list[object] = []  # launchers hold tables of drivers for as long as the process lives


class Record(ctypes.Structure):
    _fields_ = (
        ("what", ctypes.c_int32), ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3),
        ("cluster", ctypes.c_uint32 * 3), ("shared", ctypes.c_uint32), ("kernel", ctypes.c_void_p),
        ("stream", ctypes.c_void_p), ("context", ctypes.c_void_p), ("parameters", ctypes.c_int64 * 64),
    )  # fmt: skip


@dataclass
class Fake:
    """The fake driver: what it was asked, and what it is to answer."""

    library: ctypes.CDLL

    def set(self, **values: int) -> None:
        for name, value in values.items():
            kind = ctypes.c_void_p if name == "stream" else ctypes.c_int32
            kind.in_dll(self.library, f"fake_{name}").value = value

    def take(self) -> list[Record]:
        """What was recorded since the last time."""
        count = ctypes.c_int32.in_dll(self.library, "fake_count")
        found = (Record * 1024).in_dll(self.library, "fake_records")
        copies = [Record.from_buffer_copy(found[i]) for i in range(count.value)]
        count.value = 0
        return copies

    def launches(self) -> list[Record]:
        return [r for r in self.take() if r.what in (LAUNCH, LAUNCH_EX)]

    @property
    def current(self) -> int:
        return self.library.fake_current() or 0

    @current.setter
    def current(self, context: int) -> None:
        self.library.fake_make_current(context)


def forget_driver() -> None:
    for cached in (driver._cuda, driver.devices, driver.table):
        cached.cache_clear()
    driver._libraries.clear()


@contextmanager
def fake_driver() -> Iterator[Fake]:
    """The driver of this process is the fake one."""
    library = ctypes.CDLL(compiled((Path(__file__).parent / "fake_driver.cpp").read_text()))
    library.fake_current.restype = ctypes.c_void_p
    library.fake_make_current.argtypes = (ctypes.c_void_p,)
    library.fake_reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "_open", lambda: library)
        patch.setattr(driver, "_torch_cuda", lambda: library)
        forget_driver()
        try:
            _kept.append(driver.table())
            yield Fake(library)
        finally:
            forget_driver()


@dataclass
class CudaCell(Cell):
    """A raw CUDA cell whose kernels run on the host; `own_shared`, `max_threads`, `registers` are what they claim."""

    claims: dict[str, int] = field(default_factory=dict)

    def instance(self, dtypes: dict[str, torch.dtype | None], tuned: dict | None = None) -> native.Instance:
        made = bodies.instantiate(self.source, self.declaration, dtypes, tuned)
        form = forms.Form(self.declaration, forms.complete(self.declaration, dtypes), dict(tuned or {}))
        path = compiled(self.host_text(made.text, form))
        cubin = Path(f"{path}.cubin")
        cubin.write_bytes(f"FAKE {path}\0".encode())
        known = forms.complete(self.declaration, dtypes)
        symbols = tuple(f"kernel_{f.name}" for f in self.declaration.functions)
        return native.Instance(tuple(known[n] for n in self.declaration.tensors), str(cubin), made, symbols)

    def host_text(self, text: str, form: forms.Form) -> str:
        """The cell's text with a FakeKernel for each function, which calls it once a thread."""
        text = text[: text.index('extern "C" __attribute__')]
        before, _, after = text.partition("#line")
        parts = [before, "#include <algorithm>\n" + PRELUDE, "#line" + after]
        for binding in bind(self.declaration.functions, self.declaration):
            f, arguments = binding.function, form.template_arguments(binding)
            types = [arguments.get(p.type, p.type) + ("*" if p.pointer else "") for p in f.parameters]
            passed = ", ".join(f"*({t}*)p[{i}]" for i, t in enumerate(types))
            called = f"{f.name}<{', '.join(arguments.values())}>" if arguments else f.name
            claims = {"own_shared": 0, "max_threads": 1024, "registers": 32, **self.claims}
            parts.append(f"""
static void run_{f.name}(void** p, const uint32_t* g, const uint32_t* b) {{
  gridDim = {{g[0], g[1], g[2]}}, blockDim = {{b[0], b[1], b[2]}};
  for (unsigned i = 0; i < g[0] * g[1] * g[2]; ++i) for (unsigned j = 0; j < b[0] * b[1] * b[2]; ++j) {{
    blockIdx = {{i % g[0], i / g[0] % g[1], i / g[0] / g[1]}}, threadIdx = {{j % b[0], j / b[0] % b[1], j / b[0] / b[1]}};
    ::{called}({passed});
  }}
}}
extern "C" __attribute__((visibility("default"))) FakeKernel kernel_{f.name};
FakeKernel kernel_{f.name} = {{run_{f.name}, {len(types)}, {claims["own_shared"]}, {claims["max_threads"]}, {claims["registers"]}}};
""")
        return "".join(parts)


def cuda_cell(
    schema: Schema | str, text: str, *, entry: str = "forward", first_line: int = 2, claims: dict | None = None, **names
) -> CudaCell:
    if isinstance(schema, str):
        schema = schemas.parse(schema, **names)
    source = Source(text, "cuda", "cell [3]", first_line)
    declaration = parse(source, schema, entry=entry, functions=functions(text, "cuda", first_line))
    return CudaCell(schema, source, declaration, entry, None, claims or {})


def load_cuda(made: CudaCell) -> CudaCell:
    """Compile the launcher for CUDA, for torch's CPU key, and load it; not registered yet."""
    text = launchers.render(made.schema, made.declaration, entry=made.entry, device="cuda", key="CPU")
    made.launcher = native.Launcher(compiled(text, "launcher"))
    return made
