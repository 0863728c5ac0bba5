"""What users get wrong in CUDA and Triton: an error on its line, in plain words, and the former version still there.

Nothing here needs a GPU, but for what is marked: what a GPU refuses at a launch is told by a driver that is not there.
"""

from __future__ import annotations

import builtins
import os
import re
import sys

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.tiers.raw_cuda_tools import installed, schema_of
from tests.tiers.test_raw_cuda import fake  # noqa: F401  a fixture
from workbench import cells, gpu, tiers
from workbench.build import nvcc, nvrtc_library
from workbench.directives import slips
from workbench.source import Source

without_gpu = pytest.mark.skipif(gpu.present(), reason="a GPU runs what is only compiled here")
NS = "bad_gpu_code"

CUDA = """\
//! n = x.numel()
//! out = empty_like(x)
//! grid = cdiv(n, 256)
//! block = 256
template <typename T> __global__ void scale(const T* x, T* out, float k, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = T(float(x[i]) * k);
}
"""
HOST = """\
__global__ void times(const float* x, float* out, float k, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) out[i] = x[i] * k;
}
Tensor scale(const Tensor& x, double k) {
  Tensor out = empty_like(x);
  int n = x.numel();
  times<<<(n + 255) / 256, 256, 0, wb::current_stream()>>>(x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), k, n);
  return out;
}
"""
TRITON = """\
@triton.jit
def kernel(x, out, k, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * k, i < n)

def scale(x, k=2.0):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 64),)](x, out, k, x.numel(), BLOCK=64)
    return out
"""
LAUNCH = "kernel[(triton.cdiv(x.numel(), 64),)]"
X = torch.linspace(-2, 3, 24).reshape(4, 6)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.delenv("WORKBENCH_ARCH", raising=False)
        yield


def made(name: str):
    @wb.op(f"{NS}::{name}")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    @scale.cases
    def _(t):
        yield t(4, 8), 3.0

    return scale


@pytest.fixture(scope="module")
def cuda():
    """An op with version 1 of a CUDA cell."""
    op = made("scale")
    cell(op, CUDA)
    return op


@pytest.fixture(scope="module")
def triton():
    op = made("scale_t")
    cell(op, TRITON, "triton", entry="scale")
    return op


def cell(op, text: str, language: str = "cuda", **options):
    """Run a text as a notebook does: its magic's line is line 1."""
    where = Source(text, language, file="cell [7]", first_line=2, path=os.getcwd())
    return cells.run(op.qualname, where, **options)


def refused(op, text: str, kind: type[wb.WorkbenchError], line: int, words: str, language: str = "cuda", **options):
    """It is refused on that line with those words, and nothing is lost."""
    former, slots = op.runs("forward", "cuda").number, dict(op.slots)
    with pytest.raises(wb.WorkbenchError, match=words) as raised:
        cell(op, text, language, **options)
    error = raised.value
    assert type(error) is kind, error
    said = str(error)
    if kind is not wb.TrialError:
        assert error.line == line, error
        assert not line or (said.startswith(f"cell [7], line {line}: ") and error.file == "cell [7]")
        assert said.endswith(f"{op.name} forward still runs v{former}")
        shown = error.message.split("\n    ")[0]
        assert len(shown) < 330, "short enough to be read"
    else:
        assert f"line {line}" in said and f"still runs v{former}" in said
    assert op.slots == slots and op.runs("forward", "cuda").number == former
    assert torch.equal(op(X, 3.0), X * 3)
    return error


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


# ---------------------------------------------------------------- CUDA

