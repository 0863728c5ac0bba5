"""What a save did, as text."""

from __future__ import annotations

import shlex

from ..reports.saving import Saved


def saved(report: Saved) -> str:
    """`rmsnorm_ops 0.1.0 | lab::rmsnorm | 48 files in /home/me/rmsnorm_ops | 0.3 s`, and what is to be said of it."""
    return "\n".join(lines(report))


def lines(report: Saved) -> list[str]:
    where = f"{report.files} files in {report.path}"
    head = f"{report.name} {report.version} | {', '.join(report.ops)} | {where} | {report.seconds:.1f} s"
    said = [f"{c.op}: {c.kind}, {c.why}" for c in report.changes]
    if report.advised:
        said.append(f"for these changes call it {report.advised}")
    said += [f"{path} keeps what was changed by hand" for path in report.kept]
    return [head, *said, *report.notes, *how(report)]


def how(report: Saved) -> list[str]:
    """What to type next."""
    if report.layout == "kernels":
        return [f"build it with kernel-builder: kernel-builder build-and-copy {shlex.quote(report.path)}"]
    return [f"install it: pip install --no-build-isolation {shlex.quote(report.path)}"]
