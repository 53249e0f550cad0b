"""Which planted bugs a run must find, and on which store."""

from __future__ import annotations

BOTH = ("sqlite", "postgres")
POSTGRES = ("postgres",)

WHERE: dict[str, tuple[str, ...]] = {
    "settle without token": BOTH,
    "early acknowledgement": BOTH,
    "sweep ignores expiry": BOTH,
    "token does not grow": BOTH,
    "claim not counted": BOTH,
    "claim ignores run_at": BOTH,
    "cancel dropped": BOTH,
    "cancel not written": BOTH,
    "ended ids forgotten": BOTH,
    "cursor never looks below": BOTH,
    "follow-ups of the lost": BOTH,
    "block ignores a lost lease": BOTH,
    "claim without lock": POSTGRES,
    "beat without token": POSTGRES,
    "clock of the worker": POSTGRES,
    "settle given up": POSTGRES,
    "resend under another id": POSTGRES,
    "tick fired by all": POSTGRES,
}
