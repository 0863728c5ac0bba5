# One program a row, which it holds whole


@triton.jit
def forward_kernel(x, y, k, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < cols
    v = tl.load(x + row * cols + c, mask=inside, other=-float("inf")).to(tl.float32) * k
    v = tl.where(inside, v, -float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * cols + c, e / tl.sum(e, 0), mask=inside)


@triton.jit
def backward_kernel(grad_y, y, grad_x, k, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < cols
    g = tl.load(grad_y + row * cols + c, mask=inside, other=0.0).to(tl.float32)
    p = tl.load(y + row * cols + c, mask=inside, other=0.0).to(tl.float32)
    tl.store(grad_x + row * cols + c, k * p * (g - tl.sum(g * p, 0)), mask=inside)


def softmax(x, k=1.0):
    x = x.contiguous()
    cols = x.size(-1)
    y = torch.empty_like(x)
    block = triton.next_power_of_2(cols)
    if y.numel():
        forward_kernel[(y.numel() // cols,)](x, y, k, cols, BLOCK=block, num_warps=min(max(block // 512, 1), 16))
    return y


def backward(grad_y, y, k):
    grad_y, y = grad_y.contiguous(), y.contiguous()
    cols = y.size(-1)
    grad_x = torch.empty_like(y)
    block = triton.next_power_of_2(cols)
    if y.numel():
        backward_kernel[(y.numel() // cols,)](grad_y, y, grad_x, k, cols, BLOCK=block, num_warps=min(max(block // 512, 1), 16))
    return grad_x