GRID, BLOCK, HEAD = "grid = cdiv(n, 256)", "block = 256", "//! grid"
DIRECTIVES = {
    "a block over 1024 threads": ((BLOCK, "block = 2048"), 5, r"scale: the block is 2048, a block has at most 1024 threads"),
    "a block over 1024 threads in two sizes": ((BLOCK, "block = 64, 32"), 5, r"the block is \(64, 32\), a block has at most 1024"),
    "a block of nothing": ((BLOCK, "block = 0"), 5, "the block is 0, it needs at least 1 thread"),
    "a block too deep": ((BLOCK, "block = 1, 1, 128"), 5, r"the block is \(1, 1, 128\), its third size is at most 64"),
    "a tuned block over 1024": ((BLOCK, "tune B = 2048, 256\n//! block = B"), 6, "the block is 2048"),
    "a grid of zero": ((GRID, "grid = 0"), 4, r"the grid is 0, it needs at least 1 block; write cdiv\(a, b\)"),
    "a grid below zero": ((GRID, "grid = 3 - 4"), 4, "the grid is -1, it needs at least 1 block"),
    "a grid of zero by a name": ((HEAD, "//! none = 255 // 256\n//! grid = none\n//! unused"), 5, "the grid is 0"),
    "a grid too high": ((GRID, "grid = 1, 70000"), 4, r"its second and third size are at most 65535; put the largest first"),
    "a grid that is no integer": ((GRID, "grid = n / 256"), 4, "grid takes integers, 'n / 256' is a float"),
    "a name that divides": ((HEAD, "//! blocks = (n + 255) / 256\n//! grid = blocks\n//! unused"), 5,
                            r"'blocks' is a float; divide with cdiv\(a, b\), which rounds up, or with //"),
    "a macro of the text": ((HEAD, "#define TILE 32\n//! grid = TILE\n//! unused"), 5,
                            "TILE is a constant of the text, which directives do not read: write '//! tune TILE = 32' in its place"),
    "a constant of the text": ((HEAD, "constexpr int TILE = (256);\n//! grid = TILE\n//! unused"), 5, "'//! tune TILE = 256'"),
    "a computed constant of the text": ((HEAD, "static constexpr int TILE{4 * 64};\n//! grid = TILE\n//! unused"), 5, "'//! tune TILE = ...'"),
    "sizeof": ((BLOCK, "block = 256\n//! shared = 32 * sizeof(float)"), 6, r"sizeof\(\) is not .*: write x.element_size\(\), or 4 for a float"),
    "dim3": ((BLOCK, "block = dim3(32, 8)"), 5, r"dim3\(\) is not .*: write the sizes with commas between, as in 'block = 32, 8'"),
    "triton.cdiv": ((GRID, "grid = triton.cdiv(n, 256)"), 4, r"'triton' is not .*: write cdiv\(a, b\), without a module"),
    "a name with a type": (("n = x.numel()", "int n = x.numel();"), 2, r"'int n =': names here have no type: write 'n ='"),
    "a name with a type of two words": (("n = x.numel()", "const int64_t n = x.numel()"), 2, "names here have no type: write 'n ='"),
    "sizes()": (("n = x.numel()", "n, _ = x.sizes()"), 2, "'x.sizes' is not in the directive language: write x.shape"),
    "float for a dtype": (("empty_like(x)", "empty_like(x, dtype=float)"), 3, "'float' is not in the directive language: the dtype is float32"),
    "a size that divides": (("empty_like(x)", "empty(n / 4)"), 3, r"'n / 4' is a float; divide with // or cdiv\(a, b\)"),
    "a division by zero": ((GRID, "grid = 4 // 0"), 4, "division by zero: 0 is 0 in '4 // 0'"),
    "shared memory below zero": ((BLOCK, "block = 256\n//! shared = 0 - 4"), 6, "-4 bytes of shared memory, which is negative"),
    "a cluster too large": ((BLOCK, "block = 256\n//! cluster = 16"), 6, "the cluster is 16, it has 1 to 8 blocks"),
    "a cluster that does not divide": ((GRID, "grid = 4\n//! cluster = 3"), 5, r"the cluster \(3, 1, 1\) does not divide the grid \(4, 1, 1\)"),
    "no __global__": (("__global__ ", ""), 6, r"scale has a grid, and is no kernel: write '__global__ void scale\(\.\.\.\)'"),
    "__device__ for __global__": (("__global__", "__device__"), 6, "scale is a __device__ function, which is called and not launched"),
    "no grid, no block": ((f"//! {GRID}\n//! {BLOCK}\n", ""), 4, "scale has no grid, nothing would be launched: add '//! grid = ...' and"),
    "a grid without a block": ((f"//! {BLOCK}\n", ""), 4, "scale has no block: add '//! block = ...' above it"),
    "a block without a grid": ((f"//! {GRID}\n", ""), 4, "scale has no grid: add '//! grid = ...' above it"),
    "a launcher of pointers": ((CUDA, CUDA.replace(f"//! {GRID}\n//! {BLOCK}\n", "") + "// as <<<>>>\nvoid go(const float* x) {\n  scale<float><<<1, 1>>>(x);\n}\n"),
                               9, r"go launches scale and takes no Tensor: let it take and return Tensor, as in 'Tensor scale\(const Tensor& x\)', or put '//! grid"),
    "shared memory of no size": (("  int i", "  extern __shared__ __align__(16) float s[];\n  int i"), 7,
                                 r"scale: 's' is as long as '//! shared = \.\.\.' says, in bytes, and there is none: add it"),
    "fewer threads than the block has": (("void scale", "void __launch_bounds__(128, 2)\nscale"), 6,
                                         r"scale: the block has 256 threads, __launch_bounds__\(128\) allows 128"),
    "fewer threads by a name": ((CUDA, CUDA.replace("template", "#define MOST 64\ntemplate").replace("void scale", "__launch_bounds__(MOST) void scale")), 7,
                                r"__launch_bounds__\(MOST\) allows 64"),
    "this_grid().sync()": (("  int i", "  auto all = cooperative_groups::this_grid();\n  all.sync();\n  int i"), 8,
                           r"scale: sync\(\) of this_grid\(\) waits for all blocks, .* make it two kernels"),
    "a helper that waits for the grid": ((HEAD, "__device__ void all(cg::grid_group& g) {\n  g.sync(); }\n//! grid"), 5, "all: sync"),
    "gird": ((HEAD, "//! gird"), 4, "scale has no grid; did you mean 'grid' where it says 'gird'?"),
    "a comment that was a directive": ((HEAD, "//!grid"), 4, "scale has no grid: this line is a comment; write '//! grid = ...'"),
    "a C++ comment that was a directive": (("//! block", "// block"), 5, "scale has no block: this line is a comment"),
    "requires": ((HEAD, "//! requires n > 0\n//! grid"), 4, "'requires' is no directive; did you mean 'require'?"),
    "flag": ((HEAD, "//! flag -O3\n//! grid"), 4, "'flag' is no directive; did you mean 'flags'?"),
    "a template number that nothing gives": (("T>", "T, int B>"), 6, r"nothing says what the template parameter 'B' is: write '//! B = \.\.\.'"),
    "a template number misspelt": (("T>", "T, int nn>"), 6, "the parameter 'nn' binds to no argument and no directive; did you mean 'n'?"),
    "a template type that nothing gives": (("T>", "T, typename U>"), 6, "the type 'U' is taken from no tensor: no parameter is a 'U\\*'"),
    "torch::Tensor in a kernel": (("const T* x", "torch::Tensor x"), 6, r"'torch::Tensor x': device code takes pointers, tensors are the host's: write 'const float\* x'"),
    "Tensor in a kernel": (("const T* x", "const Tensor& x"), 6, "'const Tensor& x': device code takes pointers"),
    "a reference": (("float k", "float& k"), 6, "'float& k': a kernel cannot refer to the caller's memory: write 'float k'"),
    "a parameter of no name": (("int n)", "int m)"), 6, "the parameter 'm' binds to no argument and no directive"),
    "an input written to": (("const T* x", "T* x"), 6, "writes through x, which is not declared in mutates"),
    "Triton in a CUDA cell": ((CUDA, TRITON), 2, "this is Triton, which goes into a %%triton cell"),
}  # fmt: skip


