"""Which headers of the user a text includes, found without a compiler: their text belongs in the key."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from ..source import Source
from . import flags

INCLUDE = re.compile(r'^[ \t]*#[ \t]*(?:include|include_next|import)[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


def of(source: Source, given: Sequence[str]) -> dict[str, str]:
    """The headers of a cell that is built with these flags, by path, with the digests of their texts.

    >>> of(Source('#include <warp.cuh>', "cuda", path="/home/me"), ("-Iinclude",))
    {'/home/me/include/warp.cuh': '5891b5b522d5df08...'}
    """
    return digests(source.text, *places(source, given))


def places(source: Source, given: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The folders of a cell's `#include "x"` and of its `#include <x>`; in CUDA both find what lies beside the cell."""
    beside = (source.path,) if source.path else ()
    named = flags.folders(given, source.path, ("-I", "-iquote", "-isystem", "--include-path="))
    return (*beside, *named), (*(beside if source.language == "cuda" else ()), *named)


def digests(text: str, quoted: Sequence[str], angled: Sequence[str] = ()) -> dict[str, str]:
    """The path of every header that `text` includes, directly or not, and the sha256 of its text.

    >>> digests('#include "warp.cuh"', ["/home/me"])
    {'/home/me/warp.cuh': '5891b5b522d5df08...'}

    `#include "x"` is looked up beside the header that says so and in `quoted`, then, as `#include <x>` is, in `angled`.
    A header that is not there is left to the compiler's own message; those in no folder given here are the system's.
    """
    return {path: digest for _, path, digest in _walk(text, quoted, angled) if path}


def elsewhere(text: str, quoted: Sequence[str], angled: Sequence[str] = ()) -> tuple[str, ...]:
    """The names that `text` and the user's headers include and that are in none of these folders, each once.

    >>> elsewhere('#include "warp.cuh"\\n#include <cuda_fp16.h>', ["/home/me"])
    ('cuda_fp16.h',)
    """
    return tuple(dict.fromkeys(name for name, path, _ in _walk(text, quoted, angled) if not path))


def _walk(text: str, quoted: Sequence[str], angled: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """(name, path, digest of its text) of every include, directly or not; path is "" where it is in no folder."""
    seen: set[str] = set()
    waiting = [(name, form, "") for name, form in _included(text)]
    while waiting:
        name, form, beside = waiting.pop(0)
        places = [beside, *quoted, *angled] if form == "quoted" else list(angled)
        for folder in places:
            path = os.path.normpath(os.path.join(folder, name)) if folder or os.path.isabs(name) else ""
            if not path or not os.path.isfile(path):
                continue
            if path not in seen:
                seen.add(path)
                status = os.stat(path)
                digest, inner = _read(path, status.st_mtime_ns, status.st_size)
                yield name, path, digest
                waiting += [(n, f, os.path.dirname(path)) for n, f in inner]
            break
        else:
            yield name, "", ""


def changed(former: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the headers whose text is another than at the former build, sorted.

    >>> changed({"/me/warp.h": "5891", "/me/math.h": "77aa"}, {"/me/warp.h": "c0de", "/me/math.h": "77aa"})
    ('warp.h',)

    A header that now comes from another folder counts if its text is another; one that is new or gone does not, since
    the text that includes it has changed.
    """
    texts = {os.path.basename(path): digest for path, digest in former.items()}
    before = {path: former.get(path, texts.get(os.path.basename(path))) for path in now}
    return tuple(sorted({os.path.basename(p) for p, d in now.items() if before[p] not in (None, d)}))


def _included(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((quoted or angled, "quoted" if quoted else "angled") for quoted, angled in INCLUDE.findall(text))


@functools.lru_cache(maxsize=512)
def _read(path: str, mtime_ns: int, size: int) -> tuple[str, tuple[tuple[str, str], ...]]:
    with open(path, "rb") as file:
        content = file.read()
    return hashlib.sha256(content).hexdigest(), _included(content.decode("utf-8", "replace"))
