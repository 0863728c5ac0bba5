"""Text is text: in html, in compilers' command lines, in directives and saved files. The cache is private. No network."""

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import html.parser
import json
import os
import re
import stat
import subprocess
import sys
import textwrap
import types
import typing
from pathlib import Path

import pytest
import torch

import workbench as wb
from tests import live
from tests.live import SCALE
from workbench import settings
from workbench.build import cache, cpp, extension, store
from workbench.errors import BuildError, SchemaError, ToolchainError
from workbench.reports import card, inspection, report
from workbench.show import bundle, markup, waiting
from workbench.show import code as shown_code
from workbench.source import Source

ROOT = Path(__file__).parents[1]
X = torch.linspace(-2, 3, 24).reshape(4, 6)

# ---------------------------------------------------------------- html

HOSTILE = (
    "<script>alert(1)</script>",
    "</pre></code></td></table></style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x=\'',
    "`</code><b onclick=x>` & &lt; &#60;script&#62;",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x00 \x08 \u202e",
    "'; </details><svg onload=x><a href=javascript:x>",
)
HARMLESS = "a `b` c"


def reports() -> list[type]:
    """Every report that there is, also those that come later."""
    assert inspection  # its reports are known by now
    found, rest = [], [report.Report]
    while rest:
        for kind in rest.pop().__subclasses__():
            rest.append(kind)
            found += [kind] if dataclasses.is_dataclass(kind) else []
    return list(dict.fromkeys(found))


