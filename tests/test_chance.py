"""The program's own `random` is left alone."""

from __future__ import annotations

import random

from rowlock.store.sqlite.file import writer_pause


def test_pauses_neither_follow_nor_disturb_the_programs_random():
    """A seed gives the same numbers with and without us; and we do not pause like others."""
    random.seed(7)
    state = random.getstate()

    pauses = {writer_pause() for _ in range(20)}

    assert state == random.getstate()
    assert len(pauses) > 1
