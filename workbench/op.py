"""`Op`: a live operator, the only object that changes.

What one does with it, and how it shows. What an op is and what is said of it is in `declared`; how its slots and
versions change in `live`; how a cell becomes a version in `install`; what a verb does in the package of its name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from .declared import Declared
from .errors import SchemaError, WorkbenchError
from .reference import Definition
from .reports.card import Card
from .reports.report import Check
from .turn import in_turn, turn
from .version import Version

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from .reports.inspection import Comparison, Inspection
    from .reports.measurement import Bench
    from .reports.profiling import Profile
    from .reports.tuning import Tuning


BUTTON_S = 1.0  # that a button waits for its turn
PUBLIC = (
    *("name", "qualname", "schema", "torch_op", "reference", "slots", "versions", "tuned", "differentiable", "random"),
    *("cases", "kernel", "backward", "fake", "vmap", "compare"),
    *("check", "bench", "profile", "tune", "inspect", "restore"),
    *("last_line", "last_check", "last_bench", "last_profile", "last_tuning"),
)


class Shown(type):
    """Completion and help() look at the class, too: of what there is for other modules neither says anything."""

    def __dir__(cls) -> list[str]:
        return sorted(n for n in super().__dir__() if n.startswith("__") or n in PUBLIC)


class Op(Declared, metaclass=Shown):
    """An operator of your own: call it, check it, replace a slot of it with a cell.

    >>> @wb.op("lab::scale")
    ... def scale(x: Tensor, k: float = 2.0) -> Tensor:
    ...     return x * k
    >>> scale(torch.ones(2))
    tensor([2., 2.])
    >>> torch.ops.lab.scale(torch.ones(2), 3.0)
    tensor([3., 3.])

    To be read: `name`, `qualname`, `schema`, `torch_op` (the `torch.ops` entry), `reference`, `slots` (what runs
    where), `versions` (every build, refused ones too; number 0 is the reference) and `tuned`. Decorators say more of
    it: `cases`, `kernel`, `backward`, `fake`, `vmap`, `compare`. Verbs: `check`, `bench`, `profile`, `tune`, `inspect`,
    `restore`; what they gave last is in `last_check` and so on, None before. `wb.op` and cells make ops.
    """

    def __new__(cls, definition: object = None, *_: object) -> Op:  # noqa: PYI034  an instance of a subclass of its own
        if not isinstance(definition, Definition):
            raise SchemaError('ops are made by @wb.op("lab::name") over a function, or by a cell, not by calling Op')
        # A class of its own for each op: its `__call__` is then the generated entry itself, with nothing in between.
        return object.__new__(type("Op", (Op,), {"__module__": __name__}))

    # ------------------------------------------------------------ verbs

    @in_turn
    def check(self, level: str = "quick", *, sanitize: bool = False) -> Check:
        """Check what is installed: agreement with the reference, torch's opcheck, gradients, compiled against eager.

        >>> rmsnorm.check().ok
        True

        `level="full"` sweeps over layouts, sizes, dtypes and values by itself; it takes seconds to a minute, shows how
        far it is, and an interrupt keeps the rows so far. A failed row names the smallest input that fails, and what
        to do; nothing is taken out. WorkbenchError for another level.
        `sanitize=True` adds a run under tools that see every access to memory, which takes tens of seconds: of GPU
        kernels under NVIDIA's compute-sanitizer (memcheck and racecheck), of C++ under the compiler's own sanitizers.
        """
        from .check import full, quick

        if level != "full":
            report = quick.check(self, level)
        else:
            from .judge import tryout
            from .show import progress

            tries: list[Any] = [*tryout.tries_of(self), *tryout.tries_of(self, "backward")]
            with progress.shown() as tell:
                report = full.check(
                    self, lambda: tries, lambda: quick.check(self, "full"), device=quick.device_of(self), tell=tell
                )
        if sanitize:
            from .judge import sanitize as sanitizing

            report = replace(report, rows=(*report.rows, *sanitizing.rows(self)))
        self.last_check, self.checked = report, self.installed()
        return report

    def inspect(
        self,
        version: int | Version | None = None,
        dtype: torch.dtype | str | None = None,
        slot: str = "forward",
        *,
        against: int | Version | None = None,
    ) -> Inspection | Comparison:
        """What the compiler made of a version, each line with the source line that it came from; needs no GPU.

        >>> print(rmsnorm.inspect())                              # registers, spills, occupancy; vectorized loops
        >>> print(rmsnorm.inspect(1).stage("assembly"))           # of CUDA "ptx", "sass"; of Triton "ttir", too
        >>> became = rmsnorm.inspect(1, torch.bfloat16).at(15)    # what line 15 of the cell became, by stage
        >>> print(rmsnorm.inspect(1, against=2))                  # two versions side by side

        Without a number what runs in `slot` ("forward", "backward"), on a GPU before the CPU; without a dtype float32,
        if it has it. In a notebook the report shows source and stages, `.widget()` lets one click through them.
        SchemaError for the reference and for Python functions, which no compiler made; ToolchainError, with what to
        install, where a program is missing.
        """
        from .inspect import inspect as look

        return look(self, version, dtype, slot, against=against)

    @in_turn
    def bench(
        self,
        against: object = None,
        cases: object = None,
        sweep: object = None,
        *,
        backward: bool | None = None,
        device: str | None = None,
        cold: bool = True,
        budget: float | None = None,
    ) -> Bench:
        """Is it faster? The op against others, in turn, with a verdict that says when it cannot tell.

        >>> rmsnorm.bench()                                     # its former version, torch.compile, the reference
        >>> rmsnorm.bench(against=[1, lambda x, w, eps: F.rms_norm(x, w.shape, w, eps)], cases="llama")
        >>> rmsnorm.bench(sweep={"x.shape[-1]": [256, 512, 1024], "dtype": [torch.float32, torch.bfloat16]})
        >>> rmsnorm.bench(sweep=lambda t, cols=(256, 512): (t(8192, cols), t(cols))).rows[0].time_us

        `against`: "reference", "torch.compile", "former", versions, callables, or a mapping that names them; one with
        another result is told and not timed. `cases` are names, numbers, `wb.case(...)` or inputs `(x, w)`, one or a
        list of these; without it those with `bench=True`, else the largest. Verdicts are FASTER, SLOWER, SAME (within
        2 % on a GPU, 4 % on a CPU) and UNCLEAR. Times are the device's on a GPU, its L2 cache emptied unless
        `cold=False`. `device` is "cpu" or "cuda"; without it a GPU where there is a kernel for it. `budget` is seconds
        for all timing, without it 4 a case, 1.5 a point of a sweep; most need less. `backward=True` times gradients,
        too, as is done where a backward was written. WorkbenchError for what makes no sense: an empty sweep, no cases,
        a name that is nobody's.
        """
        from functools import partial

        from .judge.lending import Lent
        from .measure.bench import bench as measure
        from .show import progress

        with progress.shown() as tell:
            self.last_bench = measure(
                self, against, cases, sweep, backward=backward, device=device, cold=cold, budget=budget,
                lend=partial(Lent, self), tell=tell,
            )  # fmt: skip
        return self.last_bench

    @in_turn
    def profile(
        self, case: object = None, *, device: str | None = None, backward: bool = True, counters: bool = True
    ) -> Profile:
        """Where the time of a call goes: by kernel and by op, on a timeline, with memory, and what to do about it.

        >>> rmsnorm.profile()                              # the case with `bench=True`, else the largest
        >>> rmsnorm.profile((x, w))                        # these inputs; a case by name or number
        >>> report = rmsnorm.profile("llama", backward=False)
        >>> report.phase("forward").kernel_us, report.advice[0].text
        >>> report.export_chrome_trace("rmsnorm.json")     # as often as you like

        Real calls of what is installed, under torch's profiler, and of gradients unless `backward=False`. `device` as
        in `bench`. With `counters`, where there is a GPU that NVIDIA's ncu may count on: occupancy, memory and compute
        shares, why warps wait. WorkbenchError for a case that there is none of, and where a torch profiler runs already
        (it goes on).
        """
        from .judge import replay
        from .measure.profile import profile as look
        from .show import progress

        with progress.shown() as tell:
            ask = replay.counting(self) if counters else None
            self.last_profile = look(self, case, device=device, backward=backward, counters=ask, tell=tell)
        return self.last_profile

    @in_turn
    def tune(
        self,
        case: object = None,
        *,
        slot: str = "forward",
        device: str | None = None,
        budget: float | None = 60.0,
        configs: object = (),
        executor: Executor | None = None,
    ) -> Tuning:
        """Find the fastest configuration for a case, and run it from then on wherever tensors have those sizes.

        >>> found = matmul.tune("1024", budget=30)
        >>> found.best.config
        {'MR': 6, 'NV': 2, 'KC': 256, 'MC': 96}
        >>> print(found.line.splitlines()[0])               # to paste
        //! tune MR = 6, 8, 12

        The space is what `tune` lines of a raw cell and `triton.autotune` of a Triton cell say; `configs` adds to the
        latter. All are compiled side by side, tried on the case in the worker, outputs poisoned, and those that agree
        are timed, for `budget` seconds in all (None: no limit). What fails is a row with its reason. An interrupt keeps
        the best so far. Results are kept on disk for the source, machine and case: known ones are not tried again.
        `case` is what `bench` takes as cases, `device` as there, `slot` "forward" or "backward". `executor`, any of
        concurrent.futures, builds and measures in other processes or on other machines, the best ones once more here:

        >>> matmul.tune("1024", executor=dask.distributed.Client("scheduler:8786").get_executor())

        SchemaError for a version without anything to tune, a case that there is none of, or no budget.
        """
        from . import tuned
        from .show import progress

        with progress.shown() as tell:
            self.last_tuning = tuned.tune(
                self, case, slot=slot, device=device, budget=budget, configs=configs, executor=executor, tell=tell
            )
        return self.last_tuning

    @in_turn
    def restore(self, version: int | Version | None = None) -> object:
        """Put a former version back into its slot; 0 puts the reference back everywhere.

        >>> rmsnorm.restore(1)
        <lab::rmsnorm(Tensor x, Tensor w, float eps=1e-06) -> (Tensor y) | forward cpu v1>

        It is judged again where reference or cases changed since. Without a number the card, in a notebook a widget
        with a button at each version that can be restored. SchemaError for a version that there is none of, was
        refused, or is of another schema; TrialError for one that differs by now.
        """
        from . import describe, restoring, show

        if version is None:
            return show.widget_of(describe.card(self), self._restored)
        return restoring.restore(self, version)

    # ------------------------------------------------------------ how it shows

    def __dir__(self) -> list[str]:
        return sorted({*PUBLIC, *(n for n in super().__dir__() if n.startswith("__"))})

    def __repr__(self) -> str:
        filled = ", ".join(f"{slot} {device} v{v.number}" for (slot, device), v in self._slots.items())
        return f"<{self.schema} | {filled or ('reference' if self.reference is not None else 'nothing yet')}>"

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        from . import describe, show

        return show.bundle(describe.card(self))

    def _ipython_display_(self) -> None:
        from .show import open_cards

        open_cards.show(self.qualname, self._newer, self._restored)

    def _newer(self, seen: object) -> tuple[object, Card] | None:
        from . import describe

        describe.notice(self)
        return None if self.seen is seen else (self.seen, describe.card(self))

    def _restored(self, number: int) -> Card:
        """What a button of a card does. It must not wait long: behind it waits the button that stops what runs."""
        from . import describe

        if not turn.acquire(timeout=BUTTON_S):
            raise WorkbenchError(f"v{number} is not restored: other work on ops goes on. Press again when it has ended")
        try:
            self.restore(number)
        finally:
            turn.release()
        return describe.card(self)

    def __reduce__(self):
        from .define import by_name  # a pickle names the op; the registry stands above this module

        return (by_name, (self.qualname,))

    def __copy__(self) -> Op:
        return self

    def __deepcopy__(self, memo: dict) -> Op:
        return self
