"""What trust costs and what it finds: checks of rmsnorm, planted faults, ways to die.

    python -m benchmarks.trust_speed            # half an hour on two cores
    python -m benchmarks.trust_speed --quick    # one attempt for each way to die, a part of the mutants

The mutants are those of tests/mutants, the ways to die those of tests/survival.py: what tests hold to be true of each
is counted here. The load of the machine stands beside what was measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Mapping

from benchmarks import common
from benchmarks.common import Figure

MODULE = "benchmarks.trust_speed"
QUICK_S, FULL_S = 0.1, 60.0
TIMES = 20


def checks(count: int) -> dict[str, list[float]]:
    """Seconds of a quick check after each of some edits of rmsnorm in C++, and of a full check of it."""
    import workbench as wb

    folder = common.ROOT / "kernels" / "rmsnorm"
    text = (folder / "rmsnorm.cpp").read_text()
    (op,) = wb.load(folder)
    found: dict[str, list[float]] = {"quick": [], "full": []}
    for i in range(count + 1):
        wb.cpp(op, f"{text}// {i}\n")
        started = time.perf_counter()
        report = op.check()
        found["quick"].append(time.perf_counter() - started)
        assert report.ok, str(report)
    for _ in range(3):
        started = time.perf_counter()
        report = op.check(level="full")
        found["full"].append(time.perf_counter() - started)
        assert report.ok, str(report)
    return found


def mutants(part: int) -> dict[str, object]:
    """How many mutants a full check finds, which it misses, and what it says against the ops they are made from."""
    from tests.mutants import test_mutants as suite
    from workbench.trial import allocator

    assert allocator.wait()
    missed, alarms, started = [], [], time.perf_counter()
    chosen = suite.QUICK if part else suite.ALL
    for m in chosen:
        try:
            suite.test_every_mutant_is_found(m)
        except Exception as error:
            missed.append(f"{m.op}: {m.name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
    names = ["scale", "norm"] if part else list(suite.ALL_OPS)
    for name in names:
        try:
            suite.test_no_false_alarm_on_a_correct_op(name)
        except Exception as error:
            alarms.append(f"{name}: {str(error).splitlines()[0]}")
    return {
        "whole": not part, "mutants": len(chosen), "missed": missed, "ops": len(names), "alarms": alarms,
        "seconds": time.perf_counter() - started,
    }  # fmt: skip


def deaths(times: int) -> dict[str, object]:
    """Each way to die so often in this one process; which were not refused in the right words."""
    import pytest

    from tests import test_survival as suite

    wrong, attempts, started = [], 0, time.perf_counter()
    with suite.doubling("raw") as op, pytest.MonkeyPatch.context() as patch:
        for name, rogue in suite.ROGUES.items():
            if name == "all memory":  # which takes seconds each, and the test has its own way of being quick about it
                continue
            for _ in range(times):
                attempts += 1
                limit_s = 0.25 if "did not end" in rogue.says else 0.0
                try:
                    suite.survives(suite.whole(op), rogue, "raw", patch, limit_s=limit_s)
                except BaseException as error:
                    wrong.append(f"{name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
    return {
        "ways": len(suite.ROGUES) - 1, "attempts": attempts, "wrong": wrong, "seconds": time.perf_counter() - started,
    }  # fmt: skip


def figures(samples: Mapping) -> list[Figure]:
    """The figures beside what is wanted of them.

    >>> figures(samples)[0]
    Figure(what='quick check after an edit', value=0.071, unit='s', wanted=0.1, ...)
    """
    took, planted, died = samples["checks"], samples["mutants"], samples["deaths"]
    load = f"load {samples['load']:.1f}"
    quick = took["quick"][1:]  # the first one compiles
    enough = 60 if planted["whole"] else None
    span = f"{min(quick):.3f} to {max(quick):.3f} over {len(quick)}, {load}"
    return [
        Figure("quick check after an edit", statistics.median(quick), "s", QUICK_S, note=span),
        Figure("full check of rmsnorm", statistics.median(took["full"]), "s", FULL_S, note=load),
        Figure("mutants", planted["mutants"], "", enough, at_least=True, note=f"{planted['seconds']:.0f} s, {load}"),
        Figure("mutants missed", len(planted["missed"]), "", 0, note="; ".join(planted["missed"])),
        Figure("false alarms", len(planted["alarms"]), "", 0,
               note="; ".join([f"on {planted['ops']} correct ops", *planted["alarms"]])),
        Figure("attempts to die", died["attempts"], "", note=f"{died['ways']} ways, {died['seconds']:.0f} s, {load}"),
        Figure("deaths, hangs, wrong verdicts", len(died["wrong"]), "", 0, note="; ".join(died["wrong"])),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="What trust costs, and what it finds.")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="a part of the mutants, one attempt for each way to die")
    asked = parser.parse_args()
    parts = {"checks": checks, "mutants": mutants, "deaths": deaths}
    if asked.part:
        common.hand_back(parts[asked.part](asked.number))
        return 0
    numbers = {"checks": 15, "mutants": int(asked.quick), "deaths": 1 if asked.quick else TIMES}
    samples: dict[str, object] = {}
    with common.empty_cache() as environment:
        for name in parts:
            common.say(name)
            samples[name] = common.child(MODULE, name, "--number", numbers[name], environment=environment)
    samples["load"] = os.getloadavg()[2]  # of the last quarter of an hour
    found = figures(samples)
    print(common.table("Trust: what it costs, and what it finds", found))
    if not asked.quick:
        print(f"\nwritten to {os.path.relpath(common.write('trust_speed', found, samples))}")
    return 0 if all(f.holds for f in found) else 1


if __name__ == "__main__":
    sys.exit(main())
