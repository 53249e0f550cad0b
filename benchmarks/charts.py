"""Charts as SVG: bars, ranges and lines, readable in light and dark, without any library.

Pure: numbers and names in, text out, the same text for the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from xml.sax.saxutils import escape

WIDTH = 760
MARGIN = 24
LABELS = 168
ROW = 26
BAR = 16
PLOT_HEIGHT = 260
PANEL_HEIGHT = 90
PANEL_ROOM = 58
PANEL_GAP = 28
PANEL_LABELS = 60

_STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; font-size: 13px; }
text { fill: #24292f; } .quiet { fill: #6e7781; } .title { font-size: 15px; font-weight: 600; }
.paper { fill: #ffffff; }
.grid { stroke: #d0d7de; stroke-width: 1; } .axis { stroke: #8c959f; stroke-width: 1; }
.ours { fill: #0969da; } .limit { fill: #8c959f; } .peer { fill: #b6c2cf; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.ours { stroke: #0969da; stroke-width: 3; fill: none; } .strong { font-weight: 600; }
.line.trace { stroke-width: 1.5; } .shade { fill: #eaeef2; }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117; } text { fill: #e6edf3; }
.quiet { fill: #9198a1; } .grid { stroke: #30363d; }
.axis { stroke: #6e7681; } .ours { fill: #4493f8; } .limit { fill: #7d8590; }
.peer { fill: #3d4753; } .line.ours { stroke: #4493f8; }
.shade { fill: #21262d; }
}
"""
# For lines of peers; told apart by their labels too.
_COLOURS = ("#bf8700", "#8250df", "#1a7f37", "#cf222e", "#6e7781", "#0550ae")


