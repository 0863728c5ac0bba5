"""What people met while building extensions (field reports F01 to F14): the kind of fault, with the right value."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest
import torch

import workbench as wb
from tests import live
from tests.live import SCALE
from workbench import cells, gpu, settings, toolchain
from workbench.build import cache, cpp, extension, flags, jobs, store, torch_ninja
from workbench.errors import BuildError, ToolchainError
from workbench.source import Source
from workbench.toolchain import Compiler

ROOT = str(Path(__file__).parents[2])
EXPORT = 'extern "C" __attribute__((visibility("default"))) '
NUMBER = EXPORT + "int number() { return 42; }\n"
X = torch.linspace(-2, 3, 24).reshape(4, 6)


@pytest.fixture
def scale():
    return live.scale()


@pytest.fixture
def lines():
    told = []
    cells.listeners.append(told.append)
    yield told
    cells.listeners.remove(told.append)


def number(build) -> int:
    return ctypes.CDLL(build.path).number()


def python(script: str, cache: str, **environment: str) -> str:
    """What a process of its own prints, which has the cache `cache`."""
    variables = {**os.environ, "WORKBENCH_CACHE": cache, "PYTHONPATH": ROOT, **environment}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=variables, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-2000:]
    return done.stdout.decode("utf-8", "replace")


# ---------------------------------------------------------------- F01: compiler output that never reaches the notebook


WARNS = "#warning hello from the cell\n" + SCALE.replace("{\n", "{\n  int spare;\n", 1).replace(
    "//! n", "//! flags -Wall\n//! n"
)


def test_f01_what_a_compiler_says_of_a_build_that_succeeds_is_in_the_cells_line(scale, lines, capfd):
    for _ in range(2):  # found in the store, it says the same
        wb.cpp(scale, WARNS)
        for shown in (str(lines[-1]), lines[-1]._repr_mimebundle_()["text/html"]):
            assert "cell, line 1: warning: #warning hello from the cell" in shown
            assert "line 8: warning: unused variable" in shown and "int spare;" in shown
        assert "hello from the cell" in scale.runs().kernel.diagnostics[0].message
    out, err = capfd.readouterr()
    assert "hello" not in out + err  # nothing goes around the cell, to the terminal of a server


def test_f01_what_a_compiler_says_of_a_build_that_fails_is_in_the_error(scale, capfd):
    with pytest.raises(BuildError) as raised:
        wb.cpp(scale, WARNS.replace("int spare;", "int spare; return nothing;"))
    assert {d.severity for d in raised.value.diagnostics} >= {"error", "warning"}
    assert "hello from the cell" in raised.value.log and "nothing" in raised.value.log
    assert "nothing" not in "".join(capfd.readouterr())


# ---------------------------------------------------------------- F02: the one useful line is buried

HOST = """
//! flags -Wno-everything
Tensor scale(Tensor x, double k) {
  return x
}
"""


@pytest.mark.parametrize(("text", "line", "excerpt", "words"), [
    (SCALE.replace("for (int64_t i = 0; i < n; ++i) out[i] = T(x[i] * k);", "int64_t i = 0"), 6, "  int64_t i = 0", "expected .*‘;’"),
    ("#error first\n" + SCALE, 1, "#error first", "first"),
    (SCALE.replace("T(x[i] * k)", "TIMES(x[i], k)") + "#define TIMES(a, b) a *\n", 6, None, "TIMES"),
    ('#include "not_there.h"\n' + SCALE, 1, '#include "not_there.h"', "there is no header not_there.h"),
    (HOST.lstrip("\n"), 3, "  return x", "expected .*‘;’"),
    pytest.param("#include <torch/extension.h>\nat::Tensor scale(at::Tensor x, double k) {\n  return x\n}\n", 3, "  return x",
                 "expected .*‘;’", marks=pytest.mark.slow),
], ids=["semicolon", "first line", "macro", "header", "host", "full"])  # fmt: skip
def test_f02_the_first_error_is_on_top_on_the_cells_own_line(scale, text, line, excerpt, words):
    with pytest.raises(BuildError, match=words) as raised:
        wb.cpp(scale, text)
    error = raised.value
    assert (error.diagnostics[0].file, error.diagnostics[0].line, error.diagnostics[0].severity) == (
        "cell",
        line,
        "error",
    )
    assert excerpt is None or error.diagnostics[0].excerpt == excerpt
    said = str(error).splitlines()
    assert said[0].startswith(f"cell, line {line}: ") and len(said) <= 5 and "still runs" in said[-1]
    assert not any(word in str(error) for word in ("ninja", "Traceback", "CalledProcess", "main.cpp"))


# ---------------------------------------------------------------- F03, F04: tools that are there and not found, or not there


@pytest.mark.parametrize("path", ["", "/nowhere", None], ids=["empty", "elsewhere", "unset"])
def test_f03_tools_are_found_whatever_path_says(path, fresh_cache, monkeypatch):
    """A server started from a desktop has a PATH without the environment's own programs."""
    monkeypatch.delenv("PATH") if path is None else monkeypatch.setenv("PATH", path)
    torch_ninja.program.cache_clear()
    assert os.access(torch_ninja.program(), os.X_OK)
    assert number(cpp.compile(NUMBER, kind="body")) == 42
    assert number(extension.build([Source(NUMBER, "cpp")], name="ext")) == 42


