"""Where a text of a package comes from, and the digest that knows it again."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

PYTHON = "python/"  # before the path of a module, whose folder has the package's name


@dataclass(frozen=True)
class Origin:
    """Where a text comes from: the cell or file that it was typed in, and the line it began on there.

    A file of another folder is called by its name alone: its path says nothing elsewhere.
    """

    file: str
    line: int
    digest: str

    @classmethod
    def of(cls, text: str, file: str, line: int) -> Origin:
        return cls(os.path.basename(file) if os.path.isabs(file) else file, line, digest(text))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
