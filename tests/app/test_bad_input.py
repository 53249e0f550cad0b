"""What makes no sense is refused by an error of ours that names it, and nothing is written."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rowlock

HUGE = 10**5000
UNTYPED: list[Any] = [[1, 2], [("a", 1)], [], (), 0, 5, 1.5, "abc", "", b"", False, {1}]


def raised(call: Callable[[], object]) -> str:
    """The code of our own error, and what it names; the class of any other."""
    try:
        call()
    except rowlock.OptionInvalid as error:
        return error.option
    except rowlock.PayloadInvalid as error:
        return ", ".join(each.field for each in error.errors)
    except Exception as error:  # noqa: BLE001  # that is what is looked for
        return type(error).__name__
    return "nothing"


@pytest.fixture
def work(app: rowlock.App) -> rowlock.Task[..., None]:
    @app.task
    def work(number: int = 0) -> None: ...

    return work


@pytest.fixture
def lease(app: rowlock.App) -> Iterator[rowlock.Lease]:
    app.enqueue("held", queue="held")
    (lease,) = app.store.claim(worker="w", queues=["held"])
    yield lease
    app.store.succeed([lease])


def test_a_payload_is_a_mapping(app, work):
    """Whatever else stands in its place, empty or not, is a payload that is invalid."""
    dead = work.enqueue().id
    app.cancel(dead)

    async def aenqueue(payload: Any) -> None:
        await app.aenqueue("work", payload)

    for payload in UNTYPED:
        calls = [
            lambda payload=payload: app.enqueue("work", payload),
            lambda payload=payload: app.enqueue("elsewhere", payload),
            lambda payload=payload: app.enqueue_many([{"kind": "work", "payload": payload}]),
            lambda payload=payload: app.retry(dead, payload),
            lambda payload=payload: app.schedule("s", work, cron="@daily", payload=payload),
            lambda payload=payload: app.schedule("s", "else", cron="@daily", payload=payload),
            lambda payload=payload: asyncio.run(aenqueue(payload)),
        ]
        assert [raised(call) for call in calls] == ["payload"] * len(calls), payload

    assert [job.id for job in app.list()] == [dead]
    assert app.store.list_schedules() == []


def test_a_schedules_payload_may_have_any_name(app, work):
    """Names that no call can have are judged as those of any other payload."""

    @app.task
    def anything(**fields: Any) -> None: ...

    def scheduled(task: Any, payload: Any) -> str:
        return raised(lambda: app.schedule("s", task, cron="@daily", payload=payload))

    assert [scheduled(work, {1: 2}), scheduled(work, {"self": 1})] == ["1", "self"]
    assert [
        scheduled(work.using(tags=["t"]), {1: 2}),
        scheduled(work.using(tags=["t"]), {"self": 1}),
    ] == ["1", "self"]
    assert scheduled(anything.using(priority=3, tags=["t"]), {"self": 1}) == "nothing"
    (job,) = [app.store.run_schedule_now(each.name) for each in app.store.list_schedules()]
    assert (job.payload, job.priority, job.tags) == ({"self": 1}, 3, ["t"])


def test_a_key_of_a_payload_that_can_not_be_shown(app, work):
    """A name that has no text is refused all the same."""
    names = [
        raised(lambda kind=kind: app.enqueue(kind, {HUGE: 1})) for kind in ("work", "elsewhere")
    ]

    assert ["no text" in name for name in names] == [True, True]


def test_options_name_themselves(app):
    """Kinds, tags and numbers of any type."""
    calls: dict[str, list[Callable[[], object]]] = {
        "kind": [
            lambda: app.enqueue(["x"]),
            lambda: app.enqueue(None),
            lambda: app.enqueue(5),
            lambda: app.enqueue({}),
            lambda: app.enqueue_many([{"kind": ["x"]}]),
            lambda: app.enqueue_many([{"kind": None}]),
        ],
        "1": [lambda: app.enqueue_many([{"kind": "x", 1: 2}])],
        "an unprintable int": [lambda: app.enqueue_many([{"kind": "x", HUGE: 2}])],
        "tags": [
            lambda: app.enqueue("x", tags=5),
            lambda: app.enqueue("x", tags=(each for each in "ab")),
            lambda: app.enqueue("x", tags="ab"),
            lambda: app.enqueue("x", tags=[5]),
        ],
        "priority": [lambda: app.enqueue("x", priority=HUGE)],
        "max_attempts": [lambda: app.enqueue("x", max_attempts=-HUGE)],
        "delay": [lambda: app.enqueue("x", delay=-HUGE), lambda: app.enqueue("x", delay=[HUGE])],
        "id": [lambda: app.enqueue("x", id=HUGE)],
        "queues": [
            lambda: app.stats(5),
            lambda: app.stats("mail"),
            lambda: app.store.claim(worker="w", queues=5),
            lambda: app.store.claim(worker="w", queues={"q": HUGE}),
        ],
        "kinds": [lambda: app.store.claim(worker="w", queues=None, kinds=5)],
        "after": [
            lambda: app.store.list_schedules(after="\ud800"),
            lambda: app.store.list_schedules(after="a\0"),
            lambda: app.store.list_schedules(after=None),
        ],
    }
    for option, refused in calls.items():
        assert [raised(call) for call in refused] == [option] * len(refused)

    assert not app.list().jobs


class Mailer:
    def send(self, to: str) -> None: ...

    @classmethod
    def make(cls) -> None: ...


def called(call: Callable[[], object]) -> str:
    """The message of the error that a call raises."""
    with pytest.raises((rowlock.RowlockError, AttributeError, RuntimeError)) as caught:
        call()
    return str(caught.value)


def test_what_is_no_function_is_no_task(app):
    """A name, a method, a lambda: the error says what to write instead, and nothing is added."""
    refused = {
        "write @app.task(name='x') above a function": lambda: app.task("x"),
        "a lambda has no name; write a def, or pass name=": lambda: app.task(lambda: 1),
        "is a method of Mailer, and a job has no self": lambda: app.task(Mailer.send),
        "is a class method; use a function": lambda: app.task(Mailer.__dict__["make"]),
        "must be a function, not 42": lambda: app.task(42),
        "name: is needed": lambda: app.task(functools.partial(print)),
    }
    for problem, call in refused.items():
        assert problem in called(call)
    assert app.kinds == []

    # These have all that they need.
    app.task(Mailer().send)
    app.task(name="sum")(lambda a, b: a + b)
    assert app.kinds == ["send", "sum"]


def test_words_of_other_queues_get_a_hint(app, work):
    """What Celery, RQ and Procrastinate call it, and what it is called here."""
    hints = {
        "a task has no 'delay': use work.enqueue(...)": lambda: work.delay(1),
        "use work.using(delay=..., queue=...).enqueue(...)": lambda: work.apply_async((1,)),
        "countdown: there is no such option; did you mean 'delay'?": (
            lambda: work.using(countdown=5)
        ),
        "eta: there is no such option; did you mean 'run_at'?": (
            lambda: app.enqueue("work", {}, eta=5)
        ),
        "did you mean 'max_attempts'? It counts the first run, too": (
            lambda: app.task(max_retries=3)
        ),
        "pass it by work.using(delay=...).enqueue(...)": lambda: work.enqueue(1, countdown=5),
        "queue: unexpected; as an option of the job": lambda: work.enqueue(1, queue="mail"),
        "zzz: there is no such option": lambda: work.using(zzz=1),
    }
    for hint, call in hints.items():
        assert hint in called(call)

    assert "'Task' object has no attribute 'nothing'" in called(lambda: work.nothing)
    assert not hasattr(work, "delay")
    assert not app.list().jobs


@pytest.mark.asyncio
async def test_blocking_calls_name_their_twins_inside_a_loop(app):
    """A drain can't run where a loop runs. It says so, and leaves no coroutine behind."""
    assert called(app.drain) == (
        "drain() can't run inside an event loop: use `await app.adrain()` there"
    )
    assert "use `async with app.worker()` there" in called(app.run_worker)
    assert await app.adrain() == 0
    await app.aclose()


