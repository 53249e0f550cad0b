"""The filters of jobs, declared once: the library, the HTTP API and the command line read them.

To add one, add it here, to `JobChoice` in `server/schemas.py`, and its condition to the fragment
`fits` in `store/sql/look.sql`. This module imports little, because `rowlock --help` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final, TypedDict

from rowlock.errors import OptionInvalid


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter: how `--help` shows its value, and which jobs match it."""

    metavar: str
    matches: str
    is_time: bool = False

    @property
    def description(self) -> str:
        return f"Only jobs {self.matches}."


FILTERS: Final[Mapping[str, Filter]] = {
    "kind": Filter("KIND", "of this kind"),
    "queue": Filter("QUEUE", "in this queue"),
    "tenant": Filter("TENANT", "of this tenant"),
    "key": Filter("KEY", "with this key"),
    "tag": Filter("TAG", "with this tag"),
    "error": Filter("TEXT", "with this text in an error or traceback, ignoring case"),
    "since": Filter("TIME", "created at this time or later", is_time=True),
    "until": Filter("TIME", "created before this time", is_time=True),
    "fingerprint": Filter(
        "TEXT", "that died with this error fingerprint, as groups of dead jobs show it"
    ),
}


class FilterOptions(TypedDict, total=False):
    """Which jobs: those that match every filter that is given."""

    kind: str | None
    queue: str | None
    tenant: str | None
    key: str | None
    tag: str | None
    """One of its tags."""
    error: str | None
    """Text in the errors of its attempts: types, messages and tracebacks, in any case."""
    since: datetime | None
    """Created at this time or later."""
    until: datetime | None
    """Created before this time."""
    fingerprint: str | None
    """Only of dead jobs: those that died of the same error."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs, checked. All None is all jobs. Times of creation are in microseconds."""

    kind: str | None = None
    queue: str | None = None
    tenant: str | None = None
    key: str | None = None
    tag: str | None = None
    error: str | None = None
    since: int | None = None
    until: int | None = None
    # Only of dead jobs.
    fingerprint: str | None = None

    def check_state(self, state: str | None) -> None:
        """Raise `OptionInvalid` unless the filters apply to jobs in that state."""
        if self.fingerprint is not None and state != "dead":
            raise OptionInvalid("fingerprint", "matches dead jobs only; set the state to dead")

    def values(self) -> dict[str, str | int | None]:
        return asdict(self)

    def parameters(self) -> dict[str, str | int | None]:
        """The parameters of statements. Errors are searched as they are stored, in JSON."""
        stored = None if self.error is None else json.dumps(self.error, ensure_ascii=False)[1:-1]
        return {**self.values(), "error": stored}
