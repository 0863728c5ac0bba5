"""Under which licence a package is: its SPDX expression in the normal form, and the text of LICENSE. Pure text."""

from __future__ import annotations

import re

from ..errors import SaveError
from . import templates

_WORDS = ("AND", "OR", "WITH")
_PAGE = "https://spdx.org/licenses/{}.html"
_COPYRIGHT = "Copyright (c) the authors of {name}\n\n"
_AS_IS = """
THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS"
AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE
IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE LIABLE
FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL
DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR
SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER
CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY,
OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE
OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
"""
_BSD = """Redistribution and use in source and binary forms, with or without
modification, are permitted provided that the following conditions are met:

1. Redistributions of source code must retain the above copyright notice, this
   list of conditions and the following disclaimer.

2. Redistributions in binary form must reproduce the above copyright notice,
   this list of conditions and the following disclaimer in the documentation
   and/or other materials provided with the distribution.
"""
# As they stand on spdx.org, without a year, which would make another file of the same package a year later.
_TEXTS = {
    "MIT": "MIT License\n\n" + _COPYRIGHT + """Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
""",
    "BSD-2-Clause": "BSD 2-Clause License\n\n" + _COPYRIGHT + _BSD + _AS_IS,
    "BSD-3-Clause": "BSD 3-Clause License\n\n" + _COPYRIGHT + _BSD + """
3. Neither the name of the copyright holder nor the names of its contributors
   may be used to endorse or promote products derived from this software
   without specific prior written permission.
""" + _AS_IS,
}  # fmt: skip


def expression(text: str) -> str:
    """The SPDX expression in its normal form: `mit or apache-2.0` is `MIT OR Apache-2.0`. SaveError for anything else."""
    wrong = (
        f"license={text!r} is no SPDX expression; for instance 'MIT', 'BSD-3-Clause', 'Apache-2.0', "
        f"or 'LicenseRef-Ours' for one of your own ({_PAGE.format('').removesuffix('.html')})"
    )
    if not isinstance(text, str) or not text.strip():
        raise SaveError(wrong)
    try:
        from packaging import licenses
    except ImportError:  # packaging before 24.2: what no licence is called is found without its list
        name = r"\(*[A-Za-z0-9][A-Za-z0-9.-]*\+?\)*"
        if re.fullmatch(rf"{name}(?: (?:AND|OR|WITH) {name})*", text.strip()):
            return text.strip()
        raise SaveError(wrong) from None
    try:
        return str(licenses.canonicalize_license_expression(text.strip()))
    except licenses.InvalidLicenseExpression:
        raise SaveError(wrong) from None


def text(spdx: str, name: str) -> str:
    """The file LICENSE of the package `name`: the text of a usual licence, or where that of another one is."""
    if spdx == "Apache-2.0":
        return templates.text("project/LICENSE.txt")
    if spdx in _TEXTS:
        return _TEXTS[spdx].format(name=name)
    parts = [w.rstrip("+") for w in re.split(r"[\s()]+", spdx) if w and w not in _WORDS]
    pages = [p for p in dict.fromkeys(parts) if not p.startswith("LicenseRef-")]
    own = [p for p in dict.fromkeys(parts) if p.startswith("LicenseRef-")]
    lines = [f"{name} is under this licence, an SPDX expression: {spdx}", "", f"{_COPYRIGHT.format(name=name).strip()}"]
    lines += ["", "Its text:", *(f"- {p}: {_PAGE.format(p)}" for p in pages)] if pages else []
    lines += ["", *(f"{p} is the authors' own: its text belongs into this file." for p in own)] if own else []
    return "\n".join(lines) + "\n"
