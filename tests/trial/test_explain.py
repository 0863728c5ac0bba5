"""Faults in words, word for word."""

from __future__ import annotations

import signal
import struct
from dataclasses import replace

import pytest
import torch

from workbench.trial import Meta, explain, faults, guard

SEGV, MAPERR = int(signal.SIGSEGV), 1
START = 0x7F0000000000
OUT = guard.Block(START, guard.room(2460), (("out", Meta(torch.float32, (5, 123), (123, 1))),), writable=True)
IN = replace(OUT, tensors=(("x", OUT.tensors[0][1]),), writable=False, argument=True)
TMP = replace(OUT, tensors=())
SUM = replace(OUT, tensors=(("sums", None),))
VIEWS = replace(IN, tensors=(("a", Meta(torch.float32, (5,), (123,))), ("b", Meta(torch.float32, (5,), (123,), 4))))


def segv(address: int, write: bool | None = True, code: int = MAPERR, stack: int = 0) -> faults.Fault:
    return faults.Fault(SEGV, code, address, write, stack)


@pytest.mark.parametrize(
    ("fault", "block", "status", "sentence"),
    [
        (
            segv(OUT.end),
            OUT,
            "overrun",
            "writes past the end of out (shape (5, 123), float32): flat element 615 of 615",
        ),
        (
            segv(OUT.end + 41, None),
            OUT,
            "overrun",
            "reads or writes past the end of out (shape (5, 123), float32): flat element 625 of 615",
        ),
        (
            segv(OUT.end, write=False),
            IN,
            "overrun",
            "reads past the end of x (shape (5, 123), float32): flat element 615 of 615",
        ),
        (
            segv(OUT.end + 8),
            TMP,
            "overrun",
            "writes past the end of an output or workspace of 2460 bytes: 8 bytes behind it",
        ),
        (segv(OUT.end + 8), SUM, "overrun", "writes past the end of sums (2460 bytes): 8 bytes behind it"),
        (segv(OUT.start - 4), OUT, "overrun", "writes 4 bytes before the start of out (shape (5, 123), float32)"),
        (
            segv(OUT.start + 500),
            IN,
            "mutation",
            "writes to the argument x[1, 2] (shape (5, 123), float32), which the schema does not let it change",
        ),
        (
            segv(OUT.start + 508),
            VIEWS,
            "mutation",
            "writes to the argument b[1] (shape (5,), float32), which the schema does not let it change",
        ),
        (
            segv(OUT.start + 4),
            VIEWS,
            "mutation",
            "writes into the gaps of a (shape (5,), float32): byte 4 of its memory belongs to no element",
        ),
        (
            segv(0),
            OUT,
            "crash",
            "stopped by SIGSEGV: it writes through a null pointer (address 0x0); an argument that is None is null",
        ),
        (
            segv(0x40, write=False),
            OUT,
            "crash",
            "stopped by SIGSEGV: it reads through a null pointer (address 0x40); an argument that is None is null",
        ),
        (
            segv(0x123456789ABC),
            OUT,
            "crash",
            "stopped by SIGSEGV: it writes at 0x123456789abc, which is no memory of its own",
        ),
        (segv(0, None, code=0x80), OUT, "crash", "stopped by SIGSEGV: a wild pointer"),
        (
            segv(0x7FFF00000000 - 8000, stack=0x7FFF00000000),
            OUT,
            "crash",
            "stopped by SIGSEGV: the stack overflowed (endless recursion, or a large local array)",
        ),
        (faults.Fault(signal.SIGFPE, 1, 0), OUT, "crash", "stopped by SIGFPE: an integer division by zero"),
        (faults.Fault(signal.SIGFPE, 3, 0), OUT, "crash", "stopped by SIGFPE: an arithmetic error"),
        (faults.Fault(signal.SIGABRT, -6, 0), OUT, "crash", "stopped by SIGABRT: it called abort()"),
        (faults.Fault(signal.SIGSEGV, -6, 0), OUT, "crash", "stopped by SIGSEGV"),
    ],
)
def test_a_fault_in_words(fault, block, status, sentence):
    assert explain.fault(fault, (block,)) == (status, sentence)


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("", ""),
        ("a\n\nfree(): invalid pointer\n", "free(): invalid pointer"),
        (
            "terminate called after throwing an instance of 'E'\n  what():  boom\nmore\n",
            "terminate called after throwing an instance of 'E' what():  boom",
        ),
        ("terminate called without an active exception\nx\n", "terminate called without an active exception"),
        (
            "python: cell:3: void f(): Assertion `n > 0' failed.\nlater\n",
            "python: cell:3: void f(): Assertion `n > 0' failed.",
        ),
        (
            "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n",
            "std::bad_alloc: more memory than a trial gets",
        ),
    ],
)
def test_last_words(printed, said):
    assert explain.last_words(printed) == said


