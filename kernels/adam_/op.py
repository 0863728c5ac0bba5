"""One step of Adam for a list of tensors, in place, with the bias corrections of step `step` (Kingma and Ba, 2015)."""

from torch import Tensor

import workbench as wb


@wb.op("lab::adam_", mutates=("params", "m", "v"))
def adam_(
    params: list[Tensor], grads: list[Tensor], m: list[Tensor], v: list[Tensor],
    lr: float, b1: float, b2: float, eps: float, step: int,
) -> None:  # fmt: skip
    """Update the moments m and v by the gradients, then the parameters by the moments."""
    for p, g, a, b in zip(params, grads, m, v):
        a.lerp_(g, 1 - b1)
        b.mul_(b2).addcmul_(g, g, value=1 - b2)
        p.addcdiv_(a / (1 - b1**step), (b / (1 - b2**step)).sqrt() + eps, value=-lr)


@adam_.cases
def _(t):
    shapes = (3, 5), (128,), (0,), (17, 33)
    four = [[t(*s, low=0) for s in shapes] for _ in range(4)]
    yield *four, 1e-3, 0.9, 0.999, 1e-8, 1
    yield wb.case("late", *four, 1e-3, 0.9, 0.999, 1e-8, 1000)
    yield wb.case("nothing", [], [], [], [], 1e-3, 0.9, 0.999, 1e-8, 1)
    large = [[t(4096, 1024, low=0) for _ in range(8)] for _ in range(4)]
    yield wb.case("big", *large, 1e-3, 0.9, 0.999, 1e-8, 7, bench=True)
