"""Extensions really built: plain sources for what needs no torch (0.2 s), one with torch's headers for what does."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from workbench import settings
from workbench.build import cache, extension, extension_run, headers, jobs, prelude, process, torch_ninja, undefined
from workbench.errors import BuildError, SchemaError, ToolchainError
from workbench.source import Source

EXPORT = 'extern "C" __attribute__((visibility("default"))) '


@pytest.fixture(autouse=True)
def own_cache(fresh_cache):
    return fresh_cache


def source(text: str, file: str = "cell [3]", first_line: int = 2, path: str = "") -> Source:
    return Source(text, "cpp", file, first_line, path)


def number(text: str, **options: object) -> int:
    return ctypes.CDLL(extension.build([source(text)], name="ext", **options).path).number()


@pytest.fixture
def runs(monkeypatch) -> list[list[str]]:
    """The ninja files that were run, as the lists of what they compile."""
    seen: list[list[str]] = []
    run = process.run

    def counted(command, **options):
        file = Path(options["cwd"]) / "build.ninja"
        if file.exists():
            rows = file.read_text("utf-8").splitlines()
            seen.append([r.split()[-1] for r in rows if r.startswith("build ") and ": compile" in r])
        return run(command, **options)

    monkeypatch.setattr(process, "run", counted)
    return seen


# ---------------------------------------------------------------- one source


def test_a_source_is_built_once_and_found_again(runs):
    text = EXPORT + "int number() { return 42; }"
    first = extension.build([source(text)], name="ext")
    again = extension.build([source(text)], name="ext")
    assert ctypes.CDLL(first.path).number() == 42
    assert (first.cached, again.cached, first.path == again.path) == (False, True, True)
    assert Path(first.path).name == "ext.so" and len(runs) == 1


def test_options_have_torchs_names(tmp_path):
    (tmp_path / "five.h").write_text("#define FIVE 5\n")
    text = f"#include <five.h>\n{EXPORT} int number() {{ return FIVE + EXTRA; }}"
    assert number(text, extra_cflags=["-DEXTRA=2"], extra_include_paths=[str(tmp_path)]) == 7


def test_the_name_of_the_extension_is_in_the_text():
    text = f"#define TEXT(x) #x\n#define NAME(x) TEXT(x)\n{EXPORT} int number() {{ return sizeof(NAME(TORCH_EXTENSION_NAME)); }}"
    assert number(text) == len("ext") + 1


def test_an_edited_header_is_another_build(tmp_path):
    text = f'#include "n.h"\n{EXPORT} int number() {{ return N; }}'
    found = []
    for n in (1, 2):
        (tmp_path / "n.h").write_text(f"#define N {n}\n")
        built = extension.build([source(text, path=str(tmp_path))], name="ext")
        found.append((ctypes.CDLL(built.path).number(), built.cached))
    assert found == [(1, False), (2, False)]


@pytest.mark.parametrize("folder", ["a b", "it's", 'quo"te', "$HOME x", "c:d", "größe µ", "a&b;c"])
def test_any_folder_will_do(tmp_path, monkeypatch, folder):
    place = tmp_path / folder
    place.mkdir()
    (place / "seven.h").write_text("#define SEVEN 7\n")
    monkeypatch.setenv("WORKBENCH_CACHE", str(place / "cache"))
    text = f'#include "seven.h"\n#include <seven.h>\n{EXPORT} int number() {{ return SEVEN; }}'
    built = extension.build([source(text, path=str(place))], name="ext", extra_include_paths=[str(place)])
    assert ctypes.CDLL(built.path).number() == 7 and folder in built.path


def test_it_works_with_nothing_on_the_path_but_the_compiler(monkeypatch):
    torch_ninja.program.cache_clear()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert number(EXPORT + "int number() { return 3; }") == 3
    assert os.path.isabs(torch_ninja.program())


# ---------------------------------------------------------------- mistakes


def test_an_error_is_on_the_cells_line():
    with pytest.raises(BuildError) as caught:
        number("int a;\nint number() { return a + ; }")
    assert (caught.value.file, caught.value.line) == ("cell [3]", 3)
    assert "expected primary-expression" in caught.value.message
    assert "FAILED" not in caught.value.log and "ninja" not in caught.value.log


def test_a_warning_stays_with_the_build():
    text = f"#warning hello there\n{EXPORT} int number() {{ return 1; }}"
    for cached in (False, True):
        built = extension.build([source(text)], name="ext")
        assert built.cached is cached
        assert [(d.severity, d.line) for d in built.diagnostics] == [("warning", 2)]
        assert "hello there" in built.diagnostics[0].message


def test_a_missing_header_shows_where_it_was_looked_for(tmp_path):
    with pytest.raises(BuildError) as caught:
        number('#include "nowhere.h"\nint number();', extra_include_paths=[str(tmp_path)])
    assert "there is no header nowhere.h" in caught.value.message and str(tmp_path) in caught.value.message
    assert caught.value.line == 2


def test_a_missing_library_is_named():
    with pytest.raises(BuildError, match="cannot find the library nosuchlib"):
        number(EXPORT + "int number() { return 1; }", extra_ldflags=["-lnosuchlib"])


@pytest.mark.parametrize(
    ("text", "symbol", "cause"),
    [
        (
            "namespace mine { int gone(int); }\nint number() { return mine::gone(1); }",
            "mine::gone(int)",
            "add the source",
        ),
        ("namespace at { int nosuch(); }\nint number() { return at::nosuch(); }", "at::nosuch()", "another torch"),
        (
            "namespace c10::cuda { int gone(); }\nint number() { return c10::cuda::gone(); }",
            "c10::cuda::gone()",
            "CUDA",
        ),
    ],
)
def test_an_undefined_name_is_readable_and_has_a_cause(text, symbol, cause, monkeypatch):
    monkeypatch.setattr(prelude, "choose", lambda texts: "")  # the name alone, without torch's headers
    with pytest.raises(BuildError) as caught:
        number(EXPORT + "int number();\n" + text)
    assert f"undefined reference to {symbol}" in caught.value.message and cause in caught.value.message


def test_a_failure_is_remembered_and_repaired(runs):
    broken, right = EXPORT + "int number() { return x; }", EXPORT + "int number() { return 8; }"
    for _ in range(2):
        with pytest.raises(BuildError, match="x"):
            number(broken)
    assert number(right) == 8 and len(runs) == 2


def test_what_cannot_be_built_says_so():
    with pytest.raises(SchemaError, match="identifier"):
        extension.build([source("int x;")], name="not a name")
    with pytest.raises(SchemaError, match="no sources"):
        extension.build([], name="ext")


def test_no_ninja_says_what_to_type(monkeypatch, tmp_path):
    import sys

    torch_ninja.program.cache_clear()
    monkeypatch.setitem(sys.modules, "ninja", None)
    monkeypatch.setattr(settings, "programs", lambda: str(tmp_path))
    with pytest.raises(ToolchainError, match="pip install ninja"):
        torch_ninja.program()


# ---------------------------------------------------------------- several sources


def four(edited: int = -1) -> list[Source]:
    texts = [f"int part{i}() {{ return {i + (100 if i == edited else 0)}; }}" for i in range(1, 4)]
    calls = " + ".join(f"part{i}()" for i in range(1, 4))
    declared = " ".join(f"int part{i}();" for i in range(1, 4))
    return [source(f"{declared} {EXPORT} int number() {{ return {calls}; }}", "main.cpp", 1)] + [
        source(t, f"part{i}.cpp", 1) for i, t in enumerate(texts, 1)
    ]


def test_of_four_sources_only_the_edited_one_is_compiled(runs):
    first = extension.build(four(), name="ext")
    edited = extension.build(four(2), name="ext")
    linked = extension.build(four(2), name="ext", extra_ldflags=["-lm"])
    assert [len(r) for r in runs] == [4, 1, 1]
    assert runs[1] == ["s2.cpp"] and runs[2] == [extension_run.EMPTY]
    assert [ctypes.CDLL(b.path).number() for b in (first, edited, linked)] == [6, 106, 106]
    assert edited.note == "compiled 1 of 4"


def test_an_error_in_one_source_costs_the_others_nothing(runs):
    broken = four()
    broken[3] = source("int part3() { return 3 }", "part3.cpp", 1)
    with pytest.raises(BuildError) as caught:
        extension.build(broken, name="ext")
    assert (caught.value.file, caught.value.line) == ("part3.cpp", 1)
    assert ctypes.CDLL(extension.build(four(), name="ext").path).number() == 6
    assert runs[1] == ["s3.cpp"] or len(runs[1]) < 4


def test_two_sources_of_one_name_and_two_headers_of_one_name(tmp_path):
    made = []
    for n, folder in enumerate(("a", "b"), 1):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "util.h").write_text(f"#define VALUE {n}\n")
        text = f'#include "util.h"\n{EXPORT} int number{n}() {{ return VALUE; }}'
        made.append(source(text, "same.cpp", 1, str(tmp_path / folder)))
    library = ctypes.CDLL(extension.build(made, name="ext").path)
    assert (library.number1(), library.number2()) == (1, 2)


# ---------------------------------------------------------------- jobs, interrupts


@pytest.mark.parametrize(
    ("cores", "quota", "free", "named", "wanted", "jobs_"),
    [(8, 8, 64e9, 0, 4, 4), (2, 8, 64e9, 0, 4, 2), (8, 1, 64e9, 0, 4, 1), (8, 8, 3e9, 0, 4, 2), (8, 8, 1e8, 0, 4, 1),
     (8, 8, 64e9, 3, 9, 3)],
)  # fmt: skip
def test_jobs_fit_the_machine(monkeypatch, cores, quota, free, named, wanted, jobs_):
    monkeypatch.setattr(jobs, "_affinity", lambda: cores)
    monkeypatch.setattr(jobs, "_quota", lambda: quota)
    monkeypatch.setattr(jobs, "available_bytes", lambda: int(free))
    monkeypatch.setenv("MAX_JOBS", str(named) if named else "")
    assert jobs.most(wanted) == jobs_


def test_a_quota_is_read_from_the_control_group(monkeypatch):
    files = {"/sys/fs/cgroup/cpu.max": ["150000", "100000"]}
    monkeypatch.setattr(jobs, "_words", lambda path: files.get(path, []))
    assert jobs._quota() == 1
    files["/sys/fs/cgroup/cpu.max"] = ["max", "100000"]
    assert jobs._quota() == jobs._affinity()


def slow_text() -> str:
    return """#include <utility>
