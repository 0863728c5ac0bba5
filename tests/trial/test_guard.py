"""Guarded memory: placing, poison, canaries, indices."""

from __future__ import annotations

import ctypes

import pytest
import torch

from workbench.trial import Meta, guard

PAGE = guard.PAGE
FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.parametrize(
    ("nbytes", "residue"), [(0, 0), (1, 0), (63, 0), (64, 0), (2460, 0), (PAGE, 0), (PAGE + 1, 4), (12, 52)]
)
def test_a_room_ends_at_the_page_as_closely_as_the_alignment_allows(nbytes, residue):
    place = guard.room(nbytes, residue)
    assert place.front % guard.ALIGNMENT == residue
    assert 0 <= place.back < guard.ALIGNMENT
    assert place.front + place.nbytes + place.back == place.mapped
    assert place.mapped % PAGE == 0
    assert place.mapped - nbytes < PAGE + guard.ALIGNMENT


def test_the_example_of_room():
    assert guard.room(2460) == guard.Room(1600, 2460, 4096)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("pattern", [guard.POISON, guard.CANARY_OF_ARGUMENTS])
def test_poison_and_what_surrounds_arguments_are_nan(dtype, pattern):
    assert torch.frombuffer(bytearray(pattern * 8), dtype=dtype).isnan().all()


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize(
    "change",
    [lambda x: x.mul_(0.9), lambda x: x.add_(0.5), lambda x: x.mul_(0.9).add_(float("nan")), lambda x: x.sqrt_()],
)
def test_a_canary_around_what_may_be_written_shows_arithmetic_in_place(dtype, change):
    there = torch.frombuffer(bytearray(guard.CANARY * 8), dtype=dtype)
    assert there.isfinite().all()
    before = there.clone()
    change(there)
    assert (there != before).all()


@pytest.mark.parametrize(
    "dtype",
    [*FLOATING, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128],
)
def test_unwritten_elements_are_counted(dtype):
    meta = Meta(dtype, (5, 7), (7, 1))
    block = guard.allocate(meta.extent * dtype.itemsize)
    tensor = guard.tensor(block, meta)
    assert guard.unwritten(tensor, block) == 35
    tensor[1:3].zero_()
    assert guard.unwritten(tensor, block) == 21
    assert guard.unwritten(tensor.t()[2:], block) == 15  # a strided part of it, off the start
    tensor.zero_()
    assert guard.unwritten(tensor, block) == 0


@pytest.mark.parametrize("nbytes", [0, 4, 60, 2460, PAGE - 64])
@pytest.mark.parametrize(
    ("offset", "found"),
    [(None, None), (0, ("after", 0, 1)), (3, ("after", 3, 1)), (-1, ("before", 1, 1)), (-9, ("before", 9, 1))],
)
def test_a_changed_canary_is_found(nbytes, offset, found):
    block = guard.allocate(nbytes)
    if offset is not None:
        if offset >= block.room.back:
            pytest.skip("no slack: the guard page begins there")
        at = block.end + offset if offset >= 0 else block.start + offset
        ctypes.c_ubyte.from_address(at).value ^= 0xFF
    assert guard.damage(block) == found


def test_a_changed_byte_is_found_unless_a_tensor_that_may_change_has_it():
    block = guard.allocate(4 * 12)
    base = guard.tensor(block, Meta(torch.float32, (3, 4), (4, 1)))
    base.copy_(torch.arange(12.0).view(3, 4))
    before = bytearray(ctypes.string_at(block.start, 48))
    column = base[:, 1]
    assert guard.changed_byte(block, before, []) is None
    column.add_(1)
    assert guard.changed_byte(block, before, []) == 6  # 1.0 -> 2.0 differs in its upper bytes
    assert guard.changed_byte(block, before, [column]) is None
    base[2, 3] = -1
    assert guard.changed_byte(block, before, [column]) == 4 * 11 + 2


@pytest.mark.parametrize(
    ("meta", "element", "index"),
    [
        (Meta(torch.float32, (5, 123), (123, 1)), 125, (1, 2)),
        (Meta(torch.float32, (123, 5), (1, 123)), 125, (2, 1)),
        (Meta(torch.float32, (3, 2), (4, 1)), 6, None),  # a gap
        (Meta(torch.float32, (3, 4), (0, 1), 2), 4, (0, 2)),  # expanded, with an offset
        (Meta(torch.float32, (), ()), 0, ()),
        (Meta(torch.float32, (), ()), 1, None),
        (Meta(torch.float32, (0, 3), (3, 1)), 0, None),
    ],
)
def test_index_of(meta, element, index):
    assert guard.index_of(meta, element) == index
