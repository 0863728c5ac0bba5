"""Which form of a kernel serves given dtypes: its template arguments, or why it has none. Pure."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from ..directives import Binding, Declaration, Let, Tune
from ..directives.evaluate import _Values
from ..errors import SchemaError
from ..source import Parameter, TemplateParameter
from . import ctypes_cpp
from .ctypes_cpp import short


def complete(declaration: Declaration, dtypes: Mapping[str, torch.dtype | None]) -> dict[str, torch.dtype | None]:
    """The dtypes of all tensors, those that directives make included, where they follow from the arguments' dtypes.

    >>> complete(declaration, {"x": torch.float16, "w": torch.float16})["rstd"]
    torch.float32
    """
    known = dict(dtypes)
    default = known.get(declaration.first_tensor or "")
    for made in declaration.allocations:
        if made.name in known:
            continue
        like = declaration.aliases.get(made.like, made.like) if made.like else None
        known[made.name] = known.get(like) if like else default
        if made.dtype is not None:
            known[made.name] = _dtype(made.dtype.tree, declaration, known, made.name, made.line)
    return known


def _dtype(tree: ast.AST, declaration: Declaration, known: Mapping, name: str, line: int) -> torch.dtype | None:
    if isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name):
        return known.get(declaration.aliases.get(tree.value.id, tree.value.id))
    if isinstance(tree, ast.Name) and tree.id not in declaration.values:
        return getattr(torch, tree.id)
    raise SchemaError(f"the dtype of {name} is only known at a call, so no form of the kernel can be chosen", line=line)


@dataclass(frozen=True)
class Form:
    """One choice of dtypes and tuned values for a declaration; `dtypes` are those of all tensors.

    `types` says what a template's type parameter becomes for a dtype: `ctypes_cpp.CPP` or `ctypes_cpp.CUDA`.
    """

    declaration: Declaration
    dtypes: Mapping[str, torch.dtype | None]
    tuned: Mapping[str, int | float] = field(default_factory=dict)
    types: Mapping[torch.dtype, str] = field(default_factory=lambda: ctypes_cpp.CPP)

    def template_arguments(self, binding: Binding) -> dict[str, str]:
        """Template parameter -> what stands in its place, in order.

        SchemaError where a type would have to be two, or a number is not known before a call.
        """
        arguments = {}
        for t in binding.function.templates:
            if t.name in binding.values:
                arguments[t.name] = self.constant(t)
            elif t.name in binding.types:
                arguments[t.name] = self.element_type(t.name, binding)
            else:
                break  # a type with a default; C++ lets nothing without one follow it
        return arguments

    def element_type(self, name: str, binding: Binding) -> str:
        function, line = binding.function.name, binding.function.line
        seen: dict[torch.dtype, str] = {}
        for tensor in binding.types[name]:
            found = self.dtypes.get(self.declaration.aliases.get(tensor, tensor))
            if found is not None:
                seen.setdefault(found, tensor)
        if len(seen) > 1:
            told = ", ".join(f"{short(d)} for {t}" for d, t in seen.items())
            raise SchemaError(f"{function}: the type {name} would be {told}; give each a type of its own", line=line)
        # When every tensor of this type is None any type will do: the pointers are null.
        dtype = next(iter(seen), self.dtypes.get(self.declaration.first_tensor or "") or torch.float32)
        if dtype not in self.types:
            able = ", ".join(map(short, self.types))
            got = f"{function} has no form for {short(dtype)}, which no C++ type holds"
            raise SchemaError(f"{got}; kernels take {able}", line=line)
        return self.types[dtype]

    def constant(self, template: TemplateParameter) -> str:
        """The value of a template value parameter: a tuned name, or what follows from these and numbers alone."""
        name, declaration = template.name, self.declaration
        made = {s.name: s for s in declaration.statements if isinstance(s, (Let, Tune))}
        waiting = [name]
        while waiting:
            n = waiting.pop()
            statement = made.get(n)
            if statement is None or (isinstance(statement, Let) and _asks_a_tensor(statement)):
                why = f"{name} is only known at a call" if n == name else f"{name} depends on {n}, known only at a call"
                raise SchemaError(
                    f"{why}: a template parameter needs a number or a tuned name; take {name} as a "
                    f"function parameter, or write 'tune {name} = ...'",
                    line=template.line,
                )
            if isinstance(statement, Let):
                names = (k.id for k in ast.walk(statement.value.tree) if isinstance(k, ast.Name))
                waiting += [k for k in names if k in declaration.values or k == "sm_count"]
        value = _Values(declaration, {a.name: None for a in declaration.arguments}, self.tuned)[name]
        return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)

    def check(self, p: Parameter, binding: Binding) -> None:
        """SchemaError if `p` points to a type of its own, and its tensor is of another dtype."""
        if not p.pointer or p.type in {t.name for t in binding.function.templates} or p.type == "void":
            return
        function = binding.function.name
        wanted = ctypes_cpp.dtype_of(p.type)
        got = self.dtypes.get(self.declaration.aliases.get(p.name, p.name))
        if wanted is None:
            raise SchemaError(
                f"{function}: '{p.spelled}': {p.type} is the type of no dtype that a raw kernel takes; "
                "a C++ function on Tensor takes them all",
                line=p.line,
            )
        if got is not None and got != wanted:
            # What counts or points has one dtype nearly always, and no template is wanted for it.
            whole = "" if got.is_floating_point else ctypes_cpp.CPP.get(got, "")
            first = f"write '{'const ' if p.const else ''}{whole}* {p.name}'; " if whole else ""
            raise SchemaError(
                f"{function} has no form for {short(got)}: its parameter '{p.spelled}' takes {short(wanted)} alone, "
                f"{p.name} is {short(got)}; {first}a template on the element type takes both",
                line=p.line,
            )


def _asks_a_tensor(statement: Let) -> bool:
    return any(isinstance(k, ast.Attribute) for k in ast.walk(statement.value.tree))
