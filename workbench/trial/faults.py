"""Catching a deadly signal in native code: which one, at which address, a read or a write.

The handler is a few machine instructions in a page of their own: write what the kernel knows to a pipe, then exit.
It takes no lock and runs no Python, so that it works in any thread and with a broken heap. Where the machine is
unknown, or such a page is not allowed, there is no handler, and the exit status still says the signal.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import signal
import struct
from dataclasses import dataclass

DEADLY = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS)
SIGINFO_BYTES = 128
UCONTEXT_BYTES = 304  # x86-64: up to and with the machine context
STACK_BYTES = 1 << 16
STACK_END = struct.Struct("<Q")
_SA_SIGINFO, _SA_ONSTACK, _SA_NODEFER = 4, 0x08000000, 0x40000000
_ERR = 40 + 19 * 8  # in an x86-64 ucontext


@dataclass(frozen=True)
class Fault:
    """What the kernel said of a deadly signal; `write` is None where the machine does not tell.

    `stack` is the upper end of the main thread's stack.
    """

    signal: int
    code: int
    address: int
    write: bool | None = None
    stack: int = 0

    @property
    def name(self) -> str:
        return signal_name(self.signal)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def handler_code(machine: str, fd: int) -> bytes:
    """The handler `f(signal, siginfo*, ucontext*)` as machine code, b"" for a machine that has none here."""
    if machine == "x86_64":
        syscall = b"\x0f\x05"
        write = b"\xb8\x01\0\0\0" + syscall  # eax = 1
        return b"".join(
            (
                b"\x41\x89\xf9",  # r9d = signal
                b"\x49\x89\xd0",  # r8 = ucontext
                b"\xbf" + struct.pack("<I", fd),  # edi = fd; rsi holds siginfo already
                b"\xba" + struct.pack("<I", SIGINFO_BYTES) + write,  # edx = count
                b"\x4c\x89\xc6",  # rsi = ucontext
                b"\xba" + struct.pack("<I", UCONTEXT_BYTES) + write,
                b"\x41\x8d\xb9\x80\0\0\0",  # edi = 128 + signal
                b"\xb8\xe7\0\0\0" + syscall,  # exit_group
            )
        )
    if machine == "aarch64":
        words = (
            0x2A0003E9,  # w9 = signal
            0x52800000 | fd << 5,  # w0 = fd; x1 holds siginfo already
            0xD2800002 | SIGINFO_BYTES << 5,  # x2 = count
            0xD2800808,  # x8 = write
            0xD4000001,  # svc
            0x11000000 | 128 << 10 | 9 << 5,  # w0 = 128 + signal
            0xD2800BC8,  # x8 = exit_group
            0xD4000001,
        )
        return struct.pack(f"<{len(words)}I", *words)
    return b""


class _Action(ctypes.Structure):
    _fields_ = [
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


class _Stack(ctypes.Structure):
    _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]


def watch(fd: int) -> object:
    """Report every deadly signal of this process to `fd`. Keep what is returned; None where there is no handler."""
    code = handler_code(platform.machine(), fd)
    if not code or platform.libc_ver()[0] != "glibc":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if libc.mprotect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
        return None
    stack = ctypes.create_string_buffer(STACK_BYTES)  # a stack overflow leaves no room on the ordinary one
    libc.sigaltstack(ctypes.byref(_Stack(ctypes.addressof(stack), 0, STACK_BYTES)), None)
    os.write(fd, STACK_END.pack(stack_end()))
    action = _Action(address, (ctypes.c_ubyte * 128)(), _SA_SIGINFO | _SA_ONSTACK | _SA_NODEFER, None)
    for number in DEADLY:
        libc.sigaction(int(number), ctypes.byref(action), None)
    return page, stack


def stack_end() -> int:
    """The upper end of the main thread's stack, 0 when it cannot be told."""
    try:
        with open("/proc/self/stat") as file:
            return int(file.read().rpartition(")")[2].split()[25])
    except (OSError, ValueError, IndexError):
        return 0


def parse(record: bytes) -> Fault | None:
    """The first fault in what `watch` and the handler wrote; None if there was none."""
    if len(record) < STACK_END.size + SIGINFO_BYTES:
        return None
    (stack,) = STACK_END.unpack_from(record)
    record = record[STACK_END.size :]
    number, _, code = struct.unpack_from("<iii", record)
    (address,) = struct.unpack_from("<Q", record, 16)
    if code <= 0:  # sent by raise, abort or kill: no address there
        address = 0
    context = record[SIGINFO_BYTES : SIGINFO_BYTES + UCONTEXT_BYTES]
    if len(context) < UCONTEXT_BYTES:
        return Fault(number, code, address, None, stack)
    (error,) = struct.unpack_from("<Q", context, _ERR)
    write = bool(error & 2) if number == signal.SIGSEGV and code > 0 and code != 0x80 else None
    return Fault(number, code, address, write, stack)
