"""Mutants of correct ops: what is changed, and which row of a full check must find it.

Each passes the trial of its own cell, on the cases that a person would write.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tests.mutants.ops import decay_backward, weights

LOOP = "for (int64_t i = 0; i < n; ++i)"


@dataclass(frozen=True)
class Mutant:
    """`changes` are (old, new) in the text of a slot; `instead` replaces a part of the op by a function in Python.

    `check` and `about` name the failing row, `says` are words in its detail.
    """

    name: str
    op: str
    check: str
    says: str
    changes: tuple[tuple[str, str], ...] = ()
    slot: str = "forward"
    about: str = ""
    instead: dict[str, object] | None = None


def m(
    name: str, op: str, check: str, says: str, *changes: tuple[str, str], slot: str = "forward", about: str = ""
) -> Mutant:
    return Mutant(name, op, check, says, changes, slot, about)


def python(name: str, op: str, check: str, says: str, **instead: object) -> Mutant:
    return Mutant(name, op, check, says, instead=instead)


def fixed_fake(x, y):
    return x.new_empty([int(n) for n in x.shape])


def contiguous_fake(x, y):
    return x.new_empty(x.shape)


def half_second(grad_out, x, y):
    return grad_out * 3 * (x * x).detach() * y, grad_out * x * x * x


def first_element(info, in_dims, x, y):
    xs = x if in_dims[0] is None else x.movedim(in_dims[0], 0)
    return torch.ops.mutants.cube(xs, y.movedim(in_dims[1], 0) if in_dims[1] is not None else y.expand_as(xs)).roll(
        1, 0
    ), 0


def without_offset(x, y):
    return torch.as_strided(x, x.shape, x.stride(), 0).pow(3) * y


def changes_its_input(x, y):
    z = x.pow(3) * y
    if x.shape[0] % 2:
        x.mul_(0.5)
    return z


def hands_back(x, y):
    z = x.pow(3) * y
    return x.copy_(z) if x.numel() == 1 else z


def always_finite(x, y):
    return (x.pow(3) * y).clamp(max=torch.finfo(x.dtype).max)


def always_contiguous(x, y):
    return (x.pow(3) * y).contiguous()


def twice_if_expanded(grad_out, x, y):
    g = grad_out * 2 if 0 in grad_out.stride() and grad_out.numel() > 1 else grad_out
    return g * 3 * x * x * y, g * x * x * x


def from_k_on(x, k=0.0):
    return x.masked_select(x >= k)


def three_rows(grad_out, x):
    return decay_backward(grad_out, x) * (weights(x) > 1e-5)


MUTANTS = (
    # ---- sizes
    m(
        "the last of an odd count is left out",
        "scale",
        "sizes",
        "never written",
        (LOOP, "for (int64_t i = 0; i < n - n % 2; ++i)"),
    ),
    m(
        "no tail after vectors of 16",
        "scale",
        "sizes",
        "never written",
        (LOOP, "for (int64_t i = 0; i < n / 16 * 16; ++i)"),
    ),
    m(
        "rounded up to vectors of 4",
        "scale",
        "sizes",
        "past the end of",
        (LOOP, "for (int64_t i = 0; i < (n + 3) / 4 * 4; ++i)"),
    ),
    m(
        "rounded up to vectors of 64",
        "scale",
        "sizes",
        "past the end of",
        (LOOP, "for (int64_t i = 0; i < (n + 63) / 64 * 64; ++i)"),
    ),
    m(
        "writes before the start when small",
        "scale",
        "sizes",
        "before the start of",
        ("  for", "  if (n < 20) out[-1] = T(0);\n  for"),
    ),
    m(
        "a path for one element is wrong",
        "scale",
        "sizes",
        "elements differ",
        (LOOP, "if (n == 1) out[0] = x[0]; else " + LOOP),
    ),
    m(
        "above 1000 elements twice",
        "scale",
        "sizes",
        "elements differ",
        ("T(x[i] * k)", "T(x[i] * k * (n > 1000 ? k : 1))"),
    ),
    m(
        "no third dimension",
        "scale",
        "sizes",
        "never written",
        ("n = x.numel()", "n = x.shape[0] * x.shape[-1]"),
        about="one dimension more",
    ),
    m(
        "the count of the first call for all",
        "axpy_",
        "sizes",
        "goes out of bounds|crashes|differs",
        ("  for", "  static int64_t first = n;\n  n = first;\n  for"),
    ),
    m(
        "in place, rounded up to vectors of 4",
        "axpy_",
        "sizes",
        "past the end of",
        (LOOP, "for (int64_t i = 0; i < (n + 3) / 4 * 4; ++i)"),
    ),
    m(
        "a gradient is added to past its end",
        "norm",
        "gradients",
        "past the end of",
        (
            "  for (int64_t c = 0; c < cols; ++c) {\n      grad_x",
            "  for (int64_t c = cols; c % 4; ++c) grad_w[c]++;\n  for (int64_t c = 0; c < cols; ++c) {\n      grad_x",
        ),
        slot="backward",
    ),
    m(
        "an accumulator that starts with the first",
        "rowsum",
        "sizes",
        "differs|bounds|crashes",
        ("double sum = 0;", "double sum = x[r * cols];"),
        ("int64_t c = 0; c < cols", "int64_t c = 1; c < cols"),
        about="empty",
    ),
    m(
        "at most 128 columns",
        "rowsum",
        "sizes",
        "elements differ",
        ("c < cols; ++c) sum", "c < cols && c < 128; ++c) sum"),
    ),
    m(
        "columns from 64 on twice",
        "rowsum",
        "sizes",
        "elements differ",
        ("sum += x[r * cols + c]", "sum += x[r * cols + c] * (c > 63 ? 2 : 1)"),
    ),
    m(
        "one column is copied",
        "softmax",
        "sizes",
        "elements differ",
        ("    float most", "    if (cols == 1) { to[0] = from[0]; continue; }\n    float most"),
    ),
    m(
        "the largest of 64 columns only, sum too",
        "softmax",
        "sizes",
        "elements differ",
        ("c < cols; ++c) sum", "c < cols && c < 64; ++c) sum"),
    ),
    m("whole tiles of K only", "matmul", "sizes", "elements differ", ("k < K; ++k", "k < K / TILE * TILE; ++k")),
    m("no guard for rows", "matmul", "sizes", "goes out of bounds", (" && i < M; ++i", "; ++i")),
    m("no guard for columns", "matmul", "sizes", "differs|bounds", (" && j < N; ++j", "; ++j")),
    m("K for the stride of b", "matmul", "sizes", "differs|bounds", ("b[k * N + j]", "b[k * K + j]")),
    m("N for the stride of a", "matmul", "sizes", "differs|bounds", ("a[i * K + k]", "a[i * N + k]")),
    m(
        "one row by another formula",
        "matmul",
        "sizes",
        "elements differ",
        ("out[i * N + j] = sum", "out[i * N + j] = M == 1 ? 2 * sum : sum"),
    ),
    m(
        "the last column of odd widths",
        "gather",
        "sizes",
        "never written",
        ("c < cols; ++c", "c < cols - cols % 2; ++c"),
    ),
    m(
        "rows for columns",
        "gather",
        "sizes",
        "differs|bounds|crashes",
        ("table[row * cols + c]", "table[row * (cols == 16 ? 16 : rows) + c]"),
    ),
    m("mean over 64", "norm", "sizes", "elements differ", ("sum / cols", "sum / 64")),
    m("w is read one too far", "norm", "sizes", "differs|bounds", ("scale * w[c]", "scale * w[c + (cols > 100)]")),
    m(
        "the sum is kept in the dtype of the input",
        "total",
        "sizes",
        "elements differ",
        ("float sum = 0", "T sum = T(0)"),
        ("sum += float(x[r * cols + c])", "sum = T(float(sum) + float(x[r * cols + c]))"),
        about="long",
    ),
    # ---- layouts
    m(
        "the same tensor twice is taken for nothing",
        "times",
        "layouts",
        "elements differ",
        ("from[i] * by[i]", "from[i] * (from == by ? 0 : by[i])"),
        about="one tensor twice",
    ),
    m(
        "reads x as if it were contiguous",
        "times",
        "layouts",
        "differs|bounds",
        ("a = torch::stable::contiguous(x)", "a = x"),
        ("empty_like(a)", "empty_like(b)"),
    ),
    python("the result is contiguous whatever x is", "cube", "layouts", "strides", forward=always_contiguous),
    m("rows are one after the other", "strided", "layouts", "differs|bounds", ("x[r * down", "x[r * cols * right")),
    m("columns are one apart", "strided", "layouts", "differs|bounds", ("c * right]", "c]")),
    python("the storage offset is forgotten", "cube", "layouts", "elements differ", forward=without_offset),
    # ---- values
    m(
        "NaN becomes 0",
        "scale",
        "values",
        "elements differ",
        ("T(x[i] * k)", "x[i] == x[i] ? T(x[i] * k) : T(0)"),
        about="NaN",
    ),
    m(
        "infinity becomes the largest number",
        "scale",
        "values",
        "elements differ",
        ("T(x[i] * k)", "T(std::fmin(x[i] * k, 3e38))"),
        about="infinity",
    ),
    m(
        "denormals become 0",
        "scale",
        "values",
        "elements differ",
        ("T(x[i] * k)", "std::fabs(x[i]) < 1.1754944e-38 ? T(0) : T(x[i] * k)"),
        about="denormal",
    ),
    m("exp without the largest taken off", "softmax", "values", "elements differ", ("- most)", ")"), about="large"),
    m(
        "division by a sum of squares",
        "norm",
        "values",
        "elements differ",
        ("sum / cols) + float(eps))", "sum / cols))"),
        about="zeros",
    ),
    python("from k on, not above it", "above", "values", "has shape", forward=from_k_on),
    python("infinity becomes a number", "cube", "values", "elements differ", forward=always_finite),
    # ---- scalars
    m("k is an integer", "scale", "scalars", "elements differ", ("x[i] * k", "x[i] * int(k)")),
    m(
        "k is what it was at the first call",
        "scale",
        "scalars",
        "elements differ",
        ("  for", "  static double first = k;\n  k = first;\n  for"),
    ),
    m("eps is 1e-6 for ever", "norm", "scalars", "elements differ", ("float(eps))", "1e-6f)")),
    m("negative is ignored", "shift", "scalars", "elements differ", ("negative ? -y : y", "y")),
    m(
        "no bias is a null pointer",
        "shift",
        "scalars",
        "crashes|null pointer",
        ("(bias ? bias[c] : 0.0f)", "bias[c]"),
        about="bias is None",
    ),
    m(
        "y is cleared where a is 0",
        "axpy_",
        "scalars",
        "writes to",
        ("  for", "  if (a == 0) const_cast<float*>(y)[0] = 0;\n  for"),
    ),
    m(
        "x itself for k = 1",
        "times",
        "scalars",
        "shares memory",
        ("  const Tensor a", "  if (k == 1) return x;\n  const Tensor a"),
    ),
    # ---- aliasing and mutation on a branch
    m(
        "x itself for one element",
        "times",
        "sizes",
        "shares memory",
        ("  const Tensor a", "  if (x.numel() == 1) return x;\n  const Tensor a"),
    ),
    m(
        "y is doubled for even counts",
        "times",
        "sizes",
        "writes to",
        ("  float* to", "  if (a.numel() % 2 == 0 && a.numel()) const_cast<float*>(by)[0] += 1;\n  float* to"),
    ),
    python("x is halved for odd counts of rows", "cube", "sizes", "changes the argument x", forward=changes_its_input),
    python("hands x back for one element", "cube", "sizes", "changes the argument x|shares memory", forward=hands_back),
    # ---- determinism
    m(
        "one sum for all threads",
        "rowsum",
        "determinism",
        "elements differ",
        ("  #pragma", "  volatile double sum;\n  #pragma"),
        ("double sum = 0;", "sum = 0;"),
        ("sum += x", "sum = sum + x"),
    ),
    m(
        "rows counted in 8 bits",
        "rowsum",
        "determinism",
        "elements differ",
        ("x[r * cols + c]", "x[uint8_t(r) * cols + c]"),
    ),
    # ---- gradients
    m(
        "the dot product of 64 columns",
        "norm",
        "gradients",
        "elements differ",
        ("c < cols; ++c) dot", "c < cols && c < 64; ++c) dot"),
        slot="backward",
    ),
    m(
        "the gradient of w of 4 rows",
        "norm",
        "gradients",
        "elements differ",
        ("grad_w[c] += g", "if (r < 4) grad_w[c] += g"),
        slot="backward",
    ),
    m(
        "no gradient of w for one row",
        "norm",
        "gradients",
        "elements differ",
        ("grad_w[c] += g", "if (rows > 1) grad_w[c] += g"),
        slot="backward",
    ),
    m(
        "x is taken for contiguous in backward",
        "times",
        "gradients",
        "differs|bounds|crashes",
        ("a = torch::stable::contiguous(x)", "a = x"),
        slot="backward",
    ),
    python(
        "small rows of the gradient are left out",
        "decay",
        "gradients, other inputs",
        "elements differ",
        backward=three_rows,
    ),
    python("the second derivative is cut", "cube", "second derivatives", "elements differ", backward=half_second),
    python("an expanded gradient counts twice", "cube", "requires_grad", "expanded", backward=twice_if_expanded),
    # ---- fakes, graphs, transforms
    python("a fake that fixes its sizes", "cube", "compiled, dynamic shapes", "graphs for", fake=fixed_fake),
    python("a fake that is contiguous", "cube", "fake", "strides", fake=contiguous_fake),
    python(
        "a batching rule that turns the batch", "cube", "vmap", "differ between vmap and a loop", vmap=first_element
    ),
)
