"""What lies in the cache: each build with its size and use, what its key was made of, and which other is like it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One build in the cache: `tier` is what it is ("body", "launcher", "cuda"), `used` and `made` are times of day.

    `labels` are the names of the cells or files that it was made for, `parts` what its key was made of.
    """

    key: str
    store: str
    tier: str
    size: int
    seconds: float
    made: float
    used: float
    labels: tuple[str, ...] = ()
    toolchain: str = ""
    parts: Mapping[str, str] | None = None


def entries(root: Path) -> list[Entry]:
    """All builds below a cache folder, the one used last first; what cannot be read is left out."""
    found = []
    for family in families(root):
        for folder in _builds(root / family):
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                found.append(_entry(folder, family))
    return sorted(found, key=lambda e: -e.used)


def families(root: Path) -> list[str]:
    """The stores below a cache folder: itself (""), and the folders in it that hold builds."""
    try:
        inner = sorted(f.name for f in root.iterdir() if (f / "objects").is_dir())
    except OSError:
        return []
    return ["", *inner]


def _builds(store: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for shelf in sorted((store / "objects").iterdir()):
            with contextlib.suppress(OSError):
                yield from sorted(shelf.iterdir())


def _entry(folder: Path, family: str) -> Entry:
    meta = json.loads((folder / "meta.json").read_text("utf-8"))
    return Entry(
        str(meta["key"]),
        family,
        str(meta["tier"]),
        sum(f.stat().st_size for f in os.scandir(folder)),
        float(meta["seconds"]),
        float(meta.get("made", 0.0)),
        (folder / "meta.json").stat().st_mtime,
        tuple(map(str, meta.get("labels", ()))),
        str(meta.get("toolchain", "")),
        dict(meta["parts"]) if isinstance(meta.get("parts"), dict) else None,
    )


def nearest(parts: Mapping[str, str], others: Sequence[Entry]) -> tuple[Entry, list[str]] | None:
    """The build whose key is most like that, and the names of the parts that differ; None where none is like it."""
    best: tuple[Entry, list[str]] | None = None
    for other in others:
        if not other.parts:
            continue
        names = [n for n in sorted({*parts, *other.parts}) if parts.get(n) != other.parts.get(n)]
        alike = len(set(parts) & set(other.parts)) - len([n for n in names if n in parts and n in other.parts])
        if alike and (best is None or len(names) < len(best[1])):
            best = other, names
    return best


def size(count: float) -> str:
    """`size(2_500_000) == "2.5 MB"`, of 1000 each."""
    for unit, scale in (("bytes", 1), ("KB", 1e3), ("MB", 1e6)):
        if count < 999.5 * scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e9:.3g} GB"


def parsed(text: str) -> int:
    """`parsed("2.5GB") == 2_500_000_000`; ValueError for what is no size."""
    said = text.strip().upper().replace(" ", "")
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3), ("G", 1e9), ("M", 1e6), ("K", 1e3), ("B", 1), ("", 1)):
        if said.endswith(unit):
            with contextlib.suppress(ValueError):
                number = float(said[: len(said) - len(unit)])
                if 0 <= number * scale < 1e15:
                    return int(number * scale)
            break
    raise ValueError(f"{text!r} is no size: write it like 2GB or 500MB")
