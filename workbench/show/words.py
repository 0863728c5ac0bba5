"""Numbers and phrases that the text and the html forms share. Plain functions, no markup, no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..reports.card import Card, SlotRow
from ..reports.measurement import CACHED
from ..reports.report import Check, Line, Mismatch, Outcome, Trial

SHORT_DTYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8 e4m3",
    "float8_e5m2": "fp8 e5m2",
}
LANGUAGES = {"cpp": "C++", "cuda": "CUDA", "triton": "Triton"}
VERDICTS = {
    "agree": "agrees",
    "mismatch": "differs",
    "crash": "crashes",
    "hang": "hangs",
    "overrun": "goes out of bounds",
    "mutation": "writes an argument it may not",
    "process": "changes the process it runs in",
    "error": "raises",
    "skip": "skipped",
}


def dtype(name: str) -> str:
    """`dtype("torch.bfloat16") == "bf16"`; names without a short form stay as they are."""
    name = name.removeprefix("torch.")
    return SHORT_DTYPES.get(name, name)


def number(value: float, digits: int = 3) -> str:
    """`number(1234.5) == "1,234"`, `number(9.8) == "9.8"`: `digits` significant ones, and all before the point."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{float(f'{value:.{digits}g}'):.10g}"


def duration(seconds: float, digits: int = 2, micro: str = "us") -> str:
    """`duration(0.052) == "52 ms"`, `duration(41.2e-6, 3) == "41.2 us"`, `duration(125) == "2 min 5 s"`."""
    if seconds >= 119.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes:,} min {rest} s" if rest else f"{minutes:,} min"
    for unit, scale in (("ns", 1e-9), (micro, 1e-6), ("ms", 1e-3)):
        if seconds / scale < 999.5:
            return f"{number(seconds / scale, digits)} {unit}"
    return f"{number(seconds, digits)} s"


def count(n: int, noun: str, many: str = "") -> str:
    """`count(1, "case") == "1 case"`, `count(3840, "element") == "3,840 elements"`."""
    return f"{n:,} {noun if n == 1 else many or noun + 's'}"


def share(value: float) -> str:
    """A largest error as a share of the allowed one: "0.6", "0.04", "under 0.01"; never rounded up to the limit."""
    if 0 < value < 0.01:
        return "under 0.01"
    if 0.95 <= value < 1:
        return f"{math.floor(100 * value) / 100:g}"
    return f"{value:.2g}" if value < 0.1 else number(value, 1 if value < 1 else 2)


def percent(value: float) -> str:
    return f"{round(100 * value)} %"


def values(got: float, wanted: float) -> tuple[str, str]:
    """Both with as many digits as it takes to tell them apart: `values(1.00001, 1.0) == ("1.00001", "1.00000")`."""
    if isinstance(got, int) and isinstance(wanted, int):
        return f"{got:,}", f"{wanted:,}"
    sizes = [abs(v) for v in (got, wanted) if math.isfinite(v) and v]
    style = "e" if sizes and (max(sizes) >= 1e6 or max(sizes) < 1e-3) else "f"
    pairs = [(f"{got:.{digits}{style}}", f"{wanted:.{digits}{style}}") for digits in range(4, 17)]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def power(of_ten: int | None) -> str:
    """The name of a column of relative errors: "0", "1e-3", "NaN"."""
    return "0" if of_ten is None else "NaN" if of_ten == 99 else f"1e{of_ten}"


def size(shape: Iterable[int], times: str = "x") -> str:
    """`size((40, 96)) == "40 x 96"`; a scalar is "one element"."""
    return f" {times} ".join(f"{n:,}" for n in shape) or "one element"


def target(line: Line) -> str:
    """The op as a magic names it: "rmsnorm" or "rmsnorm.backward"."""
    name = line.op.rpartition("::")[2]
    return name if line.slot.split()[0:1] in ([], ["forward"]) else f"{name}.{line.slot.split()[0]}"


