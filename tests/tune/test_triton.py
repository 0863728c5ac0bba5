"""Triton cells: the autotuner's own configurations, its hooks, `configs=`, where the winner goes; no GPU needed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live
from workbench import gpu
from workbench.build import triton_kernels, triton_tune
from workbench.errors import SchemaError
from workbench.judge.configured import Tried
from workbench.tune.space import Candidate
from workbench.tune.triton import TritonSpace, pasted

CELL = """
import triton
def keep(configs, named, **rest):
    return [c for c in configs if c.kwargs["BLOCK"] <= 512]

def before(named):
    named["out"].zero_()

@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128, }, num_warps=4, pre_hook=before),
             triton.Config({"BLOCK": 1024}), triton.Config({"BLOCK": 256})],
    key=["n"], prune_configs_by={"early_config_prune": keep})
@triton.jit
def kernel(x, out, k, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n) * k
    if BLOCK == 256:
        v = v + 1
    tl.static_assert(BLOCK != 32, "too small")
    tl.store(out + i, v, i < n)

@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) * 1, i < n)

def scale(x, k=2.0):
    out = torch.empty_like(x)
    n = x.numel()
    kernel[lambda m: (triton.cdiv(n, m["BLOCK"]),)](x, out, k, n)
    double[(triton.cdiv(n, 128),)](out, n, BLOCK=128)
    return out
