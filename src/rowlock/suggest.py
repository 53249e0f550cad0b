"""Names that are most like a name that is not known, for messages. Pure.

Names may come from anyone, and comparing two long ones takes milliseconds. So only a few hundred
are looked at, those that look most alike at first sight, and only the best of these are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from heapq import nlargest, nsmallest
from typing import Final

_LOOKED_AT_MAX: Final = 300
_COMPARED_MAX: Final = 20
_CHARACTERS_MAX: Final = 60
# The least likeness of a suggestion, from 0 to 1: that of `difflib.get_close_matches`.
_CUTOFF: Final = 0.6

# Options of other queues, and the option here that does the same.
FOREIGN: Final[Mapping[str, str]] = {
    "countdown": "delay",
    "schedule_in": "delay",
    "eta": "run_at",
    "schedule_at": "run_at",
    "max_retries": "max_attempts",
    "retries": "max_attempts",
    "autoretry_for": "retry_for",
    "default_retry_delay": "retry",
    "retry_backoff": "retry",
    "retry_delay": "retry",
    "dont_autoretry_for": "no_retry_for",
    "time_limit": "timeout",
    "job_timeout": "timeout",
    "queue_name": "queue",
    "routing_key": "queue",
    "job_id": "id",
    "task_id": "id",
    "lock": "key",
    "queueing_lock": "key",
    "unique": "key",
    "result_expires": "keep",
    "result_ttl": "keep",
    "rate_limit": "limit",
    "crontab": "cron",
}


def option_hint(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an option that does not exist, or an empty text."""
    known = list(known)
    same = FOREIGN.get(name)
    if same == "max_attempts" and same in known:
        # Whoever takes the number over would get one run too few.
        return f"; did you mean {same!r}? It counts the first run, too"
    close = [same] if same in known else nearest(name, known)
    return f"; did you mean {close[0]!r}?" if close else ""


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