def how(line: Line) -> str:
    """The language, and the tier where it is not the quickest one."""
    return line.language if line.tier in ("", "raw", line.language) else f"{line.language} {line.tier}"


def run_time(line: Line, micro: str = "us") -> str:
    """Seconds from running the cell to its end, "" when not measured."""
    if line.seconds <= 0:
        return ""
    return duration(line.seconds, 2, micro) + (", cached" if line.cached else "")


def former(line: Line, micro: str = "us") -> str:
    """The former version's time, `v6 47`; with a unit only where it is not the one of the new version's."""
    if not (line.former and line.former_us > 0):
        return ""
    mine, theirs = (duration(us * 1e-6, 2, micro).rpartition(" ") for us in (line.rough_us, line.former_us))
    return f"v{line.former} {theirs[0]}" + ("" if mine[2] == theirs[2] else f" {theirs[2]}")


def runs(outcomes: Sequence[Outcome], times: str = "x") -> str:
    """What a set of outcomes covered: "6 cases x 3 dtypes", "6 cases", "14 runs of 6 cases"."""
    cases = {o.case for o in outcomes}
    dtypes = {o.dtype for o in outcomes}
    if len(outcomes) == len(cases):
        return count(len(cases), "case")
    if len(outcomes) == len(cases) * len(dtypes):
        return f"{count(len(cases), 'case')} {times} {count(len(dtypes), 'dtype')}"
    return f"{count(len(outcomes), 'run')} of {count(len(cases), 'case')}"


def case(outcome: Outcome) -> str:
    return f"{outcome.case} {dtype(outcome.dtype)}".strip()


def agreeing(trial: Trial) -> list[Outcome]:
    return [o for o in trial.outcomes if o.status == "agree"]


def failing(trial: Trial | None) -> list[Outcome]:
    return [o for o in trial.outcomes if o.status not in ("agree", "skip")] if trial else []


def skipped(trial: Trial) -> int:
    return sum(o.status == "skip" for o in trial.outcomes)


def agree(outcomes: Sequence[Outcome]) -> str:
    """The verb for what `runs` says: one case agrees, several agree."""
    return "agrees" if len(outcomes) == 1 else "agree"


def failure(outcome: Outcome) -> str:
    """One sentence on a failing outcome: "differs on odd fp32: 270 of 3,840 elements never written"."""
    said = found(outcome)
    how = f" ({outcome.how})" if outcome.how else ""
    return f"{verdict(outcome)} on {case(outcome)}{how}" + (f": {said}" if said else "")


def verdict(outcome: Outcome) -> str:
    return VERDICTS.get(outcome.status, outcome.status)


def found(outcome: Outcome) -> str:
    """What an outcome has to say beyond its verdict, or ""."""
    return outcome.detail or (differing(outcome.mismatch) if outcome.mismatch else "")


def also(line: Line) -> str:
    """How many runs failed besides the one that the refusal names: "3 more of 18 runs fail too", or ""."""
    others = len(failing(line.trial)) - 1
    return f"{others} more of {len(line.rows)} runs {'fails' if others == 1 else 'fail'} too" if others > 0 else ""


def differing(mismatch: Mismatch) -> str:
    """How many elements are wrong, and how many of them nothing ever wrote."""
    all_of = f"{mismatch.count:,} of {count(mismatch.total, 'element')}"
    if mismatch.unwritten >= mismatch.count > 0:
        return f"{all_of} never written"
    if mismatch.because:
        return f"{all_of} differ: {mismatch.because}"
    return f"{all_of} differ" + (f", {mismatch.unwritten:,} of them never written" if mismatch.unwritten else "")


def refusal(line: Line) -> str:
    """The sentence of a refusal, without a full stop; made from the trial or the diagnostics if the line has none."""
    if line.refused:
        return line.refused.strip().removesuffix(".")
    if diagnostics(line):
        first = diagnostics(line)[0]
        return (f"line {first.line}: " if first.line else "") + f"{first.severity}: {first.message}"
    failed = failing(line.trial)
    return failure(failed[0]) if failed else "no reason was given"


