"""Chance for pauses in the processes of users: their `random` is neither followed nor disturbed.

A seed of theirs would make all processes pause alike, and what we drew would change what they draw.
The system's source needs no care after a fork.
"""

from __future__ import annotations

from random import SystemRandom
from typing import Final

CHANCE: Final = SystemRandom()
