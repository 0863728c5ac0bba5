"""The notebook's side: `%%cpp` and `%wb`. They parse their line, call what is behind and display; no more."""

from __future__ import annotations

import builtins
import math
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.display import display

from . import cells, commands, describe, watch
from .build import process
from .build.triton_text import offering
from .define import ops
from .errors import SchemaError, WorkbenchError
from .op import Op
from .reports.report import Line
from .show import live, open_cards, progress, waiting, words
from .source import Source

shown: list[Line] = []  # the lines of the cell that runs
USAGE = commands.CELL


@magics_class
class Workbench(Magics):
    """The magics of the workbench."""

    @no_var_expand  # a path may hold `$` and braces
    @cell_magic
    def cpp(self, line: str, cell: str) -> None:
        """Put a C++ function into a slot of an op: build it, try it, install it if it agrees with the reference.

        %%cpp [TARGET] [--force] [--cases NAME,...|none] [--file F] [--entry NAME]

            %%cpp scale
            //! n = x.numel()
            //! out = empty(x.shape)
            template <typename T> void scale(const T* x, T* out, double k, int64_t n) {
              for (int64_t i = 0; i < n; ++i) out[i] = T(x[i] * k);
            }

        TARGET is an op's name, `ns::name`, or either with `.backward`; one that no op bears makes an op. Without one
        the cell's own TORCH_LIBRARY or PYBIND11_MODULE blocks say what it defines. `--force` installs a kernel that
        merely differs, `--cases` names the cases to try, `--file` also writes the cell there, `--entry` names the
        function. In Python: `wb.cpp(target, source)`.
        """
        self._run("cpp", line, cell)

    @no_var_expand
    @cell_magic
    def cuda(self, line: str, cell: str) -> None:
        """Put CUDA kernels into a slot of an op; TARGET and options are those of `%%cpp`.

        %%cuda [TARGET] [--force] [--cases NAME,...|none] [--file F] [--entry NAME]

            %%cuda scale
            //! n = x.numel()
            //! out = empty(x.shape)
            //! grid = cdiv(n, 256)
            //! block = 256
            template <typename T> __global__ void scale(const T* x, T* out, float k, long long n) {
              long long i = blockIdx.x * 256ll + threadIdx.x;
              if (i < n) out[i] = T(float(x[i]) * k);
            }

        Where there is no GPU they are compiled for WORKBENCH_ARCH (or sm_90) and not run, which the line says.
        """
        self._run("cuda", line, cell)

    @no_var_expand
    @cell_magic
    def triton(self, line: str, cell: str) -> None:
        """Put a Triton launcher into a slot of an op; TARGET and options are those of `%%cpp`.

        %%triton TARGET [--force] [--cases NAME,...|none] [--file F] [--entry NAME] [--interpret]

            %%triton scale
            @triton.jit
            def kernel(x, out, k, n, BLOCK: tl.constexpr):
                i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                tl.store(out + i, tl.load(x + i, i < n) * k, i < n)

            def scale(x, k=2.0):
                out = torch.empty_like(x)
                kernel[(triton.cdiv(x.numel(), 256),)](x, out, k, x.numel(), BLOCK=256)
                return out

        Where there is no GPU it is tried by Triton's interpreter and compiled for WORKBENCH_ARCH (or sm_90).
        `--interpret` runs the interpreter in the notebook, so that breakpoint() and print work in a kernel.
        """
        with offering(self._shell.user_ns):
            self._run("triton", line, cell)

    def _run(self, language: str, line: str, cell: str) -> None:
        history = self._shell.history_manager
        assert history is not None
        number = len(history.input_hist_raw) - 1  # execution_count is ahead of it in IPython 9
        text = Source(cell, language, file=f"cell [{number}]", first_line=2, path=_folder(self._shell))
        try:
            target, options = parse(line, language)
        except SchemaError as error:
            error.file = text.file
            raise
        shown.clear()
        try:
            with _told(target or "the cell"):
                cells.run(target, text, born=self._named, **options)
        except WorkbenchError as error:
            error.brief = brief(shown[-1]) if shown and not shown[-1].installed else ""
            raise

    def _named(self, op: Op) -> str:
        """Put an op that a cell has made under its name, as a definition would be, unless that name is taken."""
        names = self._shell.user_ns
        if op.name in names or hasattr(builtins, op.name):
            return ""
        names[op.name] = op
        return op.name

    @no_var_expand
    @line_magic
    def wb(self, line: str) -> None:
        """Ops and files of the workbench; `%wb` alone says this, too.

        %wb ops             the ops of this session, and what fills their slots
        %wb open PATH       a file as the next cell, which writes back to it
        %wb watch PATH      load a file or a folder now, and again whenever it is saved
        %wb watch           what is watched
        %wb unwatch [PATH]  stop watching it, or everything
        """
        fill = self._shell.set_next_input
        said = commands.run(line, _folder(self._shell), watched=_place, fill=fill)
        if said:
            print(said)

    @property
    def _shell(self) -> InteractiveShell:
        assert self.shell is not None, "magics are registered with a shell"
        return self.shell