template <unsigned... I> constexpr unsigned long long f(std::integer_sequence<unsigned, I...>) { return (0ull + ... + I); }
static_assert(f(std::make_integer_sequence<unsigned, 400000>{}) != 1);"""


def test_an_interrupt_ends_the_compilers(monkeypatch):
    def interrupt():
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        extension.build([source(slow_text())], name="ext")
    assert gone("cc1plus")
    assert not list((settings.cache_dir() / "staging").iterdir())


def test_a_limit_ends_the_compilers_and_may_pass():
    with pytest.raises(BuildError, match=r"took more than 0.5 s and was stopped"):
        extension.build([source(slow_text())], name="ext", limit_s=0.5)
    assert gone("cc1plus")


def gone(name: str) -> bool:
    until = time.monotonic() + 2
    while children_of_mine(name) and time.monotonic() < until:
        time.sleep(0.02)
    return not children_of_mine(name)


def children_of_mine(name: str) -> list[str]:
    """Processes of that name whose working folder lies in this test's cache."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            named = entry.name.isdigit() and (entry / "comm").read_text().strip() == name
            if named and os.readlink(entry / "cwd").startswith(str(settings.cache_dir())):
                found.append(entry.name)
        except OSError:
            continue
    return found


# ---------------------------------------------------------------- which header


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("#include <cmath>\nint f();", ""),
        ("#include <torch/extension.h>\nat::Tensor f(at::Tensor x) { return x; }", prelude.ATEN),
        ("torch::Tensor f() { return torch::tensor({1, 2}); }", prelude.TORCH),
        ("#include <torch/extension.h>\nusing namespace torch;\nTensor f(Tensor x) { return x; }", prelude.TORCH),
        ("#include <torch/extension.h>\nstruct F : torch::autograd::Function<F> {};", prelude.AUTOGRAD),
        ("#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}", prelude.PYBIND),
        ("#include <torch/torch.h>\ntorch::nn::Linear l(1, 2);", prelude.REAL),
        ("at::Tensor f(); // torch::nn is not needed", prelude.ATEN),
        ("#define TORCH_ASSERT_ONLY_METHOD_OPERATORS\n#include <ATen/core/Tensor.h>", ""),
        ("#define ROWS 4\n#include <torch/extension.h>\nat::Tensor f();", prelude.ATEN),
        ("void g(torch::jit::Stack*);", prelude.ATEN),
    ],
)
def test_the_text_decides_for_a_header(text, header):
    assert prelude.choose([text]) == header


