"""The timeline of one call as inline svg that can be zoomed: threads, streams and memory, one below the other.

Everything stands in percent of the width, so that zooming is making the picture wider: by radio buttons and the
stylesheet alone, and by Ctrl and the wheel where scripts run. Without styles and scripts the whole call is in sight.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from html import escape

from ..reports.profiling import Profile, Span
from . import profile_words as said
from .markup import MICRO

ZOOMS = (1, 4, 16, 64)
WIDTH = 900  # pixels that a picture at zoom 1 has about
ROW, BAR, RULER, MEMORY, TITLE = 16, 14, 18, 44, 15
DEEPEST = 10  # rows of one thread
BYTES = 24_000  # of spans; the shortest are left out beyond that
LETTER = 6.0  # pixels that a letter takes about
LEAST = 3  # letters of a name that are worth showing
STYLES = {  # attributes, so that a page without our stylesheet has colours, too
    "kernel": 'class="k" fill="#0b6bcb"', "copy": 'class="k" fill="#0b6bcb"', "phase": 'class="p" opacity=".07"',
}  # fmt: skip
SCRIPT = """(()=>{const t=document.getElementById("%s");if(!t)return;
const s=t.querySelector(".scroll"),g=s.firstElementChild;
s.addEventListener("wheel",e=>{if(!e.ctrlKey&&!e.metaKey)return;e.preventDefault();
const w=g.getBoundingClientRect().width,b=s.clientWidth-20,
x=e.clientX-s.getBoundingClientRect().left-10,at=(s.scrollLeft+x)/w,
n=Math.min(64,Math.max(1,w/b*Math.exp(-e.deltaY/300)));g.style.width=n*100+"%%";s.scrollLeft=at*n*b-x;
t.querySelectorAll("input").forEach((r,i)=>{r.checked=4**i<=n*1.01&&n*1.01<4**(i+1)})},{passive:false});
t.addEventListener("change",()=>{g.style.width=""})})()"""


def timeline(report: Profile, script: bool = True) -> str:
    """The timeline with its zoom; "" for a report without one."""
    length = _length(report)
    if not length:
        return ""
    group = f"wb-{secrets.token_hex(4)}"
    buttons = "".join(
        f'<label><input type="radio" name="{group}" class="z{z}"{checked}><span>{z}×</span></label>'
        for z, checked in ((z, " checked" if z == 1 else "") for z in ZOOMS)
    )
    drawn, left_out = picture(report)
    more = f"; {left_out:,} short ones are left out" if left_out else ""
    legend = (
        f'<span class="soft">one call, {escape(said.time(length, MICRO))}</span>'
        f'<span class="key k">computes</span><span class="key">calls{more}</span>'
    )
    code = f"<script>{SCRIPT % group}</script>" if script else ""
    head = f'<div class="zoom">{legend}<span class="end">zoom {buttons}</span></div>'
    return f'<div class="tl" id="{group}">{head}<div class="scroll">{drawn}</div></div>{code}'


def picture(report: Profile) -> tuple[str, int]:
    """The svg, and how many spans it leaves out."""
    length = _length(report)
    spans = [s for s in report.timeline if s.kind != "phase" and s.depth < DEEPEST]
    marks = [s for s in report.timeline if s.kind == "phase"]
    tracks: dict[str, int] = {}
    for s in spans:
        tracks[s.track] = max(tracks.get(s.track, 0), s.depth + 1)
    order = sorted(tracks, key=lambda t: (not t.startswith("CPU"), t))
    tops, at = {}, RULER + ROW
    for t in order:
        tops[t] = at + TITLE
        at += TITLE + tracks[t] * ROW + 4
    parts = [_ruler(length, at), *(_span(s, RULER, length) for s in marks)]
    parts += [f'<text x="0" y="{tops[t] - 4}" class="t">{escape(t)}</text>' for t in order]
    kept, used = 0, 0
    for s in sorted(spans, key=lambda s: -s.duration_us):
        one = _span(s, tops[s.track] + s.depth * ROW, length)
        used += len(one)
        if used > BYTES:
            break
        parts.append(one)
        kept += 1
    if report.memory:
        parts.append(_memory(report.memory, length, at))
        at += TITLE + MEMORY + 4
    label = escape(f"timeline of one call of {report.op}")
    svg = (
        f'<svg width="100%" height="{at}" font-size="10" fill="currentColor" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )
    return svg, sum(s.kind != "phase" for s in report.timeline) - kept


def _length(report: Profile) -> float:
    return max((s.end_us for s in report.timeline), default=0.0)


def _percent(value: float, length: float) -> str:
    return f"{round(100 * value / length, 3):g}%"


def _span(span: Span, y: int, length: float) -> str:
    """One bar with its name: shown from the zoom on at which there is room for it, and on hovering with its time."""
    wide = 100 * span.duration_us / length
    name = escape(span.name)
    style = STYLES.get(span.kind, 'opacity=".14"')
    bar = f'<rect {style} width="100%" height="100%"/>'
    zoom = next((z for z in ZOOMS if wide / 100 * WIDTH * z >= LETTER * min(len(span.name), LEAST) + 6), 0)
    shown = span.name if zoom == 0 else _fitting(span.name, wide / 100 * WIDTH * ZOOMS[-1])
    text = f'<text x="3" y="10" class="z{zoom}">{escape(shown)}</text>' if zoom else ""
    return (
        f'<svg x="{_percent(span.start_us, length)}" y="{y}" width="{max(round(wide, 3), 0.001):g}%" height="{BAR}">'
        f"<title>{name}: {escape(said.time(span.duration_us, MICRO))}</title>{bar}{text}</svg>"
    )


def _fitting(name: str, pixels: float) -> str:
    """The begin of a name, as much as the widest zoom has room for."""
    most = max(int(pixels / LETTER), LEAST)
    return name if len(name) <= min(most, 60) else name[: min(most, 60)]


def _ruler(length: float, height: int) -> str:
    """Ticks at round times; more of them as one zooms in."""
    drawn, seen = [], set[float]()
    for zoom in ZOOMS[:3]:
        step = round_step(length / (7 * zoom))
        places = [round(i * step, 6) for i in range(1, int(0.97 * length / step) + 1)]
        fresh = [at for at in places if at not in seen]
        seen.update(fresh)
        lines = "".join(f'<line x1="{x}" x2="{x}" y1="14" y2="{height}"/>' for x in _at(fresh, length) if zoom == 1)
        names = "".join(
            f'<text x="{x}" y="10">{escape(said.time(at, MICRO))}</text>' for at, x in zip(fresh, _at(fresh, length))
        )
        drawn.append(
            f'<g class="z{zoom} t" text-anchor="middle"><g stroke="currentColor" opacity=".12">{lines}</g>{names}</g>'
        )
    return "".join(drawn)


def _at(places: Sequence[float], length: float) -> list[str]:
    return [_percent(at, length) for at in places]


def round_step(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least that.

    >>> round_step(0.3), round_step(34)
    (0.5, 50.0)
    """
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next(round(m * power, 9) for m in (1, 2, 5, 10) if m * power >= least * 0.999999)


def _memory(memory: Sequence[tuple[float, int]], length: float, y: int) -> str:
    """Allocated bytes over the call as an area, its peak beside it."""
    low, high = min(b for _, b in memory), max(b for _, b in memory)
    low, high = min(low, 0), max(high, 1)

    def place(size: int) -> str:
        return f"{round(MEMORY * (high - size) / (high - low), 2):g}"

    zero = place(0)
    path = f"M0 {zero}"
    for at, size in memory:
        path += f"H{round(1000 * min(max(at, 0.0) / length, 1.0), 3):g}V{place(size)}"
    area = f'<path class="m" fill="#0b6bcb" opacity=".3" d="{path}H1000V{zero}z"/>'
    said_ = f"memory, {said.size(high)} at most" + (f", {said.size(-low)} freed" if low < 0 else "")
    return (
        f'<text x="0" y="{y + TITLE - 4}" class="t">{escape(said_)}</text>'
        f'<svg y="{y + TITLE}" width="100%" height="{MEMORY}" viewBox="0 0 1000 {MEMORY}" '
        f'preserveAspectRatio="none"><title>{escape(said_)}</title>{area}</svg>'
    )