@pytest.mark.parametrize("what", DIRECTIVES)
def test_directives_and_signatures(cuda, what):
    change, line, words = DIRECTIVES[what]
    refused(cuda, replaced(CUDA, change), wb.SchemaError, line, words)


@pytest.mark.parametrize("bounds", ["256", "B * B", "32 * 8", "B, 2", "SIZE(B)"])
def test_bounds_that_fit_or_are_computed_say_nothing(cuda, bounds):
    text = replaced(
        CUDA, (BLOCK, "tune B = 16\n//! block = B"), ("void scale", f"void __launch_bounds__({bounds}) scale")
    )
    source = Source(text, "cuda", "cell [7]")
    assert tiers.kernel(source, schema_of("Tensor x, float k -> Tensor"), "forward").declaration.launches


def test_which_constants_a_text_has():
    text = """\
#define TILE 32
#define SWAP(a, b) f(a, b)
// constexpr int OLD = 1;
constexpr int N = 4 * TILE;
static const unsigned M = 16u;
__global__ void k() { const int row = blockIdx.x; const float* p = 0; }
"""
    assert slips.constants(text) == {"TILE": "32", "N": "...", "M": "16"}


SHARED = """\
  __shared__ float s[20000];
  s[threadIdx.x] = k;
  __syncthreads();
  if (i < n) out[i] = T(float(x[i]) * s[i % 20000]);"""
COMPILED = {
    "a name that is not there": (("threadIdx", "threadidx"), 7, r'identifier "threadidx" is undefined; did you mean \'threadIdx\'\?'),
    "a number that is no parameter": ((", int n)", ")"), 8, "\"n\" is undefined; a line names it for parameters alone: take 'int n', or write 'tune n = 16, 32'"),
    "a tuned name that the text has too": ((BLOCK, "block = 256\n//! tune B = 4\nconstexpr int B = 4;"), 7, "\"B\" has already been defined; the line 'tune B' is one: leave this out"),
    "a missing semicolon": (("threadIdx.x;", "threadIdx.x"), 7, 'expected a ";"'),
    "static shared memory": (("  if (i < n) out[i] = T(float(x[i]) * k);", SHARED), 6,
                             r"scale declares 80000 bytes of __shared__ memory, 49152 are the most .* make it 'extern __shared__'"),
    "a missing header": ((HEAD, '#include "warp.cuh"\n//! grid'), 4,
                         r"there is no header warp\.cuh: looked in .+ and in \d+ folders of CUDA, which `\.log` names \(`flags -IFOLDER` adds one\)"),
    "a missing header of CUDA": ((HEAD, "#include <curand_nowhere.h>\n//! grid"), 4, "`pip install nvidia-curand` brings it"),
    "an unknown flag": ((HEAD, "//! flags --no-such\n//! grid"), 4, "unrecognized option --no-such"),
    "a tensor's method": (("i < n", "i < x.numel()"), 8, r"a pointer knows no sizes: name them in directives, '//! n = x\.numel\(\)'"),
    "std::cout": (("  if", "  std::cout << i;\n  if"), 8, 'no member "cout"; device code prints with printf'),
    "std::vector": (("  if", "  std::vector<int> v;\n  if"), 8, "device code has none: take an array or a pointer"),
    "printf without a format": (("  if", "  printf(i);\n  if"), 8, 'argument of type "int" is incompatible with parameter of type "const char \\*"'),
    "a host function called": ((HEAD, "#include <cstdlib>\nint host() { return std::system(0); }\n//! grid"), 5, "this is a function for the host"),
    "a launch in a raw cell": ((CUDA[-2:], "}\nvoid go() { scale<<<1, 1>>>(0, 0, 1, 1); }\n"), 10,
                               "this is a function for the host: in a raw cell the lines '//! grid' and '//! block' launch the kernels"),
    "a kernel that returns": (("void scale", "float scale"), 6, "a __global__ function must have a void return type"),
}  # fmt: skip


@pytest.mark.parametrize("what", COMPILED)
def test_what_the_compiler_refuses(cuda, what):
    (old, new), line, words = COMPILED[what]
    text = CUDA[: -len(old)] + new if old == CUDA[-2:] else replaced(CUDA, (old, new))
    error = refused(cuda, text, wb.BuildError, line, words)
    assert error.diagnostics[0].severity in ("error", "note")
    if "header" in what:
        assert os.getcwd() in error.log


