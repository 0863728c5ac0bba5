"""What the texts of 02_cuda, 03_triton, 04_trust, 05_measure and 06_tune promise, with a GPU and without."""

from __future__ import annotations

import re

from tests.notebook_steps import Steps

UNRUN = r"compiled for sm_\w+, not run: no GPU here"
AGREE = r"2 cases x 2 dtypes agree, closest: .* of allowed"
TIME = r"[\d.]+ (?:us|ms|s)(?:, cached)?"
ROUGH = r"[\d.]+ (?:us|ms|s) on \w+(?:, v\d+ [\d.]+(?: (?:us|ms|s))?)? \(rough\)"


def line(said: str, head: str, judged: str, resources: str, *, timed: bool) -> None:
    """One cell's line: `rmsnorm cuda v2 | 20 ms | ... | 38 regs, no spills | 41 us on llama (rough)`."""
    wanted = rf"{re.escape(head)} \| {TIME} \| {judged} \| {resources}" + (rf" \| {ROUGH}" if timed else "")
    assert re.match(rf"{wanted}(?:\n  note: .*)*$", said), said


def cuda(steps: Steps, gpu: bool) -> None:
    """Each step of 02_cuda."""
    judged = AGREE if gpu else UNRUN
    assert steps.text("CUDA cells") == ("'cuda'" if gpu else "'cpu'")
    line(steps.text("A kernel"), "rmsnorm cuda v1", judged, r"\d+ regs, no spills", timed=gpu)
    edit = steps.text("An edit: more threads, and shared memory")
    line(edit, "rmsnorm cuda v2", judged, r"\d+ regs, no spills, 32 bytes shared", timed=gpu)

    said = steps.error("A mistake in a directive")["evalue"]
    assert re.fullmatch(
        r"cell \[5\], line 7: nothing is called 'row'; did you mean 'rows'\?\nrmsnorm forward still runs v2", said
    )
    said = steps.text("A mistake in CUDA")
    assert re.match(
        r"""rmsnorm cuda v3 not installed \| .* \| line 12: identifier "__syncthread" is undefined; did you mean '__syncthreads'\? Still v2\n    __syncthread\(\);\n    \^""",
        said,
    )
    said = steps.error("A block that no GPU takes")["evalue"]
    assert said.startswith("cell [7], line 8: rmsnorm: the block is 2048, a block has at most 1024 threads")
    assert said.endswith("rmsnorm forward still runs v2")

    said = steps.text("A wrong answer")
    assert steps.raised("A wrong answer") == gpu
    if gpu:
        assert re.match(
            r"rmsnorm cuda v3 not installed \| .* \| differs on 24x96 float32: 24 of 2,304 elements never written; still v2\n",
            said,
        )
        assert "y, 24 x 96: in the last column" in said
    else:
        line(said, "rmsnorm cuda v3", UNRUN, r"\d+ regs, no spills", timed=False)
    assert re.search(rf"forward cuda +v2 raw CUDA +{'4 of 4' if gpu else UNRUN}", steps.text("Back to the good one"))

    line(
        steps.text("The backward"),
        "rmsnorm.backward cuda v4",
        judged,
        r"\d+ regs, no spills, 32 bytes shared",
        timed=False,
    )
    assert steps.text("Called") == "[True, True]"
    _inspected(steps)
    line(
        steps.text("Its cell"),
        "saxpy cuda host v1",
        "2 cases agree.*" if gpu else UNRUN,
        r"\d+ regs, no spills",
        timed=gpu,
    )
    said = steps.text("Check")
    assert re.match(r"lab::rmsnorm quick check \| \d+ pass(?:, \d+ not run)? \| ", said)
    assert gpu or re.search(
        rf"skip  agreement +forward cuda v2 +{UNRUN}\n  skip  agreement +backward cuda v4 +{UNRUN}", said
    )
    said = steps.text("The card")
    for row in ("forward cuda +v2", "backward cuda +v4"):
        assert re.search(
            rf"{row} raw CUDA +{'4 of 4' if gpu else UNRUN} .*\d+ regs, no spills, 32 bytes shared", said
        ), said


