from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path

import pytest

from workbench import settings, toolchain
from workbench.build import cpp, headers
from workbench.build.flags import that_matter_to_a_precompiled_header

NAME = "wb_body_math.h"
EXP = f"""#include "{NAME}"
#line 2 "cell [3]"
extern "C" __attribute__((visibility("default"))) double grown(double x) {{ return std::exp(x); }}
"""


@pytest.fixture(autouse=True)
def nothing_asked(fresh_cache, monkeypatch):
    """As in a new process with an empty cache; gcc only, since only gcc is served."""
    monkeypatch.setattr(headers, "_asked", set())
    monkeypatch.setattr(headers, "_refused", set())
    if toolchain.compiler().family != "gcc":
        pytest.skip("precompiled headers are made for gcc only, and this is clang")
    yield
    assert headers.wait(60)


def grown(build):
    function = ctypes.CDLL(build.path).grown
    function.argtypes, function.restype = [ctypes.c_double], ctypes.c_double
    return function(1.0)


def make(*flags):
    return headers.make(toolchain.compiler(), "body", NAME, flags)


def found(*flags):
    return headers.find(toolchain.compiler(), "body", NAME, flags)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('#include "wb_body_math.h"\nint x;', NAME),
        ('// one\n/* two\n lines */\n#line 1 "cell"\n  #  include "launcher.h"\n', "launcher.h"),
        ('#include "wb_body.h"\n', ""),
        ('#include <cmath>\n#include "wb_body_math.h"\n', ""),
        ('int x;\n#include "wb_body_math.h"\n', ""),
        ("", ""),
    ],
)
def test_only_what_a_text_begins_with_can_be_precompiled(text, name):
    assert headers.begins_with(text) == name


def test_a_finished_one_is_used_and_changes_no_result():
    plain = cpp.compile(EXP, kind="body", flags=["-H", "-DONE"])  # -H makes gcc list the headers that it opens
    assert headers.wait(60)
    folder = make("-H")
    quick = cpp.compile(EXP, kind="body", flags=["-H", "-DTWO"])
    assert f"! {folder}/{NAME}.gch" in quick.log and ".gch" not in plain.log
    assert "/cmath" in plain.log and "/cmath" not in quick.log
    assert grown(plain) == grown(quick) == pytest.approx(2.718281828459045)
    assert quick.diagnostics == ()


def test_other_flags_have_their_own():
    make()
    assert found() and found("-DBLOCK=3", "-Isub", "-lm", "-Wall")
    assert not found("-O3") and not found("-fopenmp") and not found("-std=c++17")
    assert that_matter_to_a_precompiled_header(
        ["-O3", "-D", "N=3", "-DN", "-I", "x", "-Wl,-z,now", "-lm", "-Wall", "-fopenmp"]
    ) == ("-O3", "-fopenmp")


def test_the_first_build_with_a_set_of_flags_starts_it_and_does_not_wait(monkeypatch):
    made, release = [], threading.Event()

    def slow(compiler, kind, name, flags):
        release.wait(30)
        made.append((kind, name, flags))

    monkeypatch.setattr(headers, "make", slow)
    for factor in range(2):
        cpp.compile(EXP.replace("exp(x)", f"exp(x + {factor})"), kind="body", flags=["-O3", f"-DN={factor}"])
    assert made == []  # two builds are done, and it is not
    release.set()
    assert headers.wait(30)
    assert made == [("body", NAME, ("-O3",))]  # once for the set


def test_a_hit_starts_none(monkeypatch):
    cpp.compile(EXP, kind="body")
    assert headers.wait(60)
    monkeypatch.setattr(headers, "request", lambda *a: pytest.fail("asked for"))
    assert cpp.compile(EXP, kind="body").cached


def test_prepare_returns_at_once_and_makes_the_standard_ones(monkeypatch):
    made = []
    monkeypatch.setattr(headers, "make", lambda *a: (time.sleep(0.2), made.append(a[1:])))
    began = time.perf_counter()
    headers.prepare()
    assert time.perf_counter() - began < 0.15
    assert headers.wait(30)
    # Those that an earlier test's cells had made are there already.
    assert {("body", NAME, ()), ("launcher", "launcher.h", ())} <= set(made)
    assert set(made) <= {(kind, name, ()) for name, kind in headers.KINDS.items() if kind != "host-cuda"}
    count = len(made)
    assert len(set(made)) == count
    headers.prepare()
    assert headers.wait(30)
    assert len(made) == count


def test_prepare_without_a_compiler_is_quiet(monkeypatch):
    monkeypatch.setattr(settings, "programs", lambda: "/nowhere")
    monkeypatch.setenv("WORKBENCH_CXX", "")
    monkeypatch.setenv("CXX", "")
    headers.prepare()
    assert headers._asked == set()


def test_one_that_the_compiler_drops_is_left_out_from_then_on():
    gch = Path(make("-DONE"), f"{NAME}.gch")
    gch.write_bytes(b"x" * gch.stat().st_size)
    built = cpp.compile(EXP, kind="body")
    assert grown(built) == pytest.approx(2.718281828459045)
    assert (built.log, built.diagnostics) == ("", ())
    assert found() == ""


def test_a_compiler_that_crashes_on_one_runs_again_without_it(tmp_path, monkeypatch):
    script = tmp_path / "crashing-g++"
    script.write_text(
        '#!/bin/sh\ncase "$*" in *-Winvalid-pch*) cat > /dev/null\n'
        'echo "<stdin>:1:1: internal compiler error: Segmentation fault"; exit 4;; esac\nexec g++ "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("WORKBENCH_CXX", str(script))
    make()
    assert found()
    assert grown(cpp.compile(EXP, kind="body")) == pytest.approx(2.718281828459045)
    assert found() == ""


def test_an_error_of_the_user_is_no_reason_to_leave_it_out():
    make()
    with pytest.raises(cpp.BuildError, match="cell .3., line 2: .*nope"):
        cpp.compile(EXP.replace("exp(x)", "nope(x)"), kind="body")
    assert found()


def test_one_that_cannot_be_made_is_no_error(monkeypatch):
    monkeypatch.setattr(headers.process, "run", lambda *a, **k: headers.process.Finished(1, "broken", 0.1))
    headers.request(toolchain.compiler(), "body", NAME, ())
    assert headers.wait(30)
    assert found() == ""


def test_one_that_was_cut_short_is_made_again():
    gch = Path(make(), f"{NAME}.gch")
    os.truncate(gch, 100)
    assert found() == ""
    assert Path(make(), f"{NAME}.gch").stat().st_size > 1_000_000


def test_few_are_kept(monkeypatch):
    assert headers._store().limit_bytes == 600_000_000
    monkeypatch.setattr(headers, "make", lambda *a: None)
    for n in range(30):
        headers.request(toolchain.compiler(), "body", NAME, (f"-falign-loops={n}",))
    assert headers.wait(30)
    assert len(headers._asked) == headers.MOST
