"""A reference that raises on a case of its own op: nothing can be judged there, and no kernel is to blame."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable

CURE = "Mend the reference, or the case (@op.cases)."


def told(reference: Callable | None, error: BaseException) -> str:
    """What it raised, and the line of the reference where.

    >>> told(seg.reference, error)
    'RuntimeError: index_add_(): Expected dtype int32/int64 for index but got: Float; at `out.index_add(0, i, x)`'
    """
    said = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'without a word'}"
    file = getattr(getattr(reference, "__code__", None), "co_filename", "")
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file and f.lineno]
    text = linecache.getline(file, lines[-1]).strip() if lines else ""
    return f"{said}; at `{text}`" if text else said
