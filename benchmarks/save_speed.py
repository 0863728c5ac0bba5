"""What saving costs, and what a call of the saved op costs beside one of the op in the notebook.

    python -m benchmarks.save_speed [--quick] [--python PATH ...]

rmsnorm in C++ is saved, built, installed into a new environment and tested there by its own tests. Then two processes,
one with the live op and one with the package, take turns at timing the same calls, so that both meet the same machine.
`--python` names other Pythons, each with pytest and a torch of its own: the same wheel is installed and tested there.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import Figure, say, table, write

ROOT = Path(__file__).parents[1]
SHAPES = ((1, 16), (4, 128), (64, 1024))
RATIO, BUILD_S = 1.05, 60.0  # wanted
LIVE = """
import importlib.util, sys
sys.path.insert(0, {root!r})
import torch, workbench as wb
spec = importlib.util.spec_from_file_location("op_of_rmsnorm", {root!r} + "/kernels/rmsnorm/op.py")
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
for name in ("rmsnorm.cpp", "rmsnorm.backward.cpp"):
    wb.load({root!r} + "/kernels/rmsnorm/" + name)
function = module.rmsnorm
"""
SAVED = "import torch, rmsnorm_ops\nfunction = rmsnorm_ops.rmsnorm\n"
TIMING = """
import json, time
torch.set_num_threads(1)
def timed(x, w, count):
    function(x, w)
    start = time.perf_counter()
    for _ in range(count):
        function(x, w)
    return (time.perf_counter() - start) / count * 1e6
print("ready", flush=True)
while True:
    asked = json.loads(input())
    if not asked:
        break
    rows, cols, grad, count = asked
    x, w = torch.randn(rows, cols, requires_grad=grad), torch.randn(cols)
    print(timed(x, w, count), flush=True)
"""


class Timer:
    """A process that times calls when it is asked to."""

    def __init__(self, python: str, program: str) -> None:
        self.process = subprocess.Popen(
            [python, "-c", program + TIMING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.told, self.answers = self.process.stdin, self.process.stdout
        while self.answers.readline().strip() != "ready":
            assert self.process.poll() is None, "it ended"

    def us(self, rows: int, cols: int, grad: bool, count: int) -> float:
        self.told.write(json.dumps([rows, cols, grad, count]) + "\n")
        return float(self.answers.readline())

    def close(self) -> None:
        self.told.write("null\n")
        self.process.wait(10)


def save_and_build(folder: Path) -> tuple[dict, str]:
    """Seconds of each step, and the Python of the environment with the package."""
    from workbench.saving import wheel

    timing = (
        f"t = time.perf_counter()\nwb.save(function, {str(folder / 'rmsnorm_ops')!r})\nprint(time.perf_counter() - t)"
    )
    program = f"{LIVE.format(root=str(ROOT))}import time\n{timing}"
    saved = float(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()[-1]
    )
    built = wheel.build(folder / "rmsnorm_ops", folder / "dist")
    start = time.perf_counter()
    python = wheel.environment(folder / "env")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", built.path], check=True)
    installed = time.perf_counter() - start
    start = time.perf_counter()
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder / "rmsnorm_ops",
        capture_output=True,
        text=True,
        check=False,
    )
    tested = time.perf_counter() - start
    assert done.returncode == 0, done.stdout
    told = done.stdout.strip().splitlines()[-1]
    found = wheel.check(built.path)
    return {"save_s": saved, "build_s": built.seconds, "install_s": installed, "tests_s": tested, "tests": told,
            "wheel": built.tag, "wheel_kb": Path(built.path).stat().st_size / 1024,
            "wheel_ok": found.ok}, python  # fmt: skip


def elsewhere(python: str, folder: Path) -> dict:
    """The same wheel and its own tests, under another Python and another torch."""
    (built,) = (folder / "dist").glob("*.whl")
    versions = "import platform, torch; print(platform.python_version(), torch.__version__)"
    said = subprocess.run([python, "-c", versions], capture_output=True, text=True, check=True).stdout.split()
    install = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--force-reinstall", str(built)]
    subprocess.run(install, check=True)
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=folder / "rmsnorm_ops",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "rmsnorm_ops"], check=True)
    counts = dict(reversed(pair) for pair in re.findall(r"(\d+) (passed|failed|error)", done.stdout))
    failed = int(counts.get("failed", 0)) + int(counts.get("error", 0))
    return {"python": said[0], "torch": said[1], "passed": int(counts.get("passed", 0)), "failed": failed}


def compare(python: str, rounds: int, count: int) -> list[dict]:
    """Both in turn, round after round: the ratio of each round is of neighbours in time."""
    live, saved = Timer(sys.executable, LIVE.format(root=str(ROOT))), Timer(python, SAVED)
    rows = []
    for rows_, cols in SHAPES:
        for grad in (False, True):
            pairs = []
            for number in range(rounds):
                order = (live, saved) if number % 2 else (saved, live)
                found = {t: t.us(rows_, cols, grad, count) for t in order}
                pairs.append((found[live], found[saved]))
            us = {"live_us": statistics.median(p[0] for p in pairs), "saved_us": statistics.median(p[1] for p in pairs)}
            ratio = statistics.median(p[1] / p[0] for p in pairs)
            rows.append({"shape": [rows_, cols], "grad": grad, **us, "ratio": ratio})
    live.close()
    saved.close()
    return rows


def figures(steps: dict, rows: Sequence[dict]) -> list[Figure]:
    found = [
        Figure("rmsnorm saved", steps["save_s"], "s"),
        Figure("wheel built", steps["build_s"], "s", BUILD_S),
        Figure("wheel installed into a new environment", steps["install_s"], "s"),
        Figure(f"its own tests there ({steps['tests']})", steps["tests_s"], "s"),
    ]
    for e in steps["elsewhere"]:
        what = f"the wheel's tests that fail on Python {e['python']}, torch {e['torch']}"
        found.append(Figure(what, e["failed"] if e["passed"] else 1, "", 0, note=f"{e['passed']} pass"))
    for r in rows:
        what = f"saved op / op in the notebook, {r['shape']}, {'with' if r['grad'] else 'no'} gradient"
        found.append(Figure(what, r["ratio"], "x", RATIO))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--python", nargs="+", default=[], metavar="PATH", help="others, with a torch of their own")
    given = parser.parse_args()
    quick = given.quick
    with tempfile.TemporaryDirectory(prefix="save-speed-") as folder:
        steps, python = save_and_build(Path(folder))
        steps["elsewhere"] = [elsewhere(each, Path(folder)) for each in given.python]
        rows = compare(python, 11 if quick else 41, 1000 if quick else 3000)
    made = figures(steps, rows)
    say(table(f"save -> build -> install -> test, and a call ({steps['wheel']}, {steps['wheel_kb']:.0f} KB)", made))
    write("save_speed", made, {"steps": steps, "calls": rows})
    return 0 if steps["wheel_ok"] and all(f.holds for f in made) else 1


if __name__ == "__main__":
    sys.exit(main())
