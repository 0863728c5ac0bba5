"""The schema of an op that no one has defined yet, from the signature of a Triton launcher."""

from __future__ import annotations

import ast

from ..build import triton_text
from ..errors import SchemaError
from ..schema import Schema, parse
from ..source import Source

TYPES = {"Tensor": "Tensor", "torch.Tensor": "Tensor", "float": "float", "int": "int", "bool": "bool", "str": "str"}


def infer(source: Source, qualname: str, function: str = "") -> Schema:
    """What the launcher's parameters and return statements say.

    >>> infer(Source("def scale(x, k=2.0): ...; return out", "triton"), "lab::scale")
    lab::scale(Tensor x, float k=2.0) -> Tensor

    A parameter without annotation and default is a Tensor, one with a default has the default's type. SchemaError, on
    its line, for what neither says.
    """
    launcher = triton_text.launcher(source, function or qualname.rpartition(":")[2])
    node = launcher.node
    try:
        arguments = [_spelled(a, d) for a, d in _parameters(node)]
        count = launcher.results if launcher.results >= 0 else _annotated(node)
        if count < 1:
            what = "returns nothing" if not count else "does not say how many results it returns"
            raise SchemaError(
                f"{launcher.name} {what}: define {qualname} with wb.op, which names its outputs and what it mutates",
                line=node.lineno,
            )
        results = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
        return parse(f"{qualname}({', '.join(arguments)}) -> {results}")
    except SchemaError as error:
        error.line, error.file = error.line or node.lineno, error.file or source.file
        raise


def _parameters(node: ast.FunctionDef) -> list[tuple[ast.arg | None, ast.expr | None]]:
    """Each parameter with its default; (None, None) is the bare star."""
    a = node.args
    positional = [*a.posonlyargs, *a.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(a.defaults))
    found: list[tuple[ast.arg | None, ast.expr | None]] = list(zip(positional, [*defaults, *a.defaults], strict=True))
    if a.kwonlyargs:
        found += [(None, None), *zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    return found


def _spelled(argument: ast.arg | None, default: ast.expr | None) -> str:
    if argument is None:
        return "*"
    value = ast.literal_eval(default) if default is not None and _literal(default) else None
    kind = _type(argument, default, value)
    return f"{kind} {argument.arg}" + ("" if default is None else f"={value!r}")


def _literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def _type(argument: ast.arg, default: ast.expr | None, value: object) -> str:
    if argument.annotation is not None:
        text = ast.unparse(argument.annotation).strip("'\"")
        plain = text.removeprefix("Optional[").removeprefix("typing.Optional[").rstrip("]")
        optional = plain != text or "| None" in text
        name = TYPES.get(plain.replace("| None", "").strip())
        if name is None:
            known = ", ".join(dict.fromkeys(TYPES.values()))
            raise SchemaError(
                f"{argument.arg}: {text} has no spelling here; the types of a launcher are {known}, each also with "
                "| None; for others define the op with wb.op",
                line=argument.lineno,
            )
        return name + ("?" if optional else "")
    if default is None:
        return "Tensor"
    if type(value) in (bool, int, float, str):
        return type(value).__name__
    raise SchemaError(
        f"{argument.arg}={ast.unparse(default)} does not say its type: write '{argument.arg}: float | None'",
        line=argument.lineno,
    )


def _annotated(node: ast.FunctionDef) -> int:
    """How many results the annotation promises; -1 without one that tells."""
    found = node.returns
    if isinstance(found, ast.Subscript) and isinstance(found.slice, ast.Tuple):
        return len(found.slice.elts)
    return 1 if found is not None and ast.unparse(found) in ("Tensor", "torch.Tensor") else -1
