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
    from rowlock.contrib.celery import Celery, Task, current_task, shared_task, signals
    from rowlock.contrib.celery.exceptions import Ignore, MaxRetriesExceededError, Reject

    app = Celery("script", broker=sys.argv[2])
else:
    from celery import Celery, Task, current_task, shared_task, signals
    from celery.exceptions import Ignore, MaxRetriesExceededError, Reject

    app = Celery("script", broker="memory://", backend="cache+memory://")
    app.conf.update(worker_enable_remote_control=False, broker_connection_retry_on_startup=False)
    app.conf.broker_transport_options = {"polling_interval": 0.02}

app.conf.task_routes = {"script.routed": {"queue": "other"}, "*.also_*": "other"}
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


# What hooks and signals are told, in their order.
told: list[Any] = []


class Watched(Task):
    abstract = True
    max_retries = 1
    default_retry_delay = 0
    autoretry_for = (ConnectionError,)

    def __call__(self, *args, **kwargs):
        told.append(["called", args, kwargs])
        return super().__call__(*args, **kwargs)

    def before_start(self, task_id, args, kwargs):
        told.append(["before_start", args, kwargs, task_id == self.request.id])

    def on_success(self, retval, task_id, args, kwargs):
        told.append(["on_success", retval, args, kwargs])

    def on_retry(self, exc, task_id, args, kwargs, einfo):
        told.append(["on_retry", repr(exc), args, kwargs, "ConnectionError" in str(einfo)])

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        told.append(["on_failure", repr(exc), args, kwargs, "watched" in str(einfo)])

    def after_return(self, status, retval, task_id, *call):
        told.append(["after_return", status, str(type(retval).__name__), *call[:2]])


@app.task(base=Watched, bind=True)
def watched(self, how, *, times=1):
    current = [current_task.name, self.request.retries, self.request.id == current_task.request.id]
    if how == "lost":
        raise ConnectionError(how)
    if how == "wrong":
        raise ValueError(how)
    return [how, times, current]


@app.task(bind=True, base=Watched, max_retries=0)
def gives_up(self):
    raise ConnectionError("at once")


class Adder(Task):
    name = "adder"
    step = 3

    def run(self, x):
        return x + self.step


adder = app.register_task(Adder())


@app.task
def rest(first, *others, last=None, **named):
    return [first, others, last, named]


@app.task(bind=True)
def routed(self):
    return [self.request.delivery_info["routing_key"], list(self.request.args)]


@app.task(bind=True)
def also_routed(self, x, y=2):
    return [self.request.delivery_info["routing_key"], list(self.request.args), self.request.kwargs]


@app.task(bind=True)
def with_headers(self):
    return [self.request.get("trace"), self.request.get("added"), self.request.get("neither")]


@app.task(bind=True)
def reports(self):
    self.update_state(state="PROGRESS", meta={"current": 1, "total": 2})
    raise Ignore


def watch(name: str, **wanted: str) -> Any:
    def receive(sender=None, **said: object):
        if getattr(sender, "name", sender) in ("script.watched", "script.gives_up"):
            values = {key: str(said[key]) for key in sorted(wanted) if key in said}
            told.append([name, values])

    return receive


WATCHES = {
    "task_prerun": watch("task_prerun", args="", kwargs=""),
    "task_postrun": watch("task_postrun", state="", retval=""),
    "task_success": watch("task_success", result=""),
    "task_failure": watch("task_failure", exception="", args=""),
    "task_retry": watch("task_retry"),
}


@signals.before_task_publish.connect
def add_header(sender=None, headers=None, **_):
    if sender == "script.with_headers":
        headers["added"] = f"to {sender}"


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

    for name, receiver in WATCHES.items():
        getattr(signals, name).connect(receiver)
    for how in ("well", "lost", "wrong"):
        case(f"watched: {how}", watched.apply_async((how,), {"times": 2}))
        show_told(how)
    case("gives up", gives_up.delay())
    show_told("gives up")
    case("a class", adder.delay(4))
    case("rest", rest.delay(1, 2, 3, last=4, more=5))
    case("no rest", rest.delay(1))
    case("routed by name", routed.delay())
    case("routed by pattern", also_routed.delay(1, y=3))
    case("not routed", also_routed.apply_async((1,), queue="other"))
    case("headers", with_headers.apply_async(headers={"trace": "abc"}))
    show("reported", *reported(reports.delay()))
    show("eager", *eager(add.apply((2,), {"y": 5})), *eager(fails.apply((9,))))
    show("eager retries", *eager(third_time.apply()), *eager(never.apply()))
    show("a call", add(1, 1), third_time_directly(), watched("directly"))
    show("names of tasks", add.name, renamed.name, shared.name)
    show("runs", sorted(runs.items()))


def show_told(name: str) -> None:
    """After the worker is done with a run: the last signal comes after its result."""
    for _ in range(500):
        if told and told[-1][0] == "task_postrun" and told[-1][1]["state"] != "RETRY":
            break
        time.sleep(0.02)
    show(f"told of {name}", *told)
    told.clear()


def reported(result: Any) -> tuple[str, Any]:
    for _ in range(500):
        if result.state == "PROGRESS":
            break
        time.sleep(0.02)
    return result.state, result.info


def eager(result: Any) -> tuple[Any, ...]:
    return result.state, str(result.result), result.successful(), result.ready()


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
