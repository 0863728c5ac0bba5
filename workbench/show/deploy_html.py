"""A deployment as static html: how each op runs, and what each run gave beside eager."""

from __future__ import annotations

from html import escape

from ..reports.deploying import Deployed, Ran
from . import deploy_text as said
from .markup import MICRO, captions, dot


def deployed(report: Deployed, heading: bool = True) -> str:
    """Head, a line for each op, a table of the runs, notes, what to type next."""
    soft = " &nbsp; ".join(map(escape, (report.device, f"{sum(report.seconds.values()):.1f} s")))
    title = f'<div class="row"><h3>{escape(report.name)}</h3><span class="soft">{soft}</span></div>' if heading else ""
    where = f'<p class="cap"><code>{escape(report.path)}/model.pt2</code></p>'
    ops = "".join(
        f'<tr><td><span class="mono">{escape(name)}</span></td><td class="w">runs {escape(how)}</td></tr>'
        for name, how in report.ops
    )
    heads = '<tr><th>run in</th><th>on</th><th class="w">beside eager</th><th class="n">a call</th></tr>'
    runs = f"<table>{heads}{''.join(map(run, report.runs))}</table>"
    body = f"{title}{where}{f'<table>{ops}</table>' if ops else ''}{runs}"
    return f'<div class="card">{body}{captions([*report.notes, *said.how(report)])}</div>'


def run(row: Ran) -> str:
    """One run as a row of the table."""
    status = "skip" if row.skipped else "pass" if row.ok else "fail"
    took = f"{row.microseconds:,.0f} {MICRO}" if row.microseconds else ""
    found = f'<span class="bad">{escape(said.result(row))}</span>' if row.problem else escape(said.result(row))
    first = f"<td>{dot(status)}{escape(row.by)}</td><td>{escape(row.on)}</td>"
    return f'<tr>{first}<td class="w">{found}</td><td class="n">{took}</td></tr>'
