"""Which planted bugs a run must find, and on which store.

Not those that need a moment that hardly comes by chance, such as a claimer that never looks below
its cursor: every child that is replaced starts anew and finds what the others left. The simulation
finds these.
"""

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
    "follow-ups of the lost": BOTH,
    "block ignores a lost lease": BOTH,
    "handler before its mark": BOTH,
    "loss without a trace": BOTH,
    "claim is the beginning": BOTH,
    "bystanders are blamed": BOTH,
    "retry outside its room": BOTH,
    "death forgets children": BOTH,
    "growth forgets children": BOTH,
    "released by looking": POSTGRES,
    "claim without lock": POSTGRES,
    "beat without token": POSTGRES,
    "clock of the worker": POSTGRES,
    "settle given up": POSTGRES,
    "resend under another id": POSTGRES,
    "tick fired by all": POSTGRES,
}