@pytest.mark.parametrize(
    ("code", "printed", "result"),
    [
        (3, "", ("crash", "it ended the process: exit(3)", "")),
        (97, "", ("crash", "it closed the file descriptors of the process that ran it", "")),
        (-11, "", ("crash", "stopped by SIGSEGV", "SIGSEGV")),
        (139, "", ("crash", "stopped by SIGSEGV", "SIGSEGV")),
        (-6, "free(): invalid pointer\n", ("crash", "stopped by SIGABRT: free(): invalid pointer", "SIGABRT")),
        (
            -9,
            "",
            ("crash", "killed by SIGKILL: it took more memory than there is, or was killed from outside", "SIGKILL"),
        ),
    ],
)
def test_an_end_without_a_word(code, printed, result):
    assert explain.ended(code, printed) == result


def test_canaries_in_words():
    assert (
        explain.damaged(OUT, "after", 0, 4)
        == "writes past the end of out (shape (5, 123), float32): flat element 615 of 615, 4 bytes"
    )
    assert explain.damaged(OUT, "before", 4, 4) == "writes 4 bytes before the start of out (shape (5, 123), float32)"


def test_a_record_is_read():
    info = struct.pack("<iiiiQ", SEGV, 0, MAPERR, 0, 0x1234).ljust(128, b"\0")
    context = bytearray(304)
    context[40 + 19 * 8] = 6
    head = struct.pack("<Q", 0x7FFF00000000)
    assert faults.parse(head) is None
    assert faults.parse(head + info) == faults.Fault(SEGV, MAPERR, 0x1234, None, 0x7FFF00000000)
    assert faults.parse(head + info + bytes(context)) == faults.Fault(SEGV, MAPERR, 0x1234, True, 0x7FFF00000000)
    context[40 + 19 * 8] = 4
    assert faults.parse(head + info + bytes(context)).write is False
    struct.pack_into("<Q", context, 40 + 16 * 8, 0x5678)
    whole = faults.parse(
        head + info + bytes(context) + b"1000-2000 r-xp 0 0:0 7 /tmp/a.so\n\0" + struct.pack("<2Q", 3, 4) + b"odd"
    )
    assert (whole.instruction, whole.words, whole.maps) == (0x5678, (3, 4), "1000-2000 r-xp 0 0:0 7 /tmp/a.so\n")


def test_handlers_as_they_disassemble():
    assert faults.handler_code("x86_64", 7, 0x1122334455667700).hex() == (
        "4189f9"
        "4989d0"
        "48b80077665544332211"
        "b901000000"
        "8708"
        "85c9"
        "f390"
        "75fc"
        "bf07000000"
        "ba80000000"
        "b801000000"
        "0f05"
        "4c89c6"
        "ba30010000"
        "b801000000"
        "0f05"
        "48bf1077665544332211"
        "31f6"
        "b802000000"
        "0f05"
        "4189c2"
        "4489d7"
        "48be4077665544332211"
        "ba00100000"
        "31c0"
        "0f05"
        "bf07000000"
        "89c2"
        "85c0"
        "7e09"
        "b801000000"
        "0f05"
        "ebd6"
        "48be0877665544332211"
        "ba01000000"
        "b801000000"
        "0f05"
        "498bb0a0000000"
        "ba00400000"
        "b801000000"
        "0f05"
        "418db980000000"
        "b8e7000000"
        "0f05"
    )
    assert faults.handler_code("aarch64", 7).hex() == "e903002ae0008052021080d2080880d2010000d420010211c80b80d2010000d4"
    assert faults.handler_code("riscv64", 7) == b""
