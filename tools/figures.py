"""Writes the measured figures, from benchmarks/results/*.json: all of them into docs/figures.md, those that tell a
newcomer most, and every one that was missed, into the README.

python tools/figures.py            # tests/tools/test_figures.py fails when these and the results disagree
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.common import RESULTS, number  # noqa: E402  found once the root is on the path

README, ALL = ROOT / "README.md", ROOT / "docs" / "figures.md"
BEGIN = "<!-- figures: written by tools/figures.py from benchmarks/results -->"
END = "<!-- end of figures -->"
TITLES = {
    "edit_latency": "From running a cell to its new version, installed and checked",
    "extension_latency": "C++ extensions, from running a cell to its ops",
    "call_overhead": "One call on 16 floats, against `torch.mul`",
    "gpu_latency": "On a GPU, from running a cell to its new version, installed and checked",
    "gpu_speed": "On a GPU: one call on 1,024 floats, and rmsnorm forward on 8192 x 8192 bfloat16",
    "gpu_tests_1": "The tests that want a GPU, on one",
    "gpu_tests_2": "The tests that want a GPU, on two",
    "inspect_latency": "`op.inspect()` of a text never compiled before, without a GPU",
    "trust_speed": "Checks, mutants and ways to die",
    "bench_trust": "Can a verdict be believed?",
    "bench_trust_gpu": "Can a verdict be believed, on a GPU?",
    "tune_speed": "Tuning",
    "tune_speed_gpu": "Tuning on a GPU",
    "card_speed": "The card of an op",
    "save_speed": "A package of rmsnorm, from `wb.save` to its own tests",
}
# What the README shows: (result, figure), told in these words.
FRONT = {
    ("edit_latency", "raw edit"): "C++ edit, run to installed and checked",
    ("edit_latency", "raw edit is faster"): "... against `load_inline`",
    ("edit_latency", "host edit"): "C++ edit of a function on `Tensor`",
    ("edit_latency", "back to an earlier text"): "back to an earlier text",
    ("edit_latency", "import workbench beyond torch"): "`import workbench`, beyond torch",
    ("extension_latency", "full-tier edit, ATen headers"): "edit of a cell on `torch::Tensor`",
    ("call_overhead", "ours, op(...), no gradient"): "a call, in C++, against `torch.mul`",
    ("trust_speed", "quick check after an edit"): "quick check after an edit",
    ("trust_speed", "full check of rmsnorm"): "full check of rmsnorm",
    ("trust_speed", "mutants missed"): "planted faults missed, of 96",
    ("trust_speed", "deaths, hangs, wrong verdicts"): "deaths and hangs, of 1,440 attempts to die",
    ("tune_speed", "C++ matmul, 1024 float32: share of torch.mm"): "matmul in C++, tuned, of `torch.mm`, 1024 float32",
    ("bench_trust", "cpu: 10 % more work found of 20"): "10 % more work found by `bench`, times of 20, CPU",
    ("save_speed", "wheel built"): "wheel of a saved op built",
    ("gpu_latency", "raw CUDA edit, three cases"): "CUDA edit, run to installed and checked, H200",
    ("gpu_latency", "raw CUDA edit is faster"): "... against `load_inline`",
    ("gpu_latency", "times Triton's own compile"): "Triton edit, against its own compile, H200",
    ("gpu_speed", "raw CUDA op, op(...)"): "a call, in CUDA, against `torch.mul`, H200",
    ("gpu_speed", "Triton op, times the bare launch"): "a call, in Triton, against the bare launch, H200",
    ("gpu_speed", "rmsnorm in CUDA, share of copy"): "rmsnorm in CUDA, of copy bandwidth, H200",
    ("gpu_speed", "rmsnorm in Triton, share of copy"): "rmsnorm in Triton, of copy bandwidth, H200",
}
COMPARED = ("faster", "times", "over", "more")  # a figure of the one above it
HEAD = ("| | measured | wanted | |", "|---|---:|---:|---|")
PREFACE = """# Figures

