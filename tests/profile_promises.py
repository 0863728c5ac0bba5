"""What the profile half of 05_measure promises, with a GPU and without."""

from __future__ import annotations

import re

from tests.notebook_steps import Steps


def keep(steps: Steps) -> None:
    """Each step that profiles."""
    said = steps.text("Where the time goes")
    assert re.match(r"lab::rmsnorm on rows float32 \| cpu, .* \| \d+ calls?, ", said), said
    assert re.search(r"\n  forward   v2 raw C\+\+ .*\n  backward  reference's vjp ", said), said
    assert re.search(r"\n  lab::rmsnorm\w* +forward +1 ", said), said
    shown = steps.html("Where the time goes")
    assert "<svg" in shown and ">memory, " in shown and shown.count('type="radio"') == 4
    assert len(shown) < 60_000

    said = steps.text("The reference, op by op")
    assert re.match(r"lab::rmsnorm on 4x128 float32 \| cpu, ", said) and "forward   reference" in said
    assert ">aten::rsqrt<" in steps.html("The reference, op by op")
    assert "ops that compute where one would do" in said and "dispatch dominates" in said

    printed = "forward True True\nbackward True True\n['dispatch dominates', 'several launches']\n"
    assert steps.printed("Figures") == printed
    assert steps.text("For Perfetto, too") == "[True, True, True]"
    assert steps.error("One profiler at a time")["evalue"].startswith(
        "a torch profiler is running already, in this process"
    )
