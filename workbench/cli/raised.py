"""What the user's own code raised while a command ran: the place in it, and its frames without ours and torch's."""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path
from typing import Any

OURS = str(Path(__file__).parents[1])
_LIBRARIES = tuple({sysconfig.get_path(p) for p in ("stdlib", "platstdlib", "purelib", "platlib")})


def frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames in which the user's own code ran, outermost first; all of them where none is the user's.

    >>> [(f.filename, f.lineno) for f in frames(error)]
    [('/home/me/kernels/brk/op.py', 1)]
    """
    found = list(traceback.extract_tb(error.__traceback__))
    return [f for f in found if _of_user(f.filename)] or ([] if isinstance(error, SyntaxError) else found)


def _of_user(file: str) -> bool:
    if file.startswith("<frozen"):
        return False
    path = os.path.abspath(file)
    return not any(path.startswith(folder + os.sep) for folder in (OURS, *_LIBRARIES))


def place(error: BaseException) -> tuple[str, int]:
    """File and line: those of the text for a syntax error, else of the user's innermost frame; ("", 0) for nowhere."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 0
    shown = frames(error)
    return (shown[-1].filename, shown[-1].lineno or 0) if shown else ("", 0)


def text(error: BaseException) -> str:
    """`/home/me/kernels/brk/op.py, line 1, raised RuntimeError: boom`, and the frames below it."""
    file, line = place(error)
    said = "".join(traceback.format_exception_only(error)).rstrip()
    if isinstance(error, SyntaxError):  # its last line is what was wrong, those before show where
        *shown, last = said.splitlines()
        head = f"{file}, line {line}, is not Python: {last}"
    else:
        shown, head = [], f"{file}, line {line}, raised {said}"
    below = "".join(traceback.StackSummary.from_list(frames(error)).format()).rstrip()
    return "\n".join(filter(None, [head, below, *shown]))


def data(error: BaseException) -> dict[str, Any]:
    """The same for `--json`."""
    file, line = place(error)
    shown = [{"file": f.filename, "line": f.lineno, "function": f.name, "text": f.line} for f in frames(error)]
    return {"kind": type(error).__name__, "message": str(error), "file": file, "line": line, "traceback": shown}
