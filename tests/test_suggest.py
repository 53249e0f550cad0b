"""The names that are most like another."""

from __future__ import annotations

from difflib import SequenceMatcher

import pytest

from rowlock.suggest import nearest


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("send_emial", ["send_email", "send_mail"]),
        ("sendemail", ["send_email", "send_mail"]),
        ("oder", ["order"]),
        ("nothing_like_it", []),
        ("", []),
    ],
)
def test_the_nearest_come_first(name, found):
    """Only those that are much alike."""
    assert nearest(name, ["order", "send_mail", "report", "send_email"], most=3) == found


def test_hostile_names_are_hardly_compared(monkeypatch):
    """A comparison of two long names takes milliseconds, and anyone may announce thousands."""
    compared: list[int] = []
    exact = SequenceMatcher.ratio

    def ratio(self: SequenceMatcher[str]) -> float:
        compared.append(len(self.a) * len(self.b))
        return exact(self)

    monkeypatch.setattr(SequenceMatcher, "ratio", ratio)
    known = [f"{number:05}{'ab' * 97}" for number in range(20_000)]
    found = nearest("ab" * 100, [*known, "ab" * 99], most=3)

    assert found[0] == "ab" * 99
    assert len(compared) <= 20
    assert max(compared) <= 60 * 60
