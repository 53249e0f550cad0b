"""Make the pictures of the documentation anew: `make pictures`.

python -m tests.docs.pictures [diagrams] [recording] [screenshots]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.docs.pages import DOCS
from tests.docs.pictures import recording, screenshots
from tests.docs.pictures.diagrams import DIAGRAMS

PICTURES = DOCS / "pictures"


def make_diagrams() -> None:
    for name, draw in DIAGRAMS.items():
        (PICTURES / name).write_text(draw(), "utf-8")


SORTS: dict[str, Callable[[], None]] = {
    "diagrams": make_diagrams,
    "recording": lambda: recording.make(PICTURES / "terminal.svg"),
    "screenshots": lambda: screenshots.make(PICTURES),
}


def main() -> None:
    """Make the pictures of the named sorts, or of all."""
    chosen = sys.argv[1:] or list(SORTS)
    unknown = [name for name in chosen if name not in SORTS]
    if unknown:
        sys.exit(f"{', '.join(unknown)}: must be of {', '.join(SORTS)}")
    for name in chosen:
        SORTS[name]()


if __name__ == "__main__":
    main()
