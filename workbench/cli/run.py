"""Parse a command line, run its command, print what came of it, and say it by the exit code."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from typing import Any, TextIO

from ..errors import BuildError, SaveError, SchemaError, WorkbenchError
from ..reports.report import plain
from . import cache, raised, verbs
from .outcome import Outcome

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
EPILOG = "exit codes: 0 all is well, 1 something fails, 2 the command cannot be carried out, 130 interrupted"


Command = Callable[[argparse.Namespace], Outcome]


def main(words: Sequence[str] | None = None, out: TextIO | None = None, err: TextIO | None = None) -> int:
    """Run one command; the exit code.

    >>> main(["doctor", "--only", "compiler"])
    0
    """
    out, err = out or sys.stdout or io.StringIO(), err or sys.stderr or io.StringIO()  # None: it was closed
    given = parser().parse_args(words)
    try:
        with _apart(out, err) if given.json else nullcontext():
            outcome = given.run(given)
    except KeyboardInterrupt:
        return _say(INTERRUPTED, "", "interrupted", out, err)
    except BrokenPipeError:  # whoever read the output has seen enough
        return _say(OK, "", "", out, err)
    except (Exception, SystemExit) as error:  # the user's own code may raise anything, or end the program
        if given.json:
            said = json.dumps({"command": given.command, "ok": False, "error": _data(error)})
            return _say(_code(error), said, "", out, err)
        return _say(_code(error), "", _text(error), out, err)
    return _told(given, outcome, out, err)


def _told(given: argparse.Namespace, outcome: Outcome, out: TextIO, err: TextIO) -> int:
    """Print what there is, and what was raised for some of the ops. They decide the code where nothing else does."""
    ok = outcome.ok and not outcome.errors and not outcome.stopped
    text, aside = outcome.text, [f"{name} | {_text(error)}" for name, error in outcome.errors.items()]
    if given.json:
        errors = {"errors": {name: _data(error) for name, error in outcome.errors.items()}} if outcome.errors else {}
        text, aside = json.dumps({"command": given.command, "ok": ok, **plain(outcome.data), **errors}), []
    code = OK if ok else FAILED
    if outcome.stopped:
        code, aside = INTERRUPTED, [*aside, "interrupted"]
    elif outcome.errors and not outcome.text:
        code = min(_code(error) for error in outcome.errors.values())
    return _say(code, text, "\n".join(aside), out, err)


def _say(code: int, text: str, aside: str, out: TextIO, err: TextIO) -> int:
    """Print `text`, and `aside` on the other one. The code stands where nobody reads on, not where a disk is full."""
    try:
        if text:
            print(text, file=out)
        out.flush()
    except BrokenPipeError:
        _drop(out)
    except OSError as error:
        _drop(out)
        code, aside = code or FAILED, f"the output cannot be written: {error.strerror}\n{aside}".rstrip()
    try:
        if aside:
            print(aside, file=err)
        err.flush()
    except OSError:
        _drop(err)
    return code


def _drop(file: TextIO) -> None:
    """What it still holds goes nowhere, else Python tries again at its end, and complains."""
    with suppress(OSError, ValueError):  # no file of the system
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.fileno())
        os.close(nowhere)


@contextmanager
def _apart(out: TextIO, err: TextIO) -> Iterator[None]:
    """What files, kernels and other programs print goes to `err`, so that the JSON object is alone on `out`."""
    try:
        number, other = out.fileno(), err.fileno()
    except (OSError, ValueError):  # no files of the system: C++ and other programs do not print there
        with redirect_stdout(err):
            yield
        return
    out.flush()
    kept = os.dup(number)
    try:
        os.dup2(other, number)
        with redirect_stdout(err):
            yield
    finally:
        err.flush()
        os.dup2(kept, number)
        os.close(kept)


def _code(error: BaseException) -> int:
    """What was wrong with what was asked for is 2; a kernel that does not build or agree, or the user's code, is 1."""
    asked = error.asked if isinstance(error, SaveError) else type(error) in (SchemaError, WorkbenchError)
    return USAGE if asked else FAILED


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if isinstance(error, WorkbenchError) else raised.text(error)


def _data(error: BaseException) -> dict[str, Any]:
    if not isinstance(error, WorkbenchError):
        return raised.data(error)
    said: dict[str, Any] = {"kind": type(error).__name__, "message": str(error)}
    return {**said, "diagnostics": plain(error.diagnostics)} if isinstance(error, BuildError) else said


