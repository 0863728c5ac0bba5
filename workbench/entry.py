"""The few lines of Python that run at every call of an op, generated from its schema.

A generic `*args` version of them costs more than the kernel of a small op; spelled out for one signature they are a
handful of attribute reads. Pure text, and `compiled` which turns it into functions. Names of ours begin with two
underscores, which no argument of an op may.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import torch

from .schema import Schema

# A call may take the short path only if nothing listens: no dispatch or function mode, no transform, no forward AD.
QUIET = "not __modes() and not __function_modes() and __transform() is None and __dual._current_level < 0"

ENTRY = """\
def {name}(__self, {parameters}):
    if __compiling():
        return __traced({arguments})
    if {plain} and {quiet} and not (__grad_enabled() and ({wants})):
{direct}        return {short}
    return __public({arguments})
"""
# A kernel that is a Python function: the way through torch's dispatcher and back would cost more than its launch.
DIRECT = """\
        if {first}.is_{device} and not __profiling():
            return __direct({arguments})
"""

AUTOGRAD = """\
def {name}(__keyset, {parameters}):
{required}    if __dual._current_level >= 0 or __modes() and __forward_mode() or __grad_enabled() and ({wants}):
        return __differentiable(__keyset, [{values}])
    return __redispatch(__keyset & __after_autograd, {arguments})
"""


def entry(registration: Any) -> Callable:
    """The function behind `op(...)`."""
    names = {
        "kernel": registration.forward_op._op,
        "public": registration.public_op,
        "traced": registration.public_op,
    }
    device, function = registration.direct or ("", None)
    text = entry_text(registration.schema, device)
    return compiled(text, registration.schema, names | {"direct": function, "profiling": _profiling()})


def _profiling() -> Callable[[], bool]:
    found = getattr(torch._C._autograd, "_profiler_enabled", None)
    return found or torch.autograd._profiler_enabled


def entry_text(schema: Schema, direct: str = "") -> str:
    """The `__call__` of an op's own class: straight to the kernel when no gradient is wanted and nobody listens.

    A mutating op always takes the public name: its version counters are bumped there. `direct` is the device whose
    tensors go to a Python function straight away.
    """
    short = f"__kernel({arguments(schema)})"
    if schema.mutated:
        return f"def {schema.name}(__self, {parameters(schema)}):\n    return __traced({arguments(schema)})\n"
    if schema.saves:
        kept = len(schema.outputs)
        short += "[0]" if kept == 1 else f"[:{kept}]"
    return ENTRY.format(
        name=schema.name,
        parameters=parameters(schema),
        arguments=arguments(schema),
        plain=all_plain(schema),
        wants=wants_gradient(schema),
        quiet=QUIET,
        direct=_direct(schema, direct),
        short=short,
    )


def _direct(schema: Schema, device: str) -> str:
    first = next((a.name for a in schema.arguments if a.type == "Tensor"), "")
    return DIRECT.format(first=first, device=device, arguments=arguments(schema)) if first and device else ""


def autograd_text(schema: Schema) -> str:
    """The kernel on torch's Autograd key: a graph node only where a gradient is wanted."""
    required = [a.name for a in schema.arguments if a.type == "Tensor"]
    missing, given = " or ".join(f"{n} is None" for n in required), ", ".join(f"{n}={n}" for n in required)
    return AUTOGRAD.format(
        name=f"{schema.name}_autograd",
        required=f"    if {missing}:\n        raise __absent({schema.qualname!r}, {given})\n" if required else "",
        parameters=parameters(schema),
        values=", ".join(a.name for a in schema.arguments),
        arguments=arguments(schema),
        wants=wants_gradient(schema),
    )


def absent(qualname: str, **tensors: object) -> TypeError:
    """torch hands None on for a tensor that must be there."""
    names = " and ".join(name for name, value in tensors.items() if value is None)
    return TypeError(f"{qualname}: {names} must be a Tensor, got None; what may be left out is `Tensor | None`")


def compiled(text: str, schema: Schema, names: dict[str, object], part: str = "") -> Callable:
    """The function that `text` defines, with the schema's defaults and `names` in scope.

    Tracebacks show its lines; of several texts for one op all but one need a name, `part`.
    """
    from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack
    from torch._C._functorch import peek_interpreter_stack
    from torch.autograd import forward_ad

    scope: dict[str, Any] = {
        "__type": type,  # an argument may be called `type`
        "__all": all,
        "__any": any,
        "__modes": _len_torch_dispatch_stack,
        "__function_modes": _len_torch_function_stack,
        "__transform": peek_interpreter_stack,
        "__dual": forward_ad,
        "__grad_enabled": torch.is_grad_enabled,
        "__compiling": torch.compiler.is_compiling,
        "__absent": absent,
        "__plain": frozenset({torch.Tensor, torch.nn.Parameter}),
        "__after_autograd": torch._C._after_autograd_keyset,
        **{f"__default_{a.name}": a.default for a in schema.arguments if not a.required},
        **{f"__{n}": v for n, v in names.items()},
    }
    before = set(scope)
    file = f"<{schema.qualname}{part}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # for tracebacks
    exec(compile(text, file, "exec"), scope)  # our own text, from a checked schema
    return next(scope[n] for n in scope if n not in before and n != "__builtins__")


def parameters(schema: Schema) -> str:
    """The parameters of a generated function, with the schema's defaults."""
    spell = lambda a: a.name if a.required else f"{a.name}=__default_{a.name}"  # noqa: E731
    positional = [spell(a) for a in schema.positional]
    keywords = [spell(a) for a in schema.keyword_only]
    return ", ".join(positional + (["*", *keywords] if keywords else []))


def arguments(schema: Schema) -> str:
    """All arguments, as one generated function hands them to another."""
    return ", ".join([a.name for a in schema.positional] + [f"{a.name}={a.name}" for a in schema.keyword_only])


def all_plain(schema: Schema) -> str:
    """Is every tensor among the arguments torch's own, no subclass?"""
    terms = []
    for a in schema.tensors:
        one, optional = ("t", "Tensor?" in a.type) if a.is_tensor_list else (a.name, a.optional)
        term = f"({one} is None or __type({one}) in __plain)" if optional else f"__type({one}) in __plain"
        terms.append(f"__all({term} for t in {a.name})" if a.is_tensor_list else term)
    return " and ".join(terms) or "True"


def wants_gradient(schema: Schema) -> str:
    """Does any tensor among the arguments require a gradient?"""
    terms = []
    for a in schema.arguments:
        if a.type == "Tensor":
            terms.append(f"{a.name}.requires_grad")
        elif a.type == "Tensor?":
            terms.append(f"({a.name} is not None and {a.name}.requires_grad)")
        elif a.is_tensor_list:
            terms.append(f"__any(t is not None and t.requires_grad for t in {a.name})")
    return " or ".join(terms) or "False"