def test_what_a_source_includes_first_and_how_it_is_optimised():
    text = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {} struct F : torch::autograd::Function<F> {};"
    assert prelude.includes(prelude.PYBIND, [text]) == ('"wb_full_pybind.h"', "<torch/autograd.h>")
    assert prelude.includes(prelude.ATEN, ["at::Tensor f();"]) == ('"wb_full_aten.h"',)
    assert prelude.optimisation(()) == prelude.optimisation(("-g",)) == ("-O1",)
    assert prelude.optimisation(("-O3",)) == ()


def test_errors_that_the_slim_header_causes_are_known():
    assert prelude.asks_for_more("cell:3:9: error: ‘fft’ is not a member of ‘torch’")
    assert prelude.asks_for_more("cell:3:9: error: ‘nn’ has not been declared")
    assert not prelude.asks_for_more("cell:3:9: error: ‘x’ was not declared in this scope")


def test_text_for_ninja_and_the_shell():
    assert torch_ninja.value("a b", "$c", "d") == "'a b' '$$c' d"
    text = torch_ninja.render(
        [torch_ninja.Unit("s0.cpp", ("-iquote", "/x y"))], name="ext", compiler=["g++"], include_paths=["/i $n"],
        objects=["/o 1.o"], cflags=["-O3"],
    )  # fmt: skip
    assert "build s0.o: compile s0.cpp\n  post_cflags = -iquote '/x y'" in text
    assert "-I'/i $$n'" in text and "'/o 1.o'" in text and "cxx = g++\n" in text and "/wb-" not in text


