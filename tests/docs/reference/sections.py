"""Generated sections of pages: what stands between two comments is the code's, the rest is ours.

<!-- generated: NAME -->
…
<!-- /generated -->
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.docs.pages import DOCS

_SECTION = re.compile(
    r"^<!-- generated: (?P<name>.+?) -->\n(?P<text>.*?)^<!-- /generated -->$",
    re.MULTILINE | re.DOTALL,
)


def read_reference() -> dict[Path, str]:
    """The pages of the reference, as they are checked in."""
    return {path: path.read_text("utf-8") for path in sorted((DOCS / "reference").glob("*.md"))}


def names_in(text: str) -> list[str]:
    """The sections that a page has, in its order."""
    return [match["name"] for match in _SECTION.finditer(text)]


def filled(text: str, sections: Mapping[str, str]) -> str:
    """The page with its sections as the code has them now; one that nobody makes is an error."""

    def made(match: re.Match[str]) -> str:
        name = match["name"]
        return f"<!-- generated: {name} -->\n\n{sections[name].strip()}\n\n<!-- /generated -->"

    return _SECTION.sub(made, text)
