"""The fake classes of a package: what torch.compile and torch.export take in place of its C++ objects. Pure text."""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections.abc import Callable, Iterable

from torch._library import fake_class_registry as registry

from ..annotations import CLASSES, class_name
from ..errors import SaveError
from ..schema import Schema
from . import carry
from .carry import Carried

MODULE = "_classes.py"
_HEAD = '''"""What stands for the objects of the C++ classes while a graph is traced; torch knows them once this is imported."""

from __future__ import annotations
'''
_FIELD = """def _field(flat, name, method):
    fields = dict(flat)
    for field in (method, method.removeprefix("get_")):
        if field in fields:
            return fields[field]
    raise RuntimeError(f"{name}.{method} cannot be told while a graph is traced: its value is none of {', '.join(fields)}")"""


def of(schema: Schema) -> tuple[str, ...]:
    """The custom classes that an op takes, "lab::State"."""
    return tuple(dict.fromkeys(filter(None, (class_name(a.type) for a in schema.arguments))))


def fake_of(name: str) -> type | None:
    """What torch has as the fake of a class."""
    return registry.find_fake_class(CLASSES + name.replace("::", "."))


def render(names: Iterable[str], fakes: Callable[[str], type | None] = fake_of) -> str:
    """The module of these classes; "" where there are none. `fakes` gives the fake class of each, None without one.

    SaveError for a class that cannot be traced, and where two have one short name.
    """
    names = list(dict.fromkeys(names))
    if not names:
        return ""
    shorts = [n.partition("::")[2] for n in names]
    twice = next((n for n in names if shorts.count(n.partition("::")[2]) > 1), "")
    if twice:
        raise SaveError(f"two classes are called {twice.partition('::')[2]}: rename one, or save their ops apart")
    made, bodies = Carried(), []
    made.imports["register_fake_class"] = "from torch._library.fake_class_registry import register_fake_class"
    for name in names:
        fake = fakes(name)
        if fake is None:
            raise SaveError(f"{name} has no fake class, which a package's tests need: give the class __obj_flatten__")
        bodies.append(_given(name, fake, made) if "__workbench_class__" in vars(fake) else _derived(name, fake))
    if any("_field(" in b for b in bodies):
        made.helpers["_field"] = _FIELD
    return _HEAD + "\n" + "\n\n\n".join([made.render().rstrip(), *bodies]) + "\n"


def _given(name: str, fake: type, made: Carried) -> str:
    """The class as it was typed, registered by torch's own decorator."""
    node, text = _source(name, fake)
    for member in vars(fake).values():
        function = getattr(member, "__func__", member)
        function = getattr(function, "__wrapped__", function)
        found = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == getattr(function, "__name__", "")]
        if found and hasattr(function, "__code__"):
            for used, value in carry.needs(function, found[0]).items():
                if value is not fake:
                    carry.take(used, value, f"the fake class of {name}: {found[0].name}", made)
    return f'@register_fake_class("{name}")\n{text}'


def _source(name: str, fake: type) -> tuple[ast.ClassDef, str]:
    """Its tree and text without decorators. By the place of a method: `inspect` finds no class of a notebook."""
    code = vars(fake)["__obj_unflatten__"].__func__.__wrapped__.__code__
    lines = linecache.getlines(code.co_filename)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        tree = ast.Module([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.lineno <= code.co_firstlineno <= (node.end_lineno or 0):
            text = textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno])).rstrip("\n")
            return node, text.replace(f"class {node.name}", f"class {fake.__name__}", 1)
    raise SaveError(
        f"the source of the fake class of {name} cannot be found: define it in a cell or a file, and run that again"
    )


def _derived(name: str, fake: type) -> str:
    methods = [n for n, f in vars(fake).items() if not n.startswith("__") and getattr(f, "takes", 0) == 0]
    short = name.partition("::")[2]
    rows = [
        f'@register_fake_class("{name}")', f"class {short}:", f'    """What {name} flattens to."""', "",
        "    def __init__(self, flat):", "        self.flat = flat", "        for field, value in flat:",
        "            if not hasattr(self, field):", "                setattr(self, field, value)", "", "    @classmethod",
        "    def __obj_unflatten__(cls, flat):", "        return cls(flat)",
    ]  # fmt: skip
    for method in methods:
        rows += ["", f"    def {method}(self):", f'        return _field(self.flat, "{name}", "{method}")']
    return "\n".join(rows)
