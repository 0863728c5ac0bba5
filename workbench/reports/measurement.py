"""What a benchmark found, as plain data: a row for each thing timed on each case, with units in the names.

How it looks is `show`'s business; how it is found out is in `measure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .report import Report, data_frame

TIMED = "timed"


@dataclass(frozen=True)
class BenchRow:
    """One contestant on one case, forward or backward.

    `time_us` is a call's time with its 95 % interval: of the device on a GPU, of the call on a CPU. `ratio` is this
    time over the op's own with its interval, so that 1.14 says that the op takes 1.14 times less; `verdict` is the
    op's: FASTER, SLOWER, SAME or UNCLEAR, "" for the op itself. `status` is "timed", "differs" (another result than
    the op's reference), "failed" or "skip", with the reason in `detail`. Figures that are not known are 0.
    """

    case: str
    dtype: str
    slot: str  # "forward" or "backward"
    contestant: str  # "v7", "reference", "torch.compile", "v6", or a callable's name
    status: str = TIMED
    time_us: float = 0.0
    low_us: float = 0.0
    high_us: float = 0.0
    ratio: float = 0.0
    ratio_low: float = 0.0
    ratio_high: float = 0.0
    verdict: str = ""
    gb_per_s: float = 0.0
    gflop_per_s: float = 0.0
    share: float = 0.0  # of the ceiling that is nearer, 0..1
    ceiling: str = ""  # "copy bandwidth" or "matrix rate"
    launch_us: float = 0.0  # what the CPU is busy with at a call, where the device works behind it
    peak_mb: float = 0.0  # allocated by torch during a call, inputs not counted
    samples: int = 0
    own: bool = False  # is it the op itself?
    detail: str = ""
    values: tuple[tuple[str, Any], ...] = ()  # of a sweep: (("cols", 4096),)

    @property
    def timed(self) -> bool:
        """Is there a time? Else `detail` says why not."""
        return self.status == TIMED


@dataclass(frozen=True)
class Work:
    """What a call has to do at least: bytes that must move, operations; and where that was read from."""

    bytes: float = 0.0
    flops: float = 0.0
    source: str = ""  # "the case", "its tensors"

    @property
    def flops_per_byte(self) -> float:
        """Arithmetic intensity; 0.0 where the bytes are not known."""
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class Ceiling:
    """What this machine was measured to reach: `kind` is "copy bandwidth" (GB/s) or "matrix rate" (GFLOP/s)."""

    kind: str
    value: float
    dtype: str = ""  # of a matrix rate: "bfloat16"
    day: str = ""  # on which it was measured
    busy: bool = False  # did other work share the cores meanwhile? Then it is too low

    @property
    def unit(self) -> str:
        """GB/s or GFLOP/s."""
        return "GB/s" if self.kind == COPY else "GFLOP/s"


COPY, MATRIX = "copy bandwidth", "matrix rate"
CACHED = 1.02  # a larger share of the copy bandwidth than this comes from a cache, and is a share of nothing


@dataclass(frozen=True)
class Bench(Report):
    """The outcome of `op.bench()`.

    >>> report = rmsnorm.bench()
    >>> report.rows[0].time_us, report.rows[1].verdict
    (41.2, 'FASTER')
    >>> frame = report.to_dataframe()                # where pandas is installed

    `version` is what ran as the op ("v7"), `machine` where. `sweep` names what was swept, () for cases. `work` is by
    (case, dtype, slot), in the order of the rows. `notes` tell of noise, throttling and what was left out, `advice`
    what to do next.
    """

    op: str
    device: str  # "cpu" or "cuda"
    machine: str  # "2 threads of Intel Xeon ...", "NVIDIA H200"
    version: str
    rows: tuple[BenchRow, ...]
    sweep: tuple[str, ...] = ()
    cold: bool = False  # was L2 emptied before each call?
    work: tuple[tuple[tuple[str, str, str], Work], ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    seconds: float = 0.0
    clock: str = ""  # "clock steady at 1,980 MHz"
    notes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    stopped: bool = False  # by an interrupt: the rows are those until then

    @property
    def ok(self) -> bool:
        """Was the op timed on every case, and did nothing differ or fail?"""
        return bool(self.rows) and all(r.status in (TIMED, "skip") for r in self.rows)

    def to_dict(self) -> dict:
        """The whole report as JSON-ready data, with `ok` added; the values of a sweep as a mapping."""
        rows = [{**row, "values": dict(map(tuple, row["values"]))} for row in super().to_dict()["rows"]]
        return {**super().to_dict(), "rows": rows}

    def to_dataframe(self) -> Any:
        """The rows as a pandas DataFrame, one column a field and one for each name that was swept.

        WorkbenchError where pandas is not installed.
        """
        flat = [{**asdict(r), **{n: str(v) for n, v in r.values if n not in asdict(r)}} for r in self.rows]
        for row, r in zip(flat, self.rows, strict=True):
            row.pop("values")
            row.update({n: v for n, v in r.values if isinstance(v, (bool, int, float, str)) and n not in asdict(r)})
        return data_frame(flat)

    def work_of(self, row: BenchRow) -> Work:
        """What the call of a row has to do at least."""
        return dict(self.work).get((row.case, row.dtype, row.slot), Work())

    def ceiling(self, kind: str, dtype: str = "") -> Ceiling | None:
        """The measured ceiling of that kind; of a matrix rate the one for the dtype, if it was measured."""
        fitting = [c for c in self.ceilings if c.kind == kind and (kind == COPY or c.dtype == dtype)]
        return fitting[0] if fitting else None

    def groups(self) -> list[tuple[BenchRow, ...]]:
        """The rows of each case and slot, in order."""
        found: dict[tuple, list[BenchRow]] = {}
        for r in self.rows:
            found.setdefault((r.case, r.dtype, r.slot, r.values), []).append(r)
        return [tuple(group) for group in found.values()]

    def __str__(self) -> str:
        from ..show import bench_text

        return bench_text.bench(self)


def headline(bench: Bench | None, slot: str, device: str) -> tuple[float, float, str, str] | None:
    """(time in us, share of the ceiling, its name, case) of the op itself, for a card; None where it was not timed.

    >>> headline(rmsnorm.last_bench, "forward", "cuda")
    (41.2, 0.87, 'copy bandwidth', 'llama bfloat16')

    Of several cases the one that takes longest: what a card is read for. The share is 0 where the data stays in cache.
    """
    if bench is None or bench.device != device:
        return None
    own = [r for r in bench.rows if r.own and r.timed and r.slot == slot]
    if not own:
        return None
    row = max(own, key=lambda r: r.time_us)
    share = row.share if row.share <= CACHED else 0.0
    return row.time_us, share, row.ceiling, label(row)


def label(row: BenchRow) -> str:
    """`"llama bfloat16"`, as a case's label."""
    return f"{row.case} {row.dtype}".strip()


def names(rows: Sequence[BenchRow]) -> list[str]:
    """The contestants, in order, the op itself first."""
    return list(dict.fromkeys(r.contestant for r in sorted(rows, key=lambda r: not r.own)))


__all__ = ["COPY", "MATRIX", "Bench", "BenchRow", "Ceiling", "Work", "headline", "label", "names"]
