"""What a tuning has to say, in the words that text and html share."""

from __future__ import annotations

from ..measure.statistics import RELEVANT
from ..reports.tuning import NOT_REACHED, Tuning, TuningRow, spelled
from . import words

OTHERS = 3  # cases beside the first one whose gains the headline tells

WORD = {
    "build": "does not compile", "resources": "does not fit", "mismatch": "differs", "crash": "crashes",
    "hang": "hangs", "overrun": "writes too far", "mutation": "writes an input", "error": "raises",
}  # fmt: skip


SEVERAL = {
    "build": "do not compile", "resources": "do not fit", "mismatch": "differ", "crash": "crash", "hang": "hang",
    "overrun": "write too far", "mutation": "write an input", "error": "raise",
}  # fmt: skip


def head(report: Tuning) -> list[str]:
    """Of what, for which cases, how long, on what."""
    cases = ", ".join(report.cases)
    return [
        f"{report.op} {report.slot} {report.device} v{report.version} tuned for {cases}",
        words.duration(report.seconds) if report.seconds else "", report.machine,
    ]  # fmt: skip


def counts(report: Tuning) -> str:
    """`12 configurations: 9 timed, 2 pruned, 1 differs`; how many of them are remembered."""
    found: dict[str, int] = {}
    for row in report.rows:
        found[row.status] = found.get(row.status, 0) + 1
    told = {(SEVERAL if n > 1 else WORD).get(status, status): n for status, n in found.items()}
    remembered = sum(r.remembered for r in report.rows)
    known = f"; {'all' if remembered == len(report.rows) else remembered} known from before" if remembered else ""
    parts = ", ".join(f"{n} {word}" for word, n in told.items())
    return f"{words.count(len(report.rows), 'configuration')}: {parts}{known}"


def verdict(report: Tuning, micro: str = "us") -> str:
    """The best configuration, its time, and what it gains over the first; of several cases, on which.

    >>> verdict(report)
    'UNROLL=8: 1.08 ms on big float32, as fast as the first one; 1.20 x as fast on big bfloat16'
    """
    best = report.best
    if best is None:
        unrun = next((r for r in report.rows if r.status == "not run"), None)
        if unrun is not None:
            return f"nothing was timed: {unrun.reason}"
        if any(r.status == NOT_REACHED for r in report.rows):
            return "no configuration was timed: it ended before that, and what was installed runs"
        return "no configuration was found: all of them failed, the reasons are below"
    gain = report.speedup
    said = ""
    if best.is_default:
        said = ", which is the first one"
    elif gain and gain <= 1 + RELEVANT[report.device]:
        said = ", as fast as the first one"
    elif gain:
        said = f", {gain:.2f} x as fast as the first one"
    where = f" on {best.case}" if len(report.cases) > 1 else ""
    others = "" if best.is_default else _elsewhere(report, best)
    return f"{spelled(best.config)}: {words.duration(best.time_us * 1e-6, 3, micro)}{where}{said}{others}"


def _elsewhere(report: Tuning, best: TuningRow) -> str:
    """What the best gains on the other cases, the first few of them: their dtypes and sizes may say otherwise."""
    timed = [r for r in report.rows if r.ok and r.kernel == best.kernel and r.case != best.case]
    first = {r.case: r.time_us for r in timed if r.is_default}
    gains = {r.case: first[r.case] / r.time_us for r in timed if r.config == best.config and r.case in first}
    told = [f"; {gain:.2f} x as fast on {case}" for case, gain in list(gains.items())[:OTHERS]]
    more = len(gains) - OTHERS
    return "".join(told) + (f"; and {words.count(more, 'case')} below" if more > 0 else "")


def ordered(report: Tuning, case: str) -> list[TuningRow]:
    """The rows of a case, the winners first, then those that were timed, what failed, what was left out."""
    mine = [r for r in report.rows if r.case == case]
    best = list(report.winners.values())
    last = {"pruned": 1, "not reached": 2}
    return sorted(mine, key=lambda r: (not r.ok, not any(r is b for b in best), r.time_us, last.get(r.status, 0)))


def table(report: Tuning, case: str, micro: str = "us") -> tuple[list[str], list[list[str]]]:
    """Heads and rows: time, how many times the best, a column for each name, registers, shared memory, what failed."""
    rows = ordered(report, case)
    names = list(dict.fromkeys(n for r in rows for n in r.config))
    kernels = any(r.kernel for r in rows)
    heads = ["time", "of best", *(["kernel"] if kernels else []), *names, "regs", "spills", "shared", ""]
    best = {r.kernel: r.time_us for (c, _), r in report.winners.items() if c == case}
    made = []
    for r in rows:
        made.append([
            words.duration(r.time_us * 1e-6, 3, micro) if r.ok else WORD.get(r.status, r.status),
            f"{r.time_us / best[r.kernel]:.2f} x" if r.ok else "",
            *([r.kernel] if kernels else []),
            *(str(r.config.get(n, "")) for n in names),
            str(r.registers or ""), f"{r.spills} B" if r.spills else "",
            f"{r.shared / 1024:.3g} KB" if r.shared else "",
            "" if r.ok else r.reason,
        ])  # fmt: skip
    return heads, made


def notes(report: Tuning) -> list[str]:
    """What ended it early, what could not be kept, and what is to be known."""
    found = list(report.notes)
    if report.ended:
        left = sum(r.status == "not reached" for r in report.rows)
        rest = f"; {words.count(left, 'configuration')} not reached, the next call goes on with them" if left else ""
        found.insert(0, f"{report.ended}{rest}")
    return found
