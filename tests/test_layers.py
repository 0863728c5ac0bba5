"""The picture of the house, held by reading imports: who may import whom, and who alone may touch what."""

from __future__ import annotations

import ast
import os
import pkgutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "workbench"

# Low to high, as the flow goes: source -> build -> trial -> register -> check -> measure -> show -> save.
# A module may import, when it is itself imported, from its own floor and from those below.
FLOORS = (
    ("errors", "turn"),
    ("settings", "kept", "annotations", "defaults", "schema", "source", "cuda_marks", "reports", "files"),
    (
        "inputs",
        "case",
        "which",
        "version",
        "directives",
        "entry",
        "reference",
        "holes",
        "toolchain",
        "gpu",
        "edit_times",
    ),
    ("build",),
    ("trial",),
    ("tiers",),
    ("blocks",),
    ("register", "kernel"),
    ("check",),
    ("measure", "tune", "inspect"),
    ("show",),
    ("saving",),
    (
        "live",
        "declared",
        "op",
        "define",
        "judge",
        "shipped",
        "tuned",
        "slots",
        "arrivals",
        "waiting",
        "restoring",
        "python_kernel",
        "install",
        "describe",
        "adopt",
    ),
    ("deploying",),
    ("cells", "inline", "loading", "watch", "commands", "magic", "diagnose", "cli"),
    ("__init__", "__main__"),
)
FLOOR = {name: height for height, floor in enumerate(FLOORS) for name in floor}

# Imports inside functions that go up a floor. Each needs its reason.
UPWARD = {
    ("reports", "show"): "a report prints and shows itself; the renderers are fetched only when something is seen",
    ("cli", "__init__"): "the version stands there, where setuptools reads it without an import",
}

# Who alone may import a package, and who alone may do a thing.
ONLY = {
    "IPython": ("magic",),
    "ipywidgets": ("show",),
}
LAZY = ("IPython", "ipywidgets", "tree_sitter", "tree_sitter_cpp", "tree_sitter_cuda", "matplotlib", "jinja2",
        "triton", "cuda", "tqdm", "filelock", "platformdirs")  # fmt: skip
# Whoever has no Library cannot define on it; `define` and `impl` count when they are torch.library's own.
REGISTRATION = frozenset({
    "Library", "custom_op", "triton_op", "register_fake", "register_autograd", "register_autocast", "register_kernel",
    "register_torch_dispatch", "register_vmap", "impl_abstract", "torch.library.define", "torch.library.impl",
})  # fmt: skip
MAY_REGISTER = {
    "register": "the one package that gives names to torch, and kernels to names that others gave",
    "trial": "its child is another process, in which nothing of the notebook's is registered",
}

