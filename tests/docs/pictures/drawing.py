"""A small kit for diagrams: boxes, arrows and texts, as an SVG with light and dark colours.

The background is opaque and follows the reader's colour scheme together with the texts. A picture
without one is unreadable where the page is dark and the browser's scheme is light, or the reverse.
"""

from __future__ import annotations

from html import escape

STYLE = """\
:root { --page: #ffffff; --ink: #1f2937; --soft: #566172; --line: #7b8794; --edge: #d5dae1;
  --plain: #f4f6f8; --blue: #e8f0fe; --blue-edge: #3b6fd4; --green: #e6f6ec; --green-edge: #2f855a;
  --amber: #fff4dc; --amber-edge: #b7791f; --red: #fdeaea; --red-edge: #c53030; }
@media (prefers-color-scheme: dark) { :root { --page: #10161f; --ink: #e6eaf0; --soft: #a3afbd;
  --line: #7f8b99; --edge: #2c3643; --plain: #1b2430; --blue: #172b4d; --blue-edge: #6f9cf0;
  --green: #143324; --green-edge: #5bb98c; --amber: #3a2d12; --amber-edge: #d9a441;
  --red: #3f1d1f; --red-edge: #ef7d7d; } }
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
  fill: var(--ink) }
.title { font-size: 15px; font-weight: 600 }
.code { font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace }
.small { font-size: 12px; fill: var(--soft) }
.page { fill: var(--page); stroke: var(--edge) }
.frame { fill: none; stroke: var(--line); stroke-dasharray: 5 4 }
.guide { stroke: var(--edge) }
.halo { paint-order: stroke; stroke: var(--page); stroke-width: 5px; stroke-linejoin: round }
.arrow { fill: none; stroke: var(--line); stroke-width: 1.6 }
.dashed { stroke-dasharray: 5 4 }
.head { fill: var(--line) }
.plain { fill: var(--plain); stroke: var(--line) }
.blue { fill: var(--blue); stroke: var(--blue-edge) }
.green { fill: var(--green); stroke: var(--green-edge) }
.amber { fill: var(--amber); stroke: var(--amber-edge) }
.red { fill: var(--red); stroke: var(--red-edge) }
.mark { stroke: var(--red-edge); stroke-width: 2.5 }
"""
HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path class="head" d="M0 0 L8 4 L0 8 z"/></marker>'
)

Point = tuple[float, float]


class Drawing:
    """A picture that is being drawn. Later parts lie above earlier ones."""

    def __init__(self, width: int, height: int, label: str) -> None:
        self._parts = [head_of(width, height, label), f"<style>\n{STYLE}</style>"]
        self._parts.append(f"<defs>{HEAD}</defs>")
        self.rect(0.5, 0.5, width - 1, height - 1, "page", radius=10)

    def text(
        self, x: float, y: float, text: str, style: str = "", *, anchor: str = "start"
    ) -> None:
        """One line. `anchor` is start, middle or end."""
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
        self._parts.append(f'<text {place} class="{style}">{escape(text)}</text>')

    def rect(
        self, x: float, y: float, width: float, height: float, style: str, *, radius: float = 8
    ) -> None:
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" '
            f'class="{style}"/>'
        )

    def box(
        self, x: float, y: float, width: float, title: str, *lines: str, style: str = "plain"
    ) -> None:
        """A title with lines below it. Its height follows from their number."""
        self.rect(x, y, width, 34 + 18 * len(lines), style)
        self.text(x + 12, y + 22, title, "title")
        for number, line in enumerate(lines):
            self.text(x + 12, y + 42 + 18 * number, line, "small")

    def state(self, x: float, y: float, name: str, style: str) -> None:
        """A state: a name in a pill of 110 by 40."""
        self.rect(x, y, 110, 40, style, radius=20)
        self.text(x + 55, y + 25, name, "title", anchor="middle")

    def arrow(self, *points: Point, style: str = "", both: bool = False) -> None:
        """A line through these points, with round corners and a head at its end."""
        path = f"M{points[0][0]:g} {points[0][1]:g}"
        for before, corner, after in zip(points, points[1:], points[2:], strict=False):
            near, far = toward(corner, before), toward(corner, after)
            path += f" L{near[0]:g} {near[1]:g} Q{corner[0]:g} {corner[1]:g} {far[0]:g} {far[1]:g}"
        path += f" L{points[-1][0]:g} {points[-1][1]:g}"
        start = ' marker-start="url(#head)"' if both else ""
        self._parts.append(
            f'<path class="arrow {style}" d="{path}"{start} marker-end="url(#head)"/>'
        )

    def line(self, start: Point, end: Point, style: str) -> None:
        self._parts.append(
            f'<path class="{style}" d="M{start[0]:g} {start[1]:g} L{end[0]:g} {end[1]:g}"/>'
        )

    def cylinder(self, x: float, y: float, width: float, height: float, style: str) -> None:
        """A database."""
        depth, half = 14, width / 2
        lid = f"a{half:g} {depth} 0 0 1 {width:g} 0 a{half:g} {depth} 0 0 1 {-width:g} 0"
        body = f"v{height:g} a{half:g} {depth} 0 0 0 {width:g} 0 v{-height:g}"
        self._parts.append(
            f'<path class="{style}" d="M{x:g} {y:g} {body}"/>'
            f'<path class="{style}" d="M{x:g} {y:g} {lid}"/>'
        )

    def render(self) -> str:
        return "\n".join([*self._parts, "</svg>"]) + "\n"


def head_of(width: float, height: float, label: str) -> str:
    """The first tag of a picture. `label` is for those who can't see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" role="img" aria-label="{escape(label)}">'
    )


def toward(corner: Point, other: Point, *, radius: float = 8) -> Point:
    """The point of a line that is `radius` away from its corner."""
    length = max(1.0, abs(other[0] - corner[0]) + abs(other[1] - corner[1]))
    share = min(1.0, radius / length)
    return (
        corner[0] + (other[0] - corner[0]) * share,
        corner[1] + (other[1] - corner[1]) * share,
    )
