"""Explanations of what limits a figure. Pure: a report in, sentences out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rowlock.bench.measure import BenchReport

# A worker process that is on a core for this share of its time is the limit itself.
BUSY_SHARE: Final = 0.8
# A part that takes this share of an enqueue's time is its limit.
MOST_SHARE: Final = 0.5
HELD_SHARE: Final = 0.9
# With fewer jobs, a share is chance.
JOBS_MIN: Final = 1_000
# A round trip this slow does not stay on the same machine.
FAR_MS: Final = 1.0


def explain(report: BenchReport) -> Iterator[str]:
    """Yield a sentence or two for each figure that has a reason."""
    yield _enqueue(report)
    yield _run(report)
    if not report.is_durable:
        yield (
            "Commits do not wait for the disk, because synchronous_commit or fsync is off: if the "
            "server crashes, the last jobs are lost."
        )
    others = report.wal_background_bytes_per_s or 0.0
    if others > 100_000:
        yield (
            f"Others wrote {others / 1024:,.0f} KiB of WAL per second before this began. That is "
            "subtracted, but the machine is not idle."
        )
    if report.held_share is not None and report.run_jobs >= JOBS_MIN:
        yield _held(report.held_share)


def _enqueue(report: BenchReport) -> str:
    each = 1000 / report.enqueue_per_s
    trip, sync = report.round_trip_ms, report.sync_ms
    took = f"An enqueue took {each:.2f} ms: "
    if report.is_postgres:
        took += f"{trip:.2f} ms to the database and back, {sync:.2f} ms for its disk"
    else:
        took += f"{sync:.2f} ms of it for the disk"
    advice = "app.enqueue_many() shares both among many jobs."
    if sync > MOST_SHARE * each:
        return f"{took}. The disk is the limit. {advice}"
    if report.is_postgres and trip > max(FAR_MS, MOST_SHARE * each):
        return f"{took}. The round trip to the database is the limit. {advice}"
    return f"{took}. The rest is the work itself, on both sides. {advice}"


def _run(report: BenchReport) -> str:
    if report.busy is None:
        return "This system does not report how busy the worker was."
    busy = f"A worker process was busy for {100 * report.busy:.0f} % of the time"
    if report.busy >= BUSY_SHARE:
        return f"{busy}: it is the limit. More processes (-p) help as long as there are cores."
    if not report.is_postgres:
        return f"{busy}. It waited for the disk, or for a core."
    if report.round_trip_ms > FAR_MS:
        return f"{busy}. It waited for the database, {report.round_trip_ms:.1f} ms away."
    return f"{busy}. It waited for the database's cores or disk, or for a core here."


def _held(share: float) -> str:
    if share >= HELD_SHARE:
        return "A transaction that stays open does not slow jobs down."
    return (
        f"While a transaction stayed open, the rate fell to {100 * share:.0f} % within seconds. "
        "Look for long transactions: rowlock doctor names the oldest."
    )