def test_f03_a_tool_that_is_nowhere_names_the_command_for_this_interpreter(monkeypatch):
    monkeypatch.setattr(settings, "programs", lambda: "/nowhere")
    monkeypatch.setitem(sys.modules, "ninja", None)
    torch_ninja.program.cache_clear()
    with pytest.raises(ToolchainError, match=f"`{sys.executable} -m pip install ninja`"):
        torch_ninja.program()
    with pytest.raises(ToolchainError, match="apt install g\\+\\+"):
        toolchain.compiler()


def test_f04_missing_headers_of_python_matter_to_extensions_alone_and_name_their_package(
    fresh_cache, monkeypatch, tmp_path
):
    real = sysconfig.get_path
    monkeypatch.setattr(
        sysconfig, "get_path", lambda name, *a, **k: str(tmp_path) if name == "include" else real(name, *a, **k)
    )
    for kind in ("body", "launcher"):
        assert number(cpp.compile(NUMBER, kind=kind)) == 42
    with pytest.raises(BuildError, match="there is no header Python.h: .*apt install python3-dev"):
        extension.build([Source("#include <Python.h>\n", "cpp", "cell [3]", 2)], name="ext")


# ---------------------------------------------------------------- F05: TORCH_CUDA_ARCH_LIST


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here, and it is the one compiled for")
@pytest.mark.parametrize("listed", [None, "9.0;10.0+PTX", "Hopper"])
def test_f05_without_a_gpu_one_arch_is_chosen_said_and_changed_by_our_variable(listed, monkeypatch, recwarn):
    monkeypatch.delenv("WORKBENCH_ARCH", raising=False)
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    if listed:
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", listed)
    assert gpu.target() == gpu.Target("sm_90", "no GPU here, and WORKBENCH_ARCH is not set")
    monkeypatch.setenv("WORKBENCH_ARCH", "8.0")
    assert gpu.target() == gpu.Target("sm_80", "WORKBENCH_ARCH")
    assert os.environ.get("TORCH_CUDA_ARCH_LIST") == listed
    assert not recwarn.list


def test_f05_the_arch_is_in_the_key(fresh_cache):
    nvrtc = pytest.importorskip("workbench.build.nvrtc")
    pytest.importorskip("cuda.bindings.nvrtc")
    text = 'extern "C" __global__ void f(float* x) { *x = 1; }'
    builds = [nvrtc.compile(text, arch=arch) for arch in ("sm_80", "sm_90", "sm_80")]
    assert builds[0].key == builds[2].key != builds[1].key
    assert [b.cached for b in builds] == [False, False, True]


# ---------------------------------------------------------------- F06: text that is not ASCII

GREEK = """
    import torch, workbench as wb
    from torch import Tensor

    @wb.op("lab::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    scale.cases(lambda t: iter([(t(4, 8),)]))
    TEXT = TEXT.encode("ascii").decode("unicode-escape")
    wb.cpp(scale, TEXT, file="scale.cpp")
    assert scale(torch.ones(2)).tolist() == [2, 2]
    assert open("scale.cpp", encoding="utf-8").read().endswith(TEXT)
    assert wb.load("scale.cpp")[0] is scale
    for kind in (TEXT, TEXT.replace("//!", "// ").replace("const T*", "const at::Tensor&")):
        try:
            wb.cpp(scale, kind.replace("out[i] =", "out[\\u03bc] ="))
        except wb.WorkbenchError as error:
            print(ascii(type(error).__name__), ascii(str(error)))
    print(ascii(scale.last_line.to_dict()["op"]), ascii(str(scale)))
"""


