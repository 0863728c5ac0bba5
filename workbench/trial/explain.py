"""A fault in words: pure functions from what is known to (status, sentence). They touch no memory."""

from __future__ import annotations

import re
import signal

from . import guard
from .faults import Fault, signal_name
from .guard import Block

FPE_INTDIV = 1
SI_KERNEL = 0x80
SEGV_ACCERR = 2
LAST_CHARACTERS = 300
NULL_BYTES = 1 << 16  # what lies this close to 0 was a null pointer with an index
STACK_BYTES = 256 << 20  # below the end of the stack: it, and the gap that is kept free beneath


def fault(found: Fault, blocks: tuple[Block, ...], printed: str = "") -> tuple[str, str]:
    """Status ("crash", "overrun", "mutation") and one sentence for a deadly signal."""
    if found.signal in (signal.SIGSEGV, signal.SIGBUS) and found.code > 0:
        return _memory(found, blocks)
    if found.signal == signal.SIGFPE:
        why = "an integer division by zero" if found.code == FPE_INTDIV else "an arithmetic error"
        return "crash", f"stopped by SIGFPE: {why}"
    if found.signal == signal.SIGILL:
        return "crash", (
            "stopped by SIGILL: a __builtin_trap, or an instruction that this CPU does not have (see -march)"
        )
    if found.signal == signal.SIGABRT:
        said = last_words(printed)
        return "crash", "stopped by SIGABRT: " + (said or "it called abort()")
    return "crash", f"stopped by {found.name}"


def hung(seconds: float, state: str) -> str:
    """One sentence for a process that was stopped at its limit; `state` as in `wire.Reply`."""
    why = {
        "Z": ": it ended the thread that called it (pthread_exit, pthread_cancel)",
        "T": ": it stopped its own process (SIGSTOP)",
    }
    return f"still running after {seconds:.3g} s{why.get(state, '')}"


def ended(code: int, printed: str = "") -> tuple[str, str, str]:
    """Status, sentence and signal name for a child that left without a word, from its exit code."""
    if code == -signal.SIGKILL:
        return "crash", "killed by SIGKILL: it took more memory than there is, or was killed from outside", "SIGKILL"
    if code < 0:
        said = last_words(printed) if -code == signal.SIGABRT else ""
        return "crash", f"stopped by {signal_name(-code)}" + (f": {said}" if said else ""), signal_name(-code)
    if code == CHANNEL_LOST:
        return "crash", "it closed the file descriptors of the process that ran it", ""
    if 128 < code < 160:
        return "crash", f"stopped by {signal_name(code - 128)}", signal_name(code - 128)
    return "crash", f"it ended the process: exit({code})", ""


# What torch and pybind11 make of an exception that they do not know.
FOREIGN = {
    "Caught an unknown exception!": "it threw something that is no std::exception",
    "error return without exception set": "it threw something that is no C++ exception",
}
CHANNEL_LOST = 97  # exit code of a child whose pipe is gone


def last_words(printed: str) -> str:
    """What a dying C++ program says of itself: the exception, the failed assert; else its last line."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    for i, line in enumerate(lines):
        if "std::bad_alloc" in line:
            return "std::bad_alloc: more memory than a trial gets"
        if line.startswith("terminate called"):
            return " ".join([line, *(following for following in lines[i + 1 : i + 2] if "what():" in following)])
        if "Assertion" in line and line.endswith("failed."):
            return line
    return lines[-1][:LAST_CHARACTERS] if lines and lines[-1].isprintable() else ""


def said(error: BaseException) -> str:
    """The message of an exception, without the C++ frames that torch appends."""
    text = re.split(r"\nException raised from|  Available functions are \[", str(error), maxsplit=1)[0].strip()
    text = FOREIGN.get(text, text) or type(error).__name__
    return text if isinstance(error, RuntimeError) else f"{type(error).__name__}: {text}"


def damaged(block: Block, where: str, distance: int, count: int) -> str:
    """One sentence for canary bytes that changed."""
    if where == "before":
        return f"writes {_bytes(distance)} before the start of {_named(block)}"
    return f"writes past the end of {_named(block)}: {_past(block, distance)}{_many(count)}"


def mutated(block: Block, byte: int) -> str:
    """One sentence for a byte of an argument that changed though the schema says that it does not."""
    for name, meta in block.tensors:
        index = guard.index_of(meta, byte // meta.dtype.itemsize) if meta else None
        if index is not None:
            return f"writes to the argument {name}{list(index)} ({meta}), which the schema does not let it change"
    return f"writes into the gaps of {_named(block)}: byte {byte} of its memory belongs to no element"


def _memory(found: Fault, blocks: tuple[Block, ...]) -> tuple[str, str]:
    does = {True: "writes", False: "reads", None: "reads or writes"}[found.write]
    for block in reversed(blocks):
        if block.device:
            if block.pages <= found.address < block.pages + block.room.mapped:
                return "crash", (
                    f"stopped by {found.name}: code on the CPU {does} through the pointer of {_named(block)}, "
                    "which is memory of the GPU; use it in a kernel"
                )
            continue
        if block.start <= found.address < block.end and not block.writable:
            return "mutation", mutated(block, found.address - block.start)
        if block.end <= found.address < block.pages + block.room.mapped + guard.GUARD:
            return "overrun", f"{does} past the end of {_named(block)}: {_past(block, found.address - block.end)}"
        if block.pages - guard.GUARD <= found.address < block.start:
            return "overrun", f"{does} {_bytes(block.start - found.address)} before the start of {_named(block)}"
    name = found.name
    if found.code == SI_KERNEL:
        return "crash", f"stopped by {name}: a wild pointer"
    if found.stack - STACK_BYTES < found.address < found.stack:
        return "crash", f"stopped by {name}: the stack overflowed (endless recursion, or a large local array)"
    if found.address < NULL_BYTES:
        return "crash", (
            f"stopped by {name}: it {does} through a null pointer (address {found.address:#x}); "
            "an argument that is None is null"
        )
    if found.code == SEGV_ACCERR and found.signal == signal.SIGSEGV and found.write:
        return "crash", f"stopped by {name}: it writes into read-only memory at {found.address:#x}"
    return "crash", f"stopped by {name}: it {does} at {found.address:#x}, which is no memory of its own"


def _named(block: Block) -> str:
    name, meta = block.tensors[0] if block.tensors else ("", None)
    if not name:
        return f"an output or workspace of {_bytes(block.room.nbytes)}"
    return f"{name} ({meta or _bytes(block.room.nbytes)})"


def _past(block: Block, distance: int) -> str:
    """Where `distance` bytes after the end is, in elements of the tensor if it fills its block."""
    if len(block.tensors) == 1:
        meta = block.tensors[0][1]
        if meta and meta.numel * meta.dtype.itemsize == block.room.nbytes:
            return f"flat element {meta.numel + distance // meta.dtype.itemsize} of {meta.numel}"
    return f"{_bytes(distance)} behind it"


def _many(count: int) -> str:
    return f", {_bytes(count)}" if count > 1 else ""


def _bytes(count: int) -> str:
    return f"{count} byte" + ("" if count == 1 else "s")