def test_a_pointer_of_another_type_than_the_dtype(cuda):
    text = replaced(CUDA, ("template <typename T> ", "")).replace("T*", "double*").replace("T(", "double(")
    refused(
        cuda,
        text,
        wb.SchemaError,
        6,
        r"scale has no form for float32: its parameter 'const double\* x' takes float64 alone, x is float32",
    )


def test_a_name_for_the_entry_that_no_kernel_has(cuda):
    words = "no __global__ function is called 'skale' here; did you mean 'scale'. the cell defines scale"
    refused(cuda, CUDA, wb.SchemaError, 6, words, entry="skale")


@pytest.mark.parametrize(("arch", "words"), [
    ("sm_42", r"NVRTC [\d.]+ does not compile for sm_42; it knows sm_\d+, .* Set WORKBENCH_ARCH to one of these"),
    ("hopper", "WORKBENCH_ARCH is 'hopper': no GPU architecture. Write it like sm_90"),
])  # fmt: skip
def test_an_architecture_that_is_none(cuda, monkeypatch, arch, words):
    monkeypatch.setenv("WORKBENCH_ARCH", arch)
    refused(cuda, CUDA, wb.ToolchainError, 0, words)


@pytest.mark.parametrize(("flag", "words"), [
    ("-arch=sm_42", r"NVRTC [\d.]+ does not compile for sm_42; .* Write one of these"),
    ("-arch=hopper", "-arch=hopper names no GPU architecture: write it like -arch=sm_90"),
])  # fmt: skip
def test_an_architecture_in_flags_that_is_none(cuda, flag, words):
    refused(cuda, f"//! flags {flag}\n{CUDA}", wb.ToolchainError, 2, words)


@without_gpu
def test_the_line_names_the_architecture_in_flags():
    op = made("for_another")
    cell(op, f"//! flags -arch=sm_80\n{CUDA}")
    assert op.last_line.unrun == "compiled for sm_80, not run: no GPU here"


@without_gpu
@pytest.mark.parametrize(("change", "line", "words"), [
    ((BLOCK, "block = n * 40"), 5, "block = n \\* 40: the block is 1280, a block has at most 1024 threads"),
    ((GRID, "grid = n // 256"), 4, r"grid = n // 256: the grid is 0, it needs at least 1 block; write cdiv\(a, b\) for a // b"),
    ((BLOCK, "block = 256\n//! shared = 300000"), 6, "300000 bytes of shared memory are more than the 232448 that a block of sm_90 may have"),
    ((BLOCK, "block = 256\n//! shared = n * 10000"), 6, "320000 bytes of shared memory are more than the 232448"),
    ((BLOCK, "block = 256\n//! cluster = n // 2"), 6, "the cluster is 16, it has 1 to 8 blocks"),
])  # fmt: skip
def test_a_launch_that_no_gpu_takes_with_the_cases(cuda, change, line, words):
    error = refused(cuda, replaced(CUDA, change), wb.TrialError, line, words)
    assert "--force" not in str(error)


@without_gpu
def test_clusters_before_sm_90(cuda, monkeypatch):
    monkeypatch.setenv("WORKBENCH_ARCH", "sm_80")
    text = replaced(CUDA, (BLOCK, "block = 256\n//! cluster = 1"))
    refused(cuda, text, wb.TrialError, 6, "sm_80 has no clusters, which need sm_90 or later")


LAUNCHED = {
    "block": (BLOCK, "block = n", 2000, 8, r"block = n: the block is 2000, a block has at most 1024 threads \(line 5\)"),
    "grid": (GRID, "grid = n // 4", 3, 4, r"grid = n // 4: the grid is 0, it needs at least 1 block; .* \(line 4\)"),
    "shared": (BLOCK, "block = 4\n//! shared = n * 1000", 300, 4, r"shared = n \* 1000: 300000 bytes of shared memory are more than .* \(line 6\)"),
    "cluster": (BLOCK, "block = 4\n//! cluster = n", 9, 1, r"cluster = n: the cluster is 9, it has 1 to 8 blocks \(line 6\)"),
}  # fmt: skip


@pytest.mark.parametrize("what", LAUNCHED)
def test_a_launch_that_no_gpu_takes(fake, what):
    old, new, count, fits, words = LAUNCHED[what]
    text = replaced(CUDA, (old, new))
    run, _ = installed(schema_of("Tensor x, float k -> Tensor"), text, dtypes=[{"x": torch.float32}])
    with pytest.raises(RuntimeError, match=words):
        run(torch.ones(count), 2.0)
    assert not fake.launches()
    assert torch.equal(run(torch.ones(fits), 2.0), torch.full((fits,), 2.0))  # the next call just works


def test_a_kernel_that_nothing_launches_is_noted():
    op = made("two_kernels")
    cell(op, f"{CUDA}__global__ void forgotten(float* out) {{}}\n")
    assert "forgotten (line 10) has no grid, and is not launched" in op.last_line.notes


# ---------------------------------------------------------------- CUDA of the host tier


@pytest.mark.parametrize(("change", "line", "words"), [
    (("times<<<", "tims<<<"), 9, "‘tims’ was not declared in this scope; did you mean ‘times’"),
    (("x.const_data_ptr<float>()", "x"), 9, "cannot convert ‘const torch::stable::Tensor’ to ‘const float\\*’"),
])  # fmt: skip
def test_a_host_cell_shows_its_launches_as_they_were_typed(cuda, change, line, words):
    error = refused(cuda, replaced(HOST, change), wb.BuildError, line, words)
    typed = replaced(HOST, change).split("\n")[line - 2]
    first = error.diagnostics[0]
    assert first.excerpt == typed and "wb::configure" not in str(error)
    assert typed[first.column - 1 :].startswith(("tims", "x,"))


