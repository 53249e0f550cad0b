"""Collect the fragments of this directory into the section of the current version in CHANGELOG.md.

python changelog.d/collect.py [--first]

A section that is there gets the new items at the end of its lists. `--first` is for the first
release: what was changed or fixed before it never reached a user, so only what was added is kept.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
CHANGELOG = ROOT / "CHANGELOG.md"
SORTS = ("security", "removed", "changed", "added", "fixed")
VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)

Lists = dict[str, list[str]]


def main() -> None:
    (version,) = VERSION.findall((ROOT / "src/rowlock/version.py").read_text("utf-8"))
    found = {path: path.name.split(".")[1] for path in sorted(HERE.glob("*.*.md"))}
    wrong = [path.name for path, sort in found.items() if sort not in SORTS]
    if wrong:
        sys.exit(f"{', '.join(wrong)}: must be NAME.SORT.md, with one of {', '.join(SORTS)}")
    kept = ("added",) if "--first" in sys.argv else SORTS
    lists: Lists = {sort: [] for sort in kept}
    for path, sort in found.items():
        if sort in lists:
            lists[sort].append(path.read_text("utf-8").strip())
    text = CHANGELOG.read_text("utf-8")
    CHANGELOG.write_text(collected(text, version, lists), "utf-8")
    for path in found:
        path.unlink()


def collected(text: str, version: str, lists: Lists) -> str:
    """Return the changelog with more items in the section of a version, which may be new."""
    head, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    if not sections or not sections[0].startswith(f"## {version} "):
        sections.insert(0, f"## {version} (unreleased)\n\n")
    sections[0] = extended(sections[0], lists)
    return head + "".join(sections)


def extended(section: str, lists: Lists) -> str:
    """Return a section with more items in its lists, the most urgent list first."""
    intro, *parts = re.split(r"^### (\w+)\n+", section, flags=re.MULTILINE)
    known = {parts[at].lower(): parts[at + 1].strip() for at in range(0, len(parts), 2)}
    texts = [intro.rstrip()]
    for sort in SORTS:
        items = ["- " + "\n  ".join(text.splitlines()) for text in lists.get(sort, [])]
        whole = "\n".join(filter(None, [known.get(sort, ""), *items]))
        if whole:
            texts.append(f"### {sort.capitalize()}\n\n{whole}")
    return "\n\n".join(texts) + "\n\n"


if __name__ == "__main__":
    main()
