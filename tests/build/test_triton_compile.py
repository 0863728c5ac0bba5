"""Compiling Triton kernels for a stated architecture without a GPU: what is launched, what it takes, what goes wrong."""

from __future__ import annotations

import time
from dataclasses import replace
from threading import Event

import pytest
import torch

from workbench.build import triton_compile, triton_launches, triton_module, triton_tune
from workbench.build.triton_bfloat16 import narrowed, widened
from workbench.errors import BuildError
from workbench.gpu import Target
from workbench.source import Source

SM_90 = Target("sm_90", "a test")
CELL = """\
@triton.heuristics({"EVEN": lambda a: a["n"] % a["B"] == 0})
@triton.jit
def kernel(x, out, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, i < n) * 2, i < n)

def double(x):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), B=64)
    return out
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


def load(text: str):
    return triton_module.load(Source(text, "triton", file="cell [3]", first_line=2))


def compiled(text: str, *tensors: torch.Tensor, function: str = "double", known=None) -> dict:
    module = load(text)
    seen = [s for x in tensors for s in triton_launches.launches(module, function, {"x": x})]
    return triton_compile.compile(module, seen, SM_90, known or {})


def test_launches_are_seen_and_nothing_runs():
    x = torch.randn(100)
    [seen] = triton_launches.launches(load(CELL), "double", {"x": x})
    assert seen.keywords == {"B": 64} and seen.args[2] == 100 and seen.args[0].shape == (100,)
    [form] = triton_launches.forms(seen)
    assert form.kernel.__name__ == "kernel" and (form.given["EVEN"], form.given["n"]) == (False, 100)


def test_fakes_may_be_on_a_gpu_that_is_not_here():
    text = CELL.replace("    out =", "    assert x.is_cuda\n    out =")
    x = torch.randn(9, 4).t()[1:]
    [seen] = triton_launches.launches(load(text), "double", {"x": x}, device="cuda:0")
    given, out = seen.args[:2]
    assert (given.device.type, given.stride(), given.storage_offset(), out.is_cuda) == ("cuda", (1, 4), 1, True)
    [seen] = triton_launches.launches(
        load(text), "double", {"x": x}
    )  # for the interpreter, where is_cuda says yes, too
    assert seen.args[0].device.type == "cpu"


def test_each_specialisation_is_compiled_once():
    x = torch.randn(100)
    found = compiled(CELL, x, x * 2, torch.randn(128), x.bfloat16())
    assert len(found) == 3
    signatures = [c.signature for c in found.values()]
    assert signatures[0] == "x: *fp32, out: *fp32, n: int, B=64, EVEN=False"
    assert "EVEN=True" in signatures[1] and "x: *bf16" in signatures[2]
    for c in found.values():
        assert {"ttir", "ttgir", "llir", "ptx", "cubin"} <= set(c.asm) and ".target sm_90" in c.asm["ptx"]
        assert c.resources.kernel == "kernel" and 4 < c.resources.registers < 64 and not c.resources.spills
    assert compiled(CELL, x, known=found) == {}
    assert not next(iter(found.values())).cached and next(iter(compiled(CELL, x).values())).cached


def test_a_driver_of_the_machine_is_not_touched():
    from triton.runtime.driver import driver

    before = vars(driver).get("_active")
    compiled(CELL, torch.randn(3))
    assert vars(driver).get("_active") is before


@pytest.mark.parametrize(("old", "new", "line", "words"), [
    ("tl.arange(0, B)", "tl.arange(0, 100)", 5, "arange's range must be a power of 2"),
    ("* 2", "* missing_of_tl.x", 6, "missing_of_tl is not defined"),
    ("* 2", "@ 2", 6, ""),
    ("    i = tl", "    tl.static_assert(B == 7, 'B is seven')\n    i = tl", 5, "B is seven"),
])  # fmt: skip
def test_what_does_not_compile_names_the_cells_line(monkeypatch, old, new, line, words):
    monkeypatch.setattr("workbench.build.triton_text.check_names", lambda source: None)
    with pytest.raises(BuildError) as raised:
        compiled(CELL.replace(old, new), torch.randn(3))
    error = raised.value
    assert (error.line, error.file) == (line, "cell [3]") and words in str(error)
    assert error.diagnostics[0].line == line and error.diagnostics[0].excerpt


def test_an_error_in_a_helper_is_on_the_helpers_line():
    text = "@triton.jit\ndef helper(v):\n    return v + tl.arange(0, 3)\n\n" + CELL.replace("* 2", "* helper(2)")
    with pytest.raises(BuildError, match="power of 2") as raised:
        compiled(text, torch.randn(3))
    assert raised.value.line == 4


DOT = """\
@triton.jit
def kernel(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    at = i[:, None] * B + i[None, :]
    a = tl.load(x + at)
    tl.store(out + at, tl.dot(a, a))
def double(x):
    out = torch.empty_like(x)
    kernel[(1,)](x, out{B})
    return out
"""


def test_of_all_sizes_those_are_compiled_that_triton_makes_most_of():
    """Where it does not run one form stands for all: sizes of 16 load 16 bytes, whichever case is first."""
    module = load(CELL.replace('@triton.heuristics({"EVEN": lambda a: a["n"] % a["B"] == 0})\n', "").replace(
        ", EVEN: tl.constexpr", ""))  # fmt: skip
    for sizes in ((100, 123, 1600), (1600, 100)):
        seen = [s for n in sizes for s in triton_launches.launches(module, "double", {"x": torch.randn(n)})]
        (made,) = triton_compile.compile(module, seen, SM_90, {}, exact=False).values()
        assert "tt.divisibility" in made.asm["ttir"].partition("%n: i32")[2].partition(")")[0]


def test_too_much_shared_memory_names_the_limit():
    with pytest.raises(
        BuildError, match=r"kernel takes \d+ KB of shared memory, a block of sm_90 has 227 KB"
    ) as raised:
        compiled(DOT.format(B=", B=256"), torch.empty(256, 256))
    assert type(raised.value) is BuildError and raised.value.line == 3


def test_an_autotuned_kernel_is_compiled_in_the_first_configuration_that_fits():
    tuned = DOT.replace(
        "@triton.jit", "@triton.autotune([triton.Config({'B': b}) for b in (256, 32)], key=[])\n@triton.jit"
    )
    [found] = compiled(tuned.replace("{B}", ""), torch.empty(256, 256)).values()
    assert "B=32" in found.signature and found.resources.shared > 0


SEVERAL = CELL.replace(
    "@triton.heur",
    '@triton.autotune([triton.Config({"B": b}, num_warps=1) for b in (32, 64, 128)], key=[])\n@triton.heur',
).replace(", B=64)", ")")


def every(text: str, *tensors: torch.Tensor) -> dict:
    module = load(text)
    seen = [s for x in tensors for s in triton_launches.launches(module, "double", {"x": x})]
    return triton_compile.compile(module, [replace(s, every=True) for s in seen], SM_90, {})


def test_all_configurations_are_compiled_where_they_are_wanted():
    found = every(SEVERAL, torch.randn(100))
    assert sorted(int(c.signature.partition("B=")[2].partition(",")[0]) for c in found.values()) == [32, 64, 128]
    assert all({"B", "num_warps"} <= c.tuned for c in found.values())
    x = torch.randn(100)
    [first] = compiled(SEVERAL, x).values()  # any one of them, else
    [seen] = triton_launches.launches(load(SEVERAL), "double", {"x": x})
    names = {"x": x, "out": x, "n": 100}
    assert f"B={(32, 64, 128)[triton_tune.place(3, names, None)]}" in first.signature


def test_a_configuration_that_does_not_fit_is_left_out_and_none_is_an_error():
    text = SEVERAL.replace("    i = tl", '    tl.static_assert(B < 128, "too large")\n    i = tl')
    assert len(every(text, torch.randn(100))) == 2
    with pytest.raises(BuildError, match="too large") as raised:
        every(text.replace("B < 128", "B < 0"), torch.randn(100))
    assert raised.value.line == 6
    with pytest.raises(BuildError, match="power of 2"):  # what is wrong in one of them is wrong
        every(SEVERAL.replace("(32, 64, 128)", "(32, 33)"), torch.randn(100))


def test_an_interrupt_waits_for_no_compilation():
    started, slow = time.monotonic(), Event()
    with pytest.raises(KeyboardInterrupt), triton_compile.at_once(2) as pool:
        pool.submit(slow.wait, 20)
        waiting = [pool.submit(slow.wait, 20) for _ in range(50)]
        raise KeyboardInterrupt
    assert time.monotonic() - started < 5 and waiting[-1].cancelled()
    slow.set()


def test_bfloat16_rounds_to_nearest_even():
    x = torch.cat([torch.randn(1000) * 100, torch.tensor([float("inf"), -float("inf"), 0.0, 1.00390625, 1.01171875])])
    bits = torch.from_numpy(narrowed(x.numpy()).view("int16"))
    assert torch.equal(bits, x.bfloat16().view(torch.int16))
    assert torch.equal(torch.from_numpy(widened(narrowed(x.numpy()))), x.bfloat16().float())
    assert (narrowed(torch.tensor([float("nan")]).numpy()) & 0x7FFF > 0x7F80).all()


PRUNED = """\
def keep(configs, named, **rest):
    assert named["x"].numel() and "n" not in named
    return [c for c in configs if c.kwargs["B"] <= rest["n"]]

@triton.autotune(configs=[triton.Config({"B": b}) for b in (16, 32, 64)], key=["n"],
                 prune_configs_by={"early_config_prune": keep})
@triton.jit
def kernel(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, i < n) * 2, i < n)

