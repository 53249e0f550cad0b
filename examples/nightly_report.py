"""A report every night: a task with a `cron`, and schedules that are made by a call.

    rowlock --app examples.nightly_report:app up     fires the schedules, until Ctrl-C
    rowlock --app examples.nightly_report:app cron list
    rowlock --app examples.nightly_report:app cron run nightly_report
    python -m examples.nightly_report                one report now, and when the others are due

Reports are written to the directory `reports`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import rowlock

REPORTS = Path("reports")


class Office:
    """The app's own state; `rowlock up` calls `on_up` once at its start."""

    def on_up(self) -> None:
        # The same name again replaces a schedule, so this may run at every start. Other settings
        # of its jobs come by `using`: this one is urgent, and there is one at a time.
        app.schedule(
            "pulse", write_pulse.using(priority=10, key="pulse"), cron="*/5 * * * * *"
        )  # Six fields: the first is seconds.
        # Of the Mondays that nobody was there for, one is made up for.
        app.schedule(
            "weekly-summary",
            nightly_report,
            cron="0 7 * * MON",
            timezone="Europe/Berlin",
            payload={"title": "The week"},
            missed="once",
        )


url = os.environ.get("ROWLOCK_DATABASE_URL", "sqlite:///rowlock.db")
app = rowlock.App(url, state=Office())


# Half past two does not exist on one night of the year in Berlin, and comes twice on another: the
# report is written once on both.
@app.task(queue="reports", cron="30 2 * * *", timezone="Europe/Berlin", max_attempts=5)
def nightly_report(ctx: rowlock.Context, title: str = "The day") -> str:
    """Write a file. A run may be repeated after a crash, so it is written whole or not at all."""
    REPORTS.mkdir(exist_ok=True)
    # The job's own time, not this run's: a second attempt writes the same file.
    path = REPORTS / f"{title.lower().replace(' ', '-')}-{ctx.job.created_at:%Y-%m-%d}.txt"
    ctx.progress(0.5, "counting")
    draft = path.with_suffix(".draft")
    draft.write_text(f"{title}, by job {ctx.job.id}, attempt {ctx.attempt}\n", "utf-8")
    draft.replace(path)
    return str(path)


@app.task(queue="reports", keep=60)
async def write_pulse(ctx: rowlock.Context) -> str:
    """A sign of life every five seconds, of which the last minute is kept."""
    ctx.log("alive")
    return datetime.now(UTC).isoformat()


def main() -> None:
    """Make the schedules, write one report now, and say when the next ones are due."""
    app.state.on_up()
    job = nightly_report.enqueue()
    app.drain(["reports"])
    print(f"written: {app.wait(job.id, timeout=10).result}")
    for schedule in app.store.list_schedules():
        print(f"{schedule.name}: {schedule.cron} in {schedule.timezone}, next {schedule.next_at}")


if __name__ == "__main__":
    main()
