"""A job of C++ code that watches itself: built with the compiler's sanitizers, taken by a process with their runtime.

There each tensor is an allocation of its own, and the process lives for this job alone. A mistake is told and the job
goes on, until one stops the process.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace

from ..errors import ToolchainError
from .answer import answer
from .client import order_of
from .findings import Finding, fold, named
from .gpu_process import Process
from .guard import Block
from .protocol import Answer, Job
from .sanitizer import Sanitized, steps
from .under_tool import START_S

TOOLS = ("address", "undefined")
OPTIONS = (
    "detect_leaks=0:halt_on_error=0:detect_odr_violation=0:alloc_dealloc_mismatch=0:new_delete_type_mismatch=0:"
    "allocator_may_return_null=1:malloc_context_size=1:detect_stack_use_after_return=1:handle_segv=2:handle_sigbus=2:handle_sigfpe=2:"
    "handle_sigill=2:handle_abort=2:print_legend=0"
)
_HEAD = re.compile(r"==\d+==ERROR: AddressSanitizer: (?P<kind>[\w-]+)(?P<rest>.*)")
_ACCESS = re.compile(r"(READ|WRITE) of size \d+")
_FRAME = re.compile(r"\s*#\d+ 0x[0-9a-f]+ in (?P<function>.+?) (?P<file>/.*?):(?P<line>\d+)(?::\d+)?$")
_ADDRESS = re.compile(r"address (0x[0-9a-f]+)")
_HEAP = re.compile(r"is located (?P<where>.+?) of \d+-byte region \[(?P<start>0x[0-9a-f]+),")
_STACK = re.compile(
    r"'(?P<name>[^']+)'(?: \(line (?P<line>\d+)\))? <== Memory access at offset \d+ (?P<what>.+?) this variable"
)
_GLOBAL = re.compile(r"is located (?P<where>.+?) of global variable '(?P<name>[^']+)'")
_UNDEFINED = re.compile(r"^(?P<file>.+?):(?P<line>\d+):\d+: runtime error: (?P<said>.+)$", re.MULTILINE)


def watch(job: Job, preloads: Sequence[str], files: Sequence[str], *, limit_s: float = 120.0) -> Sanitized:
    """Take the steps of a job whose libraries were built by `build.sanitized`, for at most `limit_s` seconds.

    >>> watch(job, sanitized.preloads(compiler), ["cell [3]"]).findings[0].kind
    'heap-buffer-overflow: WRITE of size 4'

    Only what happens in `files`, the user's own, is told. `preloads` are the runtime's libraries.
    """
    started = time.perf_counter()
    try:
        told, blocks = _under(job, preloads, limit_s)
    except ToolchainError as error:
        return Sanitized(problems=(f"address: {error}",))
    found: list[Finding] = []
    for number, result in enumerate(told.results):
        seen = [named(f, blocks.get(number, ())) for f in parse(result.printed, files)]
        found += [replace(f, case=result.case) for f in (*seen, *undefined(result.printed, files))]
    bad = next((r for r in told.results if r.status in {"hang", "crash", "error"}), None)
    problems = (f"address: on {bad.case} it did not come to an end: {bad.detail}",) if bad and not found else ()
    return Sanitized(fold(found), TOOLS, "", problems, (told,), time.perf_counter() - started)


def _under(job: Job, preloads: Sequence[str], limit_s: float) -> tuple[Answer, dict[int, list[Block]]]:
    """The answer, in which each step has printed what the runtime said, and what the code could reach in each."""
    extra = {"LD_PRELOAD": " ".join(preloads), "ASAN_OPTIONS": OPTIONS, "UBSAN_OPTIONS": "print_stacktrace=0"}
    process = Process("cpu", log=os.devnull, extra=extra)
    try:
        process.wait(START_S)
        order, started = order_of(job), time.perf_counter()
        reply = process.ask(order, limit_s)
    finally:
        process.close()
        process.bury()
    return answer(job, order, reply, started), {n: blocks for n, (blocks, _) in steps(reply).items()}


def parse(text: str, files: Sequence[str]) -> tuple[Finding, ...]:
    """The findings in what the address sanitizer printed, each at its innermost place in one of the user's `files`.

    >>> parse(log, ["cell [3]"])[0].line
    12

    What has no such place is not the user's.
    """
    heads = list(_HEAD.finditer(text))
    ends = [*(h.start() for h in heads[1:]), len(text)][: len(heads)]
    return fold([f for h, end in zip(heads, ends, strict=True) if (f := _finding(h, text[h.end() : end], files))])


def _finding(head: re.Match, text: str, files: Sequence[str]) -> Finding | None:
    own = text.partition("\n\n")[0]  # its own stack; those of who allocated and freed follow
    place = next((p for line in own.splitlines() if (p := _FRAME.match(line)) and _named(p["file"], files)), None)
    if place is None:
        return None
    access, address = _ACCESS.search(own), _ADDRESS.search(head["rest"])
    heap = _HEAP.search(text)
    kind = head["kind"] + (f": {access[0]}" if access else "")
    return Finding(
        "address", kind, place["function"], _named(place["file"], files), int(place["line"]), detail=_detail(text),
        address=int(address[1], 16) if address else 0, allocation=int(heap["start"], 16) if heap else 0,
    )  # fmt: skip


def _detail(text: str) -> str:
    if stack := _STACK.search(text):
        declared = f", declared on line {stack['line']}" if stack["line"] else ""
        return f"{stack['what']} the local {stack['name']}{declared}"
    if known := _GLOBAL.search(text):
        return f"{known['where']} of the global {known['name']}"
    heap = _HEAP.search(text)
    return heap[0].removeprefix("is located ").partition(" [")[0] if heap else ""


def undefined(printed: str, files: Sequence[str]) -> tuple[Finding, ...]:
    """The findings of the sanitizer for undefined behaviour, in what a step printed."""
    found = [(_named(m["file"], files), m) for m in _UNDEFINED.finditer(printed)]
    return fold([Finding("undefined", m["said"], "", name, int(m["line"])) for name, m in found if name])


def _named(path: str, files: Sequence[str]) -> str:
    """The user's file that a path of the debug information means; "" for none of them."""
    return next((f for f in files if path == f or path.endswith(f"/{f}")), "")