"""


@pytest.fixture(scope="module")
def op():
    @wb.op("ttune::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    @scale.cases
    def _(t):
        yield t(5, 70)

    wb.triton(scale, CELL, force=True)  # one configuration differs
    yield scale
    live.gone(scale.qualname)


def space_of(op, configs=()):
    version = op.slots["forward", "cuda"]
    tried = Tried(op, version, op.case_list()[0])
    return tried, tried.space(configs)


def blocks(found):
    return [c.config["BLOCK"] for c in found]


def test_the_space_is_the_autotuners_own(op):
    _, space = space_of(op)
    assert blocks(space.candidates) == [64, 128, 1024, 256]
    assert space.candidates[0].config == {"BLOCK": 64, "num_warps": 2, "num_stages": 3}
    assert [space.ruled_out(c) for c in space.candidates] == [
        "",
        "",
        "the kernel's own prune_configs_by leaves it out",
        "",
    ]


def test_configs_widen_it(op):
    import triton

    more = [{"BLOCK": 512, "num_warps": 8}, triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 2048})]
    _, space = space_of(op, more)
    assert blocks(space.candidates) == [64, 128, 1024, 256, 512, 2048]
    assert space.candidates[4].config == {"BLOCK": 512, "num_warps": 8, "num_stages": 3}
    assert space.ruled_out(space.candidates[5]) and not space.ruled_out(space.candidates[4])
    assert len(space.tuners["kernel"].configs) == 4, "the cell's own list is left alone"
    assert blocks(space_of(op, {"kernel": [{"BLOCK": 512}]})[1].candidates)[-1] == 512


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({"BLOCK": 64}, "configs= is a list of configurations, or one by kernel; its autotuned kernels: kernel"),
        ("BLOCK", "configs= is a list of configurations"),
        ([64], 'configs= holds triton.Config, or mappings such as {"BLOCK": 64, "num_warps": 8}; got 64'),
    ],
)
def test_configs_that_are_none(op, configs, said):
    with pytest.raises(SchemaError) as error:
        space_of(op, configs)
    assert said in str(error.value)


def test_each_is_compiled_and_a_bad_one_is_told(op):
    _, space = space_of(op, [{"BLOCK": 32}, {"BLOCK": 512, "num_warps": 8}])
    some = [c for c in space.candidates if not space.ruled_out(c)]
    built = {c.config["BLOCK"]: failed for c, failed in space.build(some)}
    assert {b: f and f.status for b, f in built.items()} == {64: None, 128: None, 256: None, 512: None, 32: "resources"}
    assert "too small" in built[32].reason
    assert all(space.resources(c)[0].registers > 0 for c in some if c.config["BLOCK"] != 32)


@pytest.mark.skipif(gpu.present(), reason="the interpreter runs it where there is no GPU")
def test_each_is_tried_on_the_case_by_itself(op):
    tried, space = space_of(op, [{"BLOCK": 512, "num_warps": 8}])
    found = list(tried.check(space, [c for c in space.candidates if c.config["BLOCK"] != 1024]))
    assert [status for status, _ in found] == ["agree", "agree", "mismatch", "agree"]
    assert "elements differ" in found[2][1]


def test_the_winner_goes_where_the_autotuner_keeps_it(op):
    _, space = space_of(op, [{"BLOCK": 512, "num_warps": 8}])
    tuner, key = space.tuners["kernel"], (350, "torch.float32", "torch.float32")
    tuner.cache.clear()
    space.enter(space.candidates[1])
    assert tuner.cache[key] is tuner.configs[1], "the cell's own, with its hook"
    space.leave()
    assert key not in tuner.cache
    space.freeze(space.candidates[4])
    assert tuner.cache[key].all_kwargs()["BLOCK"] == 512
    assert dict(op.tuned) == {
        ("forward", "cuda", ("float32",), ((5, 70),)): {"BLOCK": 512, "num_warps": 8, "num_stages": 3}
    }
    assert [c.kwargs["BLOCK"] for c in triton_kernels.tuned(tuner).configs] == [512]
    assert len(tuner.configs) == 4 and triton_kernels.tuned(
        triton_kernels.innermost(tuner)
    ) is triton_kernels.innermost(tuner)
    space.enter(space.candidates[0])
    space.leave()
    assert tuner.cache[key].all_kwargs()["BLOCK"] == 512
    tuner.cache.clear()
    del tuner.workbench_winners
    op.slots["forward", "cuda"].kernel.frozen = {}


def test_the_line_is_a_config_of_triton(op):
    _, space = space_of(op)
    assert space.line({"": space.candidates[0].config}) == 'triton.Config({"BLOCK": 64}, num_warps=2, num_stages=3)'
    import triton

    assert eval(pasted(space.candidates[0].config)) == triton.Config({"BLOCK": 64}, num_warps=2, num_stages=3)


@pytest.mark.skipif(gpu.present(), reason="what is said where there is no GPU")
def test_without_a_gpu_they_are_compiled_and_not_timed(op):
    report = op.tune("5x70", configs=[{"BLOCK": 512}])
    assert {r.config["BLOCK"]: r.status for r in report.rows} == {
        64: "not run", 128: "not run", 1024: "pruned", 256: "not run", 512: "not run",
    }  # fmt: skip
    assert not report.ok and not report.frozen and report.best is None and dict(op.tuned) == {}
    assert "nothing was timed: no GPU here" in str(report)
    assert op.tune("5x70").trials == 3, "what was not run is not remembered"


def test_several_autotuned_kernels_are_tuned_one_by_one(op):
    text = CELL.replace(
        "@triton.jit\ndef double",
        '@triton.autotune(configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 64})], key=[])\n@triton.jit\ndef double',
    )
    text = text.replace(
        "double[(triton.cdiv(n, 128),)](out, n, BLOCK=128)", "double[lambda m: (triton.cdiv(n, m['BLOCK']),)](out, n)"
    )
    from workbench.source import Source
    from workbench.tiers.triton import TritonKernel

    kernel = TritonKernel(Source(text, "triton"), op.schema, "forward")
    space = TritonSpace(kernel, {"x": torch.empty(5, 70), "k": 2.0})
    assert [(c.kernel, c.config["BLOCK"]) for c in space.candidates] == [
        ("kernel", 64), ("kernel", 128), ("kernel", 1024), ("kernel", 256), ("double", 128), ("double", 64),
    ]  # fmt: skip
    assert space.candidates[5].name == "double: BLOCK=64, num_warps=4, num_stages=3"
    space.freeze(space.candidates[1])
    space.freeze(space.candidates[5])
    [config] = kernel.frozen.values()
    assert {name: c["BLOCK"] for name, c in config.items()} == {"kernel": 128, "double": 64}
    with pytest.raises(SchemaError, match="autotunes kernel, double: say of which"):
        TritonSpace(kernel, {"x": torch.empty(5, 70), "k": 2.0}, [{"BLOCK": 32}])


def test_a_configuration_by_its_values_is_the_cells_own_with_its_hook(op):
    _, space = space_of(op)
    tuner = space.tuners["kernel"]
    assert triton_tune.of(tuner, tuner.configs[1].all_kwargs()) is tuner.configs[1]
    made = triton_tune.of(tuner, {"BLOCK": 8, "num_warps": 1})
    assert made.kwargs == {"BLOCK": 8} and made.num_warps == 1 and made.pre_hook is None
    assert Candidate({"BLOCK": 8}) == Candidate({"BLOCK": 8})
