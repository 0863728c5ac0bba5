"""The licence of a package: what it may be called, and what LICENSE says."""

from __future__ import annotations

import sys

import pytest

from workbench.errors import SaveError
from workbench.saving import licences


@pytest.mark.parametrize("without_the_list", [False, True])
def test_expressions(monkeypatch, without_the_list):
    if without_the_list:
        monkeypatch.setitem(sys.modules, "packaging.licenses", None)
        monkeypatch.delattr("packaging.licenses", raising=False)
    for given in ("MIT", "MIT OR Apache-2.0", "LicenseRef-Ours", "GPL-2.0-only WITH Classpath-exception-2.0"):
        assert licences.expression(f" {given} ") == given
    for given in ("my own", "", "MIT License", 3, "MIT OR"):
        with pytest.raises(SaveError, match=r"is no SPDX expression; for instance 'MIT', 'BSD-3-Clause'"):
            licences.expression(given)


def test_an_expression_is_put_in_its_normal_form():
    pytest.importorskip("packaging.licenses")
    assert licences.expression("mit or apache-2.0") == "MIT OR Apache-2.0"
    with pytest.raises(SaveError, match="license='proprietary' is no SPDX expression"):
        licences.expression("proprietary")


@pytest.mark.parametrize(
    ("spdx", "begins", "holds"),
    [
        (
            "MIT",
            "MIT License\n\nCopyright (c) the authors of my_ops\n\nPermission is hereby granted",
            "OUT OF OR IN CONNECTION WITH THE SOFTWARE",
        ),
        (
            "BSD-2-Clause",
            "BSD 2-Clause License\n\nCopyright (c) the authors of my_ops\n",
            "2. Redistributions in binary form",
        ),
        (
            "BSD-3-Clause",
            "BSD 3-Clause License\n\nCopyright (c) the authors of my_ops\n",
            "3. Neither the name of the copyright holder",
        ),
        ("Apache-2.0", "", "Version 2.0, January 2004"),
        (
            "MIT OR ISC",
            "my_ops is under this licence, an SPDX expression: MIT OR ISC\n",
            "- ISC: https://spdx.org/licenses/ISC.html\n",
        ),
        (
            "LicenseRef-Ours",
            "my_ops is under this licence, an SPDX expression: LicenseRef-Ours\n",
            "its text belongs into this file.\n",
        ),
    ],
)
def test_the_text(spdx, begins, holds):
    text = licences.text(spdx, "my_ops")
    assert text.startswith(begins) and holds in text
    assert "spdx.org/licenses/LicenseRef" not in text and "{" not in text
