"""Dead jobs, grouped by their last error."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rowlock import codec, config
from rowlock.clock import from_us
from rowlock.columns import JobRow
from rowlock.fingerprint import place_of
from rowlock.job import Count, JobError, ListedJob, last_error_of, listed_job_of
from rowlock.store import options
from rowlock.store.steps import Op, Row, Rows, Statement, Steps, reading

_MESSAGE_BYTES: Final = 4 * 1024


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead jobs of one kind whose last error has the same type and the same place in the code.

    `sample` is the job that died last, as lists have it. `error` and `message` are those of its
    last error. A message of more than some kilobytes loses its middle.
    """

    fingerprint: str
    kind: str
    error: str
    message: str
    place: str
    count: Count
    first_at: datetime
    last_at: datetime
    sample: ListedJob


@dataclass(frozen=True, slots=True)
class DeadGroups:
    """The groups, newest failure first. `is_cut`: there are more groups, or older jobs."""

    groups: list[DeadGroup]
    is_cut: bool


def dead_groups(
    *,
    kind: str | None = None,
    queue: str | None = None,
    tenant: str | None = None,
    limit: int = config.LIST_LIMIT_DEFAULT,
) -> Op[DeadGroups]:
    """Group dead jobs by their last error.

    Without a filter each group is counted up to a bound. With one, only the newest 50,000 dead jobs
    are read.
    """
    values = {
        name: None if value is None else options.name(value, option=name)
        for name, value in (("kind", kind), ("queue", queue), ("tenant", tenant))
    }
    most = options.integer(limit, option="limit", low=1, high=config.DEAD_GROUPS_MAX)

    def steps() -> Steps[DeadGroups]:
        is_cut = False
        if any(values.values()):
            scan = config.LIST_SCAN_ROWS_MAX
            rows = yield Statement("dead_groups_of", {**values, "scan": scan})
            is_cut = (yield Statement("count_dead", {"cap": scan + 1}))[0][0] > scan
        else:
            bounds = {"cap": config.COUNT_EXACT_MAX + 1, "limit": config.DEAD_GROUPS_MAX}
            rows = yield Statement("dead_groups", bounds)
            is_cut = len(rows) >= config.DEAD_GROUPS_MAX
        newest = sorted(rows, key=lambda row: (row[3], row[0]), reverse=True)[:most]
        groups: list[DeadGroup] = []
        for start in range(0, len(newest), config.DEAD_SAMPLES_READ):
            part = newest[start : start + config.DEAD_SAMPLES_READ]
            samples = yield from _samples(part)
            groups += [_group(row, *samples[row[4]]) for row in part if row[4] in samples]
        return DeadGroups(groups, is_cut or len(rows) > most)

    return reading("dead_groups", steps)


def _samples(rows: Rows) -> Steps[dict[str, tuple[ListedJob, JobError | None]]]:
    """The jobs that stand for some groups, and their last errors."""
    found = yield Statement("dead_samples", {"ids": [row[4] for row in rows]})
    samples = [(JobRow._make(row[:-1]), row[-1]) for row in found]
    return {row.id: (listed_job_of(row, now=now), last_error_of(row)) for row, now in samples}


def _group(row: Row, sample: ListedJob, error: JobError | None) -> DeadGroup:
    mark, number, first, last, _ = row
    return DeadGroup(
        fingerprint=mark,
        kind=sample.kind,
        error="" if error is None else error.type,
        message="" if error is None else codec.clean_text(error.message, bytes_max=_MESSAGE_BYTES),
        place="" if error is None else place_of(error.traceback),
        count=Count(min(number, config.COUNT_EXACT_MAX), number <= config.COUNT_EXACT_MAX),
        first_at=from_us(first),
        last_at=from_us(last),
        sample=sample,
    )