@pytest.mark.parametrize("locale", ["C", pytest.param("de_DE.ISO-8859-1", marks=pytest.mark.slow)])
def test_f06_greek_letters_in_any_locale(locale, fresh_cache, tmp_path):
    text = SCALE.replace("// Times k", "// μ-kernel: ½ · “k” 核")
    script = f"import os\nos.chdir({str(tmp_path)!r})\nTEXT = {ascii(text)[1:-1]!r}\n" + textwrap.dedent(GREEK)
    said = python(script, fresh_cache, LC_ALL=locale, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii")
    assert "'BuildError' 'cell, line 6: " in said
    assert r"\u03bc" in said and "Unicode" not in said


# ---------------------------------------------------------------- F07: built again and again


def test_f07_going_back_is_a_load_and_so_is_a_restart(scale, tmp_path, monkeypatch):
    compiler, count = live.counting_compiler(tmp_path)
    monkeypatch.setenv("WORKBENCH_CXX", compiler)
    wb.cpp(scale, SCALE)
    other = SCALE.replace("x[i] * k", "k * x[i]")
    before = live.compilations(count)
    for text in (other, SCALE, other, SCALE):
        wb.cpp(scale, text)
    assert live.compilations(count) == before + 1
    cache._stores.clear()  # what a restart does
    toolchain._probe.cache_clear()
    wb.cpp(scale, other)
    assert live.compilations(count) == before + 1 and scale.runs().kernel.cached


# ---------------------------------------------------------------- F08: which version am I calling?


def test_f08_handles_run_the_newest_version_and_say_which(scale):
    wb.cpp(scale, SCALE)
    held, overload, first = scale, torch.ops.live.scale.default, scale.versions[1]
    wb.cpp(scale, SCALE.replace("x[i] * k", "x[i] * k + T(1e-6)"))
    zero = torch.zeros(1)
    assert (
        held(zero).item() == overload(zero).item() == torch.ops.live.scale(zero).item() == pytest.approx(1e-6, rel=0.1)
    )
    assert repr(held) == "<live::scale(Tensor x, float k=2.0) -> Tensor | forward cpu v2>"
    assert first(zero).item() == 0.0  # a version held on to is that version, and says so
    assert repr(first).startswith("<v1 forward cpu raw C++")


# ---------------------------------------------------------------- F09: two processes build one name

TWO = """
    import sys
    from workbench.build import cpp
    import ctypes
    TEXT = 'extern "C" __attribute__((visibility("default"))) int number() {{ return {number}; }}'
    for _ in range({times}):
        built = cpp.compile(TEXT, kind="body", file="scale")
        assert ctypes.CDLL(built.path).number() == {number}
    print(built.cached)
"""


def test_f09_two_processes_build_one_name(fresh_cache, tmp_path):
    """The same text is built once, another text under the same name disturbs nobody."""
    compiler, count = live.counting_compiler(tmp_path, sleep=0.5)
    variables = {**os.environ, "WORKBENCH_CACHE": fresh_cache, "WORKBENCH_CXX": compiler, "PYTHONPATH": ROOT}
    scripts = [textwrap.dedent(TWO).format(number=n, times=2) for n in (1, 1, 2)]
    running = [subprocess.Popen([sys.executable, "-c", s], env=variables, stderr=subprocess.PIPE) for s in scripts]
    for process in running:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err.decode()
    assert live.compilations(count) == 2
    assert not list((Path(fresh_cache) / "staging").iterdir())


# ---------------------------------------------------------------- F10: a cache shared between environments

GCC = Compiler(("/usr/bin/g++",), "gcc", "g++ 12.2.0", 12, "gold", "g++ 12.2.0 | gold")


@pytest.mark.parametrize(("what", "kinds"), [
    ("torch", {"launcher", "host", "full"}),
    ("torch's build", {"launcher", "host", "full"}),
    ("another environment", {"launcher", "host", "full"}),
    ("python", {"full"}),
    ("compiler", {"body", "launcher", "host", "full"}),
    ("system", {"body", "launcher", "host", "full"}),
    ("search paths", {"body", "launcher", "host", "full"}),
])  # fmt: skip
def test_f10_what_another_environment_has_is_another_build(what, kinds, monkeypatch):
    """And what does not matter is shared: a body without torch's headers serves every torch."""

    def keys() -> dict[str, str]:
        return {k: store.key(flags.identity(compiler, k, ())) for k in ("body", "launcher", "host", "full")}

    compiler, found = GCC, toolchain.torch()
    before = keys()
    if what == "compiler":
        compiler = Compiler(*[*vars(GCC).values()][:-1], "g++ 12.2.0 | gold, another file")
    elif what == "python":
        monkeypatch.setattr(sysconfig, "get_config_var", lambda name: "cpython-399")
    elif what == "system":
        monkeypatch.setattr(toolchain, "system", lambda: "Linux riscv64 glibc 2.40")
    elif what == "search paths":
        monkeypatch.setenv("CPATH", "/opt/other/include")
    else:
        changed = {
            "torch": {"version": "9.9"},
            "torch's build": {"revision": "abc"},
            "another environment": {"lib": "/other/lib"},
        }
        other = toolchain.Torch(**{**vars(found), **changed[what]})
        monkeypatch.setattr(toolchain, "torch", lambda: other)
    after = keys()
    assert {k for k in before if before[k] != after[k]} == kinds


# ---------------------------------------------------------------- F11: ten lines that take half a minute


def test_f11_an_edit_of_ten_lines_compiles_ten_lines(scale, lines, tmp_path, monkeypatch):
    """One compiler run, which sees no header of torch; the line says how long the whole took."""
    arguments = tmp_path / "arguments"
    script = tmp_path / "noting-g++"
    script.write_text(f'#!/bin/sh\necho "$@" >> {arguments}\nexec g++ "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("WORKBENCH_CXX", str(script))
    wb.cpp(scale, SCALE)
    arguments.write_text("")
    wb.cpp(scale, SCALE.replace("x[i] * k", "k * x[i]"))
    [run] = [r for r in arguments.read_text().splitlines() if " -shared -o " in r]
    assert "torch" not in run and "body.so" in run
    assert 0 < lines[-1].seconds < 5 and f"{lines[-1].op} cpp v2 | " in str(lines[-1])


# ---------------------------------------------------------------- F12: compiler launchers

LAUNCHER = """\
#!{python}
# A cache of objects, as ccache is one: by the arguments but -o and -MF, and by the text.
import hashlib, shutil, subprocess, sys, os
words = sys.argv[1:]
if "-c" not in words or os.path.basename(words[-1]) == "/dev/null":
    sys.exit(subprocess.call(words))
out = words[words.index("-o") + 1]
kept = [w for w, before in zip(words, ["", *words]) if before not in ("-o", "-MF")]
text = subprocess.run([*[w for w in words if w != "-c"][: -2], "-E"], capture_output=True).stdout
key = hashlib.sha256(repr(kept).encode() + text).hexdigest()
object = "{store}/" + key
hit = os.path.exists(object)
if not hit:
    code = subprocess.call(words)
    if code:
        sys.exit(code)
    shutil.copyfile(out, object)
shutil.copyfile(object, out)
open("{store}/log", "a").write("hit\\n" if hit else "miss\\n")
"""


def test_f12_a_compiler_launcher_works_and_hits(fresh_cache, tmp_path, monkeypatch):
    """Extensions have the same command and the same paths in every folder they are built in."""
    kept, script = tmp_path / "objects", tmp_path / "any-launcher"
    kept.mkdir()
    script.write_text(LAUNCHER.format(python=sys.executable, store=kept))
    script.chmod(0o755)
    monkeypatch.setenv("CXX", f"{script} g++")
    monkeypatch.delenv("WORKBENCH_CXX", raising=False)
    compiler = toolchain.compiler()
    assert compiler.command == (str(script), shutil.which("g++"))
    assert os.path.realpath(shutil.which("g++")) in compiler.identity  # another compiler behind it is another key
    assert number(cpp.compile(NUMBER, kind="body")) == 42
    for _ in range(2):
        built = extension.build([Source(NUMBER, "cpp", "cell [3]", 2)], name="ext")
        assert number(built) == 42 and not built.cached
        cache.store().discard(built.key)
    assert (kept / "log").read_text().split() == ["miss", "hit"]


@pytest.mark.parametrize(("words", "compiler"), [
    ("ccache g++", 1), ("g++ -m64", 0), ("g++", 0), ("/usr/bin/env LC_ALL=C g++ -pipe", 2), ("nice -n 5 g++", 3),
])  # fmt: skip
def test_f12_the_compiler_is_known_behind_whatever_starts_it(words, compiler, monkeypatch):
    monkeypatch.setattr(
        toolchain.shutil,
        "which",
        lambda w, path=None: f"/usr/bin/{Path(w).name}" if w.isidentifier() or "++" in w or "/" in w else None,
    )
    assert toolchain._behind(tuple(words.split())) == compiler


# ---------------------------------------------------------------- F13: small machines


@pytest.mark.parametrize(("files", "wanted"), [
    ({}, 8),
    ({"/sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
    ({"/sys/fs/cgroup/pids.max": "100", "/sys/fs/cgroup/pids.current": "75"}, 3),
    ({"/sys/fs/cgroup/pids.max": "100", "/sys/fs/cgroup/pids.current": "99"}, 1),
    ({"/sys/fs/cgroup/memory.max": "3000000000", "/sys/fs/cgroup/memory.current": "100000000"}, 2),
    ({"/proc/self/cgroup": "0::/user.slice/lab", "/sys/fs/cgroup/user.slice/lab/pids.max": "40",
      "/sys/fs/cgroup/user.slice/lab/pids.current": "0"}, 5),
    ({"/proc/self/cgroup": "0::/user.slice/lab", "/sys/fs/cgroup/user.slice/cpu.max": "300000 100000",
      "/sys/fs/cgroup/user.slice/lab/cpu.max": "max 100000"}, 3),  # the group around it limits, too
    ({"/proc/self/cgroup": "4:cpu,cpuacct:/lab", "/sys/fs/cgroup/cpu/lab/cpu.cfs_quota_us": "100000",
      "/sys/fs/cgroup/cpu/lab/cpu.cfs_period_us": "100000"}, 1),
    ({"/proc/self/cgroup": "5:memory:/lab", "/sys/fs/cgroup/memory/lab/memory.limit_in_bytes": "6000000000",
      "/sys/fs/cgroup/memory/lab/memory.usage_in_bytes": "0"}, 4),
])  # fmt: skip
def test_f13_jobs_fit_the_control_group(files, wanted, monkeypatch):
    base = {"/proc/meminfo": f"MemAvailable: {64 << 20} kB", "/proc/self/cgroup": "0::/"}
    monkeypatch.setattr(jobs, "_text", lambda path: {**base, **files}.get(path, ""))
    monkeypatch.setattr(jobs, "_affinity", lambda: 16)
    monkeypatch.setattr(jobs, "_own_processes", lambda: 0)
    monkeypatch.delenv("MAX_JOBS", raising=False)
    assert jobs.most(8) == wanted
    monkeypatch.setenv("MAX_JOBS", "7")
    assert jobs.most(8) == 7  # the user's word is the last


def test_f13_ninja_is_told_how_many(fresh_cache, monkeypatch):
    told = []
    run = extension.extension_run.process.run

    def note(command, **options):
        told.append(command)
        return run(command, **options)

    monkeypatch.setattr(extension.extension_run.process, "run", note)
    monkeypatch.setattr(jobs, "_processes", lambda: 9)
    monkeypatch.delenv("MAX_JOBS", raising=False)
    sources = [Source(NUMBER.replace("number", f"number{n or ''}"), "cpp", f"{n}.cpp") for n in range(3)]
    assert number(extension.build(sources, name="ext")) == 42
    assert told[0][-2:] == ["-j", "1"]


# ---------------------------------------------------------------- F14: another GPU


def test_f14_another_gpu_is_another_build_and_what_does_not_run_there_is_named(monkeypatch):
    driver = pytest.importorskip("workbench.build.driver")
    a100 = driver.Device(0, "NVIDIA A100", "sm_80", *[1] * (len(driver.Device.__dataclass_fields__) - 3))
    assert a100.runs("sm_80") and not a100.runs("sm_90") and not a100.runs("sm_90a")
    monkeypatch.setattr(driver, "devices", lambda: (a100,))
    cubin = b"\x7fELF" + b"\0" * 60 + b" sm_90 "  # more of them: tests/build/test_driver.py
    with pytest.raises(
        BuildError, match=r"compiled for sm_90, the GPU here is sm_80 \(NVIDIA A100\): .*WORKBENCH_ARCH"
    ):
        driver._for_a_gpu_here("kernel.cubin", cubin)
    driver._for_a_gpu_here("kernel.cubin", cubin.replace(b"sm_90", b"sm_80"))
