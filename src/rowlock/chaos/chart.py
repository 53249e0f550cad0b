"""A chart of a run: jobs that succeeded per second, and when each fault struck. Pure, SVG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from rowlock.chaos.plan import Fault
from rowlock.chaos.report import ChaosReport

WIDTH: Final = 960
HEIGHT: Final = 320
_LEFT: Final = 56
_TOP: Final = 40
_BOTTOM: Final = 48
_RIGHT: Final = 16
_MARK: Final = 10

# The colour and name of each marked fault. All others are faults of the line.
_LINE: Final = ("#8a8f98", "line or connection")
_MARKS: Final = {
    Fault.KILL_CHILD: ("#c0392b", "kill"),
    Fault.KILL_SUPERVISOR: ("#c0392b", "kill"),
    Fault.KILL_WORKER: ("#c0392b", "kill"),
    Fault.KILL_PRODUCER: ("#c0392b", "kill"),
    Fault.PAUSE_CHILD: ("#8e44ad", "stop"),
    Fault.PAUSE_WORKER: ("#8e44ad", "stop"),
    Fault.CRASH: ("#e67e22", "crash of the server"),
}


def draw_chart(report: ChaosReport) -> str:
    """Return the chart as SVG."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: ChaosReport) -> Iterator[str]:
    seconds = max(1, int(report.seconds) + 1)
    rates = Counter(int(at) for at in report.ended if 0 <= at < seconds)
    highest = max(rates.values(), default=1)
    title = (
        f"{report.store}, seed {report.plan.seed}: {report.plan.jobs:,} jobs, "
        f"succeeded per second; {report.verdict}"
    )
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="{title}">'
    )
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    yield f'<text x="{_LEFT}" y="20" font-size="14" fill="#222222">{title}</text>'
    yield from _axes(seconds, highest)
    points = " ".join(
        f"{_x(second + 0.5, seconds):.1f},{_y(rates[second], highest):.1f}"
        for second in range(seconds)
    )
    yield f'<polyline points="{points}" fill="none" stroke="#2c6fbb" stroke-width="1.5"/>'
    yield from _strikes(report, seconds)
    yield "</svg>"


def _x(second: float, seconds: int) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * second / seconds


def _y(rate: float, highest: float) -> float:
    room = HEIGHT - _TOP - _BOTTOM - _MARK
    return _TOP + room * (1 - rate / highest)


def _axes(seconds: int, highest: int) -> Iterator[str]:
    for share in (0.0, 0.5, 1.0):
        y = _y(share, 1)
        yield f'<path d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}" stroke="#dddddd"/>'
        yield (
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555555">'
            f"{highest * share:,.0f}</text>"
        )
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = _x(seconds * share, seconds)
        yield (
            f'<text x="{x:.1f}" y="{HEIGHT - 24}" text-anchor="middle" fill="#555555">'
            f"{seconds * share:.0f} s</text>"
        )


def _strikes(report: ChaosReport, seconds: int) -> Iterator[str]:
    floor = HEIGHT - _BOTTOM
    seen: dict[str, str] = {}
    for at, fault in report.struck:
        colour, name = _MARKS.get(fault, _LINE)
        seen[name] = colour
        x = _x(at, seconds)
        yield f'<path d="M{x:.1f} {floor - _MARK}V{floor}" stroke="{colour}" stroke-width="1.2"/>'
    x = _LEFT
    for name, colour in sorted(seen.items()):
        yield f'<rect x="{x}" y="{HEIGHT - 14}" width="10" height="3" fill="{colour}"/>'
        yield f'<text x="{x + 14}" y="{HEIGHT - 8}" fill="#555555">{name}</text>'
        x += 14 + 8 * len(name) + 20
