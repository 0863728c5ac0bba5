"""Writes the measured figures into the README, from benchmarks/results/*.json: what `make bench` left there.

python tools/figures.py            # tests/tools/test_figures.py fails when the README and the results disagree
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.common import RESULTS, number  # noqa: E402  found once the root is on the path

README = ROOT / "README.md"
BEGIN = "<!-- figures: written by tools/figures.py from benchmarks/results -->"
END = "<!-- end of figures -->"
TITLES = {
    "edit_latency": "From running a cell to its new version, installed and checked",
    "extension_latency": "C++ extensions, from running a cell to its ops",
    "call_overhead": "One call on 16 floats, against `torch.mul`",
    "gpu_latency": "On a GPU, from running a cell to its new version, installed and checked",
    "gpu_speed": "On a GPU: one call on 1,024 floats, and rmsnorm forward on 8192 x 8192 bfloat16",
    "inspect_latency": "`op.inspect()` of a text never compiled before, without a GPU",
}
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
    rows = ["| | measured | wanted | |", "|---|---:|---:|---|"]
    for f in result["figures"]:
        bound = "" if f["wanted"] is None else f"{'>=' if f['at_least'] else '<='} {number(f['wanted'], f['unit'])}"
        note = "; ".join(part for part in ("" if f["holds"] else "**missed**", f["note"]) if part)
        what = re.sub(r"<[^<>]+>", r"`\g<0>`", f["what"].strip())  # or a page takes a header's name for a tag
        rows.append(f"| {what} | {number(f['value'], f['unit'])} | {bound} | {note} |")
    return "\n".join([f"**{title}**", "", *rows, "", f"{measured_on(result)}; {result['date']}."])


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
    found = [(title, folder / f"{name}.json") for name, title in TITLES.items()]
    tables = [table(title, json.loads(path.read_text(encoding="utf-8"))) for title, path in found if path.exists()]
    return "\n\n".join(tables) or NOTHING


def written(text: str, figures: str) -> str:
    """The README's text with `figures` between the two marks. Raises SystemExit when a mark is missing."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"figures: the README has no place for them; it needs the lines\n{BEGIN}\n{END}")
    return f"{head}{BEGIN}\n\n{figures}\n\n{END}{tail}"


def main() -> None:
    README.write_text(written(README.read_text(encoding="utf-8"), render()), encoding="utf-8")
    print(f"figures: {README.name} holds {len(list(RESULTS.glob('*.json')))} results")


if __name__ == "__main__":
    main()