FULL = HOST.replace("Tensor scale(const Tensor", "torch::Tensor scale(const torch::Tensor").replace(
    " Tensor out", " torch::Tensor out"
)
STREAM = "at::cuda::getCurrentCUDAStream()"


@pytest.mark.parametrize(("text", "line", "words"), [
    (replaced(HOST, ("= empty_like", "= torch::empty_like")), 6,
     r"scale is on Tensor, and torch::empty_like \(line 7\) is for torch::Tensor: write empty_like\(x\) there, or torch::Tensor here"),
    (replaced(HOST, ("wb::current_stream()", STREAM)), 6,
     r"at::cuda::getCurrentCUDAStream \(line 9\) is for torch::Tensor: write wb::current_stream\(\) there"),
    (f"#include <torch/extension.h>\n{HOST}", 7, r"<torch/extension.h> \(line 2\) is for torch::Tensor: leave it out, or write torch::Tensor here"),
    (FULL, 9, r"wb::current_stream\(\) is for functions on Tensor; on torch::Tensor write at::cuda::getCurrentCUDAStream\(\)"),
    (f"// a kernel\n#include <torch/extension.h>\n{CUDA}", 3,
     r"<torch/extension.h> is for functions on torch::Tensor, and this cell has none: leave it out where '//! grid = ...' launches scale"),
    (replaced(CUDA, ("  int i", "  at::Half h;\n  int i")), 7, "at::Half is for functions on torch::Tensor, and this cell has none: write half"),
], ids=["torch::empty_like", "a stream of ATen", "an include", "a stream of the host tier", "an include beside a kernel", "a number of ATen"])  # fmt: skip
def test_words_of_two_tiers_are_told_at_once(cuda, text, line, words):
    refused(cuda, text, wb.SchemaError, line, words)


@pytest.mark.parametrize(
    "name", ["using at::Tensor;", "using namespace torch;", "using Tensor = at::Tensor;", "typedef at::Tensor Tensor;"]
)
def test_a_tensor_that_the_text_names_itself_is_torchs(name):
    schema = schema_of("Tensor x, float k -> Tensor")
    text = f"{name}\n{replaced(HOST, ('wb::current_stream()', STREAM))}"
    assert tiers.kernel(Source(text, "cuda", "cell"), schema, "forward", function="scale").tier == "full"


# ---------------------------------------------------------------- Triton