def test_symbols_become_readable():
    assert undefined.readable("_ZN2at6nosuchEv") == "at::nosuch()"
    assert undefined.readable("plain_c") == "plain_c"
    said = undefined.load_error("/x/y.so: undefined symbol: _ZN3c105ErrorD1Ev")
    assert said.startswith("undefined symbol c10::Error") and "another torch" in said
    assert "older C++ standard library" in undefined.load_error("libstdc++.so.6: version `GLIBCXX_3.4.99' not found")
    log = "warning: undefined reference to 'PyObject_Call'\nwarning: undefined reference to 'mine::f()'\n"
    assert undefined.besides_python(log) == ("mine::f()",)


# ---------------------------------------------------------------- with torch's headers


@pytest.mark.slow
def test_a_slim_header_that_lacks_something_is_replaced_by_torchs_own(monkeypatch):
    monkeypatch.setattr(headers, "request", lambda *a: None)
    monkeypatch.setattr(prelude, "_FRONTEND", prelude._AUTOGRAD)
    text = f"#include <torch/extension.h>\n{EXPORT} int number() {{ return torch::nn::LinearOptions(3, 4).in_features(); }}"
    import torch  # noqa: F401  the library needs torch's own in the process

    assert number(text) == 3


def test_the_cache_has_room_for_all_headers():
    assert headers._store("full").limit_bytes == headers.FULL_LIMIT_BYTES > headers.LIMIT_BYTES
    assert cache.store("objects-full") is not cache.store()


def test_a_build_that_memory_ended_says_so_and_is_tried_again(monkeypatch):
    text = EXPORT + "int number() { return 43; }"
    real, log = process.run, "g++: fatal error: Killed signal terminated program cc1plus\n"
    monkeypatch.setattr(process, "run", lambda *a, **k: process.Finished(1, log, 0.1))
    with pytest.raises(
        BuildError, match="ended by SIGKILL, most likely because memory ran out. Free some memory, lower MAX_JOBS"
    ):
        number(text)
    monkeypatch.setattr(process, "run", real)
    assert number(text) == 43  # nothing of the failure is remembered