def double(x):
    out = torch.empty_like(x)
    kernel[lambda m: (triton.cdiv(x.numel(), m["B"]),)](x, out, n=x.numel())
    return out
"""


def test_what_prunes_gets_arguments_by_place_and_by_name_as_triton_hands_them_on():
    module = load(PRUNED)
    for count, kept in ((20, [16]), (40, [16, 32])):
        seen = triton_launches.launches(module, "double", {"x": torch.ones(count)})
        assert [f.given["B"] for f in triton_launches.forms(seen[0])] == kept
        assert triton_launches.choices(seen) == len(kept)


@pytest.mark.parametrize(("old", "new", "line", "words"), [
    ('rest["n"]', 'rest["m"]', 4, "KeyError: 'm'"),
    ('c.kwargs["B"] <= rest["n"]', "False", 0, "No valid autotuner configs after pruning"),
])  # fmt: skip
def test_a_rule_that_fails_is_an_error_on_its_line(old, new, line, words):
    [seen] = triton_launches.launches(load(PRUNED.replace(old, new)), "double", {"x": torch.ones(40)})
    for look in (triton_launches.forms, lambda s: triton_launches.choices([s])):
        with pytest.raises(BuildError, match=words) as raised:
            look(seen)
        assert raised.value.line == line


DESCRIBED = """\
from triton.tools.tensor_descriptor import TensorDescriptor

