"""Too many compiled forms of one Triton kernel, and the argument that makes them: a size as a constant, most often."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import Diagnostic
from .triton_compile import Compiled

MOST = 6  # values of one constant that need no remark: a few block sizes


def flood(compiled: Iterable[Compiled], file: str = "cell") -> tuple[Diagnostic, ...]:
    """A warning for each kernel that a constant of more than six values had compiled over and over.

    >>> str(flood(kernel.compiled())[0])
    'cell: warning: kernel was compiled 20 times, for 20 values of N: take N without tl.constexpr, or round it ...'
    """
    kernels: dict[str, dict[tuple[str, ...], dict[str, str]]] = {}
    for one in compiled:  # alignments, and the configurations of an autotuner, are no forms of their own
        parts = [part for part in one.signature.split(", ") if part.partition("=")[0] not in one.tuned]
        fixed = (part.partition("=") for part in parts if "=" in part)
        kernels.setdefault(one.name, {})[tuple(parts)] = {name: value for name, _, value in fixed}
    causes = {name: _cause(list(forms.values())) for name, forms in kernels.items()}
    return tuple(
        Diagnostic(file, 0, 0, "warning", f"{name} was compiled {len(kernels[name])} times{cause}")
        for name, cause in causes.items()
        if cause
    )


def _cause(forms: list[dict[str, str]]) -> str:
    """The constants that take too many values, and what to do; "" where dtypes and a few sizes make the forms."""
    counts = {name: len({form.get(name) for form in forms}) for name in forms[0]}
    most = max(counts.values(), default=1)
    if most <= MOST:
        return ""
    names = [name for name, count in counts.items() if count == most]
    which = " and ".join(names)
    it = "it" if len(names) == 1 else "them"
    return (
        f", for {most} values of {which}: take {which} without tl.constexpr, or round {it} "
        f"(`triton.next_power_of_2({names[0]})`)"
    )
