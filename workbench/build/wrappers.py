"""Functions on at::Tensor as ops of their own namespace: the library block that defines them. Pure text.

What a `load_inline` of torch would hand to pybind11. The wrappers convert as those of the full tier do.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Schema
from ..source import Function
from . import host

INCLUDE = '#include "wb_full_call.h"'


def render(ops: Sequence[tuple[Schema, Function]], keys: Sequence[str] = ("CPU",)) -> str:
    """The text behind the user's: a wrapper for each function, a TORCH_LIBRARY block and one for each dispatch key.

    With the key CUDA the wrappers make the tensors' device the current one. All schemas have one namespace. The blocks
    are spelled as `reload.h` has them, since the header of the wrappers leaves out those that torch has macros for.
    """
    if not ops:
        return ""
    namespace = ops[0][0].namespace
    wrappers = [
        line for i, (schema, function) in enumerate(ops) for line in _wrapper(i, schema, function, "CUDA" in keys)
    ]
    defined = [f'  m.def("{str(s).partition("::")[2]}");' for s, _ in ops]
    given = [
        f'  m.impl("{s.name}", torch::CppFunction::makeFromBoxedFunction<&wb_op_{i}::entry>());'
        for i, (s, _) in enumerate(ops)
    ]
    return "\n".join([
        INCLUDE, *wrappers,
        f"WB_BLOCK(DEF, {namespace}, std::nullopt, m, C10_UID) {{", *defined, "}",
        *(line for key in keys for line in
          (f"WB_BLOCK(IMPL, {namespace}, std::make_optional(c10::DispatchKey::{key}), m, C10_UID) {{", *given, "}")),
    ])  # fmt: skip


def _wrapper(number: int, schema: Schema, function: Function, guarded: bool) -> list[str]:
    name = "::" + "::".join(filter(None, (function.namespace, function.name)))
    count, wanted = len(schema.arguments), len(schema.outputs)
    taken = [f'  wb::GivenTo<F, {i}> a{i}(v[{i}], "{a.name}");' for i, a in enumerate(schema.arguments)]
    passed = ", ".join(f"static_cast<wb::ParameterOf<F, {i}>&&>(a{i}.value)" for i in range(count))
    made = "" if host.results(function) == 0 else "auto all = "
    return [
        f"namespace wb_op_{number} {{",
        f"using F = decltype(&{name});",
        "static void entry(const c10::OperatorHandle&, torch::jit::Stack* stack) {",
        f"  const c10::IValue* v = stack->data() + (stack->size() - {count});",
        *(
            [f'  const c10::OptionalDeviceGuard device(wb::one_device(v, {count}, "{schema.qualname}"));']
            if guarded
            else ()
        ),
        "  wb::Values out;",
        *taken,
        f"  {made}{name}({passed});",
        *(["  wb::put_all(out, std::move(all));"] if wanted else []),
        f"  wb::apart(out, v, {count});",
        f'  wb::give(stack, {count}, out, {wanted}, {wanted}, "{schema.qualname}");',
        "}",
        f"}}  // namespace wb_op_{number}",
    ]
