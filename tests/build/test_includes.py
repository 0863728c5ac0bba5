"""Headers that a text includes, and which of them changed."""

from __future__ import annotations

from workbench.build import includes


def test_headers_of_headers_are_found(tmp_path):
    (tmp_path / "a.h").write_text('#include "sub/b.h"\n')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.h").write_text('#include "c.h"\n#include <vector>\n')
    (tmp_path / "sub" / "c.h").write_text("")
    found = includes.digests('#include "a.h"\n#include "absent.h"\n', [str(tmp_path)])
    assert sorted(found) == [str(tmp_path / name) for name in ("a.h", "sub/b.h", "sub/c.h")]


def test_a_header_that_changed_is_named():
    former = {"/me/warp.h": "1", "/me/math.h": "2", "/me/b.h": "3"}
    assert includes.changed(former, former) == ()
    assert includes.changed(former, {**former, "/me/warp.h": "9"}) == ("warp.h",)
    assert includes.changed(former, {**former, "/me/warp.h": "9", "/me/b.h": "9"}) == ("b.h", "warp.h")


def test_a_header_that_is_new_or_gone_is_the_texts_own_change():
    assert includes.changed({}, {"/me/warp.h": "1"}) == ()
    assert includes.changed({"/me/warp.h": "1"}, {}) == ()


def test_a_header_of_that_name_from_another_folder():
    assert includes.changed({"/a/warp.h": "1"}, {"/b/warp.h": "1"}) == ()
    assert includes.changed({"/a/warp.h": "1"}, {"/b/warp.h": "2"}) == ("warp.h",)
