"""Commands to a running job."""

from __future__ import annotations

from typing import Never

from rowlock.app import App
from rowlock.contrib.compat import Unsupported
from rowlock.contrib.rq.job import app_of


def send_stop_job_command(connection: App, job_id: str) -> None:
    """Cancel a job. If it runs, it gets a cancel request, and ends as `canceled`."""
    app_of(connection).cancel(job_id)


def send_shutdown_command(*_: object) -> Never:
    """Raise `Unsupported`."""
    raise Unsupported("send_shutdown_command()", "send SIGTERM to the worker")


def send_kill_horse_command(*_: object) -> Never:
    """Raise `Unsupported`."""
    raise Unsupported("send_kill_horse_command()", "cancel the job: job.cancel()")