class Kind(StrEnum):
    """Whose figure it is; also the name of its colour."""

    OURS = "ours"
    LIMIT = "limit"
    PEER = "peer"


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its name."""

    name: str
    value: float
    kind: Kind


@dataclass(frozen=True, slots=True)
class Range:
    """A middle and a far value: the median and the 99th percentile."""

    name: str
    middle: float
    far: float
    kind: Kind


@dataclass(frozen=True, slots=True)
class Line:
    """Values at consecutive places."""

    name: str
    values: Sequence[float]
    kind: Kind


@dataclass(frozen=True, slots=True)
class Panel:
    """A small plot of its own, one of several over the same places."""

    title: str
    values: Sequence[float]


def bars(title: str, groups: Sequence[tuple[str, Sequence[Bar]]], *, unit: str) -> str:
    """Horizontal bars, in groups; every value is written beside its bar."""
    largest = max((bar.value for _, group in groups for bar in group), default=0.0) or 1.0
    room = WIDTH - 2 * MARGIN - LABELS - 70
    drawing = _Drawing(title)
    y = 64
    for name, group in groups:
        drawing.text(MARGIN, y, name, "quiet")
        y += 10
        for bar in sorted(group, key=lambda each: -each.value):
            width = max(1.0, room * bar.value / largest)
            middle = y + ROW / 2 + 4
            left = MARGIN + LABELS
            strong = " strong" if bar.kind is Kind.OURS else ""
            drawing.text(left - 10, middle, bar.name, f"name{strong}", anchor="end")
            drawing.rect(left, y + (ROW - BAR) / 2, width, BAR, bar.kind)
            drawing.text(left + width + 8, middle, f"{bar.value:,.0f}{unit}", f"value{strong}")
            y += ROW
        y += 26
    return drawing.finished(y - 8)


def ranges(title: str, groups: Sequence[tuple[str, Sequence[Range]]], *, unit: str) -> str:
    """From a dot (the median) to the end of its line (the 99th percentile), by powers of ten."""
    found = [each for _, group in groups for each in group]
    low = 10 ** math.floor(math.log10(min((each.middle for each in found), default=1.0)))
    high = max((each.far for each in found), default=10.0) * 1.15
    left, right = MARGIN + LABELS, WIDTH - MARGIN - 110

    def place(value: float) -> float:
        share = math.log(max(value, low) / low) / math.log(high / low)
        return left + (right - left) * share

    drawing = _Drawing(title)
    y = 64.0
    top = y + 2
    for name, group in groups:
        drawing.text(MARGIN, y, name, "quiet")
        y += 10
        for each in sorted(group, key=lambda one: one.middle):
            _draw_range(drawing, each, y + ROW / 2, place, unit)
            y += ROW
        y += 26
    bottom = y - 24
    for tick in _decades(low, high):
        drawing.line(place(tick), top, place(tick), bottom, "grid", first=True)
        drawing.text(place(tick), bottom + 18, f"{tick:g}{unit}", "quiet", anchor="middle")
    return drawing.finished(bottom + 30)


def _draw_range(
    drawing: _Drawing, each: Range, y: float, place: Callable[[float], float], unit: str
) -> None:
    strong = " strong" if each.kind is Kind.OURS else ""
    drawing.text(MARGIN + LABELS - 10, y + 4, each.name, f"name{strong}", anchor="end")
    start, end = place(each.middle), place(each.far)
    drawing.rect(start, y - 3, max(2.0, end - start), 6, each.kind)
    drawing.circle(start, y, 6, each.kind)
    shown = f"{each.middle:.1f} – {each.far:.1f}{unit}"
    drawing.text(end + 10, y + 4, shown, f"value{strong}")


def _decades(low: float, high: float) -> list[float]:
    factors = (1, 2, 5) if high / low <= 100 else (1,)
    steps = [low * factor * 10**power for power in range(6) for factor in factors]
    return [step for step in steps if step <= high]


def lines(
    title: str,
    drawn: Sequence[Line],
    *,
    places: Sequence[str],
    below: str,
    unit: str,
) -> str:
    """Lines over named places, each labelled at its end; the axis begins at zero."""
    highest = max((value for line in drawn for value in line.values), default=1.0)
    step = _step(highest)
    top_value = step * math.ceil(highest / step)
    left, right, top = MARGIN + 56, WIDTH - MARGIN - 120, 56

    def x(number: int) -> float:
        return left + (right - left) * number / max(1, len(places) - 1)

    def y(value: float) -> float:
        return top + PLOT_HEIGHT * (1 - value / top_value)

    drawing = _Drawing(title)
    for number in range(round(top_value / step) + 1):
        value = number * step
        drawing.line(left, y(value), right, y(value), "axis" if value == 0 else "grid")
        drawing.text(left - 8, y(value) + 4, f"{value:,.0f}{unit}", "quiet", anchor="end")
    for number, name in enumerate(places):
        drawing.text(x(number), top + PLOT_HEIGHT + 20, name, "quiet", anchor="middle")
    drawing.text((left + right) / 2, top + PLOT_HEIGHT + 42, below, "quiet", anchor="middle")
    colours = iter(_COLOURS * (1 + len(drawn) // len(_COLOURS)))
    labels: dict[str, float] = {}
    for end in {len(line.values) for line in drawn if line.values}:
        labels |= _apart(
            {each.name: y(each.values[-1]) for each in drawn if len(each.values) == end}
        )
    for line in sorted(drawn, key=lambda each: each.kind is Kind.OURS):
        if not line.values:
            continue
        points = [(x(number), y(value)) for number, value in enumerate(line.values)]
        colour = None if line.kind is Kind.OURS else next(colours)
        drawing.path(points, line.kind, colour)
        label = (points[-1][0] + 8, labels[line.name] + 4)
        strong = "strong" if line.kind is Kind.OURS else "name"
        drawing.text(*label, line.name, strong, colour=colour)
    return drawing.finished(top + PLOT_HEIGHT + 58)


def panels(
    title: str,
    drawn: Sequence[Panel],
    *,
    places: Sequence[float],
    below: str,
    shaded: tuple[float, float],
    note: str,
) -> str:
    """Small plots in two columns, each with its own axis from zero, and a shaded stretch."""
    drawing = _Drawing(title)
    drawing.text(MARGIN, 52, note, "quiet")
    width = (WIDTH - 2 * MARGIN - PANEL_GAP) / 2
    for number, panel in enumerate(drawn):
        row, column = divmod(number, 2)
        left = MARGIN + column * (width + PANEL_GAP) + PANEL_LABELS
        top = 96 + row * (PANEL_HEIGHT + PANEL_ROOM)
        box = (left, top, width - PANEL_LABELS)
        _draw_panel(drawing, panel, box, places=places, shaded=shaded)
    rows = -(-len(drawn) // 2)
    bottom = 96 + rows * (PANEL_HEIGHT + PANEL_ROOM)
    drawing.text(WIDTH / 2, bottom - 8, below, "quiet", anchor="middle")
    return drawing.finished(bottom + 8)


def _draw_panel(
    drawing: _Drawing,
    panel: Panel,
    box: tuple[float, float, float],
    *,
    places: Sequence[float],
    shaded: tuple[float, float],
) -> None:
    left, top, width = box
    highest = max(panel.values, default=0.0) or 1.0
    step = _step(highest, lines=3)
    top_value = step * math.ceil(highest / step)
    last = max(places, default=0.0) or 1.0

    def x(place: float) -> float:
        return left + width * place / last

    def y(value: float) -> float:
        return top + PANEL_HEIGHT * (1 - value / top_value)

    drawing.text(left, top - 10, panel.title, "strong")
    drawing.rect(x(shaded[0]), top, x(shaded[1]) - x(shaded[0]), PANEL_HEIGHT, "shade")
    for number in range(round(top_value / step) + 1):
        value = number * step
        drawing.line(left, y(value), left + width, y(value), "axis" if value == 0 else "grid")
        drawing.text(left - 6, y(value) + 4, f"{value:,.10g}", "quiet", anchor="end")
    drawing.trace([(x(at), y(value)) for at, value in zip(places, panel.values, strict=True)])
    ticks = _step(last, lines=3)
    for number in range(int(last / ticks) + 1):
        at = number * ticks
        drawing.text(x(at), top + PANEL_HEIGHT + 16, f"{at:g}", "quiet", anchor="middle")


def _apart(heights: dict[str, float], gap: float = 16) -> dict[str, float]:
    """Heights of labels, moved down until none covers another."""
    placed: dict[str, float] = {}
    last = -math.inf
    for name, height in sorted(heights.items(), key=lambda item: item[1]):
        last = placed[name] = max(height, last + gap)
    return placed


def _step(highest: float, *, lines: int = 5) -> float:
    """A round distance between grid lines, so that there are about so many."""
    rough = highest / lines
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)


class _Drawing:
    """Collects elements."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._elements: list[str] = []
        self.text(MARGIN, 32, title, "title")

    def text(
        self,
        x: float,
        y: float,
        text: str,
        style: str,
        *,
        anchor: str = "start",
        colour: str | None = None,
    ) -> None:
        fill = f' style="fill:{colour}"' if colour else ""
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        self._elements.append(f'<text {place} class="{style}"{fill}>{escape(text)}</text>')

    def rect(self, x: float, y: float, width: float, height: float, style: str) -> None:
        self._elements.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2"'
            f' class="{style}"/>'
        )

    def circle(self, x: float, y: float, radius: float, style: str) -> None:
        self._elements.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{style}"/>')

    def line(
        self, x: float, y: float, to_x: float, to_y: float, style: str, *, first: bool = False
    ) -> None:
        """A straight line; below everything that is drawn already, if `first`."""
        element = (
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" class="{style}"/>'
        )
        self._elements.insert(0 if first else len(self._elements), element)

    def path(self, points: Sequence[tuple[float, float]], style: str, colour: str | None) -> None:
        drawn = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        stroke = f' style="stroke:{colour}"' if colour else ""
        self._elements.append(f'<path d="{drawn}" class="line {style}"{stroke}/>')
        for x, y in points:
            fill = f' style="fill:{colour}"' if colour else ""
            self._elements.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="{style}"{fill}/>'
            )

    def trace(self, points: Sequence[tuple[float, float]]) -> None:
        """A thin line without dots, for many points."""
        drawn = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self._elements.append(f'<path d="{drawn}" class="line ours trace"/>')

    def finished(self, height: float) -> str:
        size = f'width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        title = f"<title>{escape(self._title)}</title>"
        # Its own: a page may be light where the system is dark.
        paper = f'<rect width="{WIDTH}" height="{height:.0f}" rx="8" class="paper"/>'
        style = f"<style>{_STYLE}</style>"
        return "\n".join([head, title, style, paper, *self._elements, "</svg>\n"])
