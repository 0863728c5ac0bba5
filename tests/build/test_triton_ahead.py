"""What is compiled beforehand is what a launch asks Triton for: a stand-in driver takes the place of a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import current_thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.build.test_triton_compile import CELL, SEVERAL, SM_90
from workbench.build import triton_ahead, triton_compile, triton_kernels, triton_launches, triton_module, triton_tune
from workbench.source import Source
from workbench.trial.gpu_guard import Memory
from workbench.trial.protocol import Meta


@dataclass
class Driver:
    """Loads nothing and launches nothing: `launched` are the arguments of what should have run."""

    room: int = 1 << 20
    launched: list = field(default_factory=list)

    def __post_init__(self) -> None:
        self.utils = SimpleNamespace(load_binary=lambda *a: (1, 2, 32, 0, 1024))
        self.launcher_cls = lambda source, metadata: lambda *args: self.launched.append((source.name, metadata, args))

    def get_current_device(self) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_stream(self, device: int) -> int:
        return 0


@pytest.fixture
def driver(monkeypatch, tmp_path):
    from triton.compiler import compiler
    from triton.runtime.driver import driver

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    made = Driver()
    monkeypatch.setattr(compiler, "max_shared_mem", lambda device: made.room)
    before = dict(vars(driver))
    driver.set_active(made)
    yield made
    vars(driver).clear()
    vars(driver).update(before)


@pytest.fixture
def hits(monkeypatch):
    """Whether each compilation was found in Triton's cache, by the order in which they came."""
    from triton import knobs

    found: list[bool] = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **told: found.append(told["cache_hit"]))
    return found


def module_of(text: str):
    return triton_module.load(Source(text, "triton", file="cell [3]", first_line=2))


def guarded(t: torch.Tensor) -> torch.Tensor:
    """The tensor as a trial has it: between red zones."""
    memory = Memory("cpu")
    KEPT.append(memory)
    meta = Meta.of(t)
    return memory.tensor(memory.allocate(meta.extent * t.element_size()), meta).copy_(t)


KEPT: list = []
TENSORS = [torch.randn(100), torch.randn(128), torch.randn(1), torch.randn(48).bfloat16(), torch.randn(33)[1:]]


@pytest.mark.parametrize("text", [CELL, SEVERAL])
@pytest.mark.parametrize("place", [guarded, torch.clone])
def test_a_launch_finds_what_was_compiled_for_it(driver, hits, text, place):
    module = module_of(text)
    seen = [s for t in TENSORS for s in triton_launches.launches(module, "double", {"x": place(t)})]
    made = triton_compile.compile(module, seen, SM_90, {})
    assert len(hits) == len(made) > 3 and not any(hits)
    hits.clear()
    if text is SEVERAL:  # in a trial
        triton_tune.in_turn(triton_kernels.own_kernels(module).values())
    for t in TENSORS:
        module.double(place(t))
    assert hits and all(hits) and len(driver.launched) == len(TENSORS)
    fresh = triton_kernels.innermost(module.kernel)
    fresh.device_caches.clear()


def test_a_turn_runs_the_configuration_of_its_place_and_finds_it_compiled(driver, hits, monkeypatch):
    module, x = module_of(SEVERAL.replace("* 2", "* 3")), torch.randn(100)
    seen = triton_launches.launches(module, "double", {"x": x})
    triton_compile.compile(module, [triton_launches.Seen(s.kernel, s.args, s.keywords, True) for s in seen], SM_90, {})
    hits.clear()
    triton_tune.in_turn(triton_kernels.own_kernels(module).values())
    for turn in range(triton_launches.choices(seen)):
        monkeypatch.setattr(triton_tune, "turn", turn)
        module.double(x)
    assert hits == [True] * 3 and [args[-2] for _, _, args in driver.launched] == [32, 64, 128]


DOT = """\
@triton.autotune([triton.Config({"B": b}) for b in (128, 16, 32)], key=["n"])
@triton.jit
def kernel(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    at = i[:, None] * B + i[None, :]
    a = tl.load(x + at)
    tl.store(out + at, tl.dot(a, a))
def double(x):
    out = torch.empty_like(x)
    kernel[(1,)](x, out, x.numel())
    return out
"""


def test_a_configuration_without_room_is_no_fault(driver, monkeypatch):
    module, x, told = module_of(DOT), torch.randn(128, 128), []
    triton_tune.in_turn([module.kernel])
    monkeypatch.setattr(triton_tune, "told", told.append)
    driver.room = 20_000
    monkeypatch.setattr(triton_tune, "turn", 0)
    with pytest.raises(
        triton_tune.Unfit, match=r"kernel with B=128, num_warps=4.* does not fit: out of resource: shared"
    ):
        module.double(x)
    monkeypatch.setattr(triton_tune, "turn", None)
    monkeypatch.setattr(triton_tune, "place", lambda *_: 0)
    module.double(x)  # any one will do: the next
    assert [args[-1] for _, _, args in driver.launched] == [16] and len(told) == 3
    driver.room = 0
    triton_kernels.innermost(module.kernel).device_caches.clear()
    with pytest.raises(Exception, match="out of resource"):
        module.double(x)


def test_the_first_call_compiles_its_configurations_side_by_side(driver, hits):
    from triton import knobs

    threads = set()
    module, x = module_of(SEVERAL.replace("* 2", "* 5")), torch.randn(100)
    triton_ahead.side_by_side([module.kernel, module.kernel])
    knobs.runtime.jit_cache_hook = lambda **_: threads.add(current_thread().name) or None
    module.kernel._do_bench = lambda call, quantiles: call() or [1.0, 1.0, 1.0]
    try:
        module.double(x)
    finally:
        knobs.runtime.jit_cache_hook = None
    assert hits == [False] * 3 and threads and all(t.startswith("triton") for t in threads)
    assert [args[-2] for _, _, args in driver.launched] == [32, 64, 128, 32]  # each timed, the first taken
    module.double(x)
    assert len(hits) == 3


def test_the_compiler_is_heard_until_a_kernel_is_loaded(driver, monkeypatch):
    from triton import knobs
    from triton.runtime.jit import JITFunction

    heard = []
    monkeypatch.setattr(triton_tune, "compiling", heard.append)
    module = module_of(CELL.replace("* 2", "* 7"))
    before, usual = list(knobs.runtime.kernel_load_end_hook.calls), JITFunction._do_compile
    try:
        triton_tune.hear_compiler()
        triton_tune.hear_compiler()
        module.double(torch.randn(100))
        module.double(torch.randn(100))
    finally:
        JITFunction._do_compile, knobs.runtime.kernel_load_end_hook.calls = usual, before
    assert heard == [True, False]