TUNED = "@triton.autotune([triton.Config({{'{}': b}}) for b in (32, 64)], key=['n'])\n@triton.jit"
WRITTEN = {
    "a plain number for a constexpr": (("@triton.jit", "N = 64\n@triton.jit"), ("* BLOCK +", "* N +"), wb.SchemaError, 5,
                                       r"kernel uses N, a plain int of the cell: .* write 'N = tl\.constexpr\(64\)'"),
    "a name that the cell lacks": (("* BLOCK +", "* SIZE +"), None, wb.SchemaError, 4,
                                   r"SIZE is not defined in this cell, .* \('SIZE = tl\.constexpr\(128\)'\)"),
    "numpy": (("return out", "return np.array(out)"), None, wb.SchemaError, 10, "np is not defined in this cell, .* write 'import numpy as np' in it"),
    "no launcher": ((TRITON[TRITON.index("def scale") :], ""), None, wb.SchemaError, 2, "no function is called 'scale': it takes the op's arguments"),
    "a launcher of another name": (("def scale", "def run"), None, wb.SchemaError, 2, "no function is called 'scale': .* functions here that launch: run"),
    "a launcher with one argument more": (("(x, k=2.0)", "(x, k, n)"), None, wb.SchemaError, 7, "the parameter 'n' binds to no argument; the arguments are x, k"),
    "a launcher with one misspelt": (("(x, k=2.0)", "(xx, k=2.0)"), None, wb.SchemaError, 7, "the parameter 'xx' binds to no argument; did you mean 'x'"),
    "a launcher with one less": (("(x, k=2.0)", "(x)"), None, wb.SchemaError, 9, "k is an argument of the op, which scale does not take: write it among the parameters of scale"),
    "a syntax error": (("* k,", "* k +,"), None, wb.BuildError, 5, "invalid syntax"),
    "CUDA in a Triton cell": ((TRITON, CUDA), None, wb.BuildError, 2, "this is CUDA, which goes into a %%cuda cell"),
    "tl misspelt": (("tl.program_id", "tl.program_ids"), None, wb.BuildError, 4,
                    "cell .7., line 4: module 'triton.language' has no attribute 'program_ids'; did you mean 'program_id'"),
    "a block that is no power of two": (("BLOCK=64", "BLOCK=48"), None, wb.BuildError, 4, "arange's range must be a power of 2"),
    "no constexpr": (("BLOCK: tl.constexpr", "BLOCK"), None, wb.BuildError, 4, "arange's arguments must be of type tl.constexpr"),
    "torch in a kernel": (("tl.arange(0", "torch.arange(0"), None, wb.BuildError, 4, "a kernel cannot call torch.arange, which is Python's; did you mean tl.arange"),
    "an argument that is missing": ((", BLOCK=64", ""), None, wb.SchemaError, 9, "kernel is launched without BLOCK"),
    "an argument misspelt": (("BLOCK=64", "BLOK=64"), None, wb.SchemaError, 9, "kernel has no parameter BLOK; did you mean BLOCK"),
    "an option misspelt": (("BLOCK=64", "BLOCK=64, num_warp=4"), None, wb.SchemaError, 9, "kernel has no parameter num_warp; did you mean num_warps"),
    "warps that are no power of two": (("BLOCK=64", "BLOCK=64, num_warps=6"), None, wb.SchemaError, 9, "kernel is launched with num_warps=6: Triton takes a power of two"),
    "an argument twice": (("x.numel(), B", "x.numel(), 3, B"), None, wb.SchemaError, 9, "kernel is given BLOCK twice, in its place and by name"),
    "no grid": ((LAUNCH, "kernel"), None, wb.SchemaError, 9, r"kernel is launched without a grid: write kernel\[\(blocks,\)\]\(\.\.\.\)"),
    "a grid that is no tuple": ((LAUNCH, "kernel[1]"), None, wb.SchemaError, 9, r"the grid of kernel is 1: write a tuple, kernel\[\(1,\)\]"),
    "a grid below zero": ((LAUNCH, "kernel[(-1,)]"), None, wb.SchemaError, 9, r"the grid of kernel is \(-1,\): a size is never negative"),
    "a grid that is too large": ((LAUNCH, "kernel[(1, 70000)]"), None, wb.SchemaError, 9,
                                r"the grid of kernel is \(1, 70000\): a GPU takes at most 2,147,483,647 by 65,535 by 65,535"),
    "a tensor that is no scalar": (("x, out, k, x", "x, out, torch.tensor(2.0, device=x.device), x"), None, wb.BuildError, 5,
                                  r"invalid operands of type pointer.*: a tensor arrives as a pointer; tl\.load\(\.\.\.\) brings its values"),
    "break": (("    tl.store", "    for j in range(3):\n        break\n    tl.store"), None, wb.BuildError, 6, "Triton knows no break and no continue"),
    "a name that one branch sets": (("    tl.store", "    if n > 9:\n        f = 2.0\n    tl.store"), ("* k,", "* f * k,"), wb.BuildError, 7,
                                   "f is not defined on each way here: give it a value before the `if`"),
    "a grid that is no integer": ((LAUNCH, "kernel[(x.numel() / 64,)]"), None, wb.SchemaError, 9, r"0\.5 is no integer; write triton\.cdiv"),
    "a grid that asks for another name": ((LAUNCH, "kernel[lambda meta: (triton.cdiv(x.numel(), meta['BLOCK_SIZE']),)]"), None, wb.SchemaError, 9,
                                         "the grid of kernel asks for 'BLOCK_SIZE', which its launch does not have; did you mean 'BLOCK'"),
    "a grid that returns a number": ((LAUNCH, "kernel[lambda meta: triton.cdiv(x.numel(), meta['BLOCK'])]"), None, wb.SchemaError, 9,
                                    r"the grid of kernel is a function that returns 1: it must return a tuple, \(1,\)"),
    "a configuration misspelt": (("@triton.jit", TUNED.format("BLOK")), (", BLOCK=64", ""), wb.SchemaError, 10,
                                 "kernel has no parameter BLOK, which its configurations give; did you mean BLOCK"),
    "a configuration and the launch": (("@triton.jit", TUNED.format("BLOCK")), None, wb.SchemaError, 10,
                                       "BLOCK of kernel is given at the launch, and its configurations give it too: leave it out of the launch"),
    "a heuristic misspelt": (("@triton.jit", "@triton.heuristics({'BLOK': lambda a: 64})\n@triton.jit"), (", BLOCK=64", ""), wb.SchemaError, 10,
                             "kernel has no parameter BLOK, which its heuristics give; did you mean BLOCK"),
    "a kernel that returns": (("i < n)\n\n", "i < n)\n    return i\n\n"), None, wb.SchemaError, 6, "kernel is launched, so nothing takes what it returns"),
    "a missing module": (("@triton.jit", "import nosuchmodule\n@triton.jit"), None, wb.BuildError, 2, "No module named 'nosuchmodule'"),
    "an exception in the launcher": (("    out =", "    raise ValueError('k is odd')\n    out ="), None, wb.TrialError, 8, r"cell \[7\], line 8: ValueError: k is odd"),
    "a method misspelt": (("x.numel(), 64", "x.nmel(), 64"), None, wb.TrialError, 9, "no attribute 'nmel'; did you mean 'numel'"),
    "no @triton.jit": (("@triton.jit\n", ""), None, wb.TrialError, 8, "is not subscriptable: does the kernel lack @triton.jit"),
    "two results": (("return out", "return out, out"), None, wb.TrialError, 7, "scale returned 2 results; scale_t gives out, a Tensor"),
    "no result": (("    return out\n", ""), None, wb.TrialError, 7, "scale returned nothing; scale_t gives out"),
    "tanh": (("* k,", "* tl.math.tanh(k),"), None, wb.BuildError, 5,
             r"no attribute 'tanh'; write 'from triton\.language\.extra import libdevice', then libdevice\.tanh\(\.\.\.\)"),
    "what tl has otherwise": (("i < n) *", "i < n, other=-tl.inf) *"), None, wb.BuildError, 5, r"no attribute 'inf'; write float\('inf'\)"),
    "a power": (("* k,", "** 2,"), None, wb.BuildError, 5, r"Triton has no \*\*; write v \* v"),
    "a keyword misspelt": (("i < n) * k", "msk=i < n) * k"), None, wb.BuildError, 5,
                           r"tl\.load\(\) got an unexpected keyword argument 'msk'; did you mean 'mask'"),
    "a keyword of torch": (("* k,", "* k + tl.max(i, 0, keepdim=True),"), None, wb.BuildError, 5,
                           r"tl\.max\(\) got an unexpected keyword argument 'keepdim'; did you mean 'keep_dims'"),
    "a keyword that it has none like": (("* k,", "* k + tl.sum(i, dim=0),"), None, wb.BuildError, 5,
                                       r"tl\.sum\(\) got an unexpected keyword argument 'dim'; it takes input, axis, keep_dims, dtype"),
    "a dtype that a function does not take": (("tl.load(x + i, i < n) *", "tl.erf(tl.load(x + i, i < n).to(tl.float16)) *"), None, wb.BuildError, 5,
                                             r"but got fp16; convert it first, with \.to\(tl\.float32\)"),
    "shapes that do not fit": (("* k,", "* k + tl.arange(0, 32),"), None, wb.BuildError, 5, r"v\[:, None\] and v\[None, :\] give a dimension more"),
    "an element": (("* k,", "* k + i[0],"), None, wb.BuildError, 5, r"unsupported tensor index.*; a tensor takes None and : alone"),
    "a function that is not there": (("* k,", "* factor(k),"), None, wb.SchemaError, 5, r"define it in the cell \('def factor\(\.\.\.\): \.\.\.'\)"),
    "an autograd.Function": (("def scale(x, k=2.0):", "class Scale(torch.autograd.Function):\n  def forward(ctx, x, k):"), None, wb.SchemaError, 7,
                             "what Scale does in its forward belongs into one, without ctx"),
    "a result elsewhere": (("return out", "return out.to('meta')"), None, wb.TrialError, 7, "scale returned out on meta; x is on cpu"),
}  # fmt: skip


