"""What makes an op whole in torch, the same in every package: our own modules, cut to what a package needs. Pure text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import borrowed, templates
from .model import SavedOp

_HERE = tuple(
    (f"{dots}{n}", f".{n}") for n in ("errors", "schema", "reference", "holes", "pullback") for dots in (".", "..")
)


def modules(ops: Sequence[SavedOp]) -> dict[str, str]:
    """The files of `_runtime`, by name without `.py`."""
    made = {
        "__init__": '"""What makes an op whole in torch, the same for every op of this package."""\n',
        "errors": templates.render("python/errors.py.j2"),
        "schema": schema(),
        "reference": borrowed.module("reference", places=_HERE),
        "holes": borrowed.module("holes", places=_HERE),
        "gradient": borrowed.module("register.gradient", places=_HERE),
        "vjp": borrowed.module("register.vjp"),
        "written": borrowed.module("register.written", places=_HERE),
        "pullback": borrowed.module("register.pullback", places=_HERE),
        "eager": borrowed.module("register.eager", places=_HERE),
        "batching": borrowed.module("register.batching", places=_HERE),
        "entry": entry(),
        "register": templates.render("python/register.py.j2"),
    }
    if any(op.fakes for op in ops):
        keep = ("cdiv", "next_power_of_2", "choose", "_symbolic", "_sqrt")
        body = borrowed.module("directives.symbolic", keep=keep, head="The functions that say how large a tensor is, on "
                               "numbers and on torch's symbols.")  # fmt: skip
        body = body.replace("import functools\n", "import functools\nimport operator\n") + _REDUCTIONS
        made["sizes"] = body.replace("_sqrt(v: Any)", "sqrt(v: Any)")
    if any(s.language == "triton" for op in ops for s in op.scripts):
        made["call"] = borrowed.module("build.triton_call", places=(("..errors", ".errors"), ("..schema", ".schema")))
        made["triton_kernel"] = templates.render("python/triton_kernel.py.j2")
    return made


_REDUCTIONS = """

def minimum(*values: Any) -> Any:
    return functools.reduce(torch.sym_min, values)


def maximum(*values: Any) -> Any:
    return functools.reduce(torch.sym_max, values)


def prod(sizes: Any) -> Any:
    return functools.reduce(operator.mul, sizes, 1)
"""


def schema() -> str:
    """`Schema` and `Argument`, with the spelling of defaults."""
    keep = ("NO_DEFAULT", "Argument", "Schema", "spell_results")
    text = borrowed.module(
        "schema", keep=keep, places=((".defaults", ".defaults"),), head="What an op takes and gives."
    )
    text = text.replace("from .defaults import spell_default\n", "")
    defaults = borrowed.module("defaults", keep=("spell_default",)).partition("def spell_default")
    forward = borrowed.module("register.registration", keep=("forward_schema",)).partition("def forward_schema")
    text = re.sub(r"    >>> str\(parse\((.*?)\)\)\n.*?\n\n", "", text, flags=re.DOTALL)
    text = text.replace("import torch\n", "") if "torch." not in text.partition("import torch\n")[2] else text
    tail = "".join(defaults[1:]) + "\n\n" + "".join(forward[1:])
    if "import torch\n" not in text and "torch." in tail:
        text = re.sub(r"(from functools import cached_property\n)", r"\1\nimport torch\n", text, count=1)
    return text.rstrip() + "\n\n\n" + tail


def entry() -> str:
    """The few lines that run at every call."""
    texts = ("QUIET", "AUTOGRAD", "autograd_text", "compiled")
    keep = (*texts, "absent", "parameters", "arguments", "all_plain", "wants_gradient")
    text = borrowed.module("entry", keep=keep, places=_HERE)
    return text.rstrip() + _QUIET


_QUIET = """


# What the public functions ask before they go the short way.
modes = torch._C._len_torch_dispatch_stack
function_modes = torch._C._len_torch_function_stack
transform = torch._C._functorch.peek_interpreter_stack
dual = torch.autograd.forward_ad
grad_enabled = torch.is_grad_enabled
compiling = torch.compiler.is_compiling
plain = frozenset({torch.Tensor, torch.nn.Parameter})
"""