def costs(card: Card) -> list[str]:
    """What the tiers of its slots cost, each once, with the slot where there are several: "forward cpu: ..."."""
    told: dict[str, list[str]] = {}
    for row in card.slots:
        if row.cost:
            told.setdefault(row.cost, []).append(row.slot)
    return [f"{', '.join(slots)}: {cost}" for cost, slots in told.items()]


def measured(slots: Sequence[SlotRow]) -> tuple[str, str]:
    """The heads of time and share, which name what all rows have in common: ("time, llama", "of copy bandwidth")."""
    timed = [s for s in slots if s.time_us > 0]
    cases, ceilings = {s.case for s in timed}, {s.ceiling for s in slots if s.share > 0}
    time = ", ".join(["time", *(cases - {""} if len(cases) == 1 else ()), *(["rough"] if _all_rough(timed) else ())])
    one = next(iter(ceilings)) if len(ceilings) == 1 else ""
    return time, f"of {one or 'the ceiling'}"


def _all_rough(timed: Sequence[SlotRow]) -> bool:
    return bool(timed) and all(s.rough for s in timed)


def slot_time(row: SlotRow, head: str, micro: str = "us") -> str:
    """`41.2 us`, with what the head does not say of it: `41.2 us llama`, `41.2 us rough`."""
    if row.time_us <= 0:
        return ""
    said = head.split(", ")[1:]
    more = [row.case if row.case not in said else "", "rough" if row.rough and "rough" not in said else ""]
    return " ".join([duration(row.time_us * 1e-6, 3, micro), *(part for part in more if part)])


def slot_share(row: SlotRow, head: str) -> tuple[str, str]:
    """The share, and the ceiling's name where the head does not have it; above what memory gives, "in cache"."""
    if row.share <= 0:
        return "", ""
    if row.share > CACHED:
        return "", "in cache"
    return percent(row.share), row.ceiling if row.ceiling not in head else ""


def still(line: Line) -> str:
    """What joins a refusal to what still runs; a compiler's question keeps its mark."""
    return " Still" if refusal(line).endswith(("?", "!")) else "; still"


def diagnostics(line: Line) -> tuple:
    """What a compiler said, first error first; () for a line that was not refused by one."""
    return tuple(getattr(line, "diagnostics", ()))


def mismatch(trial: Trial | None) -> Mismatch | None:
    """The first mismatch of a trial: the one that a picture is drawn of."""
    return next((o.mismatch for o in failing(trial) if o.mismatch), None)


def tally(check: Check) -> list[str]:
    """["11 pass", "1 fails", "2 not run"], leaving out what there is none of."""
    n = {status: sum(r.status == status for r in check.rows) for status in ("pass", "fail", "skip")}
    words = [
        f"{n['pass']} {'passes' if n['pass'] == 1 else 'pass'}" if n["pass"] else "",
        f"{n['fail']} {'fails' if n['fail'] == 1 else 'fail'}" if n["fail"] else "",
        f"{n['skip']} not run" if n["skip"] else "",
    ]
    return [w for w in words if w] or ["nothing checked"]


def clip(text: str, lines: int = 40, characters: int = 4000) -> str:
    """The first and last lines of a long text, saying how much was left out between them."""
    text = text.rstrip("\n")
    if len(text) > characters:
        head = characters * 3 // 4
        gap = len(text) - characters
        text = f"{text[:head]}\n... {count(gap, 'character')} left out ...\n{text[head + gap :]}"
    rows = text.split("\n")
    if len(rows) <= lines:
        return text
    head = lines * 3 // 4
    left_out = count(len(rows) - lines, "line")
    return "\n".join([*rows[:head], f"... {left_out} left out ...", *rows[head + len(rows) - lines :]])
