"""`rowlock.Middleware`: what is called around a run, and what its own errors do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rowlock


class Heard(rowlock.Middleware):
    """Notes every call."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def before(self, job: rowlock.Job) -> None:
        self.calls.append(f"before {job.attempt}")

    def after(self, job: rowlock.Job, error: BaseException | None) -> None:
        self.calls.append(f"after {type(error).__name__}")

    def on_failure(self, job: rowlock.Job, error: BaseException) -> None:
        self.calls.append("failure")

    def on_retry(self, job: rowlock.Job, error: BaseException) -> None:
        self.calls.append("retry")

    def on_dead(self, job: rowlock.Job, error: BaseException) -> None:
        self.calls.append("dead")


RETRIED, DEAD = ["failure", "retry"], ["failure", "dead"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("error", "options", "calls", "state"),
    [
        (None, {}, [], "succeeded"),
        (ValueError(), {}, RETRIED, "retrying"),
        (ValueError(), {"max_attempts": 1}, DEAD, "dead"),
        (ValueError(), {"no_retry_for": ValueError}, DEAD, "dead"),
        (rowlock.Fail("no"), {}, DEAD, "dead"),
        (rowlock.Cancel("no"), {}, [], "cancelled"),
        (rowlock.Release(60), {}, [], "scheduled"),
    ],
)
def test_calls_around_a_run(app, *, is_async: bool, error: Any, options: Any, calls: Any, state):
    """Before and after each run, and what becomes of a failure, as the store decides it."""
    heard = Heard()
    app.add_middleware(heard)

    def fail() -> None:
        if error is not None:
            raise error

    async def fail_async() -> None:
        fail()

    job = app.task(**options)(fail_async if is_async else fail).enqueue()
    app.drain()

    assert heard.calls == ["before 1", *calls, f"after {type(error).__name__}"]
    assert app.get(job.id).state == state


def test_a_time_limit_is_a_failure(app):
    """Of a coroutine, which is cancelled for it."""
    heard = Heard()
    app.add_middleware(heard)

    @app.task(timeout=0.01)
    async def wait() -> None:
        await asyncio.Event().wait()

    wait.enqueue()
    app.drain()

    assert heard.calls == ["before 1", *RETRIED, "after TimeoutError"]


def test_errors_of_a_middleware(app, caplog):
    """Before the run they are its end. After it they are logged."""

    class Broken(rowlock.Middleware):
        def before(self, job: rowlock.Job) -> None:
            if job.kind == "refused":
                raise rowlock.Cancel("not today")

        def after(self, job: rowlock.Job, error: BaseException | None) -> None:
            raise OSError("no route")

    ran: list[str] = []
    app.add_middleware(Broken())
    refused = app.task(name="refused")(lambda: ran.append("refused")).enqueue()
    done = app.task(name="done")(lambda: ran.append("done")).enqueue()
    app.drain()

    assert [app.get(job.id).state for job in (refused, done)] == ["cancelled", "succeeded"]
    assert ran == ["done"]
    assert "Broken has failed" in caplog.text


def test_what_is_no_middleware(app):
    """The class itself, for example."""
    with pytest.raises(rowlock.OptionInvalid, match="must be an instance of"):
        app.add_middleware(Heard)
