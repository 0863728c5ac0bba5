"""Catching a deadly signal in native code: which one, at which address, a read or a write.

The handler is a few machine instructions in a page of their own: write what the kernel knows to a pipe, then exit.
It takes no lock and runs no Python, so that it works in any thread and with a broken heap. On x86-64 it also writes
where what was loaded and what lies on the stack, from which `trace` tells the line. Where the machine is unknown, or
such a page is not allowed, there is no handler, and the exit status still says the signal.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import signal
import struct
from dataclasses import dataclass

TIME_IS_UP = signal.SIGXCPU  # sent to a process that does not end, so that it says where it is
DEADLY = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS)
SIGINFO_BYTES = 128
UCONTEXT_BYTES = 304  # x86-64: up to and with the machine context
STACK_BYTES = 1 << 16
DUMPED_BYTES = 1 << 14  # of the stack
STACK_END = struct.Struct("<Q")
_SA_SIGINFO, _SA_ONSTACK, _SA_NODEFER = 4, 0x08000000, 0x40000000
_RSP, _RIP, _ERR = (40 + n * 8 for n in (15, 16, 19))  # in an x86-64 ucontext
_FLAG, _NUL, _MAPS, _BUFFER = 0, 8, 16, 64  # in the handler's room


@dataclass(frozen=True)
class Fault:
    """What the kernel said of a deadly signal; `write` is None where the machine does not tell.

    `stack` is the upper end of the main thread's stack. `instruction` is where it stood, `maps` the text of
    /proc/self/maps then, `words` what lay on the stack from its lower end on; 0 and empty where they are not known.
    """

    signal: int
    code: int
    address: int
    write: bool | None = None
    stack: int = 0
    instruction: int = 0
    maps: str = ""
    words: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return signal_name(self.signal)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def handler_code(machine: str, fd: int, room: int = 0) -> bytes:
    """The handler `f(signal, siginfo*, ucontext*)` as machine code, b"" for a machine that has none here.

    `room` is the address of `_room()`: a flag that the first thread to come here takes, a path, and a buffer.
    """
    if machine == "x86_64":
        syscall = b"\x0f\x05"
        write = b"\xb8\x01\0\0\0" + syscall  # eax = 1

        def count(n: int) -> bytes:  # edx = n
            return b"\xba" + struct.pack("<I", n)

        def at(register: bytes, place: int) -> bytes:
            return b"\x48" + register + struct.pack("<Q", room + place)

        rax, rsi, rdi, edi = b"\xb8", b"\xbe", b"\xbf", b"\xbf" + struct.pack("<I", fd)
        return b"".join(
            (
                b"\x41\x89\xf9",  # r9d = signal
                b"\x49\x89\xd0",  # r8 = ucontext
                at(rax, _FLAG) + b"\xb9\x01\0\0\0\x87\x08\x85\xc9",  # ecx = 1; xchg ecx, [rax]; test ecx, ecx
                b"\xf3\x90\x75\xfc",  # pause; jnz to it: another thread was first, and will end the process
                edi + count(SIGINFO_BYTES) + write,  # rsi holds siginfo already
                b"\x4c\x89\xc6" + count(UCONTEXT_BYTES) + write,  # rsi = ucontext
                at(rdi, _MAPS) + b"\x31\xf6\xb8\x02\0\0\0" + syscall + b"\x41\x89\xc2",  # r10d = open(path, 0)
                b"\x44\x89\xd7" + at(rsi, _BUFFER) + count(mmap.PAGESIZE) + b"\x31\xc0" + syscall,  # read(r10d, ...)
                edi + b"\x89\xc2\x85\xc0\x7e\x09" + write + b"\xeb\xd6",  # to the end, write as many; again
                at(rsi, _NUL) + count(1) + write,
                b"\x49\x8b\xb0" + struct.pack("<I", _RSP) + count(DUMPED_BYTES) + write,  # rsi = [r8 + _RSP]
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
    room = ctypes.create_string_buffer(_BUFFER + mmap.PAGESIZE)
    ctypes.memmove(ctypes.addressof(room) + _MAPS, b"/proc/self/maps", 15)
    code = handler_code(platform.machine(), fd, ctypes.addressof(room))
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
    for number in (*DEADLY, TIME_IS_UP):
        libc.sigaction(int(number), ctypes.byref(action), None)
    return page, room, stack


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
    (instruction,) = struct.unpack_from("<Q", context, _RIP)
    maps, _, words = record[SIGINFO_BYTES + UCONTEXT_BYTES :].partition(b"\0")
    words = words[: len(words) // 8 * 8]
    return Fault(
        number, code, address, write, stack, instruction, maps.decode(errors="replace"),
        struct.unpack(f"<{len(words) // 8}Q", words),
    )  # fmt: skip
