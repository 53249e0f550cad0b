"""What really became of jobs: triggers of the drill's own note every transition that is committed.

A trigger writes in the transaction that it watches. So what was undone is not noted, what was
committed can't be missed, and of one job the notes are in the order of its transitions: its row is
locked meanwhile. Nothing is inferred from the state that is left in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from rowlock.testing.database import execute, is_sqlite


class What(StrEnum):
    """The transitions that are noted."""

    CLAIMED = "claimed"
    # A running job went back into the queue: released, failed, crashed or lost.
    RETURNED = "returned"
    # A running job left the live table: an accepted settle.
    ENDED = "ended"
    # It was written among the finished ones, which is left out when it is not kept.
    FINISHED = "finished"
    # A finished job was overwritten, which must never be.
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Transition:
    """One of a job, under one token."""

    job: str
    what: What
    token: int


@dataclass(frozen=True, slots=True)
class Account:
    """What the transitions of many jobs come to."""

    claims: int
    # Jobs with one accepted settle, and with more.
    settled: int
    settled_twice: int
    # Ends and returns under a token that did not hold the job at that moment.
    stale: int
    # Claims of a job that was held at that moment.
    overlapping: int


_CLAIMED = "NEW.token <> OLD.token"
_RETURNED = "OLD.lease_expires_at IS NOT NULL AND NEW.lease_expires_at IS NULL"
_ENDED = "OLD.lease_expires_at IS NOT NULL"
# What, of which table, after what, and when.
_WATCHED = (
    (What.CLAIMED, "job", "UPDATE", _CLAIMED),
    (What.RETURNED, "job", "UPDATE", _RETURNED),
    (What.ENDED, "job", "DELETE", _ENDED),
    (What.FINISHED, "finished", "INSERT", ""),
    (What.CHANGED, "finished", "UPDATE OF state, token, attempt, errors, result", ""),
)

_POSTGRES = (
    "CREATE TABLE transition (number bigserial PRIMARY KEY, job uuid, what text, token bigint)",
    """
    CREATE FUNCTION note_transition() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            INSERT INTO transition (job, what, token) VALUES (OLD.id, TG_ARGV[0], OLD.token);
        ELSE
            INSERT INTO transition (job, what, token) VALUES (NEW.id, TG_ARGV[0], NEW.token);
        END IF;
        RETURN NULL;
    END
    $$
    """,
)
_SQLITE = (
    "CREATE TABLE transition (number INTEGER PRIMARY KEY, job TEXT, what TEXT, token INTEGER)",
)


def watch(url: str) -> None:
    """Note the transitions of a database from now on."""
    if is_sqlite(url):
        execute(url, *_SQLITE, *(_sqlite_trigger(*watched) for watched in _WATCHED))
    else:
        execute(url, *_POSTGRES, *(_postgres_trigger(*watched) for watched in _WATCHED))


def _sqlite_trigger(what: What, table: str, event: str, when: str) -> str:
    row = "OLD" if event == "DELETE" else "NEW"
    return (
        f"CREATE TRIGGER note_{what} AFTER {event} ON rowlock_{table} "
        f"{when and f'WHEN {when} '}BEGIN "
        f"INSERT INTO transition (job, what, token) VALUES ({row}.id, '{what}', {row}.token); END"
    )


def _postgres_trigger(what: What, table: str, event: str, when: str) -> str:
    return (
        f"CREATE TRIGGER note_{what} AFTER {event} ON rowlock.{table} FOR EACH ROW "
        f"{when and f'WHEN ({when}) '}EXECUTE FUNCTION note_transition('{what}')"
    )


def read(url: str) -> list[Transition]:
    """The transitions so far, those of one job in their order."""
    rows = execute(url, "SELECT job, what, token FROM transition ORDER BY number")
    return [Transition(str(job), What(what), token) for job, what, token in rows]


def account_of(transitions: Iterable[Transition]) -> Account:
    """Count them, and what is wrong with them."""
    holder: dict[str, int] = {}
    ends: Counter[str] = Counter()
    written: Counter[str] = Counter()
    claims = stale = overlapping = 0
    for each in transitions:
        match each.what:
            case What.CLAIMED:
                claims += 1
                overlapping += each.job in holder
                holder[each.job] = each.token
            case What.RETURNED | What.ENDED:
                stale += holder.pop(each.job, None) != each.token
                ends[each.job] += each.what is What.ENDED
            case What.FINISHED | What.CHANGED:
                written[each.job] += 1
    twice = {job for counted in (ends, written) for job, count in counted.items() if count > 1}
    return Account(
        claims=claims,
        settled=sum(count == 1 for count in ends.values()),
        settled_twice=len(twice),
        stale=stale,
        overlapping=overlapping,
    )
