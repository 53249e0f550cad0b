"""One script for RQ: run under the real one and under the shim, it must print the same.

python -m tests.contrib.rq_script real|shim DATABASE_URL
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.contrib import rq_functions as functions

IS_SHIM = sys.argv[1] == "shim"

if IS_SHIM:
    import rowlock
    from rowlock.contrib.rq import Queue, Retry, SimpleWorker, get_current_job, requeue_job
    from rowlock.contrib.rq.decorators import job
    from rowlock.contrib.rq.exceptions import NoSuchJobError
    from rowlock.contrib.rq.job import Dependency, Job
    from rowlock.contrib.rq.registry import FailedJobRegistry, FinishedJobRegistry

    connection: Any = rowlock.App(sys.argv[2])
else:
    from fakeredis import FakeStrictRedis
    from rq import Queue, Retry, SimpleWorker, get_current_job, requeue_job
    from rq.decorators import job
    from rq.exceptions import NoSuchJobError
    from rq.job import Dependency, Job
    from rq.registry import FailedJobRegistry, FinishedJobRegistry

    connection = FakeStrictRedis()

functions.CURRENT.append(get_current_job)
default = Queue(connection=connection)
mail = Queue("mail", connection=connection)
decorated = job(mail, connection=connection, timeout=5)(functions.words)
GIVEN = "0190a5b2-0000-7000-8000-000000000001"


def show(name: str, *values: Any) -> None:
    print(json.dumps([name, *values], default=str, sort_keys=True))  # noqa: T201  # compared


def work() -> None:
    SimpleWorker([default, mail], connection=connection).work(burst=True)


def case(name: str, made: Any) -> None:
    before = str(made.get_status().value)
    work()
    found = Job.fetch(made.id, connection=connection)
    after = str(found.get_status().value)
    show(name, before, after, found.result, found.is_finished, found.is_failed, found.origin)


def cases() -> None:
    case("enqueue", default.enqueue(functions.add, 2, 3))
    case("a default", default.enqueue(functions.add, 2))
    case("names", default.enqueue(functions.add, x=2, y=5))
    case("explicit", default.enqueue(functions.add, args=(2,), kwargs={"y": 6}, job_timeout="1m"))
    case("enqueue_call", default.enqueue_call(functions.add, args=(4, 4), timeout=30))
    case("another queue", mail.enqueue(functions.words, "a b", upper=True))
    case("decorated", decorated.delay("c d"))
    case("decorated, with an id", decorated.delay("e", job_id=GIVEN))
    case("an error", default.enqueue(functions.fails, 7))
    case("third time", default.enqueue(functions.third_time, retry=Retry(max=5)))
    case("never", default.enqueue(functions.never, retry=Retry(max=2, interval=0)))
    case("later", default.enqueue(functions.never, retry=Retry(max=2, interval=[60, 120])))
    case("enqueue_in", default.enqueue_in(timedelta(hours=1), functions.add, 1))
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    case("enqueue_at", default.enqueue_at(tomorrow, functions.add, 1))

    own = default.enqueue(functions.own_id, meta={"a": 1}, at_front=True)
    work()
    show("the current job", own.result[0] == own.id, own.result[1:])
    show("by id", mail.fetch_job(GIVEN).id == GIVEN, Job.exists(GIVEN, connection=connection))
    failed = default.enqueue(functions.fails, 8)
    show("waiting", default.count, len(default), default.is_empty())
    work()
    show("its error", "ValueError: bad 8" in str(failed.exc_info), failed.kwargs is None)
    failed.requeue()
    show("again", str(failed.get_status().value))
    work()
    cancelled = default.enqueue(functions.add, 1)
    cancelled.cancel()
    show("cancelled", str(cancelled.get_status().value), cancelled.is_canceled)
    cancelled.delete()
    show("deleted", fetched(cancelled.id))
    many()
    dependent()
    show("a call", functions.add(1, 1), decorated("x"), get_current_job())
    show("runs", sorted(functions.runs.items()))


def many() -> None:
    """Many jobs of one queue: lists of them, registries, a worker that runs some, handlers."""
    lists = Queue("lists", connection=connection)
    datas = [Queue.prepare_data(functions.add, (n,), {"y": 1}, timeout=9) for n in range(3)]
    made = lists.enqueue_many([*datas, Queue.prepare_data(functions.fails, [9])])
    first = lists.enqueue(functions.rest, 1, 2, 3, four=4, at_front=True)
    ids = [first.id, *(job.id for job in made)]
    show("ids", lists.job_ids == ids, lists.get_job_ids(1, 2) == ids[1:3], len(lists.jobs))
    found = Job.fetch_many([ids[2], "0190a5b2-0000-7000-8000-00000000ffff"], connection=connection)
    show("fetch_many", found[0].id == ids[2], found[1])
    told: list[Any] = []
    worker = SimpleWorker(
        [lists],
        connection=connection,
        exception_handlers=[
            lambda job, *error: told.append([job.id == ids[4], error[0].__name__, str(error[1])]),
            lambda job, *error: False,
            lambda job, *error: told.append("never"),
        ],
    )
    worker.work(burst=True, max_jobs=2, with_scheduler=False)
    show("max_jobs", len(lists), lists.finished_job_registry.count, first.result)
    worker.work(burst=True)
    failed, finished = FailedJobRegistry(queue=lists), FinishedJobRegistry("lists", connection)
    show("registries", failed.get_job_ids() == ids[4:], len(finished), ids[0] in finished)
    show("others", lists.started_job_registry.count, lists.deferred_job_registry.get_job_ids())
    show("handlers", *told)
    latest = [made[0].latest_result(), made[3].latest_result()]
    show("results", *[[each.type.value, each.return_value] for each in latest])
    show("its error", "ValueError: bad 9" in latest[1].exc_string)
    requeue_job(ids[4], connection=connection)
    later = lists.enqueue_in(timedelta(hours=1), functions.add, 1)
    scheduled = lists.scheduled_job_registry
    show("again", len(lists), ids[4] in failed, later in scheduled, scheduled.count)
    saved = lists.enqueue(functions.saves, 3, meta={"by": "me"}, description="saves some")
    lists.remove(ids[4])
    worker.work(burst=True)
    saved.refresh()
    show("saved", saved.result, saved.meta, saved.get_meta(), saved.description)


def dependent() -> None:
    """Jobs that wait for others: for all, for a failed one, and for one that is retried."""
    first = default.enqueue(functions.add, 1)
    after = default.enqueue(functions.add, 2, depends_on=first)
    both = mail.enqueue(functions.words, "last", depends_on=[first, after.id], meta={"a": 1})
    deferred = default.deferred_job_registry
    show("deferred", state_of(after), both.is_deferred, deferred.get_job_ids() == [after.id])
    show("dependency", both.dependency.id == first.id, both.meta, first.dependency, default.count)
    show("dependencies", len(both.fetch_dependencies()), after in deferred, first in deferred)
    work()
    show("ended", state_of(first), state_of(after), state_of(both), both.result, deferred.count)
    late = default.enqueue(functions.add, 3, depends_on=Dependency([first, both]))
    gone = default.enqueue(functions.add, 4, depends_on="0190a5b2-0000-7000-8000-00000000ffff")
    show("already ended", state_of(late), state_of(gone))
    wrong = default.enqueue(functions.fails, 1)
    stuck = default.enqueue(functions.add, 5, depends_on=wrong)
    anyway = default.enqueue(functions.add, 6, depends_on=Dependency(wrong, allow_failure=True))
    data = Queue.prepare_data(functions.add, (7,), depends_on=late)
    (many,) = default.enqueue_many([data])
    work()
    show("failed", *map(state_of, (wrong, stuck, anyway, late, gone, many)))
    for call in (lambda: Dependency([]), lambda: Dependency([1])):
        show("refused", refused(call))


def state_of(job: Any) -> str:
    return str(job.get_status().value)


def refused(call: Any) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    return "not refused"


def fetched(id: str) -> str:
    try:
        Job.fetch(id, connection=connection)
    except NoSuchJobError:
        return "no such job"
    return "there"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    cases()
