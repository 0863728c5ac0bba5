"""`Op`: a live operator, the only object that changes.

What an op is, says and shows. How its slots and versions change is in `live`; how a cell becomes a version in
`install`; how an op is checked in `check`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from . import schema
from .case import make
from .live import Live
from .report import Card, Check
from .version import Version

if TYPE_CHECKING:
    from .inspection import Comparison, Inspection


class Op(Live):
    """An operator of your own: call it, check it, replace a slot of it with a cell.

    >>> @wb.op("lab::scale")
    ... def scale(x: Tensor, k: float = 2.0) -> Tensor:
    ...     return x * k
    >>> scale(torch.ones(2))
    tensor([2., 2.])
    >>> torch.ops.lab.scale(torch.ones(2), 3.0)
    tensor([3., 3.])

    `schema`, `torch_op` (the `torch.ops` entry), `reference`, `slots` (what runs where) and `versions` (every build,
    refused ones too; number 0 is the reference) are there to be read.
    """

    def __new__(cls, *_: object) -> Op:  # noqa: PYI034  an instance of a subclass of its own
        # A class of its own for each op: its `__call__` is then the generated entry itself, with nothing in between.
        return object.__new__(type("Op", (Op,), {"__module__": __name__}))

    # ------------------------------------------------------------ what it is

    @property
    def qualname(self) -> str:
        return self.schema.qualname

    @property
    def torch_op(self) -> torch._ops.OpOverload:
        return self.public_op

    @property
    def reference(self) -> Callable | None:
        return self.definition.reference

    @property
    def slots(self) -> Mapping[tuple[str, str], Version]:
        """What fills each slot that is not the reference: `{("forward", "cpu"): v3}`."""
        return MappingProxyType(self._slots)

    @property
    def versions(self) -> tuple[Version, ...]:
        return tuple(self._versions)

    @property
    def random(self) -> bool:
        """Was the reference seen to draw from torch's generator?"""
        return self.definition.is_random

    @property
    def compare_function(self) -> Callable | None:
        return self.definition.compare

    @property
    def differentiable(self) -> bool:
        """Is there a gradient: the reference's vjp, `@op.backward`, or a backward cell?"""
        d = self.definition
        if not d.schema.tensors or not (d.schema.outputs or d.schema.mutated):
            return False
        if d.backward is not None or any(slot == "backward" for slot, _ in self._slots):
            return True
        hidden = d.compare is not None and bool(self._slots)
        return d.reference is not None and not d.is_random and not hidden

    def runs(self, slot: str = "forward", device: str = "cpu") -> Version:
        """The version in a slot: a kernel's, or number 0."""
        return self._slots.get((slot, device), self._versions[0])

    def still(self, slot: str, device: str) -> str:
        """What runs in a slot, as a refusal says it: `v6`, or `the reference`."""
        number = self.runs(slot, device).number
        if number:
            return f"v{number}"
        return "the reference" if self.reference is not None else "nothing"

    # ------------------------------------------------------------ decorators

    def cases(
        self, function: Callable | None = None, *, dtypes: torch.dtype | Sequence[torch.dtype] = (torch.float32,)
    ) -> Callable:
        """The cases of this op, from a generator that takes the tensor maker `t`.

        >>> @rmsnorm.cases(dtypes=(torch.float32, torch.bfloat16))
        ... def _(t):
        ...     yield t(4, 128), t(128)
        ...     yield wb.case("odd", t(5, 123), t(123))

        What `t` makes without a dtype is made in each of `dtypes`. Installed kernels are judged again.
        """
        if function is None:
            return lambda f: self.cases(f, dtypes=dtypes)
        self._cases = make(function, self.schema, dtypes)
        self._judge_again()
        return function

    def kernel(self, device: str) -> Callable:
        """A Python function as the forward of one device; it returns the outputs, then what the op saves.

        >>> @rmsnorm.kernel("cpu")
        ... def _(x, w, eps=1e-6):
        ...     return torch.nn.functional.rms_norm(x, w.shape, w, eps)
        """
        from . import python_kernel

        return lambda function: python_kernel.install(self, function, device)

    def backward(self, function: Callable) -> Callable:
        """A backward in Python. It takes what it names: arguments, outputs, saved tensors, `grad_` of each output.

        >>> @scale.backward
        ... def _(grad_out, k):
        ...     return grad_out * k

        It returns one gradient (or None) per floating-point tensor argument, in their order.
        """
        known = [a.name for a in self.schema.arguments] + list(self.schema.outputs) + list(self.schema.saves)
        known += [f"grad_{n}" for n in (*self.schema.outputs, *self.schema.mutated)]
        schema.named("backward", list(inspect.signature(function).parameters), tuple(known), self.qualname)
        self.definition.backward = function
        self.changed()
        return function

    def fake(self, function: Callable) -> Callable:
        """What the outputs look like, without data, where a run of the reference on fake tensors cannot tell."""
        self.definition.fake = function
        self.changed()
        return function

    def vmap(self, function: Callable) -> Callable:
        """A batching rule, as `torch.library.register_vmap` takes it: `(info, in_dims, *args)`."""
        self.definition.vmap = function
        self.changed()
        return function

    def compare(self, function: Callable) -> Callable:
        """What is compared where several answers are right: arguments and outputs in, tensors out.

        >>> @topk.compare
        ... def _(x, k, values, indices):
        ...     return values, x.gather(-1, indices)
        """
        self.definition.compare = function
        self._judge_again()
        return function

    # ------------------------------------------------------------ verbs

    def check(self, level: str = "quick", *, sanitize: bool = False) -> Check:
        """Check what is installed: agreement with the reference, torch's opcheck, gradients, compiled against eager.

        >>> rmsnorm.check().ok
        True

        `level="full"` sweeps over layouts, sizes, dtypes and values by itself; it takes seconds, shows how far it is,
        and an interrupt keeps the rows so far. A failed row names the smallest input that fails, and what to do.
        `sanitize=True` adds a run under tools that see every access to memory, which takes tens of seconds: of GPU
        kernels under NVIDIA's compute-sanitizer (memcheck and racecheck), of C++ under the compiler's own sanitizers.
        """
        from .check import full, quick

        if level != "full":
            report = quick.check(self, level)
        else:
            from . import tryout
            from .show import progress

            tries: list[Any] = [*tryout.tries_of(self), *tryout.tries_of(self, "backward")]
            with progress.shown() as tell:
                report = full.check(
                    self, lambda: tries, lambda: quick.check(self, "full"), device=quick.device_of(self), tell=tell
                )
        if sanitize:
            from . import sanitize as sanitizing

            report = replace(report, rows=(*report.rows, *sanitizing.rows(self)))
        self.last_check = report
        return report

    def inspect(
        self,
        version: int | Version | None = None,
        dtype: torch.dtype | str | None = None,
        slot: str = "forward",
        *,
        against: int | Version | None = None,
    ) -> Inspection | Comparison:
        """What the compiler made of a version, each line with the source line that it came from; needs no GPU.

        >>> print(rmsnorm.inspect())                       # registers, spills, occupancy; vectorized loops
        >>> print(rmsnorm.inspect(3).stage("sass"))        # or "ptx", "assembly", "remarks", "ttir" ...
        >>> rmsnorm.inspect(3, torch.bfloat16).at(31)      # what line 31 of the cell became
        >>> rmsnorm.inspect(3, against=5)                  # two versions side by side

        Without a number what runs in the slot, on a GPU before the CPU; without a dtype float32, if it has it. In a
        notebook the report shows source and stages beside each other, and `.widget()` lets one click through them.
        SchemaError for the reference and for Python functions, which no compiler made; ToolchainError, with what to
        install, where a program is missing.
        """
        from .inspect import inspect as look

        return look(self, version, dtype, slot, against=against)

    def restore(self, version: int | Version | None = None) -> object:
        """Put a former version back into its slot; 0 puts the reference back everywhere.

        >>> rmsnorm.restore(2)

        Without a number, in a notebook: the card as a widget, with a button at each version that can be restored.
        """
        from . import describe, show, slots

        if version is None:
            return show.widget_of(describe.card(self), self._restored)
        return slots.restore(self, version if isinstance(version, int) else version.number)

    @property
    def has_cases(self) -> bool:
        return self._cases is not None

    # ------------------------------------------------------------ how it shows

    def __repr__(self) -> str:
        filled = ", ".join(f"{slot} {device} v{v.number}" for (slot, device), v in self._slots.items())
        return f"<{self.schema} | {filled or 'reference'}>"

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        from . import describe, show

        return show.bundle(describe.card(self))

    def _restored(self, number: int) -> Card:
        from . import describe

        self.restore(number)
        return describe.card(self)

    def __reduce__(self):
        from .define import by_name  # a pickle names the op; the registry stands above this module

        return (by_name, (self.qualname,))

    def __copy__(self) -> Op:
        return self

    def __deepcopy__(self, memo: dict) -> Op:
        return self
