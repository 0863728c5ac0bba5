"""The space of a raw cell: its combinations, what is ruled out before and after the compiler, the line to paste."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from workbench.build.resources import Resources
from workbench.source import Source
from workbench.tiers import kernel as made
from workbench.tune.raw import RawSpace
from workbench.tune.space import Candidate, frozen_key, product, too_much

CUDA = """
//! n = x.numel()
//! tune BLOCK = 128, 256, 2048
//! tune ROOM = 1, 300
//! require BLOCK * ROOM != 300 * 256
//! out = empty_like(x)
//! grid = cdiv(n, BLOCK)
//! block = BLOCK
//! shared = ROOM * 1024
template <typename T, int BLOCK>
__global__ void f(const T* x, T* out, long long n) {
  extern __shared__ float s[];
  long long i = blockIdx.x * (long long)BLOCK + threadIdx.x;
  s[0] = 0;
  if (i < n) out[i] = x[i];
}
"""


@pytest.fixture
def space(namespace):
    op = wb.op(f"{namespace}::f(Tensor x) -> Tensor")
    return RawSpace(made(Source(CUDA, "cuda"), op.schema, "forward"), {"x": torch.empty(1000)})


def test_all_combinations_the_default_first_then_its_neighbours():
    found, count = product({"A": (1, 2), "B": (3, 4, 5)})
    assert count == 6 and found[0] == {"A": 1, "B": 3}
    assert found[1:4] == [{"A": 2, "B": 3}, {"A": 1, "B": 4}, {"A": 1, "B": 5}]
    assert len({tuple(c.items()) for c in found}) == 6
    assert product({"A": (1, 2), "B": (3, 4, 5)})[0] == found


def test_a_space_that_is_too_large_is_sampled():
    values = {n: tuple(range(10)) for n in "ABCDEF"}
    found, count = product(values, most=100)
    assert count == 10**6 and len(found) == 100 == len({tuple(c.items()) for c in found})
    assert found[0] == dict.fromkeys("ABCDEF", 0)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"BLOCK": 128, "ROOM": 1}, ""),
        ({"BLOCK": 2048, "ROOM": 1}, "f: the block is 2048, a block has at most 1024 threads"),
        ({"BLOCK": 128, "ROOM": 300}, "f asks for 300 KB of shared memory; a block has 227 KB"),
        ({"BLOCK": 256, "ROOM": 300}, "require BLOCK * ROOM != 300 * 256 is not met"),
    ],
)
def test_what_no_gpu_takes_is_not_built(space, config, reason):
    assert space.ruled_out(Candidate(config)) == reason


def test_each_is_built_and_tells_what_it_takes(space):
    some = [c for c in space.candidates if not space.ruled_out(c)]
    assert [c.config for c in some] == [{"BLOCK": 128, "ROOM": 1}, {"BLOCK": 256, "ROOM": 1}]
    assert {c.name: failed for c, failed in space.build(some)} == dict.fromkeys(c.name for c in some)
    assert all(8 <= space.resources(c)[0].registers <= 32 for c in some)
    assert [space.resources(c)[0].kernel for c in some] == ["f<float, 128>", "f<float, 256>"]


def test_registers_and_shared_memory_are_counted():
    taken = [Resources("k<float>", 65, shared=40 << 10)]
    assert too_much(taken, {"k": 512}, 0, {}) == ""
    assert too_much(taken, {"k": 1024}, 0, {}) == "k takes 65 registers x 1024 threads; a block has 65,536"
    said = "k takes 140 KB of shared memory; a block has 99 KB"
    assert too_much(taken, {"k": 32}, 99 << 10, {"k": 100 << 10}) == said


def test_the_line_has_the_winner_first(space):
    assert space.line({"": {"BLOCK": 256, "ROOM": 1}}) == "//! tune BLOCK = 256, 128, 2048\n//! tune ROOM = 1, 300"


def test_the_key_of_a_frozen_winner():
    assert frozen_key([torch.ones(2, 3), None, torch.ones(4).half()]) == (
        ("float32", "", "float16"),
        ((2, 3), (), (4,)),
    )


def test_flags_take_tuned_values(namespace):
    op = wb.op(f"{namespace}::f(Tensor x) -> Tensor")
    text = CUDA.replace(
        "//! n = x.numel()", "//! tune REGS = 32, 64\n//! flags -maxrregcount={REGS} -DOTHER={OTHER}\n//! n = x.numel()"
    )
    kernel = made(Source(text, "cuda"), op.schema, "forward")
    assert kernel.flags == ("-maxrregcount=32", "-DOTHER={OTHER}")
    assert kernel.with_tuned({"REGS": 64}).flags == ("-maxrregcount=64", "-DOTHER={OTHER}")
