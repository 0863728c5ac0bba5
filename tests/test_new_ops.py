"""Cells whose target no op bears: what a line says of the op that comes of it, and a refusal of what is missing."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell
from torch import Tensor

import workbench as wb
from tests.live import SCALE, gone
from tests.test_describe import CUDA, TRITON
from workbench import magic


@pytest.fixture
def layernorm(namespace):
    @wb.op(f"{namespace}::layernorm")
    def layernorm(x: Tensor) -> Tensor:
        return x - x.mean(-1, keepdim=True)

    yield layernorm
    for name in ("layernorm", "layernrm"):
        gone(f"{namespace}::{name}")


LAUNCHER = TRITON.partition("\ndef backward")[0]


@pytest.mark.parametrize(("put", "text"), [(wb.cpp, SCALE), (wb.cuda, CUDA), (wb.triton, LAUNCHER)])
def test_the_line_says_that_it_is_new_what_was_meant_and_how_to_call_it(put, text, layernorm, namespace):
    text = text.replace("scale", "layernrm")
    made = put(f"{namespace}::layernrm", text)
    said = (
        f"new op {namespace}::layernrm: no reference, so it is compared with nothing; did you mean "
        f'{namespace}::layernorm? Else call it as wb.ops["{namespace}::layernrm"] or torch.ops.{namespace}.layernrm'
    )
    assert made.last_line.notes[0] == said and "no reference" in str(made.last_line)
    put(f"{namespace}::layernrm", text)
    assert not any("new op" in note for note in made.last_line.notes)


def test_what_no_op_can_be_made_of_says_first_that_there_is_none(layernorm, namespace):
    nothing = CUDA.replace("scale", "layernrm").replace("out", "y")
    with pytest.raises(wb.SchemaError) as caught:
        wb.cuda(f"{namespace}::layernrm", nothing)
    said = caught.value.message
    assert said.startswith(
        f"there is no op {namespace}::layernrm; did you mean {namespace}::layernorm? For a new one: "
    )
    assert "would return nothing: name its result 'out'" in said and caught.value.line
    with pytest.raises(
        wb.SchemaError, match=f"there is no op {namespace}::zzz; run the cell that defines it first. For a new one: "
    ):
        wb.triton(f"{namespace}::zzz", TRITON)
    with pytest.raises(wb.SchemaError, match=f"define it with wb.op first; did you mean {namespace}::layernorm"):
        wb.cpp(f"{namespace}::layernrm.backward", SCALE)


def test_in_a_notebook_it_is_at_hand_under_its_name_if_that_is_free(namespace):
    shell = InteractiveShell()
    named = magic.Workbench(shell)._named
    born = wb.cpp(f"{namespace}::born", SCALE.replace("scale", "born"))
    assert named(born) == "born" and shell.user_ns["born"] is born
    shell.user_ns["born"] = 3
    assert named(born) == "" and shell.user_ns["born"] == 3
    hidden = wb.cpp(f"{namespace}::sum", SCALE.replace("scale", "sum"))
    assert named(hidden) == "" and "sum" not in shell.user_ns
