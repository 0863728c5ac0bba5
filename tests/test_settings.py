from __future__ import annotations

import os
import stat

import pytest

from workbench import settings
from workbench.errors import ToolchainError


def test_cache_dir_is_the_users_own_unless_named(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "here"))
    assert settings.cache_dir() == tmp_path / "here"
    assert not (tmp_path / "here").exists()
    monkeypatch.setenv("WORKBENCH_CACHE", "~/kept")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert settings.cache_dir() == tmp_path / "kept"
    monkeypatch.delenv("WORKBENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert settings.cache_dir() == tmp_path / "xdg" / "workbench"


@pytest.mark.parametrize(
    ("said", "meant"), [("sm_90", "sm_90"), ("90", "sm_90"), ("9.0", "sm_90"), ("compute_100a", "sm_100a"), ("", None)]
)
def test_arch_has_one_spelling(monkeypatch, said, meant):
    monkeypatch.setenv("WORKBENCH_ARCH", said)
    assert settings.arch() == meant


def test_arch_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("WORKBENCH_ARCH", "hopper")
    with pytest.raises(ToolchainError, match="'hopper': no GPU architecture. Write it like sm_90"):
        settings.arch()


def test_cxx_prefers_our_variable_and_keeps_words(monkeypatch):
    monkeypatch.setenv("CXX", "ccache g++")
    monkeypatch.delenv("WORKBENCH_CXX", raising=False)
    assert settings.cxx() == ("CXX", ("ccache", "g++"))
    monkeypatch.setenv("WORKBENCH_CXX", "clang++")
    assert settings.cxx() == ("WORKBENCH_CXX", ("clang++",))
    monkeypatch.delenv("WORKBENCH_CXX")
    monkeypatch.delenv("CXX")
    assert settings.cxx() is None


def test_variables_that_cannot_be_read_say_which_and_how_to_write_them(monkeypatch):
    monkeypatch.setenv("WORKBENCH_CXX", "g++ 'O2")
    with pytest.raises(ToolchainError, match="WORKBENCH_CXX is .*: No closing quotation. Write it as in a shell"):
        settings.cxx()
    monkeypatch.setenv("WORKBENCH_CACHE", "~no.such.user/builds")
    with pytest.raises(ToolchainError, match="WORKBENCH_CACHE is '~no.such.user/builds': .* Write the whole path"):
        settings.cache_dir()


def test_compilers_speak_english_in_utf8(monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.ISO-8859-1")
    monkeypatch.setenv("LANGUAGE", "de")
    made = settings.compiler_environment("/tmp/t")
    assert (made["LC_ALL"], made.get("LANGUAGE"), made["TMPDIR"]) == ("C.UTF-8", None, "/tmp/t")


def test_programs_are_found_beside_the_interpreter(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert "/usr/bin" in settings.programs().split(os.pathsep)


def test_private_folder_is_made_for_its_owner_alone(tmp_path):
    folder = settings.private(tmp_path / "a" / "b")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_private_folder_that_others_can_write_to_is_refused(tmp_path, mode):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(ToolchainError, match=r"can be written to by others.*chmod go-w .*WORKBENCH_CACHE"):
        settings.private(folder)


def test_private_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    folder = settings.private(tmp_path / "mine")
    if os.geteuid() == 0:
        os.chown(folder, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ToolchainError, match="belongs to another user"):
        settings.private(folder)
