"""Red zones and poison on the stand-in for a GPU's memory, and the words for its faults."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest
import torch

from workbench.trial import Meta, Parcel, gpu_faults, gpu_guard, guard
from workbench.trial.gpu_guard import LEAST_ZONE, MOST_ZONE, Memory, room


@pytest.fixture
def memory():
    return Memory("cpu")


@pytest.mark.parametrize(
    ("nbytes", "residue", "front", "mapped"),
    [
        (0, 0, LEAST_ZONE, 2 * LEAST_ZONE),
        (2460, 0, LEAST_ZONE, 2 * LEAST_ZONE + 2460),
        (7, 4, LEAST_ZONE + 4, 2 * LEAST_ZONE + 12),
        (1 << 20, 0, 1 << 20, 3 << 20),
        (64 << 20, 0, MOST_ZONE, (64 << 20) + 2 * MOST_ZONE),
    ],
)
def test_room(nbytes, residue, front, mapped):
    assert room(nbytes, residue) == guard.Room(front, nbytes, mapped)


@pytest.mark.parametrize("nbytes", [1, 2, 3, 4, 5, 63, 64, 2460])
def test_an_untouched_block_is_poison_between_whole_zones(memory, nbytes):
    block = memory.allocate(nbytes)
    assert block.start % 64 == 0
    assert ctypes.string_at(block.start, nbytes) == (guard.POISON * nbytes)[:nbytes]
    assert memory.damage(block) is None


@pytest.mark.parametrize("nbytes", [1, 6, 2460])
@pytest.mark.parametrize("distance", [0, 1, 2, 3, 5000])
def test_damage_says_where_and_is_repaired(memory, nbytes, distance):
    block = memory.allocate(nbytes)
    ctypes.c_ubyte.from_address(block.end + distance).value ^= 1
    assert memory.damage(block) == ("after", distance, 1)
    assert memory.damage(block) is None
    for place in (block.start - 1 - distance, block.start - 1):
        ctypes.c_ubyte.from_address(place).value ^= 1
    found = ("before", 1 + distance, 1 + distance) if distance else None
    assert memory.damage(block) == found


def test_a_parcel_s_storage_comes_with_its_offsets_and_may_not_change(memory):
    base = torch.arange(24.0).view(4, 6)
    parcel = Parcel.of({"a": base[1:, 1], "b": base[:, ::2]})
    position, place = parcel.rooms[0]
    block = memory.open_image(parcel.file.fd, position, place, (("a", parcel.tensors["a"][1]),), writable=False)
    a, b = (memory.tensor(block, parcel.tensors[n][1]) for n in "ab")
    assert torch.equal(a, base[1:, 1]) and torch.equal(b, base[:, ::2])
    assert (a.stride(), b.stride()) == ((6,), (6, 2))
    assert a.data_ptr() - b.data_ptr() == 28
    assert memory.changed_byte(block, bytearray(), []) is None
    b[2, 1] = -1
    assert memory.changed_byte(block, bytearray(), []) == 4 * 14 + 2
    assert memory.changed_byte(block, bytearray(), [b]) is None


def test_a_file_is_read_once_for_all_steps_and_again_after_a_stray_write(memory, monkeypatch):
    read = []
    monkeypatch.setattr(gpu_guard, "_read", lambda *a, read=read, plain=gpu_guard._read: (read.append(a[1]), plain(*a)))
    parcel = Parcel.of({"a": torch.arange(8.0)})
    position, place = parcel.rooms[0]

    def opened():
        block = memory.open_image(parcel.file.fd, position, place, (("a", parcel.tensors["a"][1]),), writable=False)
        return block, memory.tensor(block, parcel.tensors["a"][1])

    for _ in range(3):
        block, a = opened()
        assert torch.equal(a, torch.arange(8.0)) and memory.changed_byte(block, bytearray(), []) is None
        memory.release(block)
    assert len(read) == 1
    block, a = opened()
    a[1] = 7
    assert memory.changed_byte(block, bytearray(), []) == 4 + 2
    assert torch.equal(opened()[1], torch.arange(8.0)) and len(read) == 2
    memory.clear()  # the end of a job: its files are closed, and other ones may have their numbers
    assert torch.equal(opened()[1], torch.arange(8.0)) and len(read) == 3


def test_a_frozen_block_may_not_change_and_a_thawed_one_may(memory):
    block = memory.allocate(16)
    made = memory.tensor(block, Meta(torch.float32, (4,), (1,)))
    made.fill_(1)
    frozen = memory.freeze(block)
    assert not frozen.writable and memory.changed_byte(frozen, bytearray(), []) is None
    made[2] = 2
    assert memory.changed_byte(frozen, bytearray(), []) == 8 + 2
    assert memory.changed_byte(memory.thaw(frozen), bytearray(), []) is None


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex128, torch.int8, torch.bool]
)
def test_unwritten_counts_elements(memory, dtype):
    block = memory.allocate(12 * dtype.itemsize)
    made = memory.tensor(block, Meta(dtype, (3, 4), (4, 1)))
    assert memory.unwritten(made, block) == 12
    made[1:] = 1
    assert memory.unwritten(made, block) == 4
    assert memory.unwritten(made[1:], block) == 0
    assert memory.unwritten(made[:, :2], block) == 2


def test_released_memory_is_let_go(memory):
    block = memory.freeze(memory.allocate(16))
    memory.release(block)
    assert not memory.regions and not memory.former


def test_bare_memory_has_no_zones_and_no_poison():
    memory = Memory("cpu", bare=True)
    block = memory.allocate(2460)
    assert block.room == guard.Room(0, 2460, 2460)
    assert memory.damage(block) is None
    made = memory.tensor(block, Meta(torch.float32, (5, 123), (123, 1)))
    assert memory.unwritten(made, block) == 0
    assert memory.changed_byte(memory.freeze(block), bytearray(), []) is None


MESSAGES = {
    "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress' in https": "an illegal memory access: a kernel",
    "cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS": "an illegal memory access: a kernel",
    "CUDA error: misaligned address\nCUDA kernel errors might be": "a misaligned address: ",
    "CUDA error: unspecified launch failure\n": "an unspecified launch failure: __trap()",
    "CUDA error: an illegal instruction was encountered": "an illegal instruction: __trap()",
    "CUDA error: the launch timed out and was terminated": "a launch timeout: ",
    "CUDA error: device-side assert triggered": "an assert in a kernel failed",
    "CUDA error: unspecified launch failure\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.": (
        "an unspecified launch failure: __trap()"
    ),
    "CUDA error: operation not supported on global/shared address space": "an operation on an address of another memory space",
    "CUDA error: uncorrectable ECC error encountered\nmore": "CUDA error: uncorrectable ECC error encountered",
    "boom": "boom",
    "": "no reason given",
}


@pytest.mark.parametrize("message", MESSAGES)
def test_faults_in_words(message):
    assert gpu_faults.fault(message).startswith(MESSAGES[message])


def test_the_assertion_that_failed_is_told():
    said = "x\ncell:3: void f(float *): block: [0,0,0], thread: [1,0,0] Assertion `n < 3` failed.\ncell:3: again"
    words = gpu_faults.fault("CUDA error: device-side assert triggered")
    assert gpu_faults.with_assertion(words, said).endswith(
        "failed: cell:3: void f(float *): block: [0,0,0], thread: [1,0,0] Assertion `n < 3` failed."
    )
    assert gpu_faults.with_assertion(words, "") == words
    assert gpu_faults.with_assertion("a misaligned address", said) == "a misaligned address"


def test_code_on_the_cpu_that_follows_a_pointer_of_the_gpu(memory):
    from workbench.trial import explain
    from workbench.trial.faults import Fault

    block = replace(memory.allocate(2460), tensors=(("x", Meta(torch.float32, (5, 123), (123, 1))),))
    for address in (block.start, block.end + 8):
        assert explain.fault(Fault(11, 1, address, write=False), (block,)) == (
            "crash",
            (
                "stopped by SIGSEGV: code on the CPU reads through the pointer of x (shape (5, 123), float32), "
                "which is memory of the GPU; use it in a kernel"
            ),
        )
    assert "null pointer" in explain.fault(Fault(11, 1, 0, write=True), (block,))[1]
