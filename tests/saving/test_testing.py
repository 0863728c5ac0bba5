"""The tests that a package gets of its own, as text: who stands in for whom, what is skipped, how it reads."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.saving import ops
from workbench.saving import imports


def texts(root, *names) -> list[str]:
    return [(root / "tests" / f"test_{n}.py").read_text() for n in names]


def test_the_references_of_other_ops_stand_in_for_them(namespace, tmp_path):
    """Their kernels have no form for float64; those that they call in turn count, too."""
    scale = ops.scale(namespace)

    def twice(x: Tensor) -> Tensor:
        return scale(scale(x))

    twice = ops.define(namespace, "twice", twice, lambda t: iter([t(4, 8)]))

    def fourfold(x: Tensor) -> Tensor:
        return twice(x) * 1.0

    op = ops.define(namespace, "fourfold", fourfold, lambda t: iter([t(4, 8)]))
    wb.save([scale, twice, op], tmp_path / "o")
    alone, one, two = texts(tmp_path / "o", "scale", "twice", "fourfold")
    assert "REFERENCES" not in alone
    assert "for m in (_scale,)}" in one and "from o import _scale\n" in one
    assert "for m in (_scale, _twice)}" in two
    assert len(re.findall(r"expected(?:_gradients)?\(.*, references=REFERENCES\)", two)) == 2


def test_what_torch_export_does_not_take_is_no_input_of_the_program(namespace, tmp_path):
    def cast(x: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        return x.to(dtype)

    op = ops.define(namespace, "cast", cast, lambda t: iter([(t(4, 8), torch.float64)]))
    wb.save([op, ops.scale(namespace)], tmp_path / "o")
    said = "if not isinstance(v, (torch.dtype, torch.device))"
    cast_tests, scale_tests = texts(tmp_path / "o", "cast", "scale")
    assert said in cast_tests.partition("def test_it_is_exported_as_itself")[2]
    assert said not in scale_tests


def dropped(x: Tensor, p: float = 0.5) -> Tensor:
    return torch.nn.functional.dropout(x, p)


@pytest.mark.slow
def test_an_op_that_draws_random_numbers_is_compared_at_one_state_of_the_generator(namespace, tmp_path):
    """It was never called, so that nothing has seen it draw."""
    op = ops.define(namespace, "dropped", dropped, lambda t: iter([t(64, 64)]))
    wb.save(op, tmp_path / "o")
    environment = {**os.environ, "PYTHONPATH": "src"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_dropped.py"]
    done = subprocess.run(command, cwd=tmp_path / "o", env=environment, capture_output=True, text=True, check=False)
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE), done.stdout[-3000:]
    assert "gradients" not in (tmp_path / "o/tests/test_dropped.py").read_text().partition("DEVICES = ")[2]


def test_nothing_of_the_template_is_left(namespace, tmp_path):
    def fill_(x: Tensor, k: float = 0.5) -> None:
        x.fill_(k)

    filled = ops.define(namespace, "fill_", fill_, mutates="x")
    wb.save([ops.scale(namespace), filled], tmp_path / "o")
    for text in texts(tmp_path / "o", "scale", "fill_"):
        assert " or False" not in text and ",)" not in text.partition("EVERY_CASE")[2].partition("\n")[0]
        assert "make(cases, SCHEMA, (torch.float32, torch.float64))" in text
        assert "\n\n\ndef scale_cases(t):" in text or "\n\n\ndef cases(t):" in text
        assert not re.search(r"\n\n\n\n", text) and text.endswith("\n") and not text.endswith("\n\n")
        top = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
        for node in top:  # two blank lines before each
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            assert text.splitlines()[first - 3 : first - 1] == ["", ""], node.name
    mutating, plain = texts(tmp_path / "o", "fill_", "scale")
    assert "def test_a_batch_of_calls" in plain and "def test_a_batch_of_calls" not in mutating


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("import torch\nimport os\nx = 1\n", "import os\n\nimport torch\nx = 1\n"),
        (
            "from b import f\nimport b\nfrom b import C, A as D, ONE\n",
            "import b\nfrom b import ONE, C, f\nfrom b import A as D\n",
        ),
        (
            "from .a import b\nfrom ..c import d\nimport mine\nimport torch\n",
            "import torch\n\nimport mine\n\nfrom ..c import d\nfrom .a import b\n",
        ),
        ("import os  # first\nimport ast\n", "import os  # first\nimport ast\n"),
        ("import b\n\ndef f(): pass\n", "import b\n\n\ndef f(): pass\n"),
        ("import b\nx = 1\nimport z, a\n", "import b\nx = 1\nimport a\nimport z\n"),
    ],
)
def test_imports_stand_as_isort_has_them(given, wanted):
    assert imports.ordered(given, ("mine",)) == wanted
