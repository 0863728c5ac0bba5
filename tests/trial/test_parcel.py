"""Tensors on their way: what they were is what arrives."""

from __future__ import annotations

import os

import pytest
import torch

from workbench.check.float64 import available_bytes
from workbench.trial import Job, Made, Meta, Parcel, Step, guard


def echo(worker, **tensors):
    """What the worker sees of these tensors, by name."""
    parcel = Parcel.of(tensors)
    steps = tuple(Step("aten::alias", (parcel[n],)) for n in tensors)
    answer = worker.run(Job(steps), 20)
    assert answer.ok, answer
    return dict(zip(tensors, (r.outputs[0] for r in answer.results), strict=True))


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.bfloat16,
        torch.float64,
        torch.int8,
        torch.int64,
        torch.bool,
        torch.complex64,
        torch.float8_e4m3fn,
    ],
)
def test_every_dtype_arrives(shared_worker, dtype):
    x = torch.arange(615).remainder(7).reshape(5, 123).to(torch.float32).to(dtype)
    got = echo(shared_worker, x=x)["x"]
    assert got.dtype == dtype and torch.equal(
        got.view(torch.uint8) if dtype.itemsize == 1 else got, x.view(torch.uint8) if dtype.itemsize == 1 else x
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.t(),
        lambda x: x[1:, 3:100:2],
        lambda x: x[0, 0],
        lambda x: x[:1].expand(4, 123),
        lambda x: x[:0],
        lambda x: x.reshape(5, 3, 41, 1).to(memory_format=torch.channels_last),
        lambda x: x.to(torch.complex64).conj(),
        lambda x: x.clone().requires_grad_(),
    ],
)
def test_every_layout_arrives(shared_worker, x, make):
    tensor = make(x)
    got = echo(shared_worker, x=tensor)["x"]
    assert torch.equal(got, tensor.detach())
    if not tensor.is_conj():
        assert got.stride() == tensor.stride()


def test_views_of_one_base_stay_views_of_one_base(shared_worker):
    base = torch.arange(12.0)
    parcel = Parcel.of({"left": base[:8], "right": base[4:], "other": torch.zeros(3)})
    assert len(parcel.rooms) == 2
    step = Step("aten::add_.Tensor", (parcel["left"], parcel["right"][0:] if False else 1.0))
    result = shared_worker.run(Job((step, Step("aten::alias", (parcel["right"],)))), 20).results
    assert torch.equal(result[0].mutated["self"], base[:8] + 1)
    assert torch.equal(result[1].outputs[0], base[4:])  # each step begins with what was given


def test_views_of_two_dtypes_share_a_base(shared_worker):
    base = torch.arange(32, dtype=torch.uint8)
    tensors = {"bytes": base[1:7], "words": base[8:24].view(torch.int32)}
    got = echo(shared_worker, **tensors)
    assert torch.equal(got["bytes"], tensors["bytes"]) and torch.equal(got["words"], tensors["words"])


def test_only_what_is_seen_of_a_base_travels():
    base = torch.zeros(1 << 24)
    parcel = Parcel.of({"x": base[100:200]})
    assert os.fstat(parcel.file.fd).st_size == guard.PAGE
    assert parcel.tensors["x"][1] == Meta(torch.float32, (100,), (1,))


def test_a_parcel_cannot_be_changed():
    parcel = Parcel.of({"x": torch.zeros(3)})
    with pytest.raises(OSError):
        os.pwrite(parcel.file.fd, b"x", 0)


def test_what_cannot_travel_is_refused():
    with pytest.raises(TypeError, match="x is a torch.sparse_coo tensor on cpu: the worker takes plain CPU tensors"):
        Parcel.of({"x": torch.zeros(3).to_sparse()})
    with pytest.raises(TypeError, match="on meta"):
        Parcel.of({"x": torch.zeros(3, device="meta")})
    with pytest.raises(KeyError):
        Parcel.of({"x": torch.zeros(3)})["y"]


def test_tensors_in_a_job_need_no_parcel(shared_worker, x):
    steps = (
        Step("aten::cat", ([x, x[1:], x],)),
        Step("aten::mul.Tensor", (Made(0), x[0])),
        Step("aten::topk", (x,), {"k": 3}),
    )
    cat, product, top = shared_worker.run(Job(steps), 20).results
    whole = torch.cat([x, x[1:], x])
    assert torch.equal(cat.outputs[0], whole)
    assert torch.equal(product.outputs[0], whole * x[0])
    assert torch.equal(top.outputs[0], x.topk(3).values) and torch.equal(top.outputs[1], x.topk(3).indices)


def test_other_values_and_results(shared_worker, x):
    steps = (
        Step("aten::to.dtype", (x, torch.bfloat16)),
        Step("aten::empty.memory_format", ([2, 3],), {"dtype": torch.int32, "device": torch.device("cpu")}),
        Step("aten::item", (x[0, 5],)),
        Step("aten::split.Tensor", (x, 2)),
        Step("aten::clamp", (x, None, 3.0)),
        Step("aten::sum.dim_IntList", (x, [1]), {"keepdim": True}),
    )
    cast, empty, item, split, clamp, total = shared_worker.run(Job(steps), 20).results
    assert torch.equal(cast.outputs[0], x.to(torch.bfloat16))
    assert Meta.of(empty.outputs[0]) == Meta(torch.int32, (2, 3), (3, 1))
    assert item.outputs == (5.0,)
    assert [t.shape for t in split.outputs[0]] == [(2, 123), (2, 123), (1, 123)]
    assert split.aliases == ("self", "self", "self")
    assert torch.equal(clamp.outputs[0], x.clamp(max=3.0))
    assert torch.equal(total.outputs[0], x.sum(1, keepdim=True))


@pytest.mark.slow
def test_more_bytes_than_31_bits_count():
    """Linux writes and reads less than 2**31 bytes at a time, and ctypes counts with an int."""
    if available_bytes(torch.device("cpu")) < 8 << 30:
        pytest.skip("less than 8 GB of memory are free")
    x = torch.zeros(2**31 + 40, dtype=torch.uint8)
    x[0], x[2**31 - 1], x[-1] = 3, 5, 7
    parcel = Parcel.of({"x": x})
    position, place = parcel.rooms[0]
    del x
    assert place.nbytes == 2**31 + 40
    assert [os.pread(parcel.file.fd, 1, position + place.front + at)[0] for at in (0, 1, 2**31 - 1, 2**31 + 39)] == [
        3,
        0,
        5,
        7,
    ]
    found = parcel.bytes_of(0)
    assert len(found) == 2**31 + 40 and (found[0], found[2**31 - 1], found[-1], sum(found[-40:])) == (3, 5, 7, 7)
