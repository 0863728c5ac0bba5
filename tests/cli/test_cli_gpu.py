"""Commands on a machine with a GPU: they measure there, and the process ends when they have said what they found."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu
SOFTMAX = Path(__file__).parents[2] / "kernels" / "softmax"


def said(*words):
    """What a command wrote as JSON, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "workbench", *map(str, words), "--json", SOFTMAX / "op.py", SOFTMAX / "softmax.cu"],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("words", [("load",), ("check",), ("inspect",)], ids=lambda words: words[0])
def test_it_says_what_it_found_and_ends(words):
    found = said(*words)
    assert found["command"] == words[0] and found["ok"]


def test_bench_measures_the_gpu_and_ends():
    (report,) = said("bench", "--budget", 2)["reports"]
    assert report["device"] == "cuda" and report["version"] == "v1"
    timed = [row for row in report["rows"] if row["status"] == "timed"]
    assert {"v1", "reference"} <= {row["contestant"] for row in timed}
    assert all(row["time_us"] > 0 for row in timed)


def test_profile_sees_the_kernel_and_ends():
    (report,) = said("profile")["reports"]
    assert report["device"] == "cuda"
    assert any(kernel["phase"] == "forward" and "softmax" in kernel["name"] for kernel in report["kernels"])
