"""Look: jobs by id, pages of jobs, counts per queue, workers. Bounded reads, no locks."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from rowlock import config
from rowlock.clock import from_us
from rowlock.columns import JobRow
from rowlock.errors import OptionInvalid
from rowlock.filters import JobFilter
from rowlock.ids import id_at, parse_id
from rowlock.job import (
    TERMINAL_STATES,
    Job,
    JobState,
    Page,
    WorkerInfo,
    WorkerVitals,
    job_of,
    listed_job_of,
    state_of,
)
from rowlock.store import options
from rowlock.store.ops.manage import is_visible_to
from rowlock.store.options import PARENT, parent_mark
from rowlock.store.steps import Op, Rows, Statement, Steps, reading
from rowlock.tokens import WORKER_OF_TENANT, worker_of

# Later than any stored time.
_END_OF_TIME = 2**62


def get(id: str | UUID, *, tenant: str | None = None) -> Op[Job | None]:
    """A job by its id, live or finished. None if it does not exist, or was removed.

    Args:
        tenant: Only a job of this tenant; another tenant's is not found.
    """
    job_id = parse_id(id)

    def steps() -> Steps[Job | None]:
        rows = yield Statement("get", {"ids": [job_id]})
        job = job_of(JobRow._make(rows[0][:-1]), now=rows[0][-1]) if rows else None
        return job if job is not None and is_visible_to(job.tenant, caller=tenant) else None

    return reading("get", steps)


def states(ids: Sequence[str]) -> Op[dict[str, JobState]]:
    """The states of jobs. A job that no longer exists is left out."""

    def steps() -> Steps[dict[str, JobState]]:
        if not ids:
            return {}
        rows = yield Statement("get/small", {"ids": list(ids)})
        return {row[0]: state_of(JobRow._make(row[:-1]), now=row[-1]) for row in rows}

    return reading("states", steps)


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended: the last id, and for dead jobs the time of their failure."""

    id: str | None = None
    finished_at: int = _END_OF_TIME

    def encoded(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def decoded(cls, text: str | None) -> Cursor:
        if text is None:
            return cls()
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            cursor = msgspec.json.decode(raw, type=cls)
        except (ValueError, TypeError, binascii.Error, msgspec.MsgspecError):
            raise OptionInvalid("cursor", "must be the `next` of an earlier page") from None
        if cursor.id is None or not 0 <= cursor.finished_at <= _END_OF_TIME:
            raise OptionInvalid("cursor", "must be the `next` of an earlier page")
        return cls(parse_id(cursor.id, option="cursor"), cursor.finished_at)


@dataclass(frozen=True, slots=True)
class Listing:
    """The request for a page. Dead jobs come newest failure first, all others newest id first."""

    state: JobState | None
    chosen: JobFilter
    limit: int
    cursor: Cursor
    scan: int
    full: bool

    def named(self, name: str) -> str:
        """The statement of that name that reads large columns only if they were requested."""
        return f"{name}/full" if self.full else name

    def jobs(self, rows: Rows) -> list[Job]:
        make = job_of if self.full else listed_job_of
        return [make(JobRow._make(row[:-1]), now=row[-1]) for row in rows]

    @property
    def is_dead(self) -> bool:
        return self.state is JobState.DEAD

    @property
    def wants_live(self) -> bool:
        return self.state is None or self.state not in TERMINAL_STATES

    @property
    def wants_finished(self) -> bool:
        return not self.is_dead and (self.state is None or self.state in TERMINAL_STATES)

    def bounds(self) -> dict[str, object]:
        return {"cursor": self.cursor.id, "scan": self.scan}

    def values(self) -> dict[str, object]:
        state = {"state": self.state, "limit": self.limit}
        return {**self.chosen.parameters(), **self.bounds(), **state}


def list_jobs(
    chosen: JobFilter,
    *,
    state: str | JobState | None = None,
    limit: int = config.LIST_LIMIT_DEFAULT,
    cursor: str | None = None,
    full: bool = False,
    scan: int = config.PAGE_SCAN_ROWS_MAX,
) -> Op[Page]:
    """A page of jobs. It reads at most `scan` rows of each table and returns where to continue.

    Unless `full`, payloads, results, meta and errors are not read.
    """
    asked = None if state is None else options.choice(JobState, state, option="state")
    chosen.check_state(asked)
    listing = Listing(
        state=asked,
        chosen=chosen,
        limit=options.integer(limit, option="limit", low=1, high=config.LIST_LIMIT_MAX),
        cursor=Cursor.decoded(cursor),
        scan=scan,
        full=full,
    )
    return reading("list", lambda: _list(listing))


def _list(listing: Listing) -> Steps[Page]:
    if listing.is_dead:
        return (yield from _list_dead(listing))
    live: Rows = []
    finished: Rows = []
    if listing.wants_live:
        live = yield Statement(listing.named("list_live"), listing.values())
    if listing.wants_finished:
        finished = yield Statement(listing.named("list_finished"), listing.values())
    # A job that moved between the two reads is in both: its finished row counts.
    ended = {row[0] for row in finished}
    rows = [row for row in live if row[0] not in ended] + finished
    page = sorted(rows, key=lambda row: str(row[0]), reverse=True)[: listing.limit]
    # A table that gave a full page was read far enough. The other may have reached its bound.
    floor = yield from _floor(
        listing,
        live=listing.wants_live and len(live) < listing.limit,
        finished=listing.wants_finished and len(finished) < listing.limit,
    )
    if floor is not None and (len(page) < listing.limit or page[-1][0] < floor.id):
        # Below the floor, one table was not read yet: leave the other's rows for the next page.
        return Page(listing.jobs([row for row in page if row[0] >= floor.id]), floor.encoded())
    return _page(listing, page)


def _list_dead(listing: Listing) -> Steps[Page]:
    after = {"cursor_finished": listing.cursor.finished_at}
    page = yield Statement(listing.named("list_dead"), {**listing.values(), **after})
    if len(page) < listing.limit:
        floor = yield from _floor(listing)
        if floor is not None:
            return Page(listing.jobs(page), floor.encoded())
    return _page(listing, page)


def _page(listing: Listing, page: Rows) -> Page:
    """A page whose tables were read to its last row, or to their end."""
    is_full = len(page) == listing.limit
    return Page(listing.jobs(page), _cursor_at(listing, page[-1]).encoded() if is_full else None)


def _cursor_at(listing: Listing, row: tuple[object, ...]) -> Cursor:
    job = JobRow._make(row[:-1])
    return Cursor(job.id, (job.finished_at or 0) if listing.is_dead else _END_OF_TIME)


def _floor(listing: Listing, *, live: bool = False, finished: bool = False) -> Steps[Cursor | None]:
    """Where reading stopped at its bound, or None if it reached the end."""
    if not (live or finished or listing.is_dead):
        return None
    tables = {"live": live, "finished": finished, "dead": listing.is_dead}
    after = {"cursor_finished": listing.cursor.finished_at}
    rows = yield Statement("floor", {**listing.bounds(), **after, **tables})
    if not rows:
        return None
    _, id, finished_at = max(rows, key=lambda row: str(row[1]))
    return Cursor(id, _END_OF_TIME if finished_at is None else finished_at)


def workers() -> Op[list[WorkerInfo]]:
    """Workers that announced themselves or hold leases, and the jobs they run."""

    def steps() -> Steps[list[WorkerInfo]]:
        known = yield Statement("workers")
        running = yield Statement("running", {"limit": config.LIST_SCAN_ROWS_MAX})
        return _workers(known, running)

    return reading("workers", steps)


def live_workers() -> Op[int]:
    """How many workers have reported lately."""

    def steps() -> Steps[int]:
        now: int = (yield Statement("clock"))[0][0]
        silent = from_us(now - int(config.WORKER_SILENT_SECONDS) * config.SECOND_US)
        found = _workers((yield Statement("workers")), [])
        return sum(each.last_beat_at is not None and each.last_beat_at >= silent for each in found)

    return reading("live_workers", steps)


@dataclass(frozen=True, slots=True)
class WorkerPage:
    """A page of workers, by id. `next` is the id to continue after, None on the last page."""

    workers: list[WorkerInfo]
    next: str | None


def worker_page(*, after: str = "", limit: int) -> Op[WorkerPage]:
    """A page of the workers, and the jobs they run."""
    scan = config.LIST_SCAN_ROWS_MAX

    def steps() -> Steps[WorkerPage]:
        known = yield Statement("workers/page", {"after": after, "limit": limit})
        running = yield Statement("running/page", {"after": after, "limit": scan})
        found = _workers(known, running)
        if len(running) == scan:
            # Beyond the last worker that was read, nobody's jobs are known.
            found = [each for each in found if each.id <= running[-1][0]]
        page = found[:limit]
        is_more = len(page) == limit or len(running) == scan
        return WorkerPage(page, page[-1].id if is_more else None)

    return reading("worker_page", steps)


def kinds(*, after: str, limit: int, tenant: str | None = None) -> Op[list[tuple[str, int]]]:
    """A page of the kinds that workers announced, by name, and how many workers know each.

    Args:
        tenant: Only of workers that may run jobs of this tenant.
    """
    own = None if tenant is None else worker_of(tenant, "")
    values = {"after": after, "limit": limit, "bound": WORKER_OF_TENANT, "own": own}

    def steps() -> Steps[list[tuple[str, int]]]:
        rows = yield Statement("kinds", values)
        return [(kind, number) for kind, number in rows]

    return reading("kinds", steps)


def _workers(known: Rows, running: Rows) -> list[WorkerInfo]:
    jobs: dict[str, list[str]] = {}
    beats: dict[str, int] = {}
    for worker, id, beat_at in running:
        jobs.setdefault(worker, []).append(id)
        beats[worker] = max(beat_at, beats.get(worker, 0))
    announced = {row[0]: _announced(row, jobs.get(row[0], [])) for row in known}
    silent = {
        worker: WorkerInfo(id=worker, last_beat_at=from_us(beats[worker]), running=held)
        for worker, held in jobs.items()
        if worker not in announced
    }
    return [info for _, info in sorted({**announced, **silent}.items())]


def _announced(row: tuple[object, ...], running: list[str]) -> WorkerInfo:
    worker, started_at, beat_at, pid, host, queues, kinds, vitals = row
    assert isinstance(started_at, int) and isinstance(beat_at, int) and isinstance(pid, int)
    return WorkerInfo(
        id=str(worker),
        host=str(host),
        pid=pid,
        queues=msgspec.json.decode(str(queues), type=list[str]),
        kinds=msgspec.json.decode(str(kinds), type=list[str]),
        started_at=from_us(started_at),
        last_beat_at=from_us(beat_at),
        running=running,
        vitals=vitals_of(vitals),
    )


def vitals_of(text: object) -> WorkerVitals:
    """A worker's vitals. Empty if a worker of another version wrote something unknown here."""
    try:
        return msgspec.json.decode(str(text or "{}"), type=WorkerVitals)
    except msgspec.MsgspecError:
        return WorkerVitals()


# Ids come from a worker's clock, the times of a run from the database's.
_MARGIN: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Related:
    """The parent of a job, if it still exists, and the jobs that follow it, oldest first."""

    parent: Job | None = None
    follow_ups: list[Job] = field(default_factory=list[Job])
    waits_for: list[Job] = field(default_factory=list[Job])
    """Jobs of its workflow that it waits for, or waited for."""
    waited_for_by: list[Job] = field(default_factory=list[Job])
    is_cut: bool = False
    """Whether it waits for more jobs than are listed, or more wait for it."""


def related(job: Job, *, tenant: str | None = None) -> Op[Related]:
    """The parent of a job and the jobs that follow it, as far as a tenant may see them."""

    def steps() -> Steps[Related]:
        parent = yield from _parent(job)
        follow_ups = yield from _follow_ups(job)
        seen = [each for each in follow_ups if is_visible_to(each.tenant, caller=tenant)]
        is_visible = parent is not None and is_visible_to(parent.tenant, caller=tenant)
        above, below, is_cut = yield from _neighbours(job, tenant)
        return Related(parent if is_visible else None, seen, above, below, is_cut)

    return reading("related", steps)


def _neighbours(job: Job, tenant: str | None) -> Steps[tuple[list[Job], list[Job], bool]]:
    """The jobs that one waits for, those that wait for it, and whether there are more."""
    most = config.RELATED_JOBS_MAX
    rows = yield Statement("neighbours", {"id": job.id, "most": most + 1})
    above = [other for other, is_parent in rows if is_parent]
    below = [other for other, is_parent in rows if not is_parent]
    ids = above[:most] + below[:most]
    if not ids:
        return [], [], False
    found = yield Statement("listed", {"ids": ids})
    jobs = {row[0]: listed_job_of(JobRow._make(row[:-1]), now=row[-1]) for row in found}
    seen = {id: each for id, each in jobs.items() if is_visible_to(each.tenant, caller=tenant)}
    return (
        [seen[id] for id in above[:most] if id in seen],
        [seen[id] for id in below[:most] if id in seen],
        max(len(above), len(below)) > most,
    )


def _parent(job: Job) -> Steps[Job | None]:
    named = job.meta.get(PARENT)
    try:
        parent = parse_id(named) if isinstance(named, str) else None
    except OptionInvalid:
        parent = None
    if parent is None:
        return None
    rows = yield Statement("get", {"ids": [parent]})
    return job_of(JobRow._make(rows[0][:-1]), now=rows[0][-1]) if rows else None


def _follow_ups(job: Job) -> Steps[list[Job]]:
    if job.started_at is None or job.finished_at is None:
        return []
    values = {
        "mark": parent_mark(job.id),
        "low": _id_of(job.started_at - _MARGIN),
        "high": _id_of(job.finished_at + _MARGIN),
        "scan": config.LIST_SCAN_ROWS_MAX,
        "limit": config.LIST_LIMIT_DEFAULT,
    }
    rows = yield Statement("follow_ups", values)
    found = [job_of(JobRow._make(row[:-1]), now=row[-1]) for row in rows]
    # The statement searches the text, so it also finds the mark deeper in the user's own meta.
    following = [each for each in found if each.meta.get(PARENT) == job.id]
    return sorted(following, key=lambda each: each.id)


def _id_of(moment: datetime) -> str:
    return id_at(int(moment.timestamp() * 1000))
