from __future__ import annotations

import _thread
import ctypes
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from workbench import toolchain
from workbench.build import cache, cpp, flags, process, stub
from workbench.errors import BuildError, ToolchainError
from workbench.toolchain import Compiler

TWICE = """#line 2 "cell [3]"
extern "C" __attribute__((visibility("default"))) float twice(float x) {
  return 2 * x;
}
"""
FULL = """float half(float);
#line 2 "cell [3]"
int unused_here() {
  int y = 1;
#warning hello
  return 1;
}
"""
GCC = Compiler(("/usr/bin/g++",), "gcc", "g++ 12.2.0", 12, "gold", "g++ 12.2.0 | gold")


def call(build, name="twice", x=3.0):
    function = ctypes.CDLL(build.path)[name]
    function.argtypes, function.restype = [ctypes.c_float], ctypes.c_float
    return function(x)


@pytest.fixture
def counted(fresh_cache, tmp_path, monkeypatch):
    """The compiler, through a script that notes each run; counted() is how many there were."""
    count = tmp_path / "count"
    script = tmp_path / "counting-g++"
    script.write_text(f'#!/bin/sh\ncase "$*" in *" -shared -o "*) echo run >> {count};; esac\nexec g++ "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("WORKBENCH_CXX", str(script))
    toolchain.compiler()
    return lambda: len(count.read_text().split()) if count.exists() else 0


@pytest.fixture
def instead(fresh_cache, tmp_path, monkeypatch):
    """instead(shell): this is what runs instead of a compiler whenever a text is compiled."""

    def make(shell: str) -> None:
        script = tmp_path / "fake-g++"
        script.write_text(f'#!/bin/bash\ncase "$*" in *" -shared -o "*) ;; *) exec g++ "$@";; esac\n{shell}\n')
        script.chmod(0o755)
        monkeypatch.setenv("WORKBENCH_CXX", str(script))
        toolchain.compiler()

    return make


# ---- what is built


def test_a_body_is_a_shared_object_that_can_be_called(fresh_cache):
    built = cpp.compile(TWICE, kind="body")
    assert call(built) == 6.0
    assert (built.tier, built.cached, built.diagnostics, built.log) == ("body", False, (), "")
    assert built.path.startswith(fresh_cache) and built.seconds > 0


def test_a_body_needs_nothing_of_torch(fresh_cache):
    built = cpp.compile(TWICE, kind="body")
    needed = subprocess.run(["readelf", "-d", built.path], check=True, capture_output=True, text=True).stdout
    assert "soname" not in needed.lower() and "torch" not in needed and "c10" not in needed


def test_a_launcher_sees_the_stable_headers_and_libtorch(fresh_cache):
    text = (
        "#include <torch/csrc/inductor/aoti_torch/c/shim.h>\n"
        'extern "C" __attribute__((visibility("default"))) float twice(float x) '
        "{ return x + aoti_torch_dtype_float64(); }\n"
    )
    built = cpp.compile(text, kind="launcher")
    assert (call(built), built.tier) == (3.0 + 7, "launcher")  # 7 is torch's number for float64
    needed = subprocess.run(["readelf", "-d", built.path], check=True, capture_output=True, text=True).stdout
    assert "[libtorch_cpu.so]" in needed and toolchain.torch().lib in needed  # also where torch is not loaded yet


def test_a_launcher_is_linked_with_torch_itself_when_there_is_no_stub(fresh_cache, monkeypatch):
    monkeypatch.setattr(stub, "folder", lambda compiler, kind: "")
    text = TWICE.replace("2 * x", "x + aoti_torch_dtype_float64()")
    assert (
        call(
            cpp.compile(
                text.replace("extern", 'extern "C" int aoti_torch_dtype_float64();\nextern', 1), kind="launcher"
            )
        )
        == 10.0
    )
    with pytest.raises(BuildError, match="undefined reference to nothing_of_torch"):
        cpp.compile(
            TWICE.replace("2 * x", "nothing_of_torch()").replace(
                "extern", 'extern "C" int nothing_of_torch();\nextern', 1
            ),
            kind="launcher",
        )


def test_a_stub_that_cannot_be_made_is_no_error(fresh_cache, monkeypatch):
    monkeypatch.setattr(stub.process, "run", lambda *a, **k: stub.process.Finished(1, "no", 0.1))
    assert stub.folder(toolchain.compiler(), "launcher") == stub.folder(toolchain.compiler(), "host") == ""


def test_what_users_write_is_linked_with_the_stable_abi_and_other_names_with_torch_itself(fresh_cache, monkeypatch):
    commands, run = [], process.run
    monkeypatch.setattr(process, "run", lambda command, **k: commands.append(command) or run(command, **k))

    def linked(name, *given):
        """A call of `name`, and with what it was linked at last."""
        text = TWICE.replace("2 * x", f"x + {name}()").replace("extern", f'extern "C" int {name}();\nextern', 1)
        built = cpp.compile(text, kind="host", flags=given)
        return call(built), "-lc10" not in commands[-1]

    assert linked("aoti_torch_dtype_float64") == (10.0, True)
    assert linked("aoti_torch_dtype_float32") == (9.0, True)
    count = len(commands)
    number, of_abi = linked("_ZN2at15get_num_threadsEv")  # at::get_num_threads, of no stable ABI
    assert number == 3.0 + torch.get_num_threads() and not of_abi and len(commands) == count + 2
    assert linked("_ZN2at15get_num_threadsEv", flags.BEYOND) == (number, False) and len(commands) == count + 3
    with pytest.raises(BuildError, match="undefined reference to nothing_of_torch"):
        linked("nothing_of_torch")


def test_the_users_flags_come_last_and_win(fresh_cache):
    text = TWICE.replace("2 * x", "__OPTIMIZE__ + FACTOR * x")
    assert call(cpp.compile(text, kind="body", flags=["-O1", "-DFACTOR=5"])) == 16.0
    with pytest.raises(BuildError, match="FACTOR"):
        cpp.compile(text, kind="body")


def test_openmp_is_there_for_the_asking(fresh_cache):
    text = (
        "#include <omp.h>\n" + TWICE.replace("return 2 * x;", "int n = 0;\n#pragma omp parallel for reduction(+ : n)\n"
        "for (int i = 0; i < 100; i++) n += omp_get_max_threads() > 0;\nreturn n;")
    )  # fmt: skip
    assert call(cpp.compile(text, kind="body", flags=["-O3", "-march=native", "-fopenmp"])) == 100.0


def test_command_lines_are_golden(monkeypatch):
    assert flags.compiling(GCC, "body", ["-O3", "-lm", "-march=native"]) == (
        "-O2", "-std=c++20", "-fPIC", "-fvisibility=hidden", "-pipe", "-ftabstop=1", "-fdiagnostics-color=never",
        "-fno-gnu-unique", "-O3", "-march=native",
    )  # fmt: skip
    assert flags.linking(GCC, "body", ["-O3", "-lm", "-L", "lib", "x.a"]) == (
        "-fuse-ld=gold", "-Wl,--exclude-libs=libstdc++.a", "-Wl,-z,defs", "-lm", "-L", "lib", "x.a",
    )  # fmt: skip
    monkeypatch.setattr(toolchain, "torch", lambda: toolchain.Torch("2.13.0", "abc", ("/t/include",), "/t/lib"))
    assert flags.compiling(GCC, "launcher", ["-O3"])[-5:] == (
        "-O1", "-DTORCH_TARGET_VERSION=0x020b000000000000", "-isystem", "/t/include", "-O3",
    )  # fmt: skip
    assert flags.linking(GCC, "launcher") == (
        "-fuse-ld=gold", "-Wl,--exclude-libs=libstdc++.a", "-Wl,-z,defs", "-L/t/lib", "-Wl,-rpath,/t/lib", "-ltorch_cpu", "-lc10",
    )  # fmt: skip
    assert flags.linking(GCC, "launcher", stub="/s") == (
        "-fuse-ld=gold", "-Wl,--exclude-libs=libstdc++.a", "-Wl,--no-as-needed", "-L/s", "-Wl,-rpath,/t/lib", "-ltorch_cpu",
    )  # fmt: skip
    assert flags.linking(GCC, "host", stub="/s") == (
        "-fuse-ld=gold", "-Wl,--exclude-libs=libstdc++.a", "-Wl,--no-as-needed", "-L/s", "-Wl,-z,defs", "-L/t/lib",
        "-Wl,-rpath,/t/lib", "-ltorch_cpu",
    )  # fmt: skip
    assert flags.folders(["-Ia", "-I", "/b", "-O3", "-isystem", "c"], "/me") == ("/me/a", "/b", "/me/c")


# ---- what is not built again


def test_going_back_and_starting_anew_run_no_compiler(counted):
    other = TWICE.replace("2 * x", "4 * x")
    values = [call(cpp.compile(text, kind="body")) for text in (TWICE, other, TWICE)]
    assert (values, counted()) == ([6.0, 12.0, 6.0], 2)
    cache._stores.clear()  # what a restart does
    assert cpp.compile(TWICE, kind="body").cached
    assert counted() == 2


def test_the_same_code_in_another_cell_is_the_same_build(counted):
    first = cpp.compile(FULL, kind="body", file="cell [3]")
    again = cpp.compile(FULL.replace("[3]", "[7]"), kind="body", file="cell [7]")
    assert (again.cached, again.path, counted()) == (True, first.path, 1)
    assert [(d.file, d.line, d.severity) for d in first.diagnostics] == [("cell [3]", 4, "warning")]
    assert [(d.file, d.line, d.severity) for d in again.diagnostics] == [("cell [7]", 4, "warning")]
    assert "cell [7]:4:" in again.log and "cell [3]" not in again.log


def test_code_that_says_where_it_stands_is_built_for_its_own_cell(counted):
    text = TWICE.replace("return 2", "return __FILE__[6] == '3' ? 1 : 2")
    assert call(cpp.compile(text, kind="body")) == 1.0
    assert call(cpp.compile(text.replace("[3]", "[4]"), kind="body")) == 6.0
    assert counted() == 2


@pytest.mark.parametrize(
    "change",
    [
        {"flags": ["-O1"]},
        {"kind": "launcher"},
        {"text": TWICE.replace("#line 2", "#line 3")},
    ],
    ids=["flags", "kind", "line"],
)
def test_whatever_changes_the_binary_changes_the_key(fresh_cache, change):
    given = {"text": TWICE, "kind": "body", **change}
    first = cpp.compile(TWICE, kind="body")
    assert cpp.compile(given.pop("text"), **given).key != first.key


def test_another_compiler_torch_or_processor_changes_the_key(monkeypatch):
    def key(kind="body", flags=(), compiler=GCC):
        return cpp.Unit(TWICE, kind, tuple(flags), "cell", (), compiler).key

    before = [key(), key("launcher"), key(flags=["-march=native"])]
    other = Compiler(GCC.command, "gcc", "g++ 13.1.0", 13, "gold", "g++ 13.1.0 | gold")
    assert key(compiler=other) != before[0]
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/opt/include")
    assert key() != before[0]
    monkeypatch.delenv("CPLUS_INCLUDE_PATH")
    was = toolchain.torch()
    monkeypatch.setattr(toolchain, "torch", lambda: toolchain.Torch("2.99", was.revision, was.include, was.lib))
    monkeypatch.setattr(toolchain, "processor", lambda: "another")
    after = [key(), key("launcher"), key(flags=["-march=native"])]
    assert [a == b for a, b in zip(after, before)] == [True, False, False]


def test_headers_are_found_beside_the_notebook_and_belong_to_the_key(counted, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.h").write_text('#pragma once\n#include "sub/b.h"\n')
    (tmp_path / "sub" / "b.h").write_text('#include "c.h"\n')
    (tmp_path / "sub" / "c.h").write_text("#define FACTOR 5\n")
    text = '#include "a.h"\n' + TWICE.replace("2 *", "FACTOR *")
    assert call(cpp.compile(text, kind="body", includes=[str(tmp_path)])) == 15.0
    (tmp_path / "sub" / "c.h").write_text("#define FACTOR 70\n")
    assert call(cpp.compile(text, kind="body", includes=[str(tmp_path)])) == 210.0
    assert cpp.compile(text, kind="body", includes=[str(tmp_path)]).cached
    assert counted() == 2


def test_headers_in_a_folder_of_the_flags_belong_to_the_key(fresh_cache, tmp_path):
    (tmp_path / "inc").mkdir()
    text = "#include <factor.h>\n" + TWICE.replace("2 *", "FACTOR *")
    for factor in (5, 6):
        (tmp_path / "inc" / "factor.h").write_text(f"#define FACTOR {factor}\n//{'x' * factor}\n")
        assert call(cpp.compile(text, kind="body", includes=[str(tmp_path)], flags=["-Iinc"])) == 3.0 * factor


def test_two_processes_run_one_compiler(counted, tmp_path):
    code = (
        "import sys; from workbench.build import cpp\n"
        "text = sys.stdin.read()\n"
        "b = cpp.compile(text, kind='body'); print(b.cached, b.path)"
    )
    made = {**os.environ, "PYTHONPATH": os.getcwd()}
    slow = TWICE + "#include <vector>\n#include <algorithm>\n"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=made, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for child in both:
        child.stdin.write(slow)
    for child in both:
        child.stdin.close()
    said = [child.stdout.read().split() for child in both]
    assert [child.wait(120) for child in both] == [0, 0]
    assert sorted(s[0] for s in said) == ["False", "True"] and said[0][1] == said[1][1]
    assert counted() == 1


# ---- what does not build


def test_an_error_is_on_the_users_line(fresh_cache):
    text = TWICE.replace("return 2 * x;", "float y = 2 * x\n  return y;")
    with pytest.raises(BuildError) as caught:
        cpp.compile(text, kind="body")
    first = caught.value.diagnostics[0]
    assert (first.file, first.line, first.severity, first.excerpt) == ("cell [3]", 3, "error", "  float y = 2 * x")
    assert str(caught.value).startswith("cell [3], line 3: expected")
    assert "error:" in caught.value.log


def test_a_failure_is_raised_again_without_a_compiler(counted):
    for name in ("[3]", "[3]", "[5]"):
        with pytest.raises(BuildError) as caught:
            cpp.compile(TWICE.replace("2 * x", "z").replace("[3]", name), kind="body")
        assert (caught.value.file, caught.value.line) == (f"cell {name}", 3)
        assert caught.value.diagnostics[0].file == f"cell {name}"
    assert counted() == 1


def test_a_missing_header_says_where_it_was_looked_for_and_is_found_once_it_is_there(fresh_cache, tmp_path):
    text = '#include "warp.h"\n' + TWICE
    with pytest.raises(BuildError, match=f"there is no header warp.h: looked in {tmp_path}"):
        cpp.compile(text, kind="body", includes=[str(tmp_path)])
    (tmp_path / "warp.h").write_text("\n")
    assert call(cpp.compile(text, kind="body", includes=[str(tmp_path)])) == 6.0


def test_a_name_that_nothing_defines_fails_now_and_not_when_it_is_loaded(fresh_cache):
    text = "float half(float);\n" + TWICE.replace("2 * x", "half(x)")
    with pytest.raises(BuildError, match=r"undefined reference to half\(float\)"):
        cpp.compile(text, kind="body")


def test_greek_letters_and_a_foreign_locale_are_no_matter(fresh_cache, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONUTF8", "0")
    with pytest.raises(BuildError) as caught:
        cpp.compile("// μ-kernel\n" + TWICE.replace("2 * x", "μ * ö"), kind="body")
    assert caught.value.diagnostics[0].excerpt == "  return μ * ö;"
    assert "μ" in caught.value.diagnostics[0].message


def test_output_that_is_no_utf8_is_still_shown(instead):
    instead(r"printf 'cell [3]:3:1: error: bad \xff byte\n'; exit 1")
    with pytest.raises(BuildError, match="bad \ufffd byte"):
        cpp.compile(TWICE, kind="body")


def test_warnings_of_a_build_that_succeeds_are_kept(fresh_cache):
    built = cpp.compile(FULL, kind="body", flags=["-Wall"])
    assert [(d.line, d.severity) for d in built.diagnostics] == [(4, "warning"), (3, "warning")]
    assert "#warning hello" in built.log


def test_an_interrupt_kills_every_process_of_the_compiler(instead, fresh_cache, tmp_path):
    mark = tmp_path / "pid"
    instead(f"cat > /dev/null; sleep 600 & echo $! > {mark}.new; mv {mark}.new {mark}; wait")

    def interrupt():
        while not mark.exists():
            time.sleep(0.01)
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        cpp.compile(TWICE, kind="body")
    assert_gone(int(mark.read_text()))
    assert list(Path(fresh_cache, "staging").iterdir()) == []


def test_compilers_that_threads_wait_for_can_be_stopped(instead, tmp_path):
    mark = tmp_path / "pid"
    instead(f"cat > /dev/null; sleep 600 & echo $! > {mark}.new; mv {mark}.new {mark}; wait")
    stopped = threading.Event()
    with ThreadPoolExecutor(1, initializer=process.end_with, initargs=(stopped,)) as pool:
        pending = [pool.submit(cpp.compile, text, kind="body") for text in (TWICE, TWICE + "// more")]
        while not mark.exists():
            time.sleep(0.01)
        stopped.set()
        for compiling in pending:  # the one that runs, and the one that has not begun
            with pytest.raises(KeyboardInterrupt):
                compiling.result(timeout=20)
    assert_gone(int(mark.read_text()))


def test_an_interrupt_ends_what_a_pool_compiles(instead, tmp_path):
    mark = tmp_path / "pid"
    instead(f"cat > /dev/null; sleep 600 & echo $! > {mark}.new; mv {mark}.new {mark}; wait")

    def interrupted() -> None:
        while not mark.exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), process.pool(1) as pool:
        compiling = pool.submit(cpp.compile, TWICE, kind="body")
        interrupted()
    with pytest.raises(KeyboardInterrupt):
        compiling.result(timeout=20)
    assert_gone(int(mark.read_text()))


def test_a_compiler_that_takes_too_long_is_stopped(instead, tmp_path):
    mark = tmp_path / "pid"
    instead(f"cat > /dev/null; sleep 600 & echo $! > {mark}; wait")
    for _ in range(2):  # and not remembered as a failure
        mark.unlink(missing_ok=True)
        with pytest.raises(BuildError, match="fake-g.. took more than 0.4 s and was stopped"):
            cpp.compile(TWICE, kind="body", limit_s=0.4)
        assert_gone(int(mark.read_text()))


def assert_gone(pid: int) -> None:
    """Dead, or dead and not yet fetched by its parent."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} is still alive")


@pytest.mark.parametrize(
    "shell", ["kill -KILL $$", "echo 'g++: fatal error: Killed signal terminated program cc1plus'; exit 1"]
)
def test_a_compiler_that_was_killed_says_so_and_is_tried_again(instead, shell):
    instead(shell)
    for _ in range(2):
        with pytest.raises(BuildError, match="ended by SIGKILL, most likely because memory ran out"):
            cpp.compile(TWICE, kind="body")


def test_half_a_compiler_is_named(instead):
    instead("echo \"g++: fatal error: cannot execute 'cc1plus': execvp: No such file or directory\"; exit 1")
    with pytest.raises(ToolchainError, match="is not complete: .*cc1plus.*apt install g"):
        cpp.compile(TWICE, kind="body")


def test_a_full_disk_is_left_for_a_temporary_folder(instead, fresh_cache):
    instead(
        f'case "$*" in *"-o {fresh_cache}/"*) echo "ld: final link failed: No space left on device"; exit 1;; esac\n'
        'exec g++ "$@"'
    )
    built = cpp.compile(TWICE, kind="body")
    assert call(built) == 6.0 and not built.path.startswith(fresh_cache)
    assert "No space left on device" in built.diagnostics[-1].message


def test_a_compiler_without_words_gives_its_exit_status(instead):
    instead("exit 7")
    with pytest.raises(BuildError, match="the compiler failed with exit status 7"):
        cpp.compile(TWICE, kind="body")
