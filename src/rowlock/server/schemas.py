"""Types that several calls take or answer.

A class whose name is taken elsewhere in the package ends in `Schema`. The OpenAPI document, and the
clients generated from it, leave that off.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from rowlock import config
from rowlock.filters import FILTERS
from rowlock.job import Job, JobState

S = TypeVar("S", bound=msgspec.Struct)

NAME_PATTERN = r"^[^\u0000]+$"
Name = Annotated[
    str, Meta(min_length=1, max_length=config.NAME_CHARACTERS_MAX, pattern=NAME_PATTERN)
]
Time = Annotated[datetime, Meta(tz=True)]
Seconds = Annotated[float, Meta(ge=0, le=config.DURATION_SECONDS_MAX)]
Uuid = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
# Not decoded with the rest of the body, so that integers of any length stay exact.
JsonObject = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object"})]
PageLimit = Annotated[int, Meta(ge=1, le=config.HTTP_LIST_LIMIT_MAX)]
PageCursor = Annotated[
    str,
    Meta(
        max_length=config.HTTP_CURSOR_CHARACTERS_MAX,
        description="The `next` of the previous page, with the same filters.",
    ),
]


def about(filter: str) -> Meta:
    """The description of a filter of jobs."""
    return Meta(description=FILTERS[filter].description)


class JobChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs: the filters, as parameters of a query or as a part of a body."""

    state: JobState | None = None
    kind: Annotated[Name, about("kind")] | None = None
    queue: Annotated[Name, about("queue")] | None = None
    tenant: Annotated[Name, about("tenant")] | None = None
    key: Annotated[Name, about("key")] | None = None
    tag: Annotated[Name, about("tag")] | None = None
    error: Annotated[Name, about("error")] | None = None
    since: Annotated[Time, about("since")] | None = None
    until: Annotated[Time, about("until")] | None = None
    fingerprint: Annotated[Name, about("fingerprint")] | None = None


class JobErrorSchema(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that failed or was lost."""

    attempt: int
    time: datetime
    type: str
    message: str
    traceback: str


class ProgressSchema(msgspec.Struct, frozen=True, kw_only=True):
    """How far a running job says it is."""

    fraction: Annotated[float, Meta(ge=0, le=1)]
    text: str = ""


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list, without its large fields."""

    id: Uuid
    kind: str
    queue: str
    state: JobState
    priority: int
    tenant: str | None
    key: str | None
    attempt: int
    max_attempts: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    lease_expires_at: datetime | None
    worker: str | None
    token: int
    crashes: int
    cancel_requested: bool
    last_error: str | None
    payload_preview: Annotated[
        str, Meta(description="The beginning of its payload, as JSON text that may be cut.")
    ]
    progress: ProgressSchema | None
    tags: list[str]
    limit: str | None
    limit_key: str | None
    workflow: Uuid | None
    waits_for: Annotated[int, Meta(description="How many jobs it still waits for.")]
    stack: Annotated[str, Meta(description="Which jobs of its workflow are like it.")] | None


class JobSchema(JobSummary, frozen=True, kw_only=True):
    """A job, with its payload, its result, and the errors of its attempts, oldest first."""

    payload: dict[str, Any]
    result: Any
    errors: list[JobErrorSchema]
    meta: dict[str, Any]
    timeout: float | None
    retry: list[str | float] | None
    keep: float | None
    keep_dead: float | None
    max_crashes: int


# For rules across fields: a field that is there and is not null.
GIVEN: Final = {"not": {"type": "null"}}


def copied(record: object, kind: type[S], **others: Any) -> S:
    """The answer for a record that has the same fields, except for the given ones."""
    names = [name for name in kind.__struct_fields__ if name not in others]
    return kind(**{name: getattr(record, name) for name in names}, **others)


def summary_of(found: Job) -> JobSummary:
    return copied(found, JobSummary, progress=_progress_of(found))


def job_of(found: Job) -> JobSchema:
    errors = [copied(error, JobErrorSchema) for error in found.errors]
    return copied(found, JobSchema, progress=_progress_of(found), errors=errors)


def _progress_of(found: Job) -> ProgressSchema | None:
    return None if found.progress is None else copied(found.progress, ProgressSchema)


# For the examples in the document.
EXAMPLE_ID: Final = "018f3c5e-7c1a-7000-8000-3f6c1d2e4b5a"
EXAMPLE_AT: Final = datetime.fromisoformat("2030-01-31T12:00:00Z")
EXAMPLE_JOB: Final = JobSchema(
    id=EXAMPLE_ID,
    kind="send_email",
    queue="mail",
    state=JobState.RETRYING,
    priority=0,
    tenant=None,
    key="welcome-42",
    attempt=1,
    max_attempts=5,
    run_at=EXAMPLE_AT,
    created_at=EXAMPLE_AT,
    started_at=EXAMPLE_AT,
    finished_at=None,
    lease_expires_at=None,
    worker=None,
    token=1,
    crashes=0,
    cancel_requested=False,
    last_error="ConnectionError: refused",
    payload_preview='{"to":"ada@example.com","subject":"Welcome"}',
    progress=None,
    tags=[],
    limit=None,
    limit_key=None,
    workflow=None,
    waits_for=0,
    stack=None,
    payload={"to": "ada@example.com", "subject": "Welcome"},
    result=None,
    errors=[
        JobErrorSchema(
            attempt=1, time=EXAMPLE_AT, type="ConnectionError", message="refused", traceback=""
        )
    ],
    meta={},
    timeout=None,
    retry=None,
    keep=86_400.0,
    keep_dead=2_592_000.0,
    max_crashes=3,
)
