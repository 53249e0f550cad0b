"""Every error that rowlock raises on purpose.

    RowlockError
    ├── PayloadInvalid      payload_invalid      the payload does not fit the task, or JSON
    ├── OptionInvalid       option_invalid       a name, delay, time ... (also a ValueError)
    ├── NotFound            not_found            no such job, queue, schedule
    ├── InvalidTransition   invalid_transition   the job's state does not allow it
    ├── LeaseLost           lease_lost           another worker holds the job now
    ├── StoreUnavailable    store_unavailable    the database can't be reached, or is busy or full
    ├── StoreRefused        store_refused        the database refuses this row
    ├── UnsupportedStore    unsupported_store    a URL, version or place that can't hold a queue
    ├── MigrationNeeded     migration_needed     the schema is not the one this version works on
    └── Forbidden           forbidden            the token or role does not allow it

A class exists only where a caller would act differently. Messages say what happened, to what, and
what to do. They never hold a payload or a password.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from rowlock.job import Lease


class RowlockError(Exception):
    """The base of all errors of this library. `code` is stable and safe to match on."""

    code: ClassVar[str] = "rowlock_error"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One invalid field of a payload."""

    field: str
    """Its path, such as `items[2].price`."""
    message: str
    """What is wrong with it."""


class PayloadInvalid(RowlockError):
    """The payload does not fit its task, or JSON. `errors` names every invalid field.

    Nothing was written. Fix the arguments.
    """

    code = "payload_invalid"

    def __init__(self, kind: str, errors: Sequence[FieldError]) -> None:
        self.kind = kind
        self.errors: tuple[FieldError, ...] = tuple(errors)
        listed = "; ".join(f"{error.field}: {error.message}" for error in self.errors)
        super().__init__(f"payload of {kind!r} is invalid: {listed}")


class OptionInvalid(RowlockError, ValueError):
    """An option's value is out of range or of the wrong type. `option` names it.

    Fix the value in the call: a name, delay, time, priority or limit.
    """

    code = "option_invalid"

    def __init__(self, option: str, problem: str) -> None:
        self.option = option
        self.problem = problem
        super().__init__(f"{option}: {problem}")


class NotFound(RowlockError):
    """The job, queue, schedule or token does not exist.

    The id or name is wrong, or the job was removed when its retention expired.
    """

    code = "not_found"


class InvalidTransition(RowlockError):
    """The job's state does not allow the call. Nothing was changed.

    Read the state of the job `job_id` again.
    """

    code = "invalid_transition"

    def __init__(self, job_id: str, problem: str) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id}: {problem}")


class LeaseLost(RowlockError):
    """This worker no longer holds the lease: the job was recovered, or another worker runs it.

    Stop working on `leases`. Changes for all other leases of the call are kept.
    """

    code = "lease_lost"

    def __init__(self, leases: Sequence[Lease]) -> None:
        self.leases: list[Lease] = list(leases)
        listed = ", ".join(f"{lease.id} (token {lease.token})" for lease in self.leases)
        super().__init__(f"lease lost, nothing was changed for: {listed}")


class StoreUnavailable(RowlockError):
    """The database can't be reached, or can't take the work now.

    Try again later. You can safely repeat an enqueue with an id of your own, or of the same items.
    `refused_login` is true if the server answers, but refuses the URL's user or password.
    """

    code = "store_unavailable"

    def __init__(self, message: str, *, refused_login: bool = False) -> None:
        super().__init__(message)
        self.refused_login = refused_login


class StoreRefused(RowlockError):
    """The database refuses to store a row, and would refuse it again.

    The cause is a trigger or a constraint of yours, or a limit of the database. `reason` is the
    database's message. Nothing was written. Change the row or the rule. Retrying does not help.
    """

    code = "store_refused"

    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(place, reason)

    def __str__(self) -> str:
        return f"{self.place} refused the row: {self.reason}"


class UnsupportedStore(RowlockError):
    """This database, version or file system can't hold a queue safely.

    The message says which other URL, library or location you need.
    """

    code = "unsupported_store"


class MigrationNeeded(RowlockError):
    """The schema is older or newer than this version of rowlock works on.

    If it `is_behind`, run `rowlock migrate`. If it is newer, upgrade rowlock. `problem` is the
    message without this advice.
    """

    code = "migration_needed"

    def __init__(self, problem: str, cure: str = "", *, is_behind: bool = False) -> None:
        super().__init__(f"{problem}: {cure}" if cure else problem)
        self.problem = problem
        self.is_behind = is_behind


class Forbidden(RowlockError):
    """The credential's scope or tenant does not allow this.

    The credential is a token of the HTTP API or, if `by_database` is true, the PostgreSQL role that
    the database URL names.
    """

    code = "forbidden"

    def __init__(self, message: str, *, by_database: bool = False) -> None:
        super().__init__(message)
        self.by_database = by_database


def shown(value: object) -> str:
    """Return a user's value as a message shows it, or its type if it can't be printed."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  # an integer of 5,000 digits, or its own code
        return f"an unprintable {type(value).__name__}"