FILE_LINES, FUNCTION_LINES = 300, 50
LONGER: dict[str, str] = {}  # "workbench/file.py" or "workbench/file.py:function" -> the reason


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def room(path: Path) -> str:
    """The first name below the package: `workbench/build/cpp.py` is in `build`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(path: Path) -> list[tuple[str, int, bool]]:
    """(absolute dotted name, line, inside a function) of every import; those for types alone are left out."""
    found = []
    parts = module(path).split(".")
    package = parts if path.name == "__init__.py" else parts[:-1]

    def visit(node: ast.AST, inside: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend((alias.name, node.lineno, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *((node.module or "").split(".") if node.module else [])])
            found.extend((f"{name}.{alias.name}", node.lineno, inside) for alias in node.names)
        deeper = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        children = node.orelse if only_for_types(node) else ast.iter_child_nodes(node)
        for child in children:
            visit(child, deeper)

    visit(tree(path), False)
    return found


def resolve(name: str) -> str | None:
    """The module of ours that a dotted name lies in: `workbench.build.cpp.compile` is `workbench.build.cpp`."""
    parts = name.split(".")
    while len(parts) > 1 and parts[0] == "workbench":
        path = ROOT.joinpath(*parts)
        if path.with_suffix(".py").exists() or (path / "__init__.py").exists() or path.is_dir():
            return ".".join(parts)
        parts = parts[:-1]
    return "workbench" if parts == ["workbench"] else None


def ours(path: Path) -> list[tuple[str, int, bool]]:
    return [(target, line, inside) for name, line, inside in imports(path) if (target := resolve(name))]


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_every_module_has_a_floor():
    unknown = sorted({room(p) for p in files()} - set(FLOOR))
    assert not unknown, f"no floor in tests/test_layers.py for: {', '.join(unknown)}"


def test_imports_go_down():
    wrong = []
    for path in files():
        here = room(path)
        for target, line, inside in ours(path):
            there = target.split(".")[1] if "." in target else "__init__"
            if here == there or here not in FLOOR or there not in FLOOR or FLOOR[there] <= FLOOR[here]:
                continue
            if inside and (here, there) in UPWARD:
                continue
            wrong.append(f"{where(path, line)}: {here} imports {there}, which stands above it")
    assert not wrong, "\n".join(wrong)


def test_no_cycles_between_modules():
    edges = {module(p): {t for t, _, inside in ours(p) if not inside and t != module(p)} for p in files()}
    for package in [m for m in edges if "." in m or m == "workbench"]:
        # `from .errors import X` inside a package does not need what the package's __init__ imports besides.
        edges[package] = {t for t in edges[package] if not package.startswith(f"{t}.")}
    seen: dict[str, str] = {}

    def walk(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            pytest.fail("a circle of imports: " + " -> ".join([*path[path.index(name) :], name]))
        if seen.get(name) == "done":
            return
        for target in sorted(edges.get(name, ())):
            walk(target, (*path, name))
        seen[name] = "done"

    for name in sorted(edges):
        walk(name, ())


@pytest.mark.parametrize("package", ONLY)
def test_only_one_room_imports(package):
    wrong = [
        f"{where(p, line)} imports {name}"
        for p in files()
        for name, line, _ in imports(p)
        if name.split(".")[0] == package and room(p) not in ONLY[package]
    ]
    assert not wrong, f"only {', '.join(ONLY[package])} may import {package}:\n" + "\n".join(wrong)


def test_import_is_light(tmp_path):
    """`import workbench` after `import torch` loads none of the heavy packages, and makes no file."""
    program = f"""if True:
        import sys, torch
        before = set(sys.modules)
        import workbench
        print(sorted(n for n in set({LAZY!r}) if n in sys.modules and n not in before))
    """
    environment = {**os.environ, "WORKBENCH_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "[]"
    assert not (tmp_path / "cache").exists()


def test_what_is_imported_late_is_called_otherwise_than_its_module():
    """Else `wb.save` would be a function or a package, by what was asked for first."""
    import workbench

    assert not set(workbench._LATER) & {m.name for m in pkgutil.iter_modules(workbench.__path__)}


def test_only_register_gives_names_to_torch():
    wrong = [
        f"{where(p, node.lineno)}: {ast.unparse(node.func)}(...)"
        for p in files()
        if room(p) not in MAY_REGISTER
        for node in ast.walk(tree(p))
        if isinstance(node, ast.Call) and called(node) in REGISTRATION
    ]
    assert not wrong, "only register.py may call torch's registration functions:\n" + "\n".join(wrong)


def called(node: ast.Call) -> str:
    """What is called: the whole of `torch.library.define`, the last name of anything else."""
    text = ast.unparse(node.func)
    return text if text in REGISTRATION else text.rpartition(".")[2]


def test_one_module_reads_the_environment():
    wrong = [where(p, line) for p in files() if room(p) != "settings" for line in environment_reads(tree(p))]
    assert not wrong, "only settings.py may read the environment:\n" + "\n".join(wrong)


def environment_reads(module_: ast.Module) -> list[int]:
    """Lines that read a variable. Handing the whole environment to a child, or setting a variable there, is none."""
    names, harmless, lines = {"environ", "environb", "getenv"}, set(), []
    for node in ast.walk(module_):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):  # os.environ["A"] = ...
            harmless.add(node.value)
        elif isinstance(node, ast.Dict):  # {**os.environ}
            harmless.update(v for k, v in zip(node.keys, node.values, strict=True) if k is None)
        elif isinstance(node, ast.Call) and called(node) == "dict":  # dict(os.environ)
            harmless.update(node.args)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("environ.clear", "environ.update")
        ):  # os.environ.clear()
            harmless.add(node.func.value)
        elif isinstance(node, ast.ImportFrom) and node.module == "os" and names & {a.name for a in node.names}:
            lines.append(node.lineno)
        elif isinstance(node, ast.Attribute) and node.attr in names and node not in harmless:
            lines.append(node.lineno)
    return sorted(lines)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import os\nos.environ['A']", [2]),
        ("import os\nos.environ.get('A')\nos.getenv('B')", [2, 3]),
        ("import os\n'A' in os.environ", [2]),
        ("from os import environ", [1]),
        ("import os\nos.environ['A'] = '1'\nf(env={**os.environ})\ndict(os.environ)\nos.environ.clear()", []),
    ],
)
def test_reading_the_environment_is_noticed(text, lines):
    assert environment_reads(ast.parse(text)) == lines


def test_directives_are_never_evaluated_as_code():
    wrong = [
        where(p, node.lineno)
        for p in files()
        if room(p) in ("directives", "source")
        for node in ast.walk(tree(p))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"eval", "exec", "compile"}
    ]
    assert not wrong, "\n".join(wrong)


def test_files_say_first_what_lives_there():
    wrong = [str(p.relative_to(ROOT)) for p in files() if tree(p).body and not ast.get_docstring(tree(p))]
    assert not wrong, "these begin with no docstring: " + ", ".join(wrong)


def test_public_functions_are_typed():
    """Every parameter and result of the public functions and methods; `op` is an Op, which stands above most rooms."""
    wrong = []
    for path in files():
        body = tree(path).body
        classes = [n for n in body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")]
        places = [(n, False) for n in body] + [(n, True) for c in classes for n in c.body]
        for node, method in places:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                decorators = [ast.unparse(d) for d in node.decorator_list]
                positional = [*node.args.posonlyargs, *node.args.args][method and "staticmethod" not in decorators :]
                bare = [a.arg for a in [*positional, *node.args.kwonlyargs] if a.annotation is None and a.arg != "op"]
                bare += [] if node.returns else ["the result"]
                if bare:
                    wrong.append(f"{where(path, node.lineno)}: {node.name}: no type for {', '.join(bare)}")
    assert not wrong, "\n".join(wrong)


def test_rooms_are_small():
    long = []
    for path in [*files(), *sorted(PACKAGE.rglob("*.h"))]:
        name, count = str(path.relative_to(ROOT)), len(path.read_text(encoding="utf-8").splitlines())
        if count > FILE_LINES and name not in LONGER:
            long.append(f"{name}: {count} lines (at most {FILE_LINES})")
    for path in files():
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            count, name = node.end_lineno - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.name}"
            if count > FUNCTION_LINES and name not in LONGER:
                long.append(f"{where(path, node.lineno)}: {node.name} has {count} lines (at most {FUNCTION_LINES})")
    assert not long, "\n".join(long)


def test_the_readers_see_what_they_should(monkeypatch):
    """The rules above would pass on anything if these helpers found nothing."""
    text = "import os\nfrom .build import cpp\nfrom . import op\ndef f():\n    import IPython.display\n"
    monkeypatch.setitem(globals(), "tree", lambda path: ast.parse(text))
    assert imports(PACKAGE / "probe.py") == [
        ("os", 1, False),
        ("workbench.build.cpp", 2, False),
        ("workbench.op", 3, False),
        ("IPython.display", 5, True),
    ]
    assert resolve("workbench.errors.WorkbenchError") == "workbench.errors"
    assert resolve("torch.nn") is None
