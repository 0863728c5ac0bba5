"""Modules of ours that a package carries as its own text: what makes an op whole in Python, and what judges it in tests.

They stand in a package as they stand here, without what serves a live op alone, so that both behave alike.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Sequence
from functools import cache
from types import ModuleType

# Sentences that tell a user of the notebook what to type there.
_SAID = (
    ('"@op.fake, or a reference with wb.op. With cases, op.check() offers one"', '"torch.library.register_fake"'),
    ("or say what comes out with @op.fake", "or give it a fake"),
    ("    @{schema.name}.fake\\n", "    @torch.library.register_fake({schema.qualname!r})\\n"),
    ('install one with a cell, "', 'none came with the package"'),
    ('"or give it a reference: a function under @wb.op"', '""'),
    ('Write @op.backward, a cell for "', 'Save it with a backward, "'),
    ('f"{schema.name}.backward, or give the op a reference with wb.op"', '"or with a reference"'),
    ('"draw others. Write @op.backward, or take a seed or the noise as an argument."', '"draw others."'),
    ("Write @op.backward or a backward cell.", "Save it with a backward."),
    ("            op.registration._traces.note()  # the reference becomes a part of what is traced\n", ""),
    ("from .traces import made_by, refuse_another\n", ""),
    ("        ctx.made = made_by(op, tensors[0].device.type)\n", ""),
    ("        refuse_another(op, ctx.made, tensors[0].device.type)\n", ""),
    ("user's own (`@op.fake`, ...), None", "user's own, None"),
    ("from `@op.fake`, the reference", "from the fake, the reference"),
    ("the user's `@op.backward`, or", "the user's own, or"),
    ("`@op.backward` takes what it names", "The user's own takes what it names"),
    ("    born_of_a_cell: bool = False  # the schema was read from a kernel's signature\n", ""),
    ("and the cell reads no strides of it", "and the launcher reads no strides of it"),
    ("`contiguous`: the cell reads", "`contiguous`: the launcher reads"),
    ("consult at every call; an `Op` owns one and swaps its parts, so\nthat a re-run cell reaches every caller without a new registration.", "consult at every call."),
    ("from the directives of an op without a reference", "of an op without a reference"),
    ("the reference on fake tensors, or the directives.", "the reference on fake tensors, or a kernel's declaration."),
    ("Used in this process and in the worker, for compiled and for interpreted kernels alike.\n", "For compiled and for interpreted kernels alike.\n"),
    ("wb.case(", "case("),
)  # fmt: skip


def module(name: str, *, keep: Sequence[str] = (), places: Sequence[tuple[str, str]] = (), head: str = "") -> str:
    """The text of one of our modules with its imports from elsewhere.

    `keep` are the names of the top-level things that are wanted, all of them where it is empty; `places` are (module of
    ours, module there) of its imports; `head` replaces its docstring.
    """
    found = importlib.import_module(f"..{name}", __package__)
    text = _source(found)
    if keep:
        text = _chosen(text, keep)
    for ours, theirs in places:
        text = re.sub(rf"^(\s*from ){re.escape(ours)}( import )", rf"\1{theirs}\2", text, flags=re.MULTILINE)
    for said, instead in _SAID:
        text = text.replace(said, instead)
    if head:
        text = re.sub(r'\A""".*?"""\n', lambda _: f'"""{head}"""\n', text, count=1, flags=re.DOTALL)
    return text


@cache
def _source(found: ModuleType) -> str:
    return inspect.getsource(found)


def _chosen(text: str, keep: Sequence[str]) -> str:
    """The docstring, the imports that are needed, and these top-level things, in their order."""
    tree, lines = ast.parse(text), text.splitlines(keepends=True)
    wanted = [n for n in tree.body if _name(n) in keep]
    missing = set(keep) - {_name(n) for n in wanted}
    assert not missing, f"no {', '.join(sorted(missing))} to borrow"
    used = {n.id for part in wanted for n in ast.walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    imports = [_narrowed(n, used) for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    head = "".join(lines[: tree.body[0].end_lineno])
    bodies = []
    for node in wanted:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        while lines[first - 2].startswith("#"):
            first -= 1
        bodies.append("".join(lines[first - 1 : node.end_lineno]))
    return "\n".join([head, *filter(None, imports), ""]) + "\n" + "\n\n".join(bodies)


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    target = (
        node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
    )
    return target.id if isinstance(target, ast.Name) else ""


def _narrowed(node: ast.Import | ast.ImportFrom, used: set[str]) -> str:
    """An import without the names that are not used."""
    kept = [a for a in node.names if (a.asname or a.name.partition(".")[0]) in used or a.name == "annotations"]
    if not kept:
        return ""
    return ast.unparse(
        ast.ImportFrom(node.module, kept, node.level) if isinstance(node, ast.ImportFrom) else ast.Import(kept)
    )
