"""What a terminal showed, as an SVG that plays it again and again.

Text is only ever appended: a line is never written over. So every piece of text appears once, at
its time, and the lines scroll up as their number grows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from tests.docs.pictures.drawing import head_of

COLUMNS, ROWS = 120, 24
CELL, LINE, MARGIN, BAR = 7.8, 18, 14, 30
HOLD_SECONDS = 4.0
COLOURS = {"31": "red", "32": "green", "33": "amber", "36": "cyan", "1": "bold", "2": "dim"}
STYLE = """\
text { font: 13px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  fill: #d7dde6; white-space: pre }
.red { fill: #ff8f8f } .green { fill: #7fd6a0 } .amber { fill: #ecc46b } .cyan { fill: #7cc7e8 }
.bold { font-weight: 700 } .dim { fill: #8d99a8 }
text, .lines { animation-duration: var(--long); animation-iteration-count: infinite;
  animation-timing-function: step-end }
@media (prefers-reduced-motion: reduce) { text, .lines { animation-name: none !important } }
"""
# Escape sequences that only colour, those that do something else, and text.
TOKEN = re.compile(r"\x1b\[([\d;]*)m|(\x1b\[[\d;?]*[A-Za-z])|(\r|\n)|([^\x1b\r\n]+)")


@dataclass(frozen=True, slots=True)
class Shown:
    """A piece of text in one colour, and when it appeared, in seconds."""

    seconds: float
    line: int
    column: int
    text: str
    colour: str


def lay_out(events: Iterable[tuple[float, str]]) -> list[Shown]:
    """Place what was printed on lines of a terminal that wraps, and has no end below."""
    shown: list[Shown] = []
    line = column = 0
    colour = ""
    for seconds, text in events:
        for code, other, move, plain in TOKEN.findall(text):
            assert not other, f"{other!r}: the recording only knows colours"
            if move == "\n":
                line, column = line + 1, 0
            elif not move and not plain:
                colour = COLOURS.get(code, "")
            rest = plain
            while rest:
                if column == COLUMNS:
                    line, column = line + 1, 0
                part, rest = rest[: COLUMNS - column], rest[COLUMNS - column :]
                shown.append(Shown(seconds, line, column, part, colour))
                column += len(part)
    return shown


def render(shown: list[Shown], title: str) -> str:
    """The whole recording as one picture, which begins anew when it has ended."""
    times = sorted({each.seconds for each in shown})
    names = {seconds: f"t{number}" for number, seconds in enumerate(times)}
    duration = times[-1] + HOLD_SECONDS
    width, height = MARGIN * 2 + COLUMNS * CELL, BAR + MARGIN * 2 + ROWS * LINE
    scrolls = scroll_steps(shown)
    keyframes = [
        f"@keyframes {names[seconds]} {{ 0% {{ opacity: 0 }} "
        f"{100 * seconds / duration:.2f}%, 100% {{ opacity: 1 }} }}"
        for seconds in times
    ]
    moves = " ".join(
        f"{100 * seconds / duration:.2f}% {{ transform: translateY({-LINE * lines}px) }}"
        for seconds, lines in scrolls
    )
    last = LINE * scrolls[-1][1]
    parts = [
        head_of(width, height, title),
        f"<style>\n:root {{ --long: {duration:.1f}s }}\n{STYLE}",
        *keyframes,
        f"@keyframes scroll {{ {moves} 100% {{ transform: translateY({-last}px) }} }}",
        f".lines {{ transform: translateY({-last}px); animation-name: scroll }}\n</style>",
        f'<rect width="{width:g}" height="{height:g}" rx="10" fill="#131a24"/>',
        *(
            f'<circle cx="{18 + 18 * number}" cy="16" r="5.5" fill="{colour}"/>'
            for number, colour in enumerate(("#e0645c", "#e3b341", "#58b368"))
        ),
        f'<svg y="{BAR}" width="{width:g}" height="{height - BAR - MARGIN / 2:g}">',
        '<g class="lines">',
        *(draw(each, names[each.seconds]) for each in shown),
        "</g>\n</svg>\n</svg>",
    ]
    return "\n".join(parts) + "\n"


def scroll_steps(shown: list[Shown]) -> list[tuple[float, int]]:
    """When the lines move up, and by how many in all."""
    steps = [(0.0, 0)]
    for each in shown:
        above = each.line - ROWS + 1
        if above > steps[-1][1]:
            steps.append((each.seconds, above))
    return steps


def draw(each: Shown, name: str) -> str:
    x, y = MARGIN + each.column * CELL, MARGIN + each.line * LINE
    return (
        f'<text x="{x:g}" y="{y:g}" textLength="{len(each.text) * CELL:g}" '
        f'lengthAdjust="spacingAndGlyphs" class="{each.colour}" '
        f'style="animation-name:{name}">{escape(each.text)}</text>'
    )
