"""Names that are most like a name that is not known, for messages. Pure.

Names may come from anyone, and comparing two long ones takes milliseconds. So only a few hundred
are looked at, those that look most alike at first sight, and only the best of these are compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from heapq import nlargest, nsmallest
from typing import Final

_LOOKED_AT_MAX: Final = 300
_COMPARED_MAX: Final = 20
_CHARACTERS_MAX: Final = 60
# The least likeness of a suggestion, from 0 to 1: that of `difflib.get_close_matches`.
_CUTOFF: Final = 0.6


def nearest(name: str, known: Iterable[str], *, most: int = 1) -> list[str]:
    """Return up to `most` of the known names that are much like a name, the nearest first."""
    looked_at = nsmallest(_LOOKED_AT_MAX, known, key=lambda each: _distance(name, each))
    matcher = SequenceMatcher(a="", b=name[:_CHARACTERS_MAX], autojunk=False)
    rough: list[tuple[float, str]] = []
    for each in looked_at:
        matcher.set_seq1(each[:_CHARACTERS_MAX])
        rough.append((matcher.quick_ratio(), each))
    found: list[tuple[float, str]] = []
    for likeness, each in nlargest(_COMPARED_MAX, rough):
        matcher.set_seq1(each[:_CHARACTERS_MAX])
        if likeness >= _CUTOFF and (exact := matcher.ratio()) >= _CUTOFF:
            found.append((exact, each))
    return [each for _, each in nlargest(most, found)]


def _distance(name: str, other: str) -> tuple[bool, int, str]:
    """How unlike two names are at first sight: by how they begin, and by their lengths."""
    return name[:2] != other[:2], abs(len(name) - len(other)), other
