import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench import cells
from workbench.errors import SchemaError
from workbench.source import Source

pytest.importorskip("triton")

CELL = """
@triton.jit
def most(v):
    return tl.max(v, axis=0)

@triton.jit
def kernel(x, y, cols, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * cols + i, mask=i < cols, other=-1e30)
    e = tl.exp(v.to(tl.float32) - most(v))
    tl.store(y + tl.program_id(0) * cols + i, e, mask=i < cols)

def shifted(x):
    y = torch.empty_like(x)
    kernel[(x.size(0),)](x, y, x.size(1), BLOCK=128)
    return y
"""


@pytest.fixture(scope="module")
def op():
    @wb.op("inspected::shifted")
    def shifted(x: Tensor) -> Tensor:
        return (x.float() - x.float().amax(-1, keepdim=True)).exp().to(x.dtype)

    shifted.cases(lambda t: iter([(t(4, 128),)]), dtypes=(torch.float32, torch.bfloat16))
    wb.triton(shifted, CELL)
    return shifted


def test_every_stage_by_source_line(op):
    report = op.inspect()
    assert (report.how, report.dtype, report.others) == (
        "triton Triton",
        "float32",
        ("bfloat16",),
    ) or report.how == "Triton"
    assert [s.name for s in report.stages] == ["ttir", "ttgir", "llir", "ptx", "sass"]
    words = {"ttir": "tt.load", "ttgir": "tt.load", "llir": "ld.global", "ptx": "ld.global", "sass": "LDG"}
    for name, word in words.items():
        mine = [e for e in report.stage(name).entries if word in e.text]
        assert mine, name
        assert all(e.line == 9 for e in mine), name


def test_what_a_helper_does_is_found_at_its_line_and_at_its_call(op):
    report = op.inspect()
    for name, word in (("ttir", "maxnumf"), ("ptx", "max.f32"), ("sass", "FMNMX")):
        mine = [e for e in report.stage(name).entries if word in e.text]
        assert mine, name
        assert all(e.line == 4 and 10 in e.callers for e in mine), name


def test_what_the_kernel_takes(op):
    (row,) = op.inspect().rows
    assert (row.kernel, row.threads, row.spills) == ("kernel", 128, 0)
    assert 8 <= row.registers <= 64
    assert row.occupancy == 1.0


def test_the_dtype_is_chosen_among_those_compiled(op):
    assert op.inspect(dtype=torch.bfloat16).dtype == "bfloat16"
    with pytest.raises(
        SchemaError, match="no kernel of the cell has been compiled for float16; there are float32, bfloat16"
    ):
        op.inspect(dtype="float16")


def test_a_cell_of_which_nothing_was_compiled(namespace):
    @wb.op(f"{namespace}::shifted")
    def shifted(x: Tensor) -> Tensor:
        return (x.float() - x.float().amax(-1, keepdim=True)).exp().to(x.dtype)

    wb.triton(shifted, CELL)
    with pytest.raises(SchemaError, match="no kernel of the cell has been compiled.*give the op a case"):
        shifted.inspect()


def test_lines_of_a_kernel_that_triton_had_in_its_cache_from_an_earlier_run(namespace):
    """It bears the name of the cell that compiled it: `<cell [3], 1f2e3d4c>`."""
    found = []
    for number in (3, 9):

        @wb.op(f"{namespace}{number}::shifted")
        def shifted(x: Tensor) -> Tensor:
            return (x - x.amax(-1, keepdim=True)).exp()

        shifted.cases(lambda t: iter([(t(4, 128),)]))
        cells.run(shifted, Source(CELL.replace("-1e30", "-2e30"), "triton", file=f"cell [{number}]", first_line=2))
        found.append(shifted.inspect())
    first, second = found
    for name in ("ttir", "ptx", "sass"):
        assert 10 in second.stage(name).lines
        assert [e.line for e in second.stage(name).entries] == [e.line for e in first.stage(name).entries]


def test_a_kernel_on_descriptors_alone_has_their_dtype(namespace):
    @wb.op(f"{namespace}::twice")
    def twice(x: Tensor) -> Tensor:
        return x * 2

    @twice.cases(dtypes=(torch.float32, torch.float16))
    def _(t):
        yield (t(64),)

    wb.triton(
        twice,
        """\
from triton.tools.tensor_descriptor import TensorDescriptor
@triton.jit
def kernel(x, out):
    out.store([0], x.load([0]) * 2)
def twice(x):
    out = torch.empty_like(x)
    kernel[(1,)](TensorDescriptor.from_tensor(x, [64]), TensorDescriptor.from_tensor(out, [64]))
    return out
""",
    )
    assert "| Triton, float32 |" in str(twice.inspect())
    assert "x: *fp16[64]" in str(twice.inspect(dtype=torch.float16))


TWO = """
@triton.jit
def squares(x, ws, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    tl.store(ws + i, v * v, mask=i < n)

@triton.jit
def back(ws, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(ws + i, mask=i < n), mask=i < n)

def square(x):
    ws, y = torch.empty(x.shape, device=x.device), torch.empty_like(x)
    squares[(triton.cdiv(x.numel(), 1024),)](x, ws, x.numel(), B=1024)
    back[(triton.cdiv(x.numel(), 1024),)](ws, y, x.numel(), B=1024)
    return y
"""


def test_of_several_kernels_each_is_shown_in_the_dtype_that_is_asked_for(namespace):
    @wb.op(f"{namespace}::square")
    def square(x: Tensor) -> Tensor:
        return (x.float() * x.float()).to(x.dtype)

    square.cases(lambda t: iter([(t(615),)]), dtypes=(torch.float32, torch.float16))
    wb.triton(square, TWO)
    report = square.inspect(dtype=torch.float16)
    assert report.others == ("float32",)
    notes = [n for n in report.notes if "is shown as compiled for" in n]
    assert any("squares is shown as compiled for x: *fp16, ws: *fp32" in n for n in notes), notes
    assert any("back is shown as compiled for ws: *fp32, y: *fp16" in n for n in notes), notes
    assert square.inspect().others == ("float16",)


def test_a_kernel_on_workspace_alone_is_no_other_choice_of_dtype(namespace):
    @wb.op(f"{namespace}::square")
    def square(x: Tensor) -> Tensor:
        return (x.float() * x.float()).to(x.dtype)

    square.cases(lambda t: iter([(t(64),)]), dtypes=(torch.bfloat16,))
    wb.triton(square, TWO)  # one kernel on bfloat16 and float32, one on float32 and bfloat16
    assert square.inspect().others == ()


def test_what_it_advises_is_tritons(namespace):
    @wb.op(f"{namespace}::square")
    def square(x: Tensor) -> Tensor:
        return (x.float() * x.float()).to(x.dtype)

    square.cases(lambda t: iter([(t(615),)]))  # no multiple of 16: Triton loads 4 bytes
    wb.triton(square, TWO)
    (found,) = [f.text for f in square.inspect().findings if "global loads bring 4 bytes" in f.text][:1]
    assert "multiples of 16" in found and "float4" not in found