def _inspected(steps: Steps) -> None:
    """Of the version that was put back; its numbers are the same on both machines."""
    said = steps.text("What the compiler made of it")
    assert re.match(r"lab::rmsnorm v2 forward cuda \| raw CUDA, float32 \| sm_\w+, NVRTC [\d.]+ \| ", said)
    assert re.search(r"rmsnorm<float, float, 256> +\d+ +none +none +32 bytes +256 +\d+ %", said)
    assert re.search(r"sass: .* 5 shuffles, 1 barrier", " ".join(said.split()))
    shown = steps.html("What the compiler made of it")
    assert 'type="radio"' in shown
    assert "LDG.E" in shown
    assert re.search(r"@!?P\d +STG\.E", steps.printed("The instructions of one line"))
    said = steps.text("Two versions side by side")
    assert said.startswith("lab::rmsnorm forward | v2 beside v1 | raw CUDA\n")
    assert re.search(r"\n  block +256 +32\n", said)
    assert re.search(r"\n  barriers +1 +0\n", said)


def triton(steps: Steps, gpu: bool) -> None:
    """Each step of 03_triton."""
    resources = r"\d+ regs, no spills.*" if gpu else r"interpreted \| compiled for sm_\w+: \d+ regs, no spills.*"
    assert steps.text("Triton cells") == ("'cuda'" if gpu else "'cpu'")
    line(steps.text("A kernel"), "swiglu triton v1", AGREE, resources, timed=gpu)

    said = steps.text("A helper edited, badly")
    assert re.match(
        r"swiglu triton v2 not installed \| .* \| differs on 24x96 float32: 2,\d+ of 2,304 elements differ; still v1\n",
        said,
    )
    assert "x[" in said and "gate[" in said, "the inputs of the worst elements"
    said = steps.error("A number that is no constexpr")["evalue"]
    assert said.startswith("cell [5], line 6: kernel uses BLOCK, a plain int of the cell: ")
    assert "write 'BLOCK = tl.constexpr(256)'" in said
    said = steps.error("A name that is only in the notebook")["evalue"]
    assert said.startswith("cell [6], line 10: device is not defined in this cell")
    assert f"write 'device = \"{'cuda' if gpu else 'cpu'}\"' in it" in said

    both = steps.texts("Autotuned, with its backward")
    forward, _, backward = both.partition("\nswiglu.backward")
    line(forward, "swiglu triton v3", AGREE, resources, timed=gpu)
    line(f"swiglu.backward{backward}", "swiglu.backward triton v4", AGREE, resources, timed=False)
    assert steps.text("Called and differentiated") == "[True, True]"

    said = steps.printed("Look inside: `--interpret`")
    assert len(re.findall(r"^largest gate: \[\d\.\d+\]$", said, re.MULTILINE)) >= 2
    assert re.match(
        r"swiglu triton v5 \| .* \| 1 case x 2 dtypes agree, .* \| interpreted",
        steps.text("Look inside: `--interpret`"),
    )
    where = r"4 of 4 .*regs" if gpu else r"4 of 4 +interpreted \| compiled for"
    assert re.search(rf"forward cuda +v3 Triton +{where}", steps.text("Back to the autotuned one"))
    said = steps.text("What the compiler made of it")
    assert re.match(r"lab::swiglu v3 forward cuda \| Triton, float32 \| sm_\w+, Triton [\d.]+", said)
    assert all(f"{stage} (" in " ".join(said.split()) for stage in ("ttir", "ttgir", "llir", "ptx", "sass"))
    assert re.search(r"BLOCK=\d+, num_warps=\d", " ".join(said.split()))
    shown = steps.html("What the compiler made of it")
    assert 'type="radio"' in shown, "lines of the source can be chosen"
    assert "LDG.E" in shown
    said = steps.text("A launcher in an ordinary cell")
    assert re.search(rf"forward cuda +v1 Python +{'1 of 1' if gpu else 'not run: no GPU here'}", said)
    assert re.match(r"lab::swiglu quick check \| \d+ pass(?:, \d+ not run)? \| ", steps.text("Check"))
    said = steps.text("The card")
    assert re.search(r"forward cuda +v3 Triton +4 of 4", said)
    assert re.search(r"backward cuda +v4 Triton +4 of 4", said)
    assert re.search(r"backward cpu +v4 interpreted Triton +4 of 4", said) or gpu


