"""What `%wb` says and does, without a notebook."""

from __future__ import annotations

import pytest

import workbench as wb
from tests import live
from workbench import commands, watch

OP = """\
import workbench as wb
from torch import Tensor

@wb.op("live::scale")
def scale(x: Tensor, k: float = 2.0) -> Tensor:
    return x * k
"""


@pytest.fixture
def say(tmp_path):
    typed, shown = [], []

    def run(line: str) -> str:
        return commands.run(line, str(tmp_path), watched=lambda: shown.append, fill=typed.append)

    run.typed, run.shown = typed, shown
    yield run
    watch.stop()


def test_alone_it_says_what_there_is(say):
    assert say("") == say("help") == commands.USAGE
    assert [line.split()[1] for line in commands.USAGE.splitlines() if line.startswith("%wb")] == [
        "ops", "open", "watch", "watch", "unwatch",
    ]  # fmt: skip


@pytest.mark.parametrize("line", ["wach x", "ops x", "open", "open a b", "watch a b", "unwatch a b", "'open"])
def test_what_is_no_command_is_answered_with_the_usage(say, line):
    with pytest.raises(wb.SchemaError) as raised:
        say(line)
    assert str(raised.value).startswith(f"%wb {line}") and commands.USAGE in str(raised.value)


def test_ops_and_their_slots(say):
    scale, norm = live.scale(), live.norm()
    wb.cpp(scale, live.SCALE)
    wb.cpp(scale.qualname + ".backward", live.SCALE_BACKWARD)
    said = say("ops").splitlines()
    assert "live::scale  forward cpu v1, backward cpu v2" in [
        " ".join(row.split(None, 1)[:1]) + "  " + row.split(None, 1)[1] for row in said
    ]
    assert commands.slots(norm) == ["reference"]
    assert commands.ops_table({}) == 'no ops yet: put @wb.op("lab::name") over a function'


def test_a_file_opens_as_the_cell_that_writes_it(say, tmp_path):
    scale = live.scale()
    wb.cpp(scale, live.SCALE, file=str(tmp_path / "it's $x.cpp"))
    assert say("""open "it's $x.cpp" """) == ""
    [cell] = say.typed
    magic, _, text = cell.partition("\n")
    assert magic == """%%cpp live::scale --file 'it'"'"'s $x.cpp'""" and text + "\n" == live.SCALE
    (tmp_path / "ext.cpp").write_text("TORCH_LIBRARY(lab, m) {}\n")
    say("open ext.cpp")
    assert say.typed[-1] == "%%cpp --file ext.cpp\nTORCH_LIBRARY(lab, m) {}"
    with pytest.raises(wb.SchemaError, match=r"absent\.cpp cannot be read: No such file or directory"):
        say("open absent.cpp")


def test_watching(say, tmp_path):
    live.gone("live::scale")
    (tmp_path / "op.py").write_text(OP)
    assert say("watch") == "nothing is watched: %wb watch PATH"
    assert say("watch .") == "" and say.shown[0].ok
    assert say("watch") == f"{tmp_path}  nothing loaded"
    with pytest.raises(wb.SchemaError, match=f"other is not watched; {tmp_path}"):
        say("unwatch other")
    assert say("unwatch .") == f"stopped watching {tmp_path}" and say("unwatch") == "nothing was watched"
    with pytest.raises(wb.SchemaError, match="there is no file or folder"):
        say("watch absent")
