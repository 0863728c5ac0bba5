from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from workbench import settings, toolchain
from workbench.errors import ToolchainError


@pytest.fixture
def fresh(fresh_cache, monkeypatch):
    """An empty cache and an empty memory, as in a new process."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("WORKBENCH_CXX", raising=False)
    toolchain._probe.cache_clear()
    yield fresh_cache
    toolchain._probe.cache_clear()


@pytest.fixture
def script(tmp_path, monkeypatch, fresh):
    """script(text) is then the compiler."""

    def make(text: str) -> str:
        path = tmp_path / "fake-g++"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        monkeypatch.setenv("WORKBENCH_CXX", str(path))
        return str(path)

    return make


def test_the_compiler_of_this_machine(fresh):
    found = toolchain.compiler()
    assert os.access(found.command[0], os.X_OK)
    assert found.family in {"gcc", "clang"} and found.major >= 10
    assert str(found.major) in found.version and found.version in found.identity
    assert found.linker in {"", *toolchain.LINKERS}


def test_no_compiler_says_what_to_install(fresh, monkeypatch):
    monkeypatch.setattr(settings, "programs", lambda: "/nowhere")
    with pytest.raises(ToolchainError, match=r"neither g\+\+ nor clang\+\+.*apt install g\+\+.*WORKBENCH_CXX"):
        toolchain.compiler()


def test_a_variable_that_names_no_program_says_which(fresh, monkeypatch):
    monkeypatch.setenv("CXX", "g++-99")
    with pytest.raises(ToolchainError, match=r"CXX names g\+\+-99, which is no program"):
        toolchain.compiler()


def test_a_compiler_that_is_too_old_is_refused(script):
    script('case "$*" in *dM*) echo "#define __cplusplus 1"; echo "#define __GNUC__ 7";; *) echo "g++ 7.5.0";; esac')
    with pytest.raises(ToolchainError, match=r"g\+\+ 7.5.0 is too old: gcc 10 or later"):
        toolchain.compiler()


def test_a_compiler_that_compiles_no_cpp_is_refused(script):
    script('echo "cannot execute cc1plus: No such file or directory"; exit 1')
    with pytest.raises(ToolchainError, match="does not compile C.*cannot execute cc1plus"):
        toolchain.compiler()


def test_clang_is_told_from_gcc(script):
    script(
        'case "$*" in *dM*) printf "#define __clang__ 1\\n#define __clang_major__ 17\\n#define __GNUC__ 4\\n'
        '#define __cplusplus 1\\n";; *) echo "clang version 17.0.6";; esac'
    )
    found = toolchain.compiler()
    assert (found.family, found.major) == ("clang", 17)


def test_a_restart_probes_nothing_and_a_new_compiler_is_noticed(script, tmp_path):
    count = tmp_path / "count"
    path = script(f'echo x >> {count}; exec g++ "$@"')
    first = toolchain.compiler()
    probes = count.read_text()
    assert probes
    toolchain._probe.cache_clear()  # what a restart does
    assert toolchain.compiler() == first
    assert count.read_text() == probes
    os.utime(path, (1, 1))  # another compiler under the same name
    assert toolchain.compiler().identity != first.identity
    assert len(count.read_text()) > len(probes)


def test_a_broken_memory_is_ignored(fresh):
    first = toolchain.compiler()
    with open(os.path.join(fresh, "toolchain.json"), "w", encoding="utf-8") as file:
        file.write('{"cut')
    toolchain._probe.cache_clear()
    assert toolchain.compiler() == first


def test_a_compiler_is_found_when_the_cache_cannot_be_made(fresh, monkeypatch):
    monkeypatch.setenv("WORKBENCH_CACHE", "/dev/null/cache")
    assert toolchain.compiler().major >= 10


def test_torch_is_described_as_it_is():
    found = toolchain.torch()
    assert found.version == torch.__version__
    assert found.revision == torch.version.git_version
    assert os.path.isfile(os.path.join(found.lib, "libtorch_cpu.so"))
    assert all(os.path.isdir(folder) for folder in found.include)


def test_torch_without_headers_says_what_to_do(tmp_path):
    with pytest.raises(ToolchainError, match="C.. headers are not in .*--force-reinstall"):
        toolchain._torch(str(tmp_path))


def test_import_makes_nothing_and_starts_nothing(tmp_path):
    code = (
        "import subprocess, sys\n"
        "def no(*a, **k): raise AssertionError('started a process')\n"
        "import torch\n"
        "subprocess.Popen = no\n"
        "import workbench.toolchain, workbench.build.cpp\n"
        "assert not {'torch.utils.cpp_extension', 'filelock', 'platformdirs'} & set(sys.modules)\n"
    )
    cache = tmp_path / "cache"
    made = {**os.environ, "WORKBENCH_CACHE": str(cache), "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, env=made, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert not cache.exists()
