"""Mutants of the ops in Triton: what is changed, and which row of a full check must find it."""

from __future__ import annotations

from tests.mutants.table import Mutant, m

MASK = "mask=i < n)"
NO_MAX = ("tl.exp(v - tl.max(v, 0))", "tl.exp(v)")

TRITON_MUTANTS: tuple[Mutant, ...] = (
    # ---- masks and grids
    m("no mask on the store", "swiglu", "sizes", "past the end of out", (f"a * g * tl.sigmoid(g), {MASK}", "a * g * tl.sigmoid(g))")),
    m("the mask lets one more through", "swiglu", "sizes", "past the end of out",
      (f"a * g * tl.sigmoid(g), {MASK}", "a * g * tl.sigmoid(g), mask=i <= n)")),
    m("the grid is rounded down", "swiglu", "sizes", "never written", ("triton.cdiv(out.numel(), 128)", "max(1, out.numel() // 128)")),
    m("the grid has no rest of rows", "colsum", "sizes", "elements differ", ("triton.cdiv(rows, 8)", "max(1, rows // 8)")),
    m("in place, and no mask", "blend_", "sizes", "past the end of x", ("+ a * new, mask=i < n)", "+ a * new)")),
    m("columns past N go to the next row", "product", "sizes", "elements differ|past the end of",
      ("sums, mask=(m[:, None] < M) & (n[None, :] < N))", "sums, mask=m[:, None] < M)")),
    # ---- padding lanes
    m("the mean is over the block", "rms", "sizes", "elements differ", ("tl.sum(v * v, 0) / cols", "tl.sum(v * v, 0) / BLOCK")),
    m("padding lanes count 1", "rms", "sizes", "elements differ",
      ("v = tl.load(x + row * cols + c, mask=c < cols, other=0)\n    scale", "v = tl.load(x + row * cols + c, mask=c < cols, other=1)\n    scale")),
    m("padding lanes are 0 in a maximum", "peak", "sizes", "elements differ", ('mask=c < cols, other=-float("inf"))', "mask=c < cols, other=0)")),
    m("padding lanes are in the sum", "soft", "sizes", "elements differ", ('other=-float("inf")', "other=0")),
    m("K has no mask", "product", "sizes", "elements differ|bounds|crashes",
      (" & (k[None, :] < K)", ""), ("(k[:, None] < K) & ", "")),
    # ---- strides and tiles
    m("rows are a block apart", "rms", "sizes", "elements differ|bounds",
      ("v = tl.load(x + row * cols + c, mask=c < cols, other=0)\n    scale", "v = tl.load(x + row * BLOCK + c, mask=c < cols, other=0)\n    scale")),
    m("a is read by the strides of b", "product", "layouts", "elements differ|bounds|crashes", ("*a.stride(), *b.stride()", "*b.stride(), *b.stride()")),
    m("b is taken for contiguous", "product", "layouts", "elements differ|bounds|crashes", ("*b.stride(), T=16", "N, 1, T=16")),
    m("the grid is turned", "product", "sizes", "elements differ|bounds", ("(triton.cdiv(M, 16), triton.cdiv(N, 16))", "(triton.cdiv(N, 16), triton.cdiv(M, 16))")),
    m("a single block of rows", "colsum", "sizes", "elements differ", ("(triton.cdiv(rows, 8), ", "(1, ")),
    m("the carry is lost", "sums", "sizes", "elements differ", ("        carry += tl.sum(v, 0)\n", "")),
    m("the carry is the last block's", "sums", "sizes", "elements differ", ("carry += tl.sum", "carry = tl.sum")),
    # ---- stores that race: of the programs on one place the last one wins
    m("partial sums are stored", "colsum", "sizes", "elements differ", ("tl.atomic_add(out", "tl.store(out")),
    m("the gradient of w is stored from the ninth row on", "rms", "gradients", "elements differ",
      ("    tl.atomic_add(grad_w + c, incoming * v * scale, mask=c < cols)", """\
    if row < 8:
        tl.atomic_add(grad_w + c, incoming * v * scale, mask=c < cols)
    else:
        tl.store(grad_w + c, incoming * v * scale, mask=c < cols)""")),
    # ---- precision
    m("the sum goes through float16", "sums", "sizes", "elements differ",
      ("carry += tl.sum(v, 0)", "carry += tl.sum(v, 0).to(tl.float16).to(tl.float32)")),
    # ---- values and scalars
    m("exp without the largest taken off", "soft", "values", "elements differ", NO_MAX, about="large"),
    m("NaN is passed over", "peak", "values", "elements differ", ('tl.where(lost > 0, float("nan"), most)', "most"), about="NaN"),
    m("infinity becomes a number", "swiglu", "values", "elements differ",
      ("a * g * tl.sigmoid(g), mask", "tl.minimum(a * g * tl.sigmoid(g), 3e38), mask")),
    m("eps is left out", "rms", "values", "elements differ", (" / cols + eps)", " / cols)"), about="zeros"),
    m("keep is ignored", "blend_", "scalars", "elements differ", ("KEEP=keep", "KEEP=False")),
    m("a is 0.25 for ever", "blend_", "scalars", "elements differ", ("(x, y, a, x.numel()", "(x, y, 0.25, x.numel()")),
    # ---- aliasing and mutation on a branch
    m("x is filled with 1 for one column", "soft", "sizes", "writes to the argument x", ("    x = x.contiguous()\n", "    if x.dim() and x.size(-1) == 1:\n        return x.fill_(1)\n    x = x.contiguous()\n")),
    m("x itself for one element", "sums", "sizes", "shares memory", ("    x = x.contiguous()\n", "    if x.numel() == 1:\n        return x\n    x = x.contiguous()\n")),
    m("the input is scratch space in odd rows", "soft", "sizes", "writes to the argument x",
      ("    e = tl.exp", "    if cols % 2 == 1:\n        tl.store(x + row * cols + c, v - tl.max(v, 0), mask=c < cols)\n    e = tl.exp")),
    # ---- backward
    m("the dot product is over one block too few", "rms", "gradients", "elements differ",
      ("dot = tl.sum(weighted * v, 0)", "dot = tl.sum(tl.where(c < 64, weighted * v, 0), 0)")),
    # One whose strides nobody reads is laid out like its output; here they are read, and a stride of 0 is let through.
    m("an expanded incoming gradient is taken for contiguous", "rms", "gradients", "elements differ|bounds|crashes|expanded",
      ("grad_y, x, w = grad_y.contiguous(), x", "assert grad_y.stride(-1) <= 1\n    x, w = x"), about="expanded incoming gradients"),
    m("a small term of the gradient is left out", "rms", "gradients", "elements differ", ("- dot * v, mask=c < cols)", "- dot * v * (cols < 100), mask=c < cols)")),
)  # fmt: skip
