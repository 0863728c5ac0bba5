"""The launches `kernel<T><<<grid, block, shared, stream>>>(...)` in a text: where they are, and what they leave out.

Read from the text alone, macros included. What becomes of them is in `cuda_split.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..cuda_marks import blanked
from ..errors import Diagnostic
from ..source import Source

_NONE = re.compile(r"0|NULL|nullptr|cudaStreamDefault|cudaStreamLegacy|\(?\s*cudaStream_t\s*\)?\s*[({]?\s*0\s*[)}]?")
_PAIRS = {"(": ")", "[": "]", "{": "}"}
STREAMS = {"host": "wb::current_stream()", "full": "at::cuda::getCurrentCUDAStream()"}


@dataclass(frozen=True)
class Launch:
    """One launch. `start`, `opens`, `closes` and `given` are places in the text: of the kernel's expression, of `<<<`,
    behind `>>>`, and of the parenthesis behind that. `line` counts from 1; `configuration` is what stands inside.
    """

    start: int
    opens: int
    closes: int
    given: int
    line: int
    kernel: str
    configuration: tuple[str, ...]

    @property
    def on_default_stream(self) -> bool:
        return len(self.configuration) < 4 or bool(_NONE.fullmatch(self.configuration[3]))


def find(text: str) -> tuple[Launch, ...]:
    """All launches in a text, in order.

    >>> find("k<float><<<n, 256>>>(x);")[0].configuration
    ('n', '256')
    """
    return tuple(_launches(blanked(text)))


def _launches(plain: str) -> Iterator[Launch]:
    at = plain.find("<<<")
    while at >= 0:
        end = _end(plain, at + 3, ">>>")
        start = _callee(plain, at)
        given = re.compile(r"[\s\\]*\(").match(plain, end + 3) if end >= 0 else None
        if start < at and given:
            inside = tuple(part.strip() for part in _split(plain[at + 3 : end]))
            kernel = re.sub(r"\s+", "", plain[start:at])
            yield Launch(start, at, end + 3, given.end() - 1, plain.count("\n", 0, start) + 1, kernel, inside)
        at = plain.find("<<<", max(at + 3, end))


def _end(plain: str, at: int, closing: str) -> int:
    """Where `closing` stands outside all brackets that open behind `at`; -1 where it does not."""
    waiting: list[str] = []
    while at < len(plain):
        c = plain[at]
        if not waiting and plain.startswith(closing, at):
            return at
        if c in _PAIRS:
            waiting.append(_PAIRS[c])
        elif waiting and c == waiting[-1]:
            waiting.pop()
        elif c in ")]};":
            return -1
        at += 1
    return -1


def end_of_call(text: str, opens: int) -> int:
    """The place behind the parenthesis that closes the one at `opens`."""
    end = _end(blanked(text), opens + 1, ")")
    return end + 1 if end >= 0 else len(text)


def _callee(plain: str, at: int) -> int:
    """Where the expression begins that ends before `at`: `a::k<T, (N > 1)>`, `pick<T>(n)`, `(*f)`."""
    while True:
        at = _skip(plain, at)
        c = plain[at - 1 : at]
        if c in (")", ">", "]"):
            at = _back(plain, at - 1)
            before = plain[_skip(plain, at) - 1 : _skip(plain, at)]
            if not (before.isalnum() or before in ("_", ">", ")", "]")):
                return at
            continue
        word = re.search(r"[A-Za-z_]\w*$", plain[max(0, at - 200) : at])
        if not word:
            return at
        at -= len(word[0])
        joint = re.search(r"(?:::|\.|->)\s*$", plain[max(0, at - 200) : at])
        if not joint:
            return at
        at -= len(joint[0])
        if not re.search(r"[\w>)\]]\s*$", plain[max(0, at - 200) : at]):  # a leading ::
            return at


def _skip(plain: str, at: int) -> int:
    while at and plain[at - 1].isspace():
        at -= 1
    return at


def _back(plain: str, at: int) -> int:
    """The place of the bracket that the one at `at` closes."""
    opening = {")": "(", "]": "[", ">": "<"}[plain[at]]
    closing, depth, round_ = plain[at], 0, 0
    while at >= 0:
        c = plain[at]
        if c == closing and (closing == ")" or not round_):
            depth += 1
        elif c == opening and (closing == ")" or not round_):
            depth -= 1
            if not depth:
                return at
        elif closing == ">" and c in "()":
            round_ += 1 if c == ")" else -1
        at -= 1
    return 0


def _split(text: str) -> Iterator[str]:
    """A call's arguments at the outermost commas; those of `cdiv<int, 4>(n)` stay together."""
    depth, begin, at = 0, 0, 0
    while at < len(text):
        c = text[at]
        depth += (c in "([{") - (c in ")]}")
        if c == "<" and (end := re.compile(r"<[\w\s:,<>*&.+-]*>(?=\s*(?:\(|\{|::))").match(text, at)):
            at = end.end()
            continue
        if c == "," and not depth:
            yield text[begin:at]
            begin = at + 1
        at += 1
    yield text[begin:]


def lint(source: Source, tier: str) -> tuple[Diagnostic, ...]:
    """A warning on the line of each launch that names no stream: it is no part of a CUDA graph, and side streams do not
    wait for it.
    """
    stream = STREAMS[tier]
    rows = source.text.split("\n")
    found = []
    for launch in find(source.text):
        if not launch.on_default_stream:
            continue
        said = f"{_name(launch)} is launched on the default stream: write {_written(launch, stream)}"
        excerpt = rows[launch.line - 1]
        column = launch.start - sum(len(r) + 1 for r in rows[: launch.line - 1]) + 1
        found.append(
            Diagnostic(source.file, source.first_line + launch.line - 1, column, "warning", said, excerpt.rstrip("\r"))
        )
    return tuple(found)


def _written(launch: Launch, stream: str) -> str:
    given = (*launch.configuration[:3], *("0",) * (3 - len(launch.configuration)))
    return f"<<<{', '.join(given)}, {stream}>>>"


def _name(launch: Launch) -> str:
    return re.sub(r"<.*", "", launch.kernel, flags=re.DOTALL)


_GUARDS = re.compile(r"\b(?:CUDAGuard|OptionalCUDAGuard|DeviceGuard|OptionalDeviceGuard|cudaSetDevice|device_guard)\b")


def lint_guard(source: Source) -> tuple[Diagnostic, ...]:
    """A note on the first launch of full-tier code that never says on which device: it runs on the current one, which
    need not be that of its tensors.
    """
    launches = find(source.text)
    if not launches or _GUARDS.search(blanked(source.text)):
        return ()
    first = launches[0]
    said = (
        f"{_name(first)} is launched on the current device, which need not be the tensors': write "
        "`const c10::cuda::CUDAGuard guard(x.device());` before it"
    )
    excerpt = source.text.split("\n")[first.line - 1].rstrip("\r")
    return (Diagnostic(source.file, source.first_line + first.line - 1, 0, "warning", said, excerpt),)


__all__ = ["Launch", "end_of_call", "find", "lint", "lint_guard"]
