"""What was found wrong, by the number of the invariant; bounded, however much it is."""

from __future__ import annotations

from collections import Counter
from typing import Final

SHOWN_MAX: Final = 10


class Findings:
    """Counts everything, and keeps the first few texts of each number."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.texts: dict[int, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, number: int, text: str) -> None:
        """Something that must never be was."""
        self.counts[number] += 1
        texts = self.texts.setdefault(number, [])
        if len(texts) < SHOWN_MAX:
            texts.append(text)

    def lines(self) -> list[str]:
        """All that is kept, in the order of the numbers."""
        return [
            f"I{number}: {text}" for number in sorted(self.texts) for text in self.texts[number]
        ]
