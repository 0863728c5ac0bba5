"""Small files of the cache folder."""

import os

import pytest

from workbench import kept
from workbench.errors import ToolchainError

NAME = "folder/found.json"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_is_written_is_read(cache):
    assert kept.read(NAME) == {}
    kept.write(NAME, {"a": 1})
    kept.write(NAME, {"a": [1, 2]})
    assert kept.read(NAME) == {"a": [1, 2]}
    assert [p.name for p in (cache / "folder").iterdir()] == ["found.json"]
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", ["", "{", "[1]", "null", '"text"', "[" * 100_000, "\x00"])
def test_a_spoilt_file_is_none(cache, content):
    kept.write(NAME, {})
    (cache / NAME).write_text(content)
    assert kept.read(NAME) == {}


def test_what_cannot_be_written_leaves_the_former_file(cache):
    kept.write(NAME, {"a": 1})
    with pytest.raises(TypeError):
        kept.write(NAME, {"a": object()})
    assert kept.read(NAME) == {"a": 1}
    assert [p.name for p in (cache / "folder").iterdir()] == ["found.json"]


def test_a_folder_that_others_can_write_to_is_not_read(cache):
    kept.write(NAME, {"a": 1})
    os.chmod(cache, 0o777)
    assert kept.read(NAME) == {}
    with pytest.raises(ToolchainError):
        kept.write(NAME, {"a": 2})


def test_the_folder_of_nobody(monkeypatch):
    monkeypatch.setenv("WORKBENCH_CACHE", "~nobody_of_that_name/cache")
    assert kept.read(NAME) == {}
    with pytest.raises(ToolchainError, match="Write the whole path"):
        kept.write(NAME, {})