TAGGED = (
    "1. Off by one in a tile",
    "2. No mask on a store",
    "3. A loop without an end",
    "4. An input as scratch space",
)


def trust(steps: Steps, gpu: bool) -> None:
    """Each step of 04_trust: the verdict on each wrong kernel, its cure, and the right ones passing."""
    _refused(steps)
    for heading in ("The first four, put right", "Triton", "5. NaN is lost", "6. A stride left out", "Put right",
                    "7. Nothing to do, so the input itself", "A copy instead", "8. A race", "With the barrier"):  # fmt: skip
        assert re.match(r"\w+ (?:cpp|triton) v\d+ \| .*agrees?\b", steps.text(heading)), steps.text(heading)

    values = _failing(steps, "A full check of it", 1)
    assert re.match(r"FAIL values NaN differs: .* where nan was wanted; .* Comparisons with NaN are false", values)
    strides = _failing(steps, "Transposed, and it shows", 2)
    assert strides.startswith("FAIL layouts transposed ")
    assert "Read each dimension by its own stride" in strides
    even = _failing(steps, "Even sizes are tried too", 1, 2)
    assert re.match(
        r"FAIL sizes two.* smallest found: x float32\[1, 2\]: out shares memory with x.* return a clone\.", even
    )
    race = _failing(steps, "Sizes around every number in the code, and many runs", 1, 2, 3, 4)  # by threads, and luck
    kinds = set(re.findall(r"^FAIL (\w+)", race, re.MULTILINE))
    assert kinds <= {"sizes", "determinism"}, race
    assert "A race: threads write to one place" in race or "around numbers in the code" in race
    both = _failing(steps, "Both at once", 4)
    assert re.search(r"FAIL fake .* by the fake, ", both)
    assert "Something in the backward is cut from the graph: look for detach()." in both
    assert "so its fake fixes a size A fake must work with symbolic sizes" in both

    said = steps.printed("And the right ones")
    assert re.findall(r"^(\w+) +(\w+) +\d\d rows pass$", said, re.MULTILINE) == [
        (name, "ok") for name in ("add_t", "swiglu", "rowmax", "to_even", "centre", "cube")
    ], said


def _refused(steps: Steps) -> None:
    """The four that the trial does not install, each with the op's reference still running."""
    said = [steps.text(heading) for heading in TAGGED]
    for heading, shown in zip(TAGGED, said, strict=True):
        assert re.match(r"\w+ (?:cpp|triton) v\d not installed \| .*; still the reference\n", shown), shown
        assert steps.error(heading)["ename"] == "TrialError"
    tile, mask, endless, scratch = said
    assert "differs on 48x96 float32: 288 of 4,608 elements never written" in tile
    assert "out, 48 x 96: in the last of every 16 columns" in tile
    assert "<svg" in steps.html(TAGGED[0])
    assert "goes out of bounds on odd float32: writes past the end of out" in mask
    assert "Give each load and store a mask" in mask
    assert re.search(r"hangs on 48x96 float32: .*did not end within 10 s", endless)
    assert "writes to an input on 24x32 float32: writes to the argument gate" in scratch
    assert "mutates=" in scratch


def _failing(steps: Steps, heading: str, *counts: int) -> str:
    """The failing rows of a full check, which must stand first, a line each."""
    said = steps.text(heading)
    assert re.match(r"lab::\w+ full check \| \d+ pass, \d+ fails?, \d+ not run \| ", said), said.split("\n")[0]
    rows = re.split(r"\n(?=  (?:FAIL|pass|skip)  )", said)[1:]
    failed = [row for row in rows if row.startswith("  FAIL")]
    assert len(failed) in counts, said
    assert rows[: len(failed)] == failed, "what failed stands on top"
    assert re.search(r"<details><summary>\d+ checks passed</summary>", steps.html(heading)), "what passed is folded"
    return "\n".join(" ".join(row.split()) for row in failed)


