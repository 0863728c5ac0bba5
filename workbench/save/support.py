"""The headers that a package's C++ stands on: those of the live launchers, without what only a live op needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from ..build import headers

FOLDER = "csrc/support"
SPACE = "host_code"  # the namespace, and the beginning of names that have none
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
# Comments that speak of what a package does not have.
_SAID = (
    ("laid out the same in native.py ", ""),
    ("// A launcher is this file plus a generated text that holds tables (struct Op) and two functions, `plan` and `prepare`,\n"
     "// which are the directives in C++. Numbers, tuned values, dtypes, entry points, texts and lines are data: they come in\n"
     "// a Descriptor, which one atomic store replaces. Only C functions of libtorch's stable ABI are called.\n//\n"
     "// What stands between `#ifdef WB_LIVE` and its `#endif` serves a live op alone; saved packages come without it.\n",
     "// The host code of a kernel is this file plus tables (struct Op) and two functions, `plan` and `prepare`, which are its\n"
     "// declaration in C++. Only C functions of libtorch's stable ABI are called.\n"),
    ("// No instance fits: the notebook may build one now. Returns if there is a new descriptor to look at.\n",
     "// No instance fits.\n"),
    ("// tests/build/test_abi.py compiles this file beside torch's headers, where any disagreement is an error.\n", ""),
    ("What host cells stand on", "What functions on tensors stand on"),
    ("// Precompiled as a whole; cells include nothing of torch themselves.\n", ""),
    ("// ---- dtypes that arrive for the first time: the notebook tries the function with them before it is called here -------\n", ""),
    ("// The cell names the op that it fills: what other blocks in it would register, for ever, is left out.\n",
     "// What is registered stands in registration.cpp; other blocks in a kernel's text are left out.\n"),
    ("What every raw C++ kernel has without including it", "What every C++ kernel has without including it"),
    ("// For a look inside: what a kernel prints shows under its cell. <stdio.h> would cost each build 10 ms.\n", ""),
    ("// For kernels that include the standard library's containers, algorithms or intrinsics themselves: parsed once and\n"
     "// precompiled, these cost a tenth of what they cost in every cell. It adds no names that such a cell would not have.\n",
     "// For kernels that include the standard library's containers, algorithms or intrinsics themselves.\n"),
    ("the caller of an op need not know, and cells move. torch's own", "the caller of an op need not know. torch's own"),
)  # fmt: skip


def own(text: str) -> str:
    """Generated C++ with a package's names: `wb::Frame` is `host_code::Frame`, `wb_body.h` is `body.h`.

    >>> own('#include "wb_body.h"\\nwb::run(f);')
    '#include "support/body.h"\\nhost_code::run(f);'
    """
    text = re.sub(r'#include "(?:wb_)?((?:launcher|body|half|bfloat16|host|say|full)\w*\.h)"',
                  r'#include "support/\1"', text)  # fmt: skip
    return _renamed(text)


def _renamed(text: str) -> str:
    text = re.sub(r"\bwb_", f"{SPACE}_", re.sub(r"\bWB_", f"{SPACE.upper()}_", text))
    text = re.sub(r"(?<!@)\bwb\b(?=::| \{|$)|(?<=namespace )wb\b", SPACE, text, flags=re.MULTILINE)
    return text.replace("@wb@", "wb")


def standalone(text: str) -> str:
    """A header of ours without the parts that serve a live op, and without words on them."""
    for said, instead in _SAID:
        text = text.replace(said, instead)
    text = "".join(_without_live(text.splitlines(keepends=True)))
    text = re.sub(r'#include "wb_(\w+\.h)"', r'#include "\1"', text)
    return _renamed(text)


def _without_live(lines: Iterable[str]) -> Iterator[str]:
    """Resolve `#ifdef WB_LIVE ... #else ... #endif`, in which other conditionals may lie."""
    stack: list[str] = []  # of open conditionals: "live", "other" (the #else of one), "" for one that stays
    for line in lines:
        word = line.strip().split(" ")[0]
        if word in ("#if", "#ifdef", "#ifndef"):
            stack.append("live" if line.strip() == "#ifdef WB_LIVE" else "")
            if stack[-1]:
                continue
        elif word == "#else" and stack[-1] == "live":
            stack[-1] = "other"
            continue
        elif word == "#endif" and stack.pop():
            continue
        if "live" not in stack and line.strip() != "#define WB_LIVE":
            yield line


def files(wanted: Iterable[str]) -> dict[str, str]:
    """These headers of ours and those that they include, by path: `{"csrc/support/launcher.h": ...}`."""
    found: dict[str, str] = {}
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        path = f"{FOLDER}/{name.removeprefix('wb_')}"
        if path not in found:
            found[path] = text = standalone(_read(name))
            named = (n for given in _INCLUDE.findall(text) for n in (given, f"wb_{given}"))
            waiting += [n for n in named if _exists(n)]
    return dict(sorted(found.items()))


def _exists(name: str) -> bool:
    return any((folder / name).is_file() for folder in _folders())


@cache
def _read(name: str) -> str:
    path = next(folder / name for folder in _folders() if (folder / name).is_file())
    return path.read_text(encoding="utf-8")


def _folders() -> tuple[Path, ...]:
    return Path(__file__).with_name("templates") / "cpp", Path(headers.FOLDER)
