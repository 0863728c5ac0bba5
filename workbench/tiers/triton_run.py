"""A Triton launcher in this process: what is asked before it runs, and the launcher as tracers see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..build import triton_call, triton_kernels, triton_module
from ..build.triton_call import Plan
from ..entry import arguments, compiled, parameters
from ..source import Source
from ..trial.triton_library import kernel

Run = Callable[[Mapping[str, Any]], list]
Traced = Callable[[int, Sequence[Any], Mapping[str, Any]], Any]


def tried_first(plan: Plan, run: Run, tried: set[tuple], on_miss: Callable[[dict], str | None]) -> Run:
    """The launcher takes any dtype and may be wrong for some: those that are not in `tried` are tried now."""
    name, declared = plan.schema.qualname, plan.arguments

    def call(values: Mapping[str, Any]) -> list:
        dtypes = triton_call.dtypes(declared, values)
        if tuple(dtypes.values()) not in tried:
            refusal = on_miss(dtypes)
            if refusal:
                raise RuntimeError(f"{name}: {refusal}")
        return run(values)

    return call


FAST = """\
def {name}({parameters}):
    if {settled} and ({dtypes},) in __tried and {devices}:
        __out = __launcher({given})
        if {fits}:
            return {returned}
        return __refuse(__out)
    return __slow({arguments})
"""


def fast_text(plan: Plan) -> str:
    """One call where all is as usual: contiguous tensors on the current device, in dtypes that were tried.

    "" for an op that takes lists, or no tensor that is always there.
    """
    schema = plan.schema
    tensors = [a for a in schema.arguments if a.is_tensor]
    if any(a.is_tensor_list for a in schema.arguments) or not any(a.type == "Tensor" for a in tensors):
        return ""
    several, kept = len(plan.results), len(schema.outputs)
    one = "__out" if several == 1 else "__out[0]" if kept == 1 else f"__out[:{kept}]"
    absent = lambda a, text: f"({a.name} is None or {text})" if a.optional else text  # noqa: E731
    always = [f"{a.name}.get_device()" for a in tensors if not a.optional]
    maybe = [absent(a, f"{a.name}.get_device() == __home") for a in tensors if a.optional]
    current = "(__home := __current())" if maybe else "__current()"
    return FAST.format(
        name=f"{schema.name}_launch",
        parameters=parameters(schema),
        settled=" and ".join(absent(a, f"{a.name}.is_contiguous()") for a in tensors),
        dtypes=", ".join(
            f"None if {a.name} is None else {a.name}.dtype" if a.optional else f"{a.name}.dtype" for a in tensors
        ),
        devices=" and ".join([" == ".join([*always, current]), *maybe]),
        given=", ".join(f"{n}={n}" for n in plan.takes),
        fits="__type(__out) is __Tensor" if several == 1 else f"__type(__out) is __tuple and __len(__out) == {several}",
        returned=one,
        arguments=arguments(schema),
    )


def fast(plan: Plan, function: Callable, slow: Run, tried: set[tuple], device: str = "cuda") -> Callable | None:
    """`fast_text` as a function; all other calls go to `slow`. None for what has no such form."""
    text = fast_text(plan)
    if not text or plan.slot != "forward":
        return None
    names = {
        "launcher": function,
        "slow": kernel(plan, slow, len(plan.schema.outputs)),
        "tried": tried,
        "current": torch._C._cuda_getDevice if device == "cuda" else lambda: -1,
        "tuple": tuple,
        "len": len,
        "Tensor": torch.Tensor,
        "refuse": lambda out: triton_call.outputs(plan, out),
    }
    return compiled(text, plan.schema, names)


def on_one_device(plan: Plan, run: Run) -> Run:
    """Triton launches on the current device: make it that of the tensors, which must be one."""

    def call(values: Mapping[str, Any]) -> list:
        home = triton_call.home(plan, values)
        if home is None or home.index == torch.cuda.current_device():
            return run(values)
        with torch.cuda.device(home):
            return run(values)

    return call


def traceable(source: Source, plan: Plan) -> Traced | None:
    """The launcher over kernels that tracers see, as `f(how many results, args, keywords)`.

    None where torch cannot look into one of them: the op then stays opaque to compiled callers.
    """
    try:
        module = triton_kernels.rebound(triton_module.load(source), triton_kernels.traceable)
    except RuntimeError:  # an autotuner with hooks of its own
        return None
    function = getattr(module, plan.function)

    def run(count: int, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        values = triton_call.named(plan, args, keywords)
        return triton_call.as_returned(triton_call.call(plan, function, values)[:count])

    return run
