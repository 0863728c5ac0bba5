"""What a GPU says when a kernel goes wrong, in words: pure functions from its messages to a sentence."""

from __future__ import annotations

import re

# After these the context is lost: every later call fails with the same words. By what both the runtime and the driver
# say of them.
ASSERTED = "an assert in a kernel failed"
WORDS = {
    "an illegal memory access: a kernel reads or writes where there is no memory. `op.check(sanitize=True)` says which "
    "one, and on which line": ("illegal memory access", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    "a misaligned address: a kernel reads or writes a vector (float4 is 16 bytes) or a word at an address that is no "
    "multiple of its size": ("misaligned address", "CUDA_ERROR_MISALIGNED_ADDRESS"),
    ASSERTED: ("device-side assert triggered", "CUDA_ERROR_ASSERT"),  # every message ends in a hint on "assertions"
    "an illegal instruction: __trap(), or code for another GPU": (
        "illegal instruction",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    ),
    "a launch timeout: the kernel ran longer than the system lets one run on a GPU that also drives a display": (
        "launch timed out",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
    ),
    "a stack error: endless recursion in a kernel, or a local array that is too large": (
        "hardware stack error",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
    ),
    "an invalid program counter: a bad function pointer": ("invalid program counter", "CUDA_ERROR_INVALID_PC"),
    "an operation on an address of another memory space: a pointer to global memory where shared is wanted, or the "
    "like": ("not supported on global/shared address space", "CUDA_ERROR_INVALID_ADDRESS_SPACE"),
    "an unspecified launch failure: __trap(), or shared or local memory used out of bounds. `op.check(sanitize=True)` "
    "says more": ("unspecified launch failure", "CUDA_ERROR_LAUNCH_FAILED"),
}


def fault(message: str) -> str:
    """One sentence for the error that a lost context reports.

    >>> fault("CUDA error: misaligned address")[:22]
    'a misaligned address: '
    """
    return next((words for words, keys in WORDS.items() if any(k in message for k in keys)), "") or first_line(message)


def with_assertion(detail: str, printed: str) -> str:
    """`detail`, with the first failed `assert` that a kernel printed before it.

    >>> with_assertion("an assert in a kernel failed", "f.cu:3: void f(): block: [0,0,0], ... Assertion `a` failed.")
    'an assert in a kernel failed: f.cu:3: void f(): block: [0,0,0], ... Assertion `a` failed.'
    """
    found = next((line.strip() for line in printed.splitlines() if re.search(r"Assertion .* failed", line)), "")
    return f"{detail}: {found}" if found and detail == ASSERTED else detail


def first_line(message: str) -> str:
    """The words of CUDA in an exception's text, without torch's advice around them."""
    found = re.search(r"CUDA(?: driver)? error: ([^\n]+)", message)
    return f"CUDA error: {found[1].strip()}" if found else (message.strip().splitlines() or ["no reason given"])[0]
