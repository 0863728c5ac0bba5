"""Every notebook in notebooks/ runs from top to bottom; the tour shows what its text promises."""

import json
import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests import notebook_promises, profile_promises, save_promises
from tests.notebook_steps import Steps
from workbench import gpu

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LONG = ("02_cpp", "04_trust", "05_measure", "07_save", "08_deploy")  # each takes more than twenty seconds
LINE = r"2 cases x 2 dtypes agree, closest: .* of allowed"


def each(path: Path) -> object:
    return pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem in LONG else ())


@pytest.fixture(scope="module", params=map(each, NOTEBOOKS))
def ran(request, tmp_path_factory):
    """A notebook after it ran in a kernel of its own with an empty cache; a cell that raises unasked fails here."""
    notebook = nbformat.read(request.param, as_version=4)
    environment = {
        **os.environ,
        "WORKBENCH_CACHE": str(tmp_path_factory.mktemp("cache")),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    client = NotebookClient(notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}})
    client.execute(env=environment)
    return request.param, notebook


@pytest.fixture
def tour(ran):
    path, notebook = ran
    if path.stem != "01_tour":
        pytest.skip("of the tour only")
    return Steps(notebook)


def test_the_readme_shows_the_first_four_cells_of_the_tour():
    cells = [c.source for c in nbformat.read(FOLDER / "01_tour.ipynb", as_version=4).cells if c.cell_type == "code"]
    shown = re.findall(
        r"^```(?:python|cpp)\n(.*?)\n```$", (FOLDER.parent / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert shown[:4] == cells[:4]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path):
    for cell in nbformat.read(path, as_version=4).cells:
        assert not cell.get("outputs") and cell.get("execution_count") is None


def test_a_notebook_warns_of_nothing(ran):
    _, notebook = ran
    said = [o["text"] for c in notebook.cells for o in c.get("outputs", ()) if o.get("name") == "stderr"]
    assert said == []


def test_the_op_is_complete_from_its_first_cell(tour):
    assert tour.printed("Called, differentiated, compiled") == "gradients: (4, 128) (128,)\ncompiled:  True\n"


def test_a_cell_ends_in_its_line(tour):
    assert re.match(
        rf"rmsnorm cpp v1 \| [\d.]+ m?s \| {LINE} \| [\d.]+ ms on llama \(rough\)$", tour.text("The forward in C++")
    )
    again = tour.text("One line more")
    assert re.match(rf"rmsnorm cpp v2 \| [\d.]+ m?s \| {LINE} \| [\d.]+ ms on llama, v1 [\d.]+ \(rough\)$", again)
    assert '<span class="good">agrees</span> on 2 cases × 2 dtypes' in tour.html("One line more")


def test_an_off_by_one_is_refused_with_its_picture(tour):
    said, shown, error = (f("Off by one, on purpose") for f in (tour.text, tour.html, tour.error))
    assert re.match(
        r"rmsnorm cpp v3 not installed \| .* \| differs on 24x96 float32: 24 of 2,304 elements never written; still v2\n",
        said,
    )
    assert (
        "y, 24 x 96: in the last column" in said and "Try it anyway: `rmsnorm.versions[3](...)` or `--force`." in said
    )
    assert "<svg" in shown and "M95 23h1v1h-1z" in shown and "3 more of 4 runs fail too" in shown
    assert (error["ename"], error["traceback"]) == (
        "TrialError",
        ["TrialError: v3 of rmsnorm is not installed; v2 still runs"],
    )
    assert error["evalue"].startswith(
        "v3 of rmsnorm is not installed: it differs on 24x96 float32: 24 of 2,304 elements never written; "
    )


def test_a_crash_leaves_the_notebook_alive(tour):
    said = tour.text("A crash, on purpose")
    assert "not installed" in said
    assert re.search(r"crashes on 24x96 float32: (line \d+: )?stopped by SIGSEGV", said)
    assert tour.text("Still here") == "(torch.Size([4, 128]), <v2 forward cpu raw C++ agreed>)"


def test_the_backward_is_judged_too(tour):
    assert re.match(rf"rmsnorm\.backward cpp v5 \| [\d.]+ m?s \| {LINE}$", tour.text("The backward in C++"))


def test_the_check_passes_and_the_card_shows_it(tour):
    assert re.match(r"lab::rmsnorm quick check \| \d+ pass, 1 not run \| ", tour.text("Check"))
    shown = tour.html("The card")
    assert re.findall(r"<summary>(Check|Code|History)", shown) == ["Check", "Code", "History"]
    assert (
        shown.count('<span class="acc">v2</span>') == 2 and "2 cases × 2 dtypes" in shown
    )  # in its slot and its history
    assert re.search(
        r"forward cpu +v2 raw C\+\+ +4 of 4 +[\d.]+ ms\n  backward cpu +v5 raw C\+\+ +4 of 4", tour.text("The card")
    )


def test_a_version_comes_back(tour):
    assert re.findall(r"forward cpu v\d", tour.printed("Back and forth")) == ["forward cpu v1", "forward cpu v2"]


def test_the_last_cell_hands_the_figures_to_the_summary(tour):
    given = tour.bundle("What next")["application/json"]
    assert given["checks"]["passed"] == given["checks"]["total"] >= 8
    assert given["on"] == "2048 x 4096 float32" and given["reference_us"] > given["kernel_us"] > 0
    assert json.loads(json.dumps(given)) == given


@pytest.mark.parametrize("name", ["cuda", "triton", "trust", "measure", "tune"])
def test_cells_for_a_gpu_keep_their_promises_here(ran, name):
    path, notebook = ran
    if not path.stem.endswith(name):
        pytest.skip(f"of the notebook on {name} only")
    getattr(notebook_promises, name)(Steps(notebook), gpu=gpu.present())


def test_saving_keeps_its_promises(ran):
    path, notebook = ran
    if path.stem != "07_save":
        pytest.skip("of the notebook on saving only")
    save_promises.save(Steps(notebook))


def test_deploying_keeps_its_promises(ran):
    path, notebook = ran
    if path.stem != "08_deploy":
        pytest.skip("of the notebook on deploying only")
    save_promises.deploy(Steps(notebook))


def test_profiles_keep_their_promises(ran):
    path, notebook = ran
    if path.stem != "05_measure":
        pytest.skip("of the notebook on measuring only")
    profile_promises.keep(Steps(notebook))


def test_code_that_one_has_becomes_ops(ran):
    path, notebook = ran
    if path.stem != "02_cpp":
        pytest.skip("of the notebook on C++ only")
    said = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            shown = [o["data"]["text/plain"] if "data" in o else o.get("text", "") for o in cell.outputs]
            said[cell.source.split("\n")[0] + (" again" if cell.source.split("\n")[0] in said else "")] = "\n".join(
                shown
            )
    assert said["%%cpp leaky"].startswith("leaky cpp host v1 | ") and said["%%cpp soft_clip"].startswith(
        "soft_clip cpp full v1 | "
    )
    assert "`torch::tanh` and `torch::Tensor` in the text" in said["%%cpp soft_clip"]
    assert said["torch.ops.lab.leaky(torch.tensor([-2.0, 3.0]))"] == "tensor([-0.0200,  3.0000])"
    assert "forward cpu  v1 host C++      2 of 2" in said['@wb.op("lab::leaky")']
    assert said["%%cpp"].startswith("muladd cpp full v1 | ") and said["%%cpp again"].startswith(
        "muladd, mulsub cpp full v2 | "
    )
    assert "note: new: pasted::mulsub\n  note: another schema: pasted::muladd" in said["%%cpp again"]
    assert (
        said["a, b = torch.ones(3), torch.full((3,), 2.0)"]
        == "(tensor([2.5000, 2.5000, 2.5000]), tensor([1.5000, 1.5000, 1.5000]))"
    )
    assert "tensor([0.8415, 0.8415])" in said[next(first for first in said if first.startswith("source = "))]
    assert said['[add_inplace_] = wb.load("../kernels/add_inplace_")'].endswith("tensor([1., 3., 5., 7.])")
    assert [row.split()[0] for row in said["%wb ops"].splitlines()] == [
        "lab::leaky", "lab::soft_clip", "pasted::muladd", "pasted::mulsub", "inline_extension::sin_add", "lab::add_inplace_",
    ]  # fmt: skip
