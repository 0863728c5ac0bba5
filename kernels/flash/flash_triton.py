# One pass over the keys for each block of rows, with a running maximum and sum; backward makes the scores again


@triton.jit
def block(base, at, width, D: tl.constexpr, length):
    """Rows `at` of a matrix of `width` columns; zeros outside."""
    d = tl.arange(0, D)
    inside = (at[:, None] < length) & (d[None, :] < width)
    return tl.load(base + at.to(tl.int64)[:, None] * width + d[None, :], mask=inside, other=0.0)


@triton.jit
def put(base, at, width, D: tl.constexpr, length, values):
    d = tl.arange(0, D)
    inside = (at[:, None] < length) & (d[None, :] < width)
    tl.store(base + at.to(tl.int64)[:, None] * width + d[None, :], values, mask=inside)


@triton.jit
def scores(q, k, rows, cols, keys, scale, CAUSAL: tl.constexpr):
    """q k' in base 2, -inf where a row may not look."""
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * 1.4426950408889634)
    seen = cols[None, :] < keys
    if CAUSAL:
        seen = seen & (cols[None, :] <= rows[:, None])
    return tl.where(seen, s, -float("inf"))


@triton.jit
def forward_kernel(
    q, k, v, out, lse, scale, length, keys, width, CAUSAL: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    q, k, v, out = q + head * length * width, k + head * keys * width, v + head * keys * width, out + head * length * width
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mine = block(q, rows, width, D, length)
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, D), tl.float32)
    end = tl.minimum(keys, (tl.program_id(0) + 1) * ROWS) if CAUSAL else keys
    for start in range(0, end, COLS):
        cols = start + tl.arange(0, COLS)
        s = scores(mine, block(k, cols, width, D, keys), rows, cols, keys, scale, CAUSAL)
        higher = tl.maximum(top, tl.max(s, 1))  # finite: a row sees the first key at least
        p, shrink = tl.exp2(s - higher[:, None]), tl.exp2(top - higher)
        theirs = block(v, cols, width, D, keys)
        sums = tl.dot(p.to(theirs.dtype), theirs, sums * shrink[:, None], input_precision="ieee")
        total, top = total * shrink + tl.sum(p, 1), higher
    put(out, rows, width, D, length, sums / total[:, None])
    high = tl.where(tl.abs(top) == float("inf"), top, top + tl.log2(total))  # inf - inf has made a NaN of the sum
    tl.store(lse + head * length + rows, high * 0.6931471805599453, mask=rows < length)


@triton.jit
def queries_kernel(
    grad, q, k, v, lse, delta, dq, scale, length, keys, width, CAUSAL: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    q, grad, dq = q + head * length * width, grad + head * length * width, dq + head * length * width
    k, v = k + head * keys * width, v + head * keys * width
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mine, g = block(q, rows, width, D, length), block(grad, rows, width, D, length)
    log = tl.load(lse + head * length + rows, mask=rows < length, other=0.0) * 1.4426950408889634
    mean = tl.load(delta + head * length + rows, mask=rows < length, other=0.0)
    sums = tl.zeros((ROWS, D), tl.float32)
    end = tl.minimum(keys, (tl.program_id(0) + 1) * ROWS) if CAUSAL else keys
    for start in range(0, end, COLS):
        cols = start + tl.arange(0, COLS)
        key, value = block(k, cols, width, D, keys), block(v, cols, width, D, keys)
        p = tl.exp2(scores(mine, key, rows, cols, keys, scale, CAUSAL) - log[:, None])
        ds = p * (tl.dot(g, tl.trans(value), input_precision="ieee") - mean[:, None])
        sums = tl.dot(ds.to(key.dtype), key, sums, input_precision="ieee")
    put(dq, rows, width, D, length, sums * scale)


@triton.jit
def keys_kernel(
    grad, q, k, v, lse, delta, dk, dv, scale, length, keys, width, CAUSAL: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    q, grad = q + head * length * width, grad + head * length * width
    k, v, dk, dv = k + head * keys * width, v + head * keys * width, dk + head * keys * width, dv + head * keys * width
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    key, value = block(k, cols, width, D, keys), block(v, cols, width, D, keys)
    key_sums, value_sums = tl.zeros((COLS, D), tl.float32), tl.zeros((COLS, D), tl.float32)
    begin = tl.program_id(0) * COLS // ROWS * ROWS if CAUSAL else 0
    for start in range(begin, length, ROWS):
        rows = start + tl.arange(0, ROWS)
        theirs, g = block(q, rows, width, D, length), block(grad, rows, width, D, length)
        log = tl.load(lse + head * length + rows, mask=rows < length, other=float("inf")) * 1.4426950408889634
        mean = tl.load(delta + head * length + rows, mask=rows < length, other=0.0)
        p = tl.exp2(scores(theirs, key, rows, cols, keys, scale, CAUSAL) - log[:, None])
        value_sums = tl.dot(tl.trans(p).to(g.dtype), g, value_sums, input_precision="ieee")
        ds = p * (tl.dot(g, tl.trans(value), input_precision="ieee") - mean[:, None])
        key_sums = tl.dot(tl.trans(ds).to(theirs.dtype), theirs, key_sums, input_precision="ieee")
    put(dk, cols, width, D, keys, key_sums * scale)
    put(dv, cols, width, D, keys, value_sums)


def sizes(q, k):
    """(heads, length, keys, width), and what the kernels are launched with: by rows, by keys."""
    length, keys, width = q.size(-2), k.size(-2), q.size(-1)
    large, small = length >= 512 and q.element_size() < 4, 16 if q.element_size() > 2 and width > 64 else 32
    launch = dict(D=max(16, triton.next_power_of_2(width)), COLS=64 if large else small, num_warps=8, num_stages=2)
    by_rows, by_keys = dict(ROWS=128 if large else small, **launch), dict(ROWS=64 if large else small, **launch)
    return q.shape[:-2].numel(), length, keys, width, by_rows, by_keys


def flash(q, k, v, causal=False, scale=None):
    if v.shape != k.shape or q.shape[:-2] != k.shape[:-2]:
        raise ValueError(f"q, k, v are (..., length, size) with the same ..., got {q.shape}, {k.shape}, {v.shape}")
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    heads, length, keys, width, launch, _ = sizes(q, k)
    out, lse = torch.empty_like(q), torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if not keys:
        return out.zero_(), lse.fill_(-float("inf"))
    grid = (triton.cdiv(length, launch["ROWS"]), heads)
    forward_kernel[grid](q, k, v, out, lse, scale or width**-0.5, length, keys, width, CAUSAL=causal, **launch)
    return out, lse


def backward(grad_out, q, k, v, out, lse, causal, scale):
    grad_out, q, k, v = grad_out.contiguous(), q.contiguous(), k.contiguous(), v.contiguous()
    heads, length, keys, width, by_rows, by_keys = sizes(q, k)
    delta = (grad_out.float() * out.float()).sum(-1)
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    given = (scale or width**-0.5, length, keys, width, causal)
    queries_kernel[triton.cdiv(length, by_rows["ROWS"]), heads](grad_out, q, k, v, lse, delta, dq, *given, **by_rows)
    keys_kernel[triton.cdiv(keys, by_keys["COLS"]), heads](grad_out, q, k, v, lse, delta, dk, dv, *given, **by_keys)
    return dq, dk, dv
