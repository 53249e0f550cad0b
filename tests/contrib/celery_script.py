"""One script for Celery: run under the real one and under the shim, it must print the same.

    python -m tests.contrib.celery_script real|shim DATABASE_URL

Each line is a case: its name, the job's status, and what it gave.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

IS_SHIM = sys.argv[1] == "shim"

if IS_SHIM:
    from rowlock.contrib.celery import Celery, shared_task
    from rowlock.contrib.celery.exceptions import Ignore, MaxRetriesExceededError, Reject

    app = Celery("script", broker=sys.argv[2])
else:
    from celery import Celery, shared_task
    from celery.exceptions import Ignore, MaxRetriesExceededError, Reject

    app = Celery("script", broker="memory://", backend="cache+memory://")
    app.conf.update(worker_enable_remote_control=False, broker_connection_retry_on_startup=False)
    app.conf.broker_transport_options = {"polling_interval": 0.02}

runs: Counter[str] = Counter()
began: dict[str, float] = {}


@app.task
def add(x, y=1):
    return x + y


@app.task(name="renamed", queue="other")
def renamed(words):
    return {"words": words, "count": len(words)}


@shared_task
def shared(x):
    return -x


@app.task
def fails(x):
    runs["fails"] += 1
    raise ValueError(f"bad {x}")


@app.task
def looks_up():
    return {}["missing"]


@app.task(bind=True, max_retries=2, default_retry_delay=0)
def third_time(self):
    runs["third_time"] += 1
    if self.request.retries < 2:
        raise self.retry(exc=ConnectionError("away"))
    return [self.request.retries, self.name, self.request.called_directly]


@app.task(bind=True, max_retries=1)
def never(self):
    runs["never"] += 1
    self.retry(exc=ConnectionError("always away"), countdown=0)


@app.task(bind=True, max_retries=1, default_retry_delay=0)
def never_without_error(self):
    runs["never_without_error"] += 1
    self.retry()


@app.task(bind=True)
def many_retries(self):
    runs["many_retries"] += 1
    if self.request.retries < 5:
        self.retry(countdown=0, max_retries=7)
    return self.request.retries


@app.task(autoretry_for=(KeyError,), retry_kwargs={"max_retries": 2, "countdown": 0})
def auto(x):
    runs["auto"] += 1
    raise KeyError(x)


@app.task(autoretry_for=(OSError,), dont_autoretry_for=(TimeoutError,), default_retry_delay=0)
def not_auto():
    runs["not_auto"] += 1
    raise TimeoutError("not this one")


@app.task(autoretry_for=(OSError,), retry_backoff=1, retry_backoff_max=0, max_retries=3)
def backs_off():
    runs["backs_off"] += 1
    if runs["backs_off"] < 3:
        raise OSError("again")
    return runs["backs_off"]


@app.task(bind=True)
def ids(self, name):
    began[name] = time.time()
    return self.request.id


@app.task
def rejected():
    raise Reject("no", requeue=False)


@app.task(ignore_result=True)
def ignored_result():
    return "not kept"


def case(name: str, result: Any) -> None:
    try:
        got: Any = result.get(interval=0.02, timeout=60)
    except Exception as error:  # noqa: BLE001  # printed
        got = f"{type(error).__name__}: {error}".split("[")[0]
    show(name, result.status, got, result.ready(), result.successful(), result.failed())


def show(name: str, *values: Any) -> None:
    print(json.dumps([name, *values], default=str, sort_keys=True))  # noqa: T201  # compared


def cases() -> None:
    case("delay", add.delay(2, 3))
    case("a default", add.delay(2))
    case("names", add.delay(x=2, y=5))
    case("apply_async", add.apply_async((4, 4)))
    case("both", add.apply_async([4], {"y": 6}))
    case("renamed", renamed.delay(["a", "b"]))
    case("to a queue", add.apply_async((1, 2), queue="other", priority=5))
    case("shared", shared.delay(3))
    case("send_task", app.send_task("renamed", kwargs={"words": ["c"]}))
    case("send_task by position", app.send_task("renamed", [["c", "d"]]))
    case("an error", fails.delay(7))
    case("a KeyError", looks_up.delay())
    case("third time", third_time.delay())
    case("never", never.delay())
    case("never, without an error", never_without_error.delay())
    case("more retries than the task says", many_retries.delay())
    case("autoretry", auto.delay("k"))
    case("not by autoretry", not_auto.delay())
    case("backoff", backs_off.delay())
    case("signature", add.s(10, 20).delay())
    case("signature with options", add.si(1, 1).set(queue="other").apply_async())

    start = time.time()
    later = ids.apply_async(("countdown",), countdown=1)
    soon = ids.apply_async(("eta",), eta=datetime.now(UTC) + timedelta(seconds=1))
    show("early", ids.apply_async(("much later",), countdown=3600).ready())
    given = "0190a5b2-0000-7000-8000-000000000001"
    same = ids.apply_async(("given",), task_id=given)
    show(
        "task_id",
        same.get(interval=0.02, timeout=60) == given,
        same.id == given,
        same.task_id == given,
    )
    show(
        "its own id",
        later.get(interval=0.02, timeout=60) == later.id,
        soon.get(interval=0.02, timeout=60) == soon.id,
    )
    show("not before", began["countdown"] - start >= 0.9, began["eta"] - start >= 0.9)
    past = datetime.now(UTC) - timedelta(seconds=10)
    case("expired", add.apply_async((1, 1), expires=past, countdown=0.2))
    case("not expired", add.apply_async((1, 1), expires=3600))
    show("again by id", app.AsyncResult(given).get(interval=0.02, timeout=60) == given)
    show("not known", app.AsyncResult("0190a5b2-0000-7000-8000-00000000ffff").status)
    show(
        "a wrong result is returned",
        str(fails.delay(8).get(interval=0.02, timeout=60, propagate=False)),
    )
    show("too slow", too_slow())

    show("a call", add(1, 1), third_time_directly())
    show("names of tasks", add.name, renamed.name, shared.name)
    show("runs", sorted(runs.items()))


def too_slow() -> str:
    try:
        add.apply_async((1, 1), countdown=3600).get(timeout=0.2)
    except Exception as error:  # noqa: BLE001  # printed
        return type(error).__name__
    return "no error"


def third_time_directly() -> str:
    try:
        third_time()
    except ConnectionError as error:
        return f"ConnectionError: {error}"
    return "no error"


def with_shim(work: Callable[[], None]) -> None:
    """A worker of rowlock's, in a thread."""
    import asyncio

    stop, begun = threading.Event(), threading.Event()

    async def serve() -> None:
        async with app, app.worker():
            begun.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    begun.wait(60)
    try:
        work()
    finally:
        stop.set()
        thread.join()
        app.close()


def with_celery(work: Callable[[], None]) -> None:
    """Celery's own worker for tests, in a thread."""
    from celery.contrib.testing.worker import start_worker

    app.conf.task_create_missing_queues = True
    app.amqp.queues.select(["celery", "other"])
    with start_worker(
        app, pool="solo", perform_ping_check=False, loglevel="CRITICAL", queues=["celery", "other"]
    ):
        work()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    # What it imports must be there to be compared, though only one side raises it.
    assert issubclass(MaxRetriesExceededError, Exception) and issubclass(Ignore, Exception)
    with_shim(cases) if IS_SHIM else with_celery(cases)
