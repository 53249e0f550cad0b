"""The app of tests whose worker has a bug of its own: its engine ends while a job runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import rowlock
from rowlock.worker.engine import WorkerEngine
from tests.worker.jobs_app import wait_for_file as run_until_file

app = rowlock.App()
_run = WorkerEngine.run


@app.task(max_attempts=2)
def wait_for_file(path: str, note: str) -> str:
    return run_until_file.function(path, note)


class MistakeOfOurs(Exception):
    """What no service has foreseen."""


async def _fail_when_told() -> None:
    """Fail once for each file that is put there."""
    told = Path(os.environ["ROWLOCK_TEST_FAIL"])
    while not os.path.lexists(told):  # noqa: ASYNC110, ASYNC240  # another process makes it
        await asyncio.sleep(0.01)
    os.unlink(told)  # noqa: PTH108  # as above
    raise MistakeOfOurs("the engine has a bug")


async def _run_until_it_fails(self: WorkerEngine) -> int:
    async with asyncio.TaskGroup() as group:
        failing = group.create_task(_fail_when_told())
        left = await _run(self)
        failing.cancel()
    return left


WorkerEngine.run = _run_until_it_fails  # type: ignore[method-assign]