@without_gpu
@pytest.mark.parametrize("what", WRITTEN)
def test_triton_cells(triton, what, capfd):
    *changes, kind, line, words = WRITTEN[what]
    text = replaced(TRITON, *filter(None, changes))
    error = refused(triton, text, kind, line, words, "triton", entry="scale")
    for said in getattr(error, "diagnostics", ()):
        assert said.excerpt == text.split("\n")[said.line - 2]  # as it was typed, so that the column fits
    assert capfd.readouterr() == ("", ""), "Triton's own dump is no message"


@without_gpu
def test_a_grid_of_nothing_is_noted_beside_what_it_did_not_write(triton):
    former = triton.runs("forward", "cuda")
    with pytest.raises(wb.TrialError, match="32 of 32 elements never written"):
        cell(triton, replaced(TRITON, ("triton.cdiv(x.numel(), 64)", "x.numel() // 64")), "triton", entry="scale")
    assert triton.runs("forward", "cuda") == former and torch.equal(triton(X, 3.0), X * 3)
    noted = " ".join(triton.last_line.notes)
    assert "line 9: warning: the grid of kernel is (0,) here, so nothing of it runs; write triton.cdiv(a, b)" in noted


@without_gpu
def test_a_key_of_autotune_that_is_no_parameter_is_noted(triton):
    """Triton passes over it without a word, and one configuration serves all sizes."""
    text = replaced(TRITON, ("@triton.jit", TUNED.format("BLOCK").replace("'n'", "'N'")), (", BLOCK=64", ""))
    wb.triton(triton, text, entry="scale")
    (note,) = [n for n in triton.last_line.notes if "warning" in n]
    assert note.endswith("line 9: warning: kernel has no parameter N, which autotune has as a key; did you mean n?")


@without_gpu
@pytest.mark.parametrize("arch", ["sm_42", "sm_150"])
def test_an_architecture_that_triton_does_not_know(triton, monkeypatch, capfd, arch):
    monkeypatch.setenv("WORKBENCH_ARCH", arch)
    words = rf"Triton does not compile for {arch} \(its ptxas knows no {arch}a?\): set WORKBENCH_ARCH"
    refused(triton, replaced(TRITON, ("* k,", "* k * 1,")), wb.ToolchainError, 0, words, "triton", entry="scale")
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------- the machine


def absent(monkeypatch, package: str) -> None:
    """Importing the package fails, as where it is not installed."""
    usual = builtins.__import__

    def imported(name, *args, **kwargs):
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return usual(name, *args, **kwargs)

    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", imported)


def test_no_cuda_bindings(cuda, monkeypatch):
    caches = (nvrtc_library._nvrtc, nvrtc_library.version, nvrtc_library.architectures)
    for cached in caches:
        cached.cache_clear()
    with monkeypatch.context() as patch:
        absent(patch, "cuda")
        refused(
            cuda,
            CUDA,
            wb.ToolchainError,
            0,
            r"package cuda-bindings, which cannot be imported \(No module named 'cuda'\)\. Type `pip install 'kernel-workbench\[cuda\]'`",
        )
    for cached in caches:
        cached.cache_clear()
    cell(cuda, CUDA)  # once it is installed the next cell finds it


