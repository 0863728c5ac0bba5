"""Small JSON files of the cache folder: what was found or measured once. Written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from . import settings
from .errors import ToolchainError


def read(name: str) -> dict[str, Any]:
    """What that file of the cache folder holds: {} for none, a spoilt one, or a folder that others can write to.

    >>> read("edit_times.json")
    {'node 16': {'raw': [0.06, 0.07]}}
    """
    try:
        folder = settings.cache_dir()
        found = json.loads((folder / name).read_text("utf-8")) if settings.owned(folder) else {}
    except (OSError, ValueError, RecursionError, ToolchainError):
        return {}
    return found if isinstance(found, dict) else {}


def write(name: str, content: Mapping[str, Any]) -> None:
    """Put `content` there. Raises OSError, and ToolchainError where others can write to the cache folder."""
    path = settings.private(settings.cache_dir()) / name
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
        os.replace(name, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


__all__ = ["read", "write"]
