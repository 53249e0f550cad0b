"""What several calls take and give: the types of the API's documents.

They are named as clients see them, in the OpenAPI document and in what is generated from it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rowlock import config, job
from rowlock.job import JobState

NAME_PATTERN = r"^[^\u0000]+$"
Name = Annotated[
    str, Meta(min_length=1, max_length=config.NAME_CHARACTERS_MAX, pattern=NAME_PATTERN)
]
Time = Annotated[datetime, Meta(tz=True)]
Seconds = Annotated[float, Meta(ge=0, le=config.DURATION_SECONDS_MAX)]
Uuid = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
# Not decoded with the rest: integers of any length come through as they are.
JsonObject = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object"})]


class JobError(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that failed or was lost."""

    attempt: int
    time: datetime
    type: str
    message: str
    traceback: str


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a running job says it is."""

    fraction: Annotated[float, Meta(ge=0, le=1)]
    text: str = ""


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list: all but what may be large."""

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
    progress: Progress | None
    tags: list[str]


class Job(JobSummary, frozen=True, kw_only=True):
    """A job, with its payload, its result, and the errors of its attempts, oldest first."""

    payload: dict[str, Any]
    result: Any
    errors: list[JobError]
    meta: dict[str, Any]
    timeout: float | None
    retry: list[Any] | None
    keep: float | None
    max_crashes: int


def summary_of(found: job.Job) -> JobSummary:
    return JobSummary(**_common(found))


def job_of(found: job.Job) -> Job:
    errors = [
        JobError(
            attempt=error.attempt,
            time=error.time,
            type=error.type,
            message=error.message,
            traceback=error.traceback,
        )
        for error in found.errors
    ]
    return Job(
        **_common(found),
        payload=found.payload,
        result=found.result,
        errors=errors,
        meta=found.meta,
        timeout=found.timeout,
        retry=found.retry,
        keep=found.keep,
        max_crashes=found.max_crashes,
    )


_PLAIN = [name for name in JobSummary.__struct_fields__ if name not in ("last_error", "progress")]


def _common(found: job.Job) -> dict[str, Any]:
    progress = found.progress
    return {
        **{name: getattr(found, name) for name in _PLAIN},
        "last_error": found.last_error,
        "progress": progress and Progress(fraction=progress.fraction, text=progress.text),
    }
