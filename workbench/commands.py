"""What `%wb` does, without a notebook: words in, text out; what is to be shown or typed is handed to callbacks."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from . import blocks, files, watch
from .define import ops
from .errors import SchemaError
from .op import Op
from .reports.report import Watched

INTERPRET = " [--interpret]"  # of a Triton cell
CELL = "%%cpp [TARGET] [--force] [--cases NAME,...|none] [--file F] [--entry NAME]"
USAGE = f"""\
{CELL}
                    a C++ cell for an op or op.backward; without a target its own blocks say what it defines
%wb ops             the ops of this session, and what fills their slots
%wb open PATH       a file as the next cell, which writes back to it
%wb watch PATH      load a file or a folder now, and again whenever it is saved
%wb watch           what is watched
%wb unwatch [PATH]  stop watching it, or everything"""


NO_OPS = 'no ops yet: put @wb.op("lab::name") over a function'
Show = Callable[[Watched], None]


def run(line: str, folder: str, *, watched: Callable[[], Show], fill: Callable[[str], None]) -> str:
    """Do what `%wb LINE` says; the text to print, "" for none.

    >>> run("ops", os.getcwd(), watched=lambda: print, fill=print)
    'lab::rmsnorm  forward cpu v3, backward reference'

    `folder` is the notebook's; `watched()` makes a place to show a watch in; `fill` gets the text of the next cell.
    Raises SchemaError for a command that there is not.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise SchemaError(f"%wb {line}: {error}; the usage is\n{USAGE}") from None
    command, given = (words[0], words[1:]) if words else ("", [])
    if command in ("", "help"):
        return USAGE
    if command == "ops" and not given:
        return ops_table(ops)
    if command == "open" and len(given) == 1:
        fill(_opened(_path(given[0], folder), given[0]))
        return ""
    if command == "watch" and len(given) < 2:
        if not given:
            return watch_table()
        watch.start(_path(given[0], folder), watched())
        return ""
    if command == "unwatch" and len(given) < 2:
        return _unwatch(given, folder)
    raise SchemaError(f"%wb {line} is no command; the usage is\n{USAGE}")


def _opened(file: Path, given: str) -> str:
    """The file as a cell; one whose own blocks say what it defines has no target, unless an op bears its name."""
    name = files.target(file).partition(".")[0]
    known = any(name in {op.name, op.qualname} for op in ops.values())
    return files.as_cell(file, given, alone=not known and blocks.has_blocks(files.source(file)))


def ops_table(known: Mapping[str, Op]) -> str:
    """One row for each op: its name and what runs in its slots."""
    rows = [(op.qualname, ", ".join(slots(op))) for op in known.values()]
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:{width}}  {said}" for name, said in rows) or NO_OPS


def slots(op: Op) -> list[str]:
    """`["forward cpu v3", "backward reference"]`."""
    found = [f"{slot} {device} v{v.number}" for (slot, device), v in sorted(op.slots.items(), reverse=True)]
    return found or ["reference" if op.reference is not None else "nothing runs yet"]


def watch_table() -> str:
    """One row for each watch, with what became of its last load."""
    rows = [(each.report.path, _state(each.report)) for each in watch.listed()]
    width = max((len(path) for path, _ in rows), default=0)
    return "\n".join(f"{path:{width}}  {said}" for path, said in rows) or "nothing is watched: %wb watch PATH"


def _state(report: Watched) -> str:
    if report.error:
        return report.error.splitlines()[0]
    refused = {True: "", False: " not installed"}
    names = [f"{line.op} {line.slot} v{line.version}{refused[line.installed]}" for line in report.lines]
    return ", ".join(names) or "nothing loaded"


def _unwatch(given: list[str], folder: str) -> str:
    ended = watch.stop(_path(given[0], folder) if given else None)
    if given and not ended:
        others = ", ".join(w.report.path for w in watch.listed()) or "nothing is"
        raise SchemaError(f"{given[0]} is not watched; {others}")
    return "\n".join(f"stopped watching {each.report.path}" for each in ended) or "nothing was watched"


def _path(given: str, folder: str) -> Path:
    return Path(files.place(given, folder))
