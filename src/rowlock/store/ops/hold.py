"""While a job runs: heartbeats, progress and log lines, all fenced by the lease's token."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import msgspec

from rowlock import codec, config
from rowlock.clock import duration_us, from_us
from rowlock.errors import OptionInvalid
from rowlock.ids import parse_id
from rowlock.job import Beat, Lease, LogLine, Progress, WorkerVitals
from rowlock.store import options
from rowlock.store.ops.settle import Settled, owned
from rowlock.store.steps import Batch, Begin, Op, Statement, Steps, reading, writing


def heartbeat(
    leases: Sequence[Lease], *, lease: float | timedelta = config.LEASE_SECONDS_DEFAULT
) -> Op[list[Beat]]:
    """Extend leases. Returns a `Beat` for each, in order: kept, lost, or asked to cancel."""
    duration = duration_us(lease, option="lease")
    if duration == 0:
        raise OptionInvalid("lease", "must be longer than 0 seconds")

    def steps() -> Steps[list[Beat]]:
        rows = sorted({(held.id, held.token) for held in leases})
        if not rows:
            return []
        kept = yield Batch("heartbeat", ("id", "token"), rows, {"lease": duration})
        flags = {(id, token): bool(is_cancelled) for id, token, is_cancelled in kept}
        return [_beat(flags.get((held.id, held.token))) for held in leases]

    return writing("heartbeat", steps, repeat=steps)


def begin(leases: Sequence[Lease]) -> Op[set[tuple[str, int]]]:
    """Mark runs as begun, before their handlers run. Return the ids and tokens still held."""

    def steps() -> Steps[set[tuple[str, int]]]:
        rows = sorted({(held.id, held.token) for held in leases})
        marked = (yield Batch("begin", ("id", "token"), rows)) if rows else []
        return {(id, token) for id, token in marked}

    return writing("begin", steps, repeat=steps)


class Report(msgspec.Struct, frozen=True):
    """What the holder of a lease reports with its heartbeat."""

    lease: Lease
    progress: Progress | None = None
    lines: Sequence[str] = ()


def report(
    reports: Sequence[Report], *, lease: float | timedelta, tenant: str | None = None
) -> Op[list[Beat]]:
    """As `heartbeat`, with the progress and log lines of the kept leases, in one transaction.

    Args:
        tenant: The only tenant that the caller may act for. Other tenants' leases are lost.
    """
    noted = [(each.lease, _notes(each)) for each in reports]

    def steps() -> Steps[list[Beat]]:
        yield Begin()
        ids = [each.id for each, _ in noted]
        own = set(ids) if tenant is None else (yield from owned(ids, tenant))
        held = [(each, notes) for each, notes in noted if each.id in own]
        beats = yield from heartbeat([each for each, _ in held], lease=lease).start()
        found: dict[tuple[str, int], Beat] = {}
        for (each, notes), beat in zip(held, beats, strict=True):
            found[each.id, each.token] = beat
            for note in notes if beat is not Beat.LOST else ():
                yield from note.start()
        return [found.get((each.id, each.token), Beat.LOST) for each, _ in noted]

    return writing("report", steps)


def _notes(report: Report) -> list[Op[Settled]]:
    notes: list[Op[Settled]] = []
    if report.progress is not None:
        fraction, text = report.progress.fraction, report.progress.text
        notes.append(progress(report.lease, fraction=fraction, text=text))
    if report.lines:
        notes.append(log(report.lease, report.lines))
    return notes


def _beat(is_cancelled: bool | None) -> Beat:
    if is_cancelled is None:
        return Beat.LOST
    return Beat.CANCEL_REQUESTED if is_cancelled else Beat.KEPT


def cancel_requests(ids: Sequence[str]) -> Op[list[str]]:
    """Return which of these jobs were asked to cancel."""

    def steps() -> Steps[list[str]]:
        rows = yield Statement("cancel_requests", {"ids": list(ids)})
        return [row[0] for row in rows]

    return reading("cancel_requests", steps)


def progress(lease: Lease, *, fraction: float, text: str = "") -> Op[Settled]:
    """Set the progress of a running job, from 0 to 1. Raises `LeaseLost`."""
    known = options.fraction(fraction, option="fraction")
    checked = options.text(text, option="text")
    cleaned = codec.clean_text(checked, bytes_max=config.PROGRESS_TEXT_BYTES_MAX)
    encoded = msgspec.json.encode(Progress(known, cleaned)).decode()

    def steps() -> Steps[Settled]:
        values = {"id": lease.id, "token": lease.token, "progress": encoded}
        kept = yield Statement("progress", values)
        return Settled() if kept else Settled(lost=[lease])

    return writing("progress", steps, repeat=steps)


def log(lease: Lease, lines: Sequence[str]) -> Op[Settled]:
    """Add lines to a running job's log, which keeps 1,000 in all. Raises `LeaseLost`."""
    checked = options.texts(lines, option="lines")
    cleaned = [codec.clean_text(line, bytes_max=config.LOG_LINE_BYTES_MAX) for line in checked]

    def steps() -> Steps[Settled]:
        yield Begin()
        values = {"id": lease.id, "token": lease.token, "lines": len(cleaned)}
        counted = yield Statement("log_count", values)
        if not counted:
            return Settled(lost=[lease])
        before: int = counted[0][0]
        room = cleaned[: max(0, config.LOG_LINES_MAX - before)]
        rows = [(lease.id, before + place, line) for place, line in enumerate(room)]
        if rows:
            yield Batch("log_write", ("job_id", "line", "text"), rows)
        return Settled()

    return writing("log", steps)


def read_log(id: str | UUID) -> Op[list[LogLine]]:
    """The log lines of a job, oldest first."""
    job_id = parse_id(id)

    def steps() -> Steps[list[LogLine]]:
        rows = yield Statement("log_read", {"id": job_id})
        return [LogLine(from_us(at), text) for at, text in rows]

    return reading("read_log", steps)


def announce(
    *,
    worker: str,
    queues: Sequence[str],
    kinds: Sequence[str],
    host: str,
    pid: int,
    vitals: WorkerVitals | None = None,
) -> Op[None]:
    """Register a worker: what it serves, and how it is doing. Call it with every heartbeat."""
    values = {
        "worker": options.name(worker, option="worker"),
        "pid": pid,
        "host": codec.clean_text(host, bytes_max=config.NAME_CHARACTERS_MAX),
        "queues_json": msgspec.json.encode(options.names(queues, option="queues")).decode(),
        "kinds_json": msgspec.json.encode(options.names(kinds, option="kinds")).decode(),
        "vitals": None if vitals is None else msgspec.json.encode(vitals).decode(),
    }

    silence = {"silence": int(config.WORKER_FORGOTTEN_SECONDS) * config.SECOND_US}

    def steps() -> Steps[None]:
        yield Statement("announce", values)
        yield Statement("forget_workers", silence)

    return writing("announce", steps, repeat=steps)


def depart(worker: str) -> Op[None]:
    """Remove a worker that has stopped from the list of workers."""

    def steps() -> Steps[None]:
        yield Statement("depart", {"worker": options.name(worker, option="worker")})

    return writing("depart", steps, repeat=steps)