def test_a_strict_app_refuses_what_is_no_kind(any_url):
    """It looks for the nearest name of names only."""
    with rowlock.App(any_url, strict=True) as app:
        kinds: list[Any] = [None, 5, ["x"], HUGE]

        assert [raised(lambda kind=kind: app.enqueue(kind)) for kind in kinds] == ["kind"] * 4


def test_what_a_run_tells_is_checked(app, lease):
    """Progress is a number and a text, a log is a list of texts, a token is a number."""
    store = app.store
    calls: dict[str, list[Callable[[], object]]] = {
        "fraction": [
            lambda: store.progress(lease, fraction="a"),
            lambda: store.progress(lease, fraction=None),
        ],
        "text": [lambda: store.progress(lease, fraction=0.5, text=5)],
        "lines": [
            lambda: store.log(lease, [5]),
            lambda: store.log(lease, 5),
            lambda: store.log(lease, "a line"),
        ],
        "token": [
            lambda token=token: store.heartbeat([rowlock.Lease(id=lease.id, token=token)])
            for token in (2**70, 2**63, -1, HUGE, "1", None, True, 1.0)
        ],
    }
    for option, refused in calls.items():
        assert [raised(call) for call in refused] == [option] * len(refused)

    assert (app.get(lease.id).progress, store.read_log(lease.id)) == (None, [])
    beat = store.heartbeat([rowlock.Lease(id=lease.id, token=2**63 - 1)])
    assert beat == [rowlock.Beat.LOST]
