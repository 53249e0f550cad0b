"""Limits in real workers: several processes, and each kind of function."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

import rowlock
from rowlock import JobState
from tests.support.workers import worker
from tests.worker import limits_app
from tests.worker.limits_app import noted
from tests.worker.waiting import wait_until

MODULE = "tests.worker.limits_app"
KINDS = ("in_thread", "on_loop", "in_process")


@pytest.fixture
def elsewhere(app):
    """An app that knows the tasks, and so writes limits and keys itself."""
    app.include(limits_app.tasks)
    return app


def jobs_of(place: Path, *, rounds: int) -> list[dict[str, object]]:
    payloads = [{"key": key, "place": str(place)} for key in ("a", "b", "c")]
    return [
        {"kind": kind, "payload": payload}
        for _ in range(rounds)
        for kind in KINDS
        for payload in payloads
    ]


def wait_for_all(app: rowlock.App, jobs: list[rowlock.Job]) -> None:
    for job in jobs:
        assert app.wait(job.id, timeout=120).state is JobState.SUCCEEDED


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "by name"])
def test_never_two_of_a_key_at_once(app, tmp_path, request, is_known):
    """In threads, on loops and in processes of their own, of two workers with two children each.

    It does not matter whether the limit was known where the jobs were enqueued.
    """
    if is_known:
        request.getfixturevalue("elsewhere")
    with (
        worker(app, "--processes", "2", "-c", "8", module=MODULE),
        worker(app, "--processes", "2", "-c", "8", module=MODULE),
    ):
        jobs = app.enqueue_many(jobs_of(tmp_path, rounds=4))
        assert {job.limit for job in jobs} == {"line" if is_known else None}
        wait_for_all(app, jobs)
    found = [app.get(job.id) for job in jobs]

    assert noted(tmp_path, "overlaps") == []
    assert Counter(line.split()[0] for line in noted(tmp_path, "runs")) == dict.fromkeys("abc", 12)
    assert {(job.limit, job.limit_key, job.attempt) for job in found} == {
        ("line", key, 1) for key in "abc"
    }


def test_a_throttle_stops_a_key_in_every_child(app, elsewhere, tmp_path):
    """Only the first job of the key has begun; those of others run, and all of them after it."""
    payloads = {key: {"key": key, "place": str(tmp_path)} for key in ("acme", "bolt")}

    def send(key: str, count: int) -> list[rowlock.Job]:
        return list(app.enqueue_many([{"kind": "call", "payload": payloads[key]}] * count))

    with worker(app, "--processes", "2", module=MODULE):
        stopped = send("acme", 5)
        wait_until(lambda: noted(tmp_path, "runs"))
        wait_for_all(app, send("bolt", 5))
        stopped += send("acme", 5)
        wait_for_all(app, send("bolt", 5))
        begun = Counter(line.split()[0] for line in noted(tmp_path, "runs"))
        waiting = {(app.get(job.id).state, app.get(job.id).attempt) for job in stopped}
        (tmp_path / "go").touch()
        limits_app.calls.resume(key="acme")
        wait_for_all(app, stopped)

    assert begun == {"acme": 1, "bolt": 10}
    assert waiting == {(JobState.READY, 0)}


def test_a_success_in_a_block_frees_the_slot(app, elsewhere, tmp_path):
    """With its COMMIT, though the function goes on: the next one begins beside it."""
    with worker(app, module=MODULE):
        jobs = app.enqueue_many(
            [
                {"kind": "book", "payload": {"number": number, "place": str(tmp_path)}}
                for number in range(4)
            ]
        )
        wait_for_all(app, list(jobs))

    assert [app.get(job.id).result for job in jobs] == [0, 1, 2, 3]


def test_a_worker_that_dies_leaks_no_slot(app, elsewhere, tmp_path):
    """All its processes are killed in the middle of runs; another goes on, never two at once."""
    jobs = list(app.enqueue_many(jobs_of(tmp_path, rounds=4)))
    with worker(app, "--processes", "2", start_new_session=True, module=MODULE) as process:
        wait_until(lambda: len(noted(tmp_path, "runs")) > 5)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for mark in tmp_path.glob("*.running"):
        mark.unlink()
    with worker(app, "--processes", "2", module=MODULE):
        wait_for_all(app, jobs)

    assert noted(tmp_path, "overlaps") == []


def test_a_worker_inside_the_application_obeys(any_url):
    """Two of them, in one process: coroutines and threads of one limit."""
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def run() -> list[JobState]:
        async with rowlock.App(any_url) as app:
            await app.amigrate()
            limit = app.limit("pool", concurrency=3, per="key", concurrency_per_key=2)

            @app.task(limit=limit)
            async def soft(key: str) -> None:
                for name in (key, "total"):
                    running[name] += 1
                    most[name] = max(most[name], running[name])
                await asyncio.sleep(limits_app.RUN_SECONDS)
                for name in (key, "total"):
                    running[name] -= 1

            async with app.worker(concurrency=8), app.worker(concurrency=8):
                jobs = await app.aenqueue_many([soft.job(key) for key in "abcd" * 6])
                return [(await app.await_(job.id, timeout=60)).state for job in jobs]

    states = asyncio.run(run())

    assert set(states) == {JobState.SUCCEEDED}
    assert most["total"] <= 3
    assert max(most[key] for key in "abcd") <= 2