def blocks(given):
    for name in ("x", "out"):
        given[name].block_shape = [given["B"]]

@triton.autotune(configs=[triton.Config({"B": b}, pre_hook=blocks) for b in (16, 32)], key=["n"])
@triton.jit
def kernel(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B
    out.store([i], x.load([i]) * 2)

def double(x):
    out = torch.empty_like(x)
    given = [TensorDescriptor.from_tensor(t, [1]) for t in (x, out)]
    kernel[lambda m: (triton.cdiv(x.numel(), m["B"]),)](*given, x.numel())
    return out
"""


def test_tensor_descriptors_are_compiled_with_the_blocks_that_a_hook_gives_them_for_each_dtype():
    module = load(DESCRIBED)
    tensors = torch.ones(64), torch.ones(64, dtype=torch.float16)
    seen = [replace(s, every=True) for x in tensors for s in triton_launches.launches(module, "double", {"x": x})]
    assert [f.given["x"].block_shape for f in triton_launches.forms(seen[0])] == [[16], [32]]
    made = triton_compile.compile(module, seen, SM_90, {})
    assert sorted(c.signature.partition(", out")[0] for c in made.values()) == [
        "x: *fp16[16]", "x: *fp16[32]", "x: *fp32[16]", "x: *fp32[32]",
    ]  # fmt: skip
