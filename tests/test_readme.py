"""The cells of the README run, in their order, and end as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import live, notebook_steps
from tests.notebook_promises import AGREE, UNRUN, line
from workbench import files, gpu, settings
from workbench.cli import run

ROOT = Path(__file__).parents[1]
README, KERNELS, TOUR = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "kernels/README.md", "notebooks/01_tour.ipynb")
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Every fence of code but those with `{ ... }` in them, under its number; and the text of each."""
    found = re.findall(r"^```(?:python|cpp|cuda|triton)\n(.*?)\n```$", README, re.MULTILINE | re.DOTALL)
    cells = [text for text in found if "{ ... }" not in text]
    live.gone("lab::rmsnorm")
    scope = {"__name__": "__main__"}
    outputs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("readme"))  # a package is saved there
        for number, text in enumerate(cells, 1):
            outputs.append([])
            notebook_steps.cell(text, outputs[-1], scope, f"cell [{number}]")
            assert not any(o["output_type"] == "error" for o in outputs[-1]), outputs[-1]
        yield cells, outputs, scope
    live.gone("lab::rmsnorm")


def said(ran, begins: str) -> str:
    """All that the cell whose text begins like this displayed and printed."""
    (number,) = [i for i, text in enumerate(ran[0]) if text.startswith(begins)]
    return "\n".join(o["text"] if "text" in o else o["data"]["text/plain"] for o in ran[1][number])


def test_the_op_is_complete_from_its_first_cell(ran):
    assert said(ran, "x, w = torch.randn") == "gradients: (4, 128) (128,)\ncompiled:  True\n"


def test_each_language_ends_in_its_line(ran):
    here = gpu.present()
    line(said(ran, "%%cpp"), "rmsnorm cpp v1", AGREE, r"[\d.]+ (?:us|ms) on llama \(rough\)", timed=False)
    line(said(ran, "%%cuda"), "rmsnorm cuda v2", AGREE if here else UNRUN, r"\d+ regs, no spills", timed=here)
    triton = r"\d+ regs, no spills.*" if here else r"interpreted \| compiled for sm_\w+: \d+ regs, no spills.*"
    line(said(ran, "%%triton"), "rmsnorm triton v3", AGREE, triton, timed=here)


def test_the_lines_in_the_text_are_lines_of_this_kind():
    shown = re.findall(r"^rmsnorm (?:cpp|cuda|triton) v\d .*$", README, re.MULTILINE)
    assert [text.split(" | ")[0] for text in shown] == ["rmsnorm cpp v1", "rmsnorm cuda v2", "rmsnorm triton v3"]
    line(shown[1], "rmsnorm cuda v2", UNRUN, r"\d+ regs, no spills", timed=False)
    line(shown[2], "rmsnorm triton v3", AGREE, r"interpreted \| compiled for sm_90: \d+ regs, no spills.*", timed=False)


def test_an_inspection_needs_no_gpu(ran):
    shown = said(ran, "report = rmsnorm.inspect()")
    assert "lab::rmsnorm v3 forward cuda | Triton, float32" in shown
    assert "LDG" in shown, "the stage sass was printed"
    assert "lab::rmsnorm forward | v2 beside v3" in shown


def test_what_it_counts_is_there():
    ops = [p.parent.name for p in (ROOT / "kernels").glob("*/op.py")]
    words = {10: "ten", 11: "eleven", 12: "twelve"}
    assert f"holds {words[len(ops)]} ops" in README
    assert f"the same op and {words[len(ops) - 1]} others as files" in TOUR
    assert sorted(re.findall(r"^\| `(\w+)` \|", KERNELS, re.MULTILINE)) == sorted(ops)


def test_the_environment_and_the_kinds_of_files_are_told():
    variables = re.findall(r"^(WORKBENCH_\w+)", settings.__doc__, re.MULTILINE)
    assert len(variables) == 3 and all(f"`{name}`" in README for name in variables)
    kinds = re.findall(r"`NAME([.\w]+)`", KERNELS)
    assert set(files.KINDS) - {".cc", ".cxx"} <= set(kinds)


def test_the_commands_are_those_of_the_command_line():
    told = README.partition("## Without a notebook")[2].partition("```\n\n")[0]
    names = {name for words in re.findall(r"^workbench ([\w|]+)", told, re.MULTILINE) for name in words.split("|")}
    assert names == set(re.findall(r"^    (\w+) ", run.parser().format_help(), re.MULTILINE))


def test_a_verdict_on_the_odd_case(ran):
    shown = said(ran, "import torch.nn.functional as F")
    assert re.search(r"lab::rmsnorm bench \| v1 on .* \| [\d.]+ m?s\n", shown)
    assert re.search(r"F\.rms_norm +[\d.]+ us +[\d.]+ .*(FASTER|SLOWER|SAME|UNCLEAR)|F\.rms_norm +differs", shown), (
        shown
    )


def test_a_package_is_saved(ran):
    assert '\nwb.save([rmsnorm], "rmsnorm_ops")\n' in README
    assert {"pyproject.toml", "README.md", "csrc", "tests"} <= {p.name for p in Path("rmsnorm_ops").iterdir()}
