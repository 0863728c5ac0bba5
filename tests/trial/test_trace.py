"""From a dead process's addresses to places in the user's libraries."""

from __future__ import annotations

import struct

import pytest

from workbench.trial import trace
from workbench.trial.faults import Fault


@pytest.fixture
def library(tmp_path) -> str:
    """An ELF file in name: one segment that lies 0x1000 higher than in the file, with a call before byte 0x105."""
    path = tmp_path / "body.so"
    head = bytearray(0x400)
    struct.pack_into("<Q", head, 32, 64)
    struct.pack_into("<HH", head, 54, 56, 1)
    struct.pack_into("<II4Q", head, 64, 1, 5, 0, 0x1000, 0, 0x400)
    head[0x100] = 0xE8
    path.write_bytes(head)
    return str(path)


def fault(library: str, instruction: int, *words: int) -> Fault:
    maps = f"500000-501000 r--p 00000000 fe:00 12 {library}\n600000-601000 r-xp 00000000 fe:00 12 {library}\n700000-800000 r-xp 0 fe:00 13 /lib/libc.so.6\n"
    return Fault(11, 1, 0, True, 0, instruction, maps, words)


def test_an_instruction_in_the_library(library):
    assert trace.of(fault(library, 0x600105), [library]) == ((library, 0x1105, False),)


def test_a_return_address_on_the_stack_is_one_that_follows_a_call(library):
    found = trace.of(fault(library, 0x700000, 0x600200, 0x700008, 0x600105, 1), [library])
    assert found == ((library, 0x1104, True),)


def test_what_is_not_the_users_is_nowhere(library):
    assert trace.of(fault(library, 0x700010, 0x700008), [library]) == ()
    assert trace.of(fault(library, 0x600105), ["/tmp/other.so"]) == ()
    assert trace.of(Fault(11, 1, 0), [library]) == ()
