"""The tests that want a GPU, and what came of them, kept beside the figures.

    python -m benchmarks.gpu_tests [options of pytest]

Only files with such tests are collected: on a machine that has but torch and pytest, the others could not be.
"""

from __future__ import annotations

import collections
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from benchmarks.common import ROOT, Figure, table, write


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


def main() -> int:
    import torch

    gpus = torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", f"--junitxml={report}", *files(), *sys.argv[1:]]
        done = subprocess.run(command, cwd=ROOT, check=False)
        if not report.exists():
            return done.returncode or 1
        rows = counts(report)
    total = {kind: sum(r.get(kind, 0) for r in rows.values()) for kind in ("passed", "failed", "skipped")}
    figures = [
        Figure("GPU tests that passed", total["passed"], "", note=f"{gpus} GPUs"),
        Figure("GPU tests that failed", total["failed"], "", 0),
        Figure("GPU tests that were skipped", total["skipped"], ""),
    ]
    print(table("GPU tests", figures))
    print(f"\nkept in {write(f'gpu_tests_{gpus}', figures, rows)}")
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
