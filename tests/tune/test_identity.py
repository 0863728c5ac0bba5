"""Keys of tuning results: the same for more values and configurations, another for anything else."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from workbench.inputs import form
from workbench.source import Source
from workbench.tiers import kernel as made
from workbench.tune import identity

RAW = """//! tune BLOCK = 128, 256
//! n = x.numel()
//! out = empty_like(x)
void f(const float* x, float* out, int64_t n) { for (int64_t i = 0; i < n; ++i) out[i] = x[i]; }
"""
CELL = """
{before}
@triton.autotune(configs={configs}, key=["n"])
@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n), i < n)


def f(x):
    out = torch.empty_like(x)
    kernel[lambda m: (triton.cdiv(x.numel(), m["BLOCK"]),)](x, out, x.numel())
    return out
"""
LIST = "[triton.Config({'BLOCK': 64})]"
MORE = "[triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 128}, num_warps=8)]"


@pytest.fixture
def key(namespace):
    op = wb.op(f"{namespace}::f(Tensor x) -> Tensor")

    def key(text=RAW, inputs=None):
        return identity.key(made(Source(text, "cpp"), op.schema, "forward"), form(inputs or {"x": torch.ones(3, 4)}))

    return key


def test_values_of_tune_lines_are_no_part_of_it(key):
    assert key(RAW.replace("128, 256", "512, 128, 256, 64")) == key()


@pytest.mark.parametrize(
    "text",
    [
        RAW.replace("out[i] = x[i]", "out[i] = 1 * x[i]"),
        RAW.replace("//! tune BLOCK = 128, 256", "//! tune SIZE = 128, 256"),
        RAW.replace("//! n = x.numel()", "//! n = x.numel() + 0"),
        "//! flags -O2\n" + RAW,
    ],
)
def test_anything_else_in_the_text_is(key, text):
    assert key(text) != key()


def test_the_inputs_are_part_of_it_by_what_they_look_like(key):
    assert key(inputs={"x": torch.zeros(3, 4)}) == key()
    for other in (torch.ones(4, 3), torch.ones(3, 4).half(), torch.ones(4, 3).t()):
        assert key(inputs={"x": other}) != key()
    assert form({"k": 1.0}) != form({"k": 2.0}) != form({"k": None})


def test_a_threaded_cpu_is_told_apart():
    assert identity.machine("cpu").endswith(f"{torch.get_num_threads()} threads")


@pytest.mark.parametrize(
    ("before", "configs"),
    [
        ("", MORE),
        (f"CONFIGS = {MORE}", "CONFIGS"),
        (f"CONFIGS = {LIST}\nCONFIGS += {MORE}", "CONFIGS"),
        ("SIZES = 64, 128\ndef configs():\n    return [triton.Config({'BLOCK': b}) for b in SIZES]", "configs()"),
    ],
    ids=["in place", "in a variable", "added to", "in a function"],
)
def test_configurations_are_no_part_of_a_triton_cell(before, configs):
    plain = identity.without_configs(CELL.format(before="", configs=LIST))
    assert identity.without_configs(CELL.format(before=before, configs=configs)) == plain
    assert "Config" not in plain and "key=['n']" in plain


def test_what_the_kernel_needs_too_stays():
    before = f"SIZE = 4\nCONFIGS = {LIST}\ndef helper():\n    return SIZE"
    kept = identity.without_configs(CELL.format(before=before, configs="CONFIGS"))
    assert "SIZE = 4" in kept and "def helper" in kept and "CONFIGS" not in kept
    assert kept != identity.without_configs(CELL.format(before=before.replace("4", "5"), configs="CONFIGS"))


def test_a_text_that_does_not_parse_is_its_own_key():
    assert identity.without_configs("def f(:") == "def f(:"