def test_no_nvrtc_library(cuda, monkeypatch):
    from cuda.bindings import nvrtc

    def lost():
        raise RuntimeError('Failure finding "libnvrtc.so"')

    nvrtc_library._nvrtc.cache_clear()
    nvrtc_library.version.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(nvrtc, "nvrtcVersion", lost)
        refused(
            cuda,
            CUDA,
            wb.ToolchainError,
            0,
            r"cuda-bindings finds no NVRTC library, libnvrtc\.so .* or install the CUDA toolkit",
        )
    nvrtc_library.version.cache_clear()


def test_no_triton(triton, monkeypatch):
    with monkeypatch.context() as patch:
        absent(patch, "triton")
        words = r"Triton cells need Triton, which cannot be imported \(No module named 'triton'\): pip install triton"
        refused_text = replaced(TRITON, ("* k,", "* k * 2,"))
        with pytest.raises(wb.ToolchainError, match=words) as raised:
            cell(triton, refused_text, "triton", entry="scale")
    assert re.search(r"scale_t forward still runs v\d+$", str(raised.value)) and torch.equal(triton(X, 3.0), X * 3)


@pytest.mark.parametrize(("text", "what"), [
    (replaced(HOST, ("  return out", "  cudaDeviceSynchronize();\n  return out")), "cudaDeviceSynchronize"),
    (f"#include <torch/extension.h>\n{FULL.replace(', 0, wb::current_stream()', '')}", r"CUDA code on torch::Tensor"),
])  # fmt: skip
def test_no_nvcc(cuda, monkeypatch, text, what):
    monkeypatch.setattr(nvcc.shutil, "which", lambda name, path=None, **_: None)
    refused(
        cuda,
        text,
        wb.ToolchainError,
        0,
        rf"{what} needs nvcc, and there is none: .* Install the CUDA toolkit .* CUDA_HOME",
    )


def test_a_driver_that_is_older_than_the_toolkit(fake):
    fake.set(load_code=222, version=12040)
    words = r"the NVIDIA driver knows CUDA 12\.4, and the kernel was compiled by a newer toolkit .*Update the driver, or .*nvidia-cuda-nvrtc-cu12<=12\.4\.999"
    with pytest.raises(wb.ToolchainError, match=words):
        installed(schema_of("Tensor x, float k -> Tensor"), CUDA, dtypes=[{"x": torch.float32}])


# ---------------------------------------------------------------- in a notebook


@pytest.fixture
def shell():
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    from workbench import magic

    shell = interactive.InteractiveShell()
    shell.run_line_magic("load_ext", "workbench")
    yield shell
    magic.unregister(shell)


@pytest.mark.parametrize(("magic", "text", "line", "words"), [
    ("cuda", replaced(CUDA, (BLOCK, "block = 2048")), 5, "the block is 2048, a block has at most 1024 threads"),
    ("cuda", replaced(CUDA, ("* k)", "* kk)")), 8, 'identifier "kk" is undefined'),
    ("triton", replaced(TRITON, ("BLOCK=64", "BLOK=64")), 9, "kernel has no parameter BLOK; did you mean BLOCK?"),
])  # fmt: skip
def test_what_a_notebook_shows_is_short_and_names_the_cell(cuda, shell, magic, text, line, words):
    from IPython.utils.capture import capture_output

    with capture_output() as said:
        result = shell.run_cell(f"%%{magic} {cuda.qualname} --entry scale\n{text}", store_history=True)
    assert isinstance(result.error_in_exec, wb.WorkbenchError)
    assert f"cell [1], line {line}: " in str(result.error_in_exec) and words in said.stdout
    assert "Traceback" not in said.stdout and "cells.py" not in said.stdout and len(said.stdout.splitlines()) < 12


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(("change", "words"), [
    ((BLOCK, "block = n * 40"), "the block is 1280, a block has at most 1024 threads"),
    ((GRID, "grid = n // 256"), "the grid is 0, it needs at least 1 block"),
    ((BLOCK, "block = 256\n//! shared = n * 10000"), "320000 bytes of shared memory are more than"),
    ((BLOCK, "block = 256\n//! cluster = n // 2"), "the cluster is 16, it has 1 to 8 blocks"),
])  # fmt: skip
def test_a_gpu_refuses_a_launch_and_keeps_the_version(cuda, change, words):
    x = X.cuda()
    assert torch.equal(cuda(x, 3.0), x * 3)
    with pytest.raises(wb.TrialError, match=words):
        cell(cuda, replaced(CUDA, change))
    assert torch.equal(cuda(x, 3.0), x * 3)


@pytest.mark.gpu
def test_an_output_on_the_cpu_and_tensors_on_two_devices(triton):
    with pytest.raises(wb.TrialError, match="scale returned out on cpu; x is on cuda:0"):
        cell(triton, replaced(TRITON, ("return out", "return out.cpu()")), "triton", entry="scale")
    add = wb.op(f"{NS}::add(Tensor x, Tensor y) -> Tensor")
    text = (
        replaced(CUDA, ("scale(const T* x", "add(const T* x, const T* y"))
        .replace("float k, ", "")
        .replace("* k", "+ y[i]")
    )
    cell(add, text)
    with pytest.raises(RuntimeError, match="y is on cpu|y.*cpu"):
        add(torch.ones(2, device="cuda"), torch.ones(2))
    assert add(torch.ones(2, device="cuda"), torch.ones(2, device="cuda")).tolist() == [2.0, 2.0]