def tune(steps: Steps, gpu: bool) -> None:
    """Each step of 06_tune."""
    line(
        steps.text("A space"),
        "turned cpp v1",
        "2 cases agree exactly",
        r"[\d.]+ (?:us|ms) on big \(rough\)",
        timed=False,
    )
    said = steps.text("The fastest")
    assert said.startswith("lab::turned forward cpu v1 tuned for big float32 | ")
    assert "12 configurations: 6 timed, 4 pruned, 2 differ" in said
    assert re.search(
        r"\n  TILE=\d+, WRITE_ROWS=[01], UNROLL=1: [\d.]+ (?:us|ms), (?:[\d.]+ x )?as fast as the first one\n", said
    ), said
    assert "require UNROLL == 1 or TILE == 32 is not met" in said and "elements differ" in said
    assert "//! tune TILE = " in said
    assert steps.printed("It runs now") == "True True\n"
    assert steps.printed("Not twice").startswith("0 trials; True\n//! tune TILE = ")
    assert steps.printed("One more value") == "2 trials of 16\n"
    said = steps.text("What fits a GPU")
    assert "turned: the block is (64, 64), a block has at most 1024 t" in said and "2 pruned" in said
    assert ("6 configurations: 4 timed, 2 pruned" if gpu else "nothing was timed: no GPU here") in said
    said = steps.text("A wider space")
    assert ("4 configurations: 4 timed" if gpu else "4 configurations: 4 not run") in said
    said = steps.error("No budget, no tuning")["evalue"]
    assert said == "turned.tune: budget is in seconds and more than 0, got 0; None for no limit"


def measure(steps: Steps, gpu: bool) -> None:
    """The bench half of 05_measure. Its verdicts are those of a machine that others may use: any of them may be unclear."""
    verdict = r"(?:v\d (?:FASTER|SLOWER)|SAME|UNCLEAR)"
    said = steps.text("Is it faster?")
    assert re.match(r"lab::rmsnorm bench \| v1 on .*thread.* \| ", said)
    for name in ("torch.compile", "reference"):
        assert re.search(rf"  {re.escape(name)} +{TIME} +[\d.,]+ +[\d.,]+ to [\d.,]+ +{verdict} ", said), said
    assert re.search(r"\n  ceilings measured here: copy [\d.]+ GB/s\n", said)
    assert 'class="plot"' in steps.html("Is it faster?")
    assert re.search(
        rf"  v1 +{TIME} +[\d.,]+ +[\d.,]+ to [\d.,]+ +(?:v2 FASTER|UNCLEAR) ",
        steps.text("Against the version before it"),
    )
    assert re.search(
        rf"  lab::rmsnorm +{TIME} +[\d.,]+ +[\d.,]+ to [\d.,]+ +(?:SAME|UNCLEAR) ", steps.text("Against itself")
    )

    said = steps.text("Against anything that can be called, results first")
    assert re.search(rf"  functional +{TIME} .*\n .*  no eps +{TIME} .*\n +no w +differs\n", said)
    assert "  no w on rows fp32: y: " in said
    for heading, count in (("A sweep over sizes", 3), ("A sweep by a function", 3)):
        assert len(re.findall(r"  reference +\d", steps.text(heading))) == count
        assert 'class="plot"' in steps.html(heading)
    assert re.fullmatch(r"(?: +\d+ (?:v2|reference) +True True\n){4}", steps.printed("Numbers"))
    said = steps.text("Forward and backward")
    assert re.search(r"rows fp32, forward +v2 ", said) and re.search(r"rows fp32, backward +rmsnorm ", said)
    said = steps.error("What makes no sense is said")["evalue"]
    assert said == "bench: the sweep gives 'x.shape[-1]' no values; write for instance x.shape[-1]: [256, 512, 1024]"
