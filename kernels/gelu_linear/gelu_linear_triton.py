# A tiled product with bias and GELU before the tile leaves the registers
CONFIGS = [
    triton.Config({"M": 64, "N": 64, "K": 32}, num_warps=4, num_stages=3),
    triton.Config({"M": 64, "N": 128, "K": 32}, num_warps=4, num_stages=4),
    triton.Config({"M": 128, "N": 128, "K": 64}, num_warps=8, num_stages=3),
]


@triton.jit
def gelu(z):
    return 0.5 * z * (1 + tl.erf(z * 0.7071067811865476))


@triton.autotune(CONFIGS, key=["rows", "cols", "inner"])
@triton.jit
def forward_kernel(x, w, b, y, z, rows, cols, inner, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m = tl.program_id(0) * M + tl.arange(0, M)
    n = tl.program_id(1) * N + tl.arange(0, N)
    k = tl.arange(0, K)
    left = x + m.to(tl.int64)[:, None] * inner + k[None, :]
    right = w + n.to(tl.int64)[None, :] * inner + k[:, None]
    sums = tl.zeros((M, N), tl.float32)
    for start in range(0, inner, K):
        inside = k < inner - start
        a = tl.load(left + start, mask=(m[:, None] < rows) & inside[None, :], other=0.0)
        c = tl.load(right + start, mask=(n[None, :] < cols) & inside[:, None], other=0.0)
        sums = tl.dot(a, c, sums, input_precision="tf32x3")
    bias = tl.load(b + n, mask=n < cols, other=0.0).to(tl.float32)
    sums = (sums + bias[None, :]).to(z.dtype.element_ty).to(tl.float32)
    at = m.to(tl.int64)[:, None] * cols + n[None, :]
    inside = (m[:, None] < rows) & (n[None, :] < cols)
    tl.store(z + at, sums, mask=inside)
    tl.store(y + at, gelu(sums), mask=inside)


@triton.jit
def slope_kernel(grad_y, z, grad_z, count, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    v = tl.load(z + i, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(grad_y + i, mask=inside, other=0.0).to(tl.float32)
    density = 0.3989422804014327 * tl.exp(-0.5 * v * v)
    tl.store(grad_z + i, g * (0.5 * (1 + tl.erf(v * 0.7071067811865476)) + v * density), mask=inside)


def gelu_linear(x, w, b):
    if x.dim() != 2 or w.dim() != 2 or w.shape[1] != x.shape[1] or b.shape != w.shape[:1]:
        raise ValueError(f"x (M, K), w (N, K), b (N,), got {tuple(x.shape)}, {tuple(w.shape)}, {tuple(b.shape)}")
    x, w, b = x.contiguous(), w.contiguous(), b.contiguous()
    (rows, inner), cols = x.shape, w.shape[0]
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    z = torch.empty_like(y)
    if rows:
        tiles = lambda c: (triton.cdiv(rows, c["M"]), triton.cdiv(cols, c["N"]))
        forward_kernel[tiles](x, w, b, y, z, rows, cols, inner)
    return y, z


def backward(grad_y, x, w, z):
    grad_y = grad_y.contiguous()
    grad_z = torch.empty_like(z)
    if z.numel():
        slope_kernel[(triton.cdiv(z.numel(), 1024),)](grad_y, z, grad_z, z.numel(), BLOCK=1024)
    return grad_z @ w, grad_z.mT @ x, grad_z.sum(0)
