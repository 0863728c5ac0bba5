"""Notebooks that ran, by the headings above their cells; and a way to run one without IPython, as on a bare machine."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import re
import shlex
from pathlib import Path

from workbench import cells
from workbench.build.triton_text import offering
from workbench.errors import WorkbenchError
from workbench.reports.report import Line
from workbench.source import Source


class Steps:
    """The code cells of a notebook, each under the heading above it."""

    def __init__(self, notebook):
        self.cells, heading = {}, ""
        for cell in notebook.cells:
            found = re.findall(r"^#+ (.*)$", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else []
            heading = found[-1] if found else heading
            if cell.cell_type == "code":
                assert heading not in self.cells, f"two cells under {heading!r}"
                self.cells[heading] = cell

    def bundle(self, heading):
        """What the cell displayed."""
        return next(o["data"] for o in self.cells[heading].outputs if any(o.get("data", {}).values()))

    def text(self, heading):
        return self.bundle(heading)["text/plain"]

    def texts(self, heading):
        """All that it displayed, one below the other."""
        return "\n".join(o["data"]["text/plain"] for o in self.cells[heading].outputs if "data" in o)

    def html(self, heading):
        return self.bundle(heading)["text/html"].partition("</style>")[2]

    def printed(self, heading):
        return "".join(o["text"] for o in self.cells[heading].outputs if o["output_type"] == "stream")

    def error(self, heading):
        return next(o for o in self.cells[heading].outputs if o["output_type"] == "error")

    def raised(self, heading):
        return any(o["output_type"] == "error" for o in self.cells[heading].outputs)


class Node(dict):
    """As nbformat has it."""

    __getattr__ = dict.__getitem__


def run(path: Path) -> Steps:
    """The cells of a notebook in this process: magics are the calls that they stand for. No IPython is needed."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    ran, scope, count = [], {"__name__": "__main__"}, 0
    for given in notebook["cells"]:
        source = "".join(given["source"])
        node = Node(cell_type=given["cell_type"], source=source, outputs=[])
        if given["cell_type"] == "code":
            count += 1
            cell(source, node.outputs, scope, f"cell [{count}]")
            allowed = "raises-exception" in given["metadata"].get("tags", ())
            assert allowed or not any(o["output_type"] == "error" for o in node.outputs), node.outputs[-1]
        ran.append(node)
    return Steps(Node(cells=ran))


def cell(source: str, outputs: list, scope: dict, name: str) -> None:
    """Run one cell among the names of `scope`; what it prints, displays and raises goes to `outputs`."""
    printed = io.StringIO()

    def show(report: Line) -> None:
        outputs.append({"output_type": "display_data", "data": report._repr_mimebundle_()})

    try:
        with contextlib.redirect_stdout(printed), cells.telling(show):
            value = _magic(source, scope, name) if source.startswith("%%") else _python(source, scope, name)
    except WorkbenchError as error:
        outputs.append({"output_type": "error", "ename": type(error).__name__, "evalue": str(error)})
        return
    finally:
        if printed.getvalue():
            outputs.insert(0, {"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None:
        bundle = value._repr_mimebundle_() if hasattr(value, "_repr_mimebundle_") else {"text/plain": repr(value)}
        outputs.append({"output_type": "execute_result", "data": bundle})


def _magic(source: str, scope: dict, name: str) -> None:
    line, _, text = source.partition("\n")
    language, target, *words = shlex.split(line.removeprefix("%%"))
    options: dict = {"interpret": True} if "--interpret" in words else {}
    if "--cases" in words:
        options["cases"] = words[words.index("--cases") + 1]
    with offering(scope):
        cells.run(target, Source(text + "\n", language, file=name, first_line=2), **options)


def _python(source: str, scope: dict, name: str) -> object:
    text = "\n".join(row for row in source.split("\n") if not row.startswith("%"))
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    tree = ast.parse(text)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), scope)
    return eval(compile(ast.Expression(last.value), name, "eval"), scope) if last is not None else None
