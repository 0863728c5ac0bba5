"""The tests that want a GPU, and what came of them, kept beside the figures.

    python -m benchmarks.gpu_tests [FILES] [options of pytest, such as -n 10]

Only files with such tests are collected: on a machine with no more than torch and pytest the others could not be. What
measures a whole GPU runs afterwards, one by one. FILES alone are run anew, and the kept results of the others stay.
"""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import RESULTS, ROOT, Figure, table, write

PHASES = ("gpu and not alone", "gpu and alone")
NO_TESTS = 5  # pytest's exit status where a phase has none


def files() -> list[str]:
    """The files of tests/ with a test that is marked."""
    found = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(f.relative_to(ROOT)) for f in found if "mark.gpu" in f.read_text(encoding="utf-8")]


def counts(report: Path) -> dict[str, dict[str, float]]:
    """By file, from pytest's JUnit report: tests that passed, failed and were skipped, and their seconds."""
    found: dict[str, dict[str, float]] = {}
    for case in ET.parse(report).iter("testcase"):
        name = case.get("classname", "").replace(".", "/") + ".py"
        row = found.setdefault(name, collections.defaultdict(float))
        kinds = {child.tag for child in case}
        row["failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"] += 1
        row["seconds"] = round(row["seconds"] + float(case.get("time", 0)), 1)
    return {name: dict(row) for name, row in sorted(found.items())}


def added(one: dict[str, dict[str, float]], other: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """The sums of two reports.

    >>> added({"a.py": {"passed": 1}}, {"a.py": {"passed": 2, "failed": 1}})
    {'a.py': {'failed': 1, 'passed': 3}}
    """
    made = {}
    for name in sorted({*one, *other}):
        a, b = one.get(name, {}), other.get(name, {})
        made[name] = {k: round(a.get(k, 0) + b.get(k, 0), 1) for k in sorted({*a, *b})}
    return made


def run(phase: str, chosen: Sequence[str], options: Sequence[str]) -> tuple[int, dict[str, dict[str, float]]]:
    """Pytest's exit status, 0 where the phase has no tests, and the counts."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-m", phase, f"--junitxml={report}", *chosen, *options]
        if phase == PHASES[1] and any(o.startswith(("-n", "--numprocesses")) for o in options):
            command += ["-n", "0"]
        done = subprocess.run(command, cwd=ROOT, check=False).returncode
        return 0 if done == NO_TESTS else done, counts(report) if report.exists() else {}


def keep(rows: dict[str, dict[str, float]], gpus: int, *, whole: bool) -> str:
    """Write the counts, with those kept before of the files that were not run; the path."""
    kept = RESULTS / f"gpu_tests_{gpus}.json"
    if not whole and kept.exists():
        rows = {**json.loads(kept.read_text(encoding="utf-8"))["samples"], **rows}
    total = {kind: sum(r.get(kind, 0) for r in rows.values()) for kind in ("passed", "failed", "skipped")}
    figures = [
        Figure("GPU tests that passed", total["passed"], ""),
        Figure("GPU tests that failed", total["failed"], "", 0),
        Figure("GPU tests that were skipped", total["skipped"], ""),
    ]
    print(table("GPU tests", figures))
    return str(write(f"gpu_tests_{gpus}", figures, rows))


def main() -> int:
    import torch

    gpus = torch.cuda.device_count()
    chosen = [a for a in sys.argv[1:] if a.endswith(".py")]
    options = [a for a in sys.argv[1:] if a not in chosen]
    statuses, rows, kept = [], {}, ""
    for phase in PHASES:
        status, found = run(phase, chosen or files(), options)
        statuses.append(status)
        rows = added(rows, found)
        kept = keep(rows, gpus, whole=not chosen)
    print(f"\nkept in {kept}")
    return next((s for s in statuses if s), 0)


if __name__ == "__main__":
    raise SystemExit(main())