def parser() -> argparse.ArgumentParser:
    """The command line, with a help text for each command."""
    made = argparse.ArgumentParser("workbench", description="Kernels for PyTorch, without a notebook.", epilog=EPILOG)
    made.add_argument("--version", action="version", version=f"workbench {_version()}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, run: Command, help: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".", epilog=EPILOG)
        one.add_argument("--json", action="store_true", help="print one JSON object in place of text")
        one.set_defaults(run=run)
        return one

    doctor = add("doctor", verbs.doctor, "is everything here that ops are built and run with, and does it work")
    doctor.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="look at these alone, e.g. compiler cache"
    )
    _of_ops(add("load", verbs.load, "build, try and install what files or folders hold"))
    check = _of_ops(add("check", verbs.check, "load ops and check them against their references"))
    check.add_argument(
        "--level", choices=("quick", "full"), default="quick", help="full sweeps over sizes, layouts, dtypes and values"
    )
    check.add_argument("--sanitize", action="store_true", help="also under tools that see every access to memory")
    bench = _of_ops(add("bench", verbs.bench, "load ops and time them against their references"))
    bench.add_argument("--case", action="append", default=[], metavar="NAME", help="this case; may be said again")
    bench.add_argument("--budget", type=float, metavar="SECONDS", help="for each op")
    profile = _of_ops(add("profile", verbs.profile, "load ops and see where the time of a call goes"))
    profile.add_argument("--case", metavar="NAME", help="this case, else the one to be measured, else the largest")
    profile.add_argument("--trace", metavar="FILE", help="write the Chrome trace there, too (one op)")
    profile.add_argument("--html", metavar="FILE", help="write the report with its timeline as a page (one op)")
    _of_kernels(add)
    save = _of_ops(add("save", verbs.save, "load ops and write them as a package that anyone can install"))
    save.add_argument("--to", required=True, metavar="FOLDER", help="where the package is written")
    save.add_argument("--name", default="", help="what is imported; the folder's name where it is not given")
    save.add_argument("--version", default="0.1.0", help="of the package")
    save.add_argument("--layout", choices=("python", "kernels"), default="python", help="kernels: for kernel-builder")
    deploy = add("deploy", verbs.deploy, "compile a model with its ops ahead of time, to run without Python")
    deploy.add_argument("model", metavar="FILE.py:FUNCTION", help="it returns a module and its example inputs")
    deploy.add_argument("--to", required=True, metavar="FOLDER", help="where all of it is written")
    deploy.add_argument("--load", nargs="+", default=[], metavar="PATH", help="ops that the file does not define")
    deploy.add_argument("--name", default="", help="of the model; the folder's name where it is not given")
    deploy.add_argument("--batch", action="store_true", help="leave the size of the first dimension open")
    deploy.add_argument("--onnx", action="store_true", help="write model.onnx, too")
    cache.add(add("cache", cache.run, "what the cache holds; explain, limit or clear it"))
    return made


def _of_kernels(add: Callable[[str, Command, str], argparse.ArgumentParser]) -> None:
    """The commands that look at the kernel of one slot."""
    inspect = _of_ops(add("inspect", verbs.inspect, "load ops and see what the compiler made of them; needs no GPU"))
    inspect.add_argument(
        "--stage", metavar="NAME", help="this text alone, source lines in the margin: sass, ptx, ttir ..."
    )
    inspect.add_argument("--dtype", metavar="DTYPE", help="of the tensors, e.g. bfloat16")
    inspect.add_argument("--html", metavar="FILE", help="write it as a page, source and stages side by side (one op)")
    tune = _of_ops(add("tune", verbs.tune, "load ops and find their fastest configurations, which are kept on disk"))
    tune.add_argument("--case", metavar="NAME", help="for the sizes of this one")
    tune.add_argument("--budget", type=float, metavar="SECONDS", help="for each op")
    for one in (inspect, tune):
        one.add_argument("--slot", choices=("forward", "backward"), default="forward", help="whose kernel")


def _version() -> str:
    from .. import __version__

    return __version__


def _of_ops(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    made.add_argument("paths", nargs="+", metavar="PATH", help="op.py, a kernel file, or a folder with both")
    return made