def filled(hint: object, text: str, number: int = 1, depth: int = 0) -> object:
    """A value of that type in which every string is `text`."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in (int, float, bool):
        return hint(number)
    if origin in (typing.Union, types.UnionType):
        return None if depth > 6 else filled(next(a for a in args if a is not type(None)), text, number, depth + 1)
    if origin is tuple:
        inner = args[:1] * 2 if args[1:] == (Ellipsis,) else args
        return tuple(filled(a, text, number, depth + 1) for a in inner)
    if origin in (dict, collections.abc.Mapping):
        return {filled(args[0], text, number, depth + 1): filled(args[1], text, number, depth + 1)}
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return hint(
            **{f.name: filled(hints[f.name], text, number, depth + 1) for f in dataclasses.fields(hint) if f.init}
        )
    return text


class Read(html.parser.HTMLParser):
    """Tags with the names of their attributes, and the text between them."""

    def __init__(self, shown: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags, self.text, self.links = set(), "", set()
        self.feed(shown)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add((tag, tuple(sorted({name for name, _ in attrs}))))
        self.links |= {v for name, v in attrs if name in ("href", "src", "action")}

    def handle_data(self, data):
        self.text += data


def unscripted(shown: str) -> tuple[list[str], str]:
    """The scripts of a page, without the random names in them, and the page without its scripts."""
    pattern = re.compile(r"<script>.*?</script>", re.DOTALL)
    return [re.sub(r"wb-[0-9a-f]{8}", "wb-", s) for s in pattern.findall(shown)], pattern.sub("", shown)


def harmless(shown: str, plain: str) -> Read:
    """`shown` has no mark-up but what `plain`, the same with harmless text, has, and no script but a fixed one."""
    (scripts, shown), (others, plain) = unscripted(shown), unscripted(plain)
    assert scripts == others, "a script that is another with another text"
    assert not [c for c in shown if ord(c) < 32 and c not in "\t\n\r"], "control characters"
    read = Read(shown)
    assert read.tags - Read(plain).tags <= {("code", ()), ("span", ("class", "title"))}  # a long name is shortened
    assert not {name for _, names in read.tags for name in names if name.startswith("on")}
    assert not read.links and "script" not in {tag for tag, _ in read.tags}
    return read


@pytest.mark.parametrize("kind", reports(), ids=lambda k: k.__name__)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_in_a_report_is_markup(kind, text):
    for number in (1, 3):
        shown = [bundle(filled(kind, t, number))["text/html"] for t in (text, HARMLESS)]
        read = harmless(*shown)
        assert text[:8].strip("\x1b").split("[")[0] in read.text  # it is shown, not dropped


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_in_the_smaller_pieces_is(text):
    for render in (markup.rich, lambda t: markup.captions([t]), lambda t: markup.folded(t, ""), markup.dot,
                   lambda t: shown_code.pre(t, "cpp"), lambda t: shown_code.pre(f"//! {t}", "cuda"), lambda t: shown_code.pre(t, "triton")):  # fmt: skip
        read = Read(render(text))
        assert {tag for tag, _ in read.tags} <= {
            "p",
            "span",
            "code",
            "pre",
            "details",
            "summary",
            "br",
        } and not read.links
        assert not {name for _, names in read.tags for name in names if name.startswith("on")}
    harmless(
        waiting.Doing(text)._repr_mimebundle_()["text/html"], waiting.Doing(HARMLESS)._repr_mimebundle_()["text/html"]
    )


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_in_a_widget_is(text):
    ipywidgets = pytest.importorskip("ipywidgets")
    from workbench.show import inspect_widget, widget

    def pages(made: ipywidgets.Widget) -> list[str]:
        inner = [p for child in getattr(made, "children", ()) for p in pages(child)]
        return [made.value, *inner] if isinstance(made, ipywidgets.HTML) else inner

    for kind, of in (
        (card.Card, lambda r: widget.of(r, lambda n: None)),
        (inspection.Inspection, inspect_widget.of),
        (inspection.Comparison, inspect_widget.of),
    ):
        for one, other in zip(pages(of(filled(kind, text))), pages(of(filled(kind, HARMLESS))), strict=True):
            harmless(one, other)


def test_what_compilers_kernels_and_file_names_say_is_shown_as_text():
    """All the way: a cell whose name, title, prints, warnings and errors are mark-up."""
    scale, evil = live.scale(), HOSTILE[0]
    text = Source(f"//! n = x.numel()\n//! out = empty_like(x)\n// {evil}\n#include <cstdio>\n#warning {evil}\n" + SCALE.partition("// Times k\n")[2].replace(
        "{\n", f'{{\n  printf("{evil} \\033[31m");\n', 1), "cpp", file=f"{evil}.cpp", first_line=1, path="")  # fmt: skip
    from workbench import cells, describe

    cells.run(scale, text)
    shown = [bundle(r)["text/html"] for r in (scale.last_line, scale.runs().trial, describe.card(scale))]
    with pytest.raises(BuildError):
        cells.run(
            scale,
            Source(text.text.replace("out[i] =", f"#error {evil}\nout[i] ="), "cpp", file=text.file, first_line=1),
        )
    shown.append(bundle(scale.last_line)["text/html"])
    for page in shown:
        assert "<script" not in page and "\x1b" not in page
        assert "&lt;script&gt;" in page


# ---------------------------------------------------------------- names and flags reach no shell, and no other place


@pytest.mark.parametrize(
    "name",
    ['a"b', "a\\", "a\nint evil;", "$(touch pwned)", "`touch pwned`", "a' b", "%s %n", "*/ /*", "<x>"],
    ids=ascii,
)
def test_a_file_name_is_a_name(name, fresh_cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export = 'extern "C" __attribute__((visibility("default"))) '
    for build in (lambda t: cpp.compile(f"{Source(t, 'cpp', file=name).text}", kind="body", file=name),
                  lambda t: extension.build([Source(t, "cpp", file=name)], name="ext")):  # fmt: skip
        assert Path(build(export + "int f() { return 1; }\n").path).is_file()
        with pytest.raises(BuildError) as raised:
            build(export + "int f() { return nothing; }\n")
        assert raised.value.diagnostics[0].message.startswith("‘nothing’ was not declared")
    assert not list(tmp_path.glob("*pwned*"))


@pytest.mark.parametrize(
    "flag",
    ["$(touch pwned)", "`touch pwned`", ";touch pwned", "&&touch pwned", "|touch pwned", "-DX='\"$(touch pwned)\"'"],
)
def test_flags_reach_no_shell(flag, fresh_cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for build in (lambda: cpp.compile("int f();", kind="body", flags=[flag], includes=[str(tmp_path)]),
                  lambda: wb.cpp(live.scale(), f"//! flags {flag}\n" + SCALE)):  # fmt: skip
        try:
            build()
        except (BuildError, SchemaError, ToolchainError):
            pass
    assert not list(tmp_path.rglob("pwned")) and not Path("pwned").exists()


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/b", "a\x00b", "$(x)", 'a"b'])
def test_an_extensions_name_is_an_identifier(name):
    with pytest.raises(SchemaError, match="identifier"):
        wb.load_inline(name, "int f();", functions=["f"])


# ---------------------------------------------------------------- parsed, not evaluated

MAY_EXECUTE = {  # (file, what): whose text it is
    ("build/triton_text.py", "compile"): "the user's own cell, to say its syntax errors",
    ("build/triton_module.py", "compile"): "the user's own cell, as a notebook runs it",
    ("build/triton_module.py", "exec"): "the same",
    ("loading.py", "compile"): "the user's own op.py",
    ("loading.py", "exec"): "the same",
    ("source.py", "__import__"): "a grammar of tree-sitter, one of two names",
    ("entry.py", "compile"): "our own text, from a checked schema",
    ("entry.py", "exec"): "the same",
}
PICKLES = {"trial"}  # between this process and a child of its own, through a socket pair


def test_text_is_run_as_code_nowhere_but_where_it_is_code():
    found = set()
    for path in sorted((ROOT / "workbench").rglob("*.py")):
        name = str(path.relative_to(ROOT / "workbench"))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in ("eval", "exec", "compile", "__import__", "builtins.eval", "builtins.exec"):
                    found.add((name, called))
                assert called not in (
                    "os.system",
                    "os.popen",
                    "yaml.load",
                    "marshal.loads",
                    "subprocess.getoutput",
                ), name
                said = {k.arg: ast.unparse(k.value) for k in node.keywords}
                assert called != "torch.load" or said.get("weights_only") == "True", f"{name}: a pickle of anything"
                assert not any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in node.keywords), (
                    f"{name}: a shell"
                )
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                assert not {"shelve", "marshal", "dill", "cloudpickle", "yaml"} & set(modules), name
                assert not {m.partition(".")[0] for m in modules} & {
                    "urllib",
                    "http",
                    "requests",
                    "ftplib",
                    "httpx",
                    "aiohttp",
                }, name
                assert "pickle" not in modules or name.partition("/")[0] in PICKLES, name
    assert found == set(MAY_EXECUTE)


@pytest.mark.parametrize(
    "text", ["__import__('os').system('touch pwned')", "{'__class__': 1}", "[1, 2", "null", "1e999", '{"a": ' * 2000]
)
@pytest.mark.parametrize("file", ["toolchain.json", "edit_times.json", "meta.json"])
def test_what_is_kept_in_the_cache_is_read_as_data(file, text, fresh_cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    built = cpp.compile("int f();", kind="body")
    path = Path(built.path).parent / file if file == "meta.json" else Path(fresh_cache) / file
    path.write_text(text)
    cache._stores.clear()
    from workbench import edit_times, toolchain

    toolchain._probe.cache_clear()
    assert cpp.compile("int f();", kind="body").key == built.key
    assert isinstance(dict(edit_times.typical()), dict)
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("artefact", ["../../../evil.so", "/tmp/evil.so", "..", "", "body.so\x00.txt"])
def test_an_entry_of_the_store_leads_nowhere_else(artefact, fresh_cache):
    built = cpp.compile("int f();", kind="body")
    path = Path(built.path).parent / "meta.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({**meta, "artefact": artefact}))
    found = store.Store(Path(fresh_cache)).find(built.key)
    assert found is None or Path(found.path).parent == path.parent


# ---------------------------------------------------------------- the cache is the user's alone


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077], ids=oct)
def test_nobody_else_can_write_below_the_cache_whatever_the_umask(umask, fresh_cache):
    before = os.umask(umask)
    try:
        cpp.compile("int f();", kind="body")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(fresh_cache).st_mode) == 0o700 & ~umask
    for folder, folders, _ in os.walk(fresh_cache):
        for name in folders:
            assert not os.lstat(os.path.join(folder, name)).st_mode & 0o022, name


def shared(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def linked(folder: Path) -> None:
    shared(folder.with_name("target"))
    folder.symlink_to(folder.with_name("target"))


def of_another(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)


def linked_by_another(folder: Path) -> None:
    folder.with_name("target").mkdir(mode=0o700)
    folder.symlink_to(folder.with_name("target"))
    os.chown(folder, 12345, 12345, follow_symlinks=False)


@pytest.mark.parametrize("make", [
    shared, linked, *(pytest.param(f, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")) for f in (of_another, linked_by_another)),
], ids=lambda f: f.__name__)  # fmt: skip
def test_a_cache_that_others_can_write_to_is_refused_and_says_what_to_do(make, fresh_cache):
    make(Path(fresh_cache))
    with pytest.raises(ToolchainError, match="WORKBENCH_CACHE") as raised:
        cpp.compile("int f();", kind="body")
    assert "could put code into it" in str(raised.value)
    scale = live.scale()
    with pytest.raises(ToolchainError, match="scale forward still runs the reference"):
        wb.cpp(scale, SCALE)
    assert scale(X).equal(X * 2)


def test_a_link_of_ones_own_is_a_cache(fresh_cache, tmp_path):
    (tmp_path / "target").mkdir(mode=0o700)
    Path(fresh_cache).symlink_to(tmp_path / "target")
    assert Path(cpp.compile("int f();", kind="body").path).is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_build_that_another_user_put_there_is_refused(fresh_cache):
    built = cpp.compile("int f();", kind="body")
    os.chown(Path(built.path).parent, 12345, 12345)
    cache._stores.clear()
    with pytest.raises(ToolchainError, match="belongs to another user"):
        cpp.compile("int f();", kind="body")


# ---------------------------------------------------------------- nothing is downloaded

OFFLINE = """
    import os, sys
    asked = []
    def hook(event, arguments):
        if event in ("socket.getaddrinfo", "socket.gethostbyname", "urllib.Request", "http.client.connect", "ftplib.connect"):
            asked.append((event, arguments))
            raise OSError("there is no network")
        if event == "socket.connect" and not isinstance(arguments[1], (str, bytes)):  # a path is one of this machine
            asked.append((event, arguments))
            raise OSError("there is no network")
        if event == "subprocess.Popen" and os.path.basename(str(arguments[0])) in ("pip", "pip3", "curl", "wget", "git", "conda", "uv"):
            asked.append((event, arguments))
    sys.addaudithook(hook)
    import torch, workbench as wb
    from torch import Tensor
    from workbench import describe, show

    @wb.op("lab::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    scale.cases(lambda t: iter([(t(4, 8), 3.0)]))
    wb.cpp(scale, TEXT)
    report = scale.check()
    assert report.ok, str(report)
    page = show.bundle(describe.card(scale))["text/html"]
    assert "http://" not in page.replace("http://www.w3.org/", "") and "https://" not in page  # nothing to fetch either
    torch.compile(lambda x: scale(x) + 1, fullgraph=True, backend="aot_eager")(torch.ones(2))
    print(asked)
"""


@pytest.mark.slow
def test_everything_works_without_a_network_and_asks_for_none(fresh_cache):
    script = f"TEXT = {SCALE!r}\n" + textwrap.dedent(OFFLINE)
    variables = {
        **os.environ,
        "WORKBENCH_CACHE": fresh_cache,
        "PYTHONPATH": str(ROOT),
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "[]"
    assert settings.cache_dir() == Path(fresh_cache)
