"""Which of our headers a source of the full tier begins with, decided from its text.

torch/extension.h costs 6 to 13 s even precompiled, and most of it is modules, optimisers and data loaders. Text that
names none of these is given a slim stand-in, precompiled: 2.2 s, with pybind11 5 s.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from . import headers

SLIM = os.path.join(headers.FOLDER, "slim")  # stands before torch's own folders on the include path
ATEN, TORCH, AUTOGRAD, PYBIND, REAL = headers.FULL

_AUTOGRAD = re.compile(r"\bautograd\b|\btorch::(?:grad|Node|variable_list)\b")
# What torch:: has and at:: lacks, or means something else by: torch::tensor({1}) is int64, at::tensor({1}) is int32.
_TYPES = re.compile(r"\btorch::(?:tensor|from_blob|range|kU(?:16|32|64|Int(?:16|32|64))|utils|NoGradGuard|AutoGradMode"
                    r"|init_num_threads|manual_seed|InferenceMode|globalContext|detail|normal)\b|requires_grad|\busing\s+namespace\s+torch\b"
                    r"|[<\"]torch/(?:types|utils)\.h|[<\"]torch/csrc/")  # fmt: skip
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OF_TORCH = re.compile(
    r"\b(?:torch|at|c10|caffe2)::|\b(?:TORCH|AT|C10)_(?!EXTENSION_NAME)[A-Z]|[<\"](?:torch|ATen|c10)/"
)
_PYTHON = re.compile(r"\bPYBIND11_\w+|\bpy(?:bind11)?::|\bPy[A-Z]\w+|\bwrap_pybind_function\b"
                     r"|[<\"](?:pybind11/|Python\.h|torch/python\.h|torch/csrc/(?:\w+\.h|utils/p))")  # fmt: skip
# What only torch's own header has. A name that is missing here costs one more compiler run, see `asks_for_more`.
FRONTEND = ("nn", "optim", "data", "jit", "serialize", "fft", "special", "linalg", "sparse", "nested", "cuda", "mps",
            "xpu", "enumtype", "python", "profiler", "monitor", "executor", "inductor")  # fmt: skip
_FRONTEND = re.compile(
    rf"\btorch::(?!jit::(?:Stack|drop|pop|push|peek)\b)(?:{'|'.join(FRONTEND)}|save|load|ordered_dict|OrderedDict|pickle_\w+|ExpandingArray)\b"
    r"|\bTORCH_MODULE|\bTHP[A-Z]\w+|[<\"]torch/(?!extension\.h|torch\.h|all\.h|types\.h|library\.h|utils\.h|autograd\.h|python\.h"
    r"|script\.h|custom_class\.h|csrc/|headeronly/|version\.h)"
    r"|[<\"]torch/script\.h|[<\"]torch/csrc/jit/|\busing\s+namespace\s+torch::(?:nn|optim|data)"
)
# Macros that change what torch's headers say: with one of them before its first include, text is compiled as it is.
_CHANGES_HEADERS = re.compile(
    r"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(?:TORCH|AT|C10|CAFFE2|PYBIND11|FMT|USE|PY|NDEBUG|_|Py_)\w*", re.MULTILINE
)
_INCLUDE_OF_TORCH = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*(?:[<\"](?:torch|ATen|c10|pybind11)/|<Python\.h>)", re.MULTILINE
)
_MISSING = re.compile(
    r"is not a member of [‘'](?:torch|at|c10)\b|no (?:member|type) named .* in (?:namespace )?[‘'](?:torch|at|c10)\b"
    r"|incomplete type [‘'][^’']*\b(?:torch|at|c10)::|[‘'](?:torch|at|c10)::[^’']*[’'] has not been declared"
    rf"|[‘'](?:{'|'.join(FRONTEND)}|OrderedDict|TORCH_MODULE)[’'] (?:has not been|was not|does not)"
)


def choose(texts: Sequence[str]) -> str:
    """The header of ours for a source: `texts` are its own and those of the user's headers that it includes.

    >>> choose(['#include <torch/extension.h>\\nat::Tensor f(at::Tensor x) { return x; }'])
    'wb_full_torch.h'

    "" where none will do: the text names nothing of torch, or changes what torch's headers say.
    """
    plain = [_COMMENTS.sub(" ", t) for t in texts]
    if not any(_OF_TORCH.search(t) or _PYTHON.search(t) for t in plain):
        return ""
    first = _INCLUDE_OF_TORCH.search(plain[0])
    changed = _CHANGES_HEADERS.search(plain[0])
    if changed and first and changed.start() < first.start():
        return ""
    if any(_FRONTEND.search(t) for t in plain):
        return REAL
    if any(_PYTHON.search(t) for t in plain):
        return PYBIND
    if any(_AUTOGRAD.search(t) for t in plain):
        return AUTOGRAD
    return TORCH if any(_TYPES.search(t) for t in plain) else ATEN


def includes(header: str, texts: Sequence[str]) -> tuple[str, ...]:
    """What such a source includes first: the header, and what it needs besides that too few need to precompile it."""
    besides = header == PYBIND and any(_AUTOGRAD.search(_COMMENTS.sub(" ", t)) for t in texts)
    return (*((f'"{header}"',) if header else ()), *(("<torch/autograd.h>",) if besides else ()))


def optimisation(cflags: Sequence[str]) -> tuple[str, ...]:
    """-O1 where the user says nothing: torch has no -O at all, and at -O2 its headers take a third longer."""
    return () if any(f.startswith("-O") for f in cflags) else ("-O1",)


def asks_for_more(log: str) -> bool:
    """Do these errors come from the slim header, which lacks what torch's own has? Then one more run will tell."""
    return bool(_MISSING.search(log))


def folders(header: str, precompiled: str) -> tuple[str, ...]:
    """The compiler's words that make `#include "HEADER"` find the precompiled one, and torch's header the slim one."""
    if not header:
        return ()
    quoted = ("-iquote", precompiled, "-Winvalid-pch", "-Wno-error=invalid-pch") if precompiled else ()
    return (*quoted, "-iquote", headers.FOLDER, *(() if header == REAL else ("-I", SLIM)))
