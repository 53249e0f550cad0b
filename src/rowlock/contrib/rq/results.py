"""`Result`: how a job ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from rowlock.job import Job, JobState


class ResultType(Enum):
    """The values of `Result.type`."""

    SUCCESSFUL = 1
    FAILED = 2
    STOPPED = 3
    RETRIED = 4
    MAX_RETRIES_EXCEEDED = 5


_TYPES = {
    JobState.SUCCEEDED: ResultType.SUCCESSFUL,
    JobState.DEAD: ResultType.FAILED,
    JobState.CANCELLED: ResultType.STOPPED,
    JobState.RETRYING: ResultType.RETRIED,
}


@dataclass(frozen=True, slots=True)
class Result:
    """What a job returned, or the error of its last run."""

    job_id: str
    type: ResultType
    created_at: datetime | None
    return_value: Any = None
    exc_string: str | None = None
    worker_name: str = ""

    @classmethod
    def of(cls, job: Job) -> Result | None:
        """Return how a job ended, or how its last run did. None: no run has ended."""
        kind = _TYPES.get(job.state)
        if kind is None:
            return None
        last = job.errors[-1] if job.errors else None
        return cls(
            job.id,
            kind,
            job.finished_at or (None if last is None else last.time),
            job.result,
            None if last is None or kind is ResultType.SUCCESSFUL else last.traceback,
            job.worker or "",
        )


Result.Type = ResultType  # type: ignore[attr-defined]  # RQ's name for it
