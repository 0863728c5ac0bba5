"""`wb.load`: ops from files, in the same syntax as cells."""

from __future__ import annotations

from .op import Op


def load(path: str) -> list[Op]:
    raise NotImplementedError(path)
