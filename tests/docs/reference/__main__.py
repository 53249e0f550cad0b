"""Write what the code says into the pages: `python -m tests.docs.reference`, `make reference`."""

from __future__ import annotations

from tests.docs.reference.sections import filled, read_reference
from tests.docs.reference.sources import all_sections


def main() -> None:
    """Write the generated sections of every page anew."""
    sections = all_sections()
    for path, text in read_reference().items():
        path.write_text(filled(text, sections), "utf-8")


if __name__ == "__main__":
    main()
