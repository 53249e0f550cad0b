"""Random numbers for pauses, independent of the user's `random`.

A seed of theirs would make all processes pause alike, and our draws would change theirs. The
system's source needs no reset after a fork.
"""

from __future__ import annotations

from random import SystemRandom
from typing import Final

CHANCE: Final = SystemRandom()