def parse(line: str, language: str = "cpp") -> tuple[str | None, dict]:
    """The magic's line as (target, options of `cells.run`).

    >>> parse("rmsnorm.backward --cases odd --force")
    ('rmsnorm.backward', {'cases': 'odd', 'force': True})
    """
    triton = language == "triton"
    usage = USAGE.replace("%%cpp", f"%%{language}") + (commands.INTERPRET if triton else "")
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise SchemaError(f"%%{language} {line}: {error}; the usage is {usage}", line=1) from None
    options: dict = {}
    targets = []
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word == "--force":
            options["force"] = True
        elif word == "--interpret" and triton:
            options["interpret"] = True
        elif name in ("--cases", "--file", "--entry"):
            given = value if equals else words.pop(0) if words else ""
            if not given:
                raise SchemaError(f"{name} needs a value; the usage is {usage}", line=1)
            options[name[2:]] = given
        elif word.startswith("-"):
            raise SchemaError(f"{word} is no option of %%{language}; the usage is {usage}", line=1)
        else:
            targets.append(word)
    if len(targets) > 1:
        given = " ".join(targets)
        raise SchemaError(f"%%{language} takes one target, got {len(targets)}: {given}; the usage is {usage}", line=1)
    return (targets[0] if targets else None), options


def brief(line: Line) -> str:
    """What is left to say in red under a line that has said why: "v3 of rmsnorm is not installed; v2 still runs"."""
    still = f"; {line.still} still runs" if line.still and line.still != "nothing" else ""
    return f"v{line.version} of {words.target(line)} is not installed{still}"


def show_line(line: Line) -> None:
    """The line under the cell, and before it what the kernel printed while it was tried."""
    shown.append(line)
    if line.trial is not None and line.trial.printed:
        print(line.trial.printed, end="" if line.trial.printed.endswith("\n") else "\n")
        sys.stdout.flush()
    _below.take()(line)


class _Below:
    """The place below the cell that runs: what it is doing, then its line."""

    def __init__(self) -> None:
        self._show: Callable | None = None
        self._taken = -math.inf
        self._mutex = threading.Lock()

    def tell(self, doing: waiting.Doing) -> None:
        with self._mutex:
            if self._show is None and time.monotonic() - self._taken < waiting.EVERY_S:
                return  # a line has just come: most likely it was the last
            self._show = self._show or _place()
            self._show(doing)

    def take(self) -> Callable:
        """What shows a report there, or where nothing is yet."""
        with self._mutex:
            taken, self._show = self._show, None
            self._taken = time.monotonic()
        return taken or display


_below = _Below()


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Inside, a cell that takes long shows below itself what it does; nothing of it is left."""
    if not live():
        yield
        return
    try:
        with waiting.told(what, process.busy, _below.tell):
            yield
    finally:
        taken = _below.take()
        if taken is not display:
            taken(waiting.Doing())


def _place() -> Callable[[object], None]:
    """A place below the cell that runs; what is shown in it takes the place of what was there."""
    handle = None

    def show(report: object) -> None:
        nonlocal handle
        if handle is None:
            handle = display(report, display_id=True)
        else:
            handle.update(report)

    return show


def _folder(shell: InteractiveShell) -> str:
    """The notebook's folder: quoted includes are looked up there, and `--file` begins there."""
    file = shell.user_ns.get("__vsc_ipynb_file__")  # VS Code may start a kernel elsewhere
    folder = os.path.dirname(file) if isinstance(file, str) else getattr(shell, "starting_dir", "")
    return folder if folder and os.path.isdir(folder) else os.getcwd()


def register(shell: InteractiveShell) -> None:
    """Bring the magics. A second time changes nothing but that watches of the first end."""
    watch.stop()
    shell.register_magics(Workbench)
    if show_line not in cells.listeners:
        cells.listeners.append(show_line)
    progress.place = _place if live() else None
    open_cards.publish = partial(display, raw=True)
    if live():
        open_cards.prepare()
    progress.followers[:] = [open_cards.follow]
    if _cell_ended not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", _cell_ended)


def unregister(shell: InteractiveShell) -> None:
    """Watches end, and cells show no line any more."""
    watch.stop()
    if show_line in cells.listeners:
        cells.listeners.remove(show_line)
    progress.place = None
    open_cards.publish = None
    progress.followers.clear()
    open_cards.forget()
    if _cell_ended in shell.events.callbacks["post_run_cell"]:
        shell.events.unregister("post_run_cell", _cell_ended)


def _cell_ended(_: object) -> None:
    """Cards on the page follow what the cell did; those that come later open at it."""
    for op in ops.values():
        describe.notice(op)
    open_cards.refresh()


__all__ = ["Workbench", "parse", "register", "show_line", "unregister"]