Written by `tools/figures.py` from `benchmarks/results`. "Wanted" is what the project holds itself to. Ratios compare
things that were measured side by side in one run: `make bench`; those of a GPU come from `make bench-gpu`, on a machine
that has one."""
NOTHING = "Not measured yet: `make bench` measures, `python tools/figures.py` writes the figures here."


def table(title: str, result: dict) -> str:
    """One result as a Markdown table, with the machine it was measured on.

    >>> print(table("Edits", result))
    **Edits**

    | | measured | wanted | |
    |---|---:|---:|---|
    | raw edit | 0.081 s | <= 0.15 s | 0.07 to 0.1 over 10 |
    ...
    """
    rows = [*HEAD, *(_row(_plain(f["what"]), f) for f in result["figures"])]
    return "\n".join([f"**{title}**", "", *rows, "", f"{measured_on(result)}; {result['date']}."])


def _row(what: str, f: dict, *, noted: bool = True) -> str:
    bound = "" if f["wanted"] is None else f"{'>=' if f['at_least'] else '<='} {number(f['wanted'], f['unit'])}"
    note = "; ".join(part for part in ("" if f["holds"] else "**missed**", f["note"] if noted else "") if part)
    return f"| {what} | {number(f['value'], f['unit'])} | {bound} | {note} |"


def _plain(what: str) -> str:
    return re.sub(r"<[^<>]+>", r"`\g<0>`", what.strip())  # or a page takes a header's name for a tag


def front(folder: Path = RESULTS) -> str:
    """The README's table: the figures of FRONT, then each that was missed; a sentence where there are none."""
    told, missed = {}, []
    for name, result in _results(folder).items():
        before = ""
        for f in result["figures"]:
            what = f["what"].strip()
            if (name, what) in FRONT:
                told.setdefault((name, what), f)  # a peer that comes later bears the same words
            elif not f["holds"]:
                missed.append((f"{before}, {what}" if what.startswith(COMPARED) else what, f))
            if not what.startswith(COMPARED):
                before = what
    rows = [_row(FRONT[key], told[key], noted=False) for key in FRONT if key in told]
    rows += [_row(_plain(what), f, noted=False) for what, f in missed]
    return "\n".join([*HEAD, *rows]) if rows else NOTHING


def _results(folder: Path) -> dict[str, dict]:
    found = {name: folder / f"{name}.json" for name in TITLES}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in found.items() if path.exists()}


def measured_on(result: dict) -> str:
    """The machine and the versions of a result; where it was measured on GPUs, these first.

    >>> measured_on(result)
    'NVIDIA H200, driver 580.82.07, CUDA 13.0; INTEL XEON, 16 cores; torch 2.11.0, triton 3.6.0, g++ 13.3.0'
    """
    machine, versions = result["machine"], result["versions"]
    said = [f"{machine['cpu']}, {machine['cores']} cores"]
    made = [f"torch {versions['torch']}", versions["g++"]]
    gpus = machine.get("gpus") or []
    if gpus:
        name, _, driver = gpus[0].partition(", ")
        several = f"{len(gpus)} x " if len(gpus) > 1 else ""
        said.insert(0, f"{several}{name}, driver {driver}, CUDA {machine['cuda']}")
        made.insert(1, f"triton {versions['triton']}")
    return "; ".join([*said, ", ".join(made)])


def render(folder: Path = RESULTS) -> str:
    """All results in the order of TITLES; a sentence where there are none."""
    return "\n\n".join(table(TITLES[name], result) for name, result in _results(folder).items()) or NOTHING


def written(text: str, figures: str) -> str:
    """The README's text with `figures` between the two marks. Raises SystemExit when a mark is missing."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"figures: the README has no place for them; it needs the lines\n{BEGIN}\n{END}")
    return f"{head}{BEGIN}\n\n{figures}\n\n{END}{tail}"


def main() -> None:
    README.write_text(written(README.read_text(encoding="utf-8"), front()), encoding="utf-8")
    ALL.write_text(f"{PREFACE}\n\n{render()}\n", encoding="utf-8")
    print(f"figures: {ALL.name} holds {len(_results(RESULTS))} results, {README.name} the most telling of them")


if __name__ == "__main__":
    main()
