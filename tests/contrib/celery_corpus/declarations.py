"""Declarations of tasks, of the shapes that public Celery projects have: each loads under Celery.

What stands before the first declaration belongs to all of them. Everything after it is a
declaration of its own: `test_celery_corpus` tries each alone, with the import of Celery changed.
"""

import datetime
import logging
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

from celery import Celery, Task, current_app, current_task, shared_task, states
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry, SoftTimeLimitExceeded
from celery.result import AsyncResult
from celery.schedules import crontab, schedule
from celery.utils.log import get_logger, get_task_logger

if TYPE_CHECKING:
    from somewhere import Invoice

app = Celery("shop", broker="memory://")
app.conf.task_default_queue = "rest"
logger = get_task_logger(__name__)
PLAIN_LOGGER = get_logger("shop")
QUEUE = "reports"
HOUR = 60 * 60


class FetchError(Exception):
    pass


class LoggedTask(Task):
    abstract = True

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        logger.error("%s failed: %s", task_id, exc, exc_info=einfo)
        super().on_failure(exc, task_id, args, kwargs, einfo)

    def on_retry(self, exc, task_id, args, kwargs, einfo):
        logger.info("%s again", task_id)


class RetriedTask(Task):
    autoretry_for = (FetchError, ConnectionError)
    max_retries = 5
    retry_backoff = True
    retry_backoff_max = 700
    retry_jitter = False


class TransactionTask(Task):
    abstract = True

    def __call__(self, *args, **kwargs):
        self.opened = True
        try:
            return super().__call__(*args, **kwargs)
        finally:
            self.opened = False

    def after_return(self, status, retval, task_id, *call):
        logger.debug("%s: %s", task_id, status)


class CachedTask(app.Task):
    _session = None
    lock_seconds = 60

    @property
    def session(self):
        if self._session is None:
            self._session = object()
        return self._session


# Declarations


@app.task
def bare():
    return 1


@app.task()
def called():
    return 1


@shared_task
def shared(a, b=2):
    return a + b


@shared_task()
def shared_called(ids: List[int]):
    return ids


@app.task(name="shop.named")
def named(a, *, only_by_name=None):
    return a


@app.task(queue="mail")
def with_queue(to):
    return to


@shared_task(queue=QUEUE, name="shop.report")
def with_queue_and_name(region: str) -> str:
    return region


@shared_task(queue="high", ignore_result=True)
def without_result(pk: int) -> None:
    return None


@app.task(ignore_result=False, priority=5)
def with_priority(pk):
    return pk


@app.task(bind=True)
def bound(self, a):
    return self.request.id, a


@shared_task(bind=True, max_retries=3)
def retries_by_hand(self, url):
    try:
        return url
    except ConnectionError as error:
        raise self.retry(exc=error, countdown=2**self.request.retries) from error


@shared_task(bind=True, default_retry_delay=300, max_retries=5)
def retries_with_a_pause(self, pk):
    try:
        return pk
    except FetchError as error:
        self.retry(exc=error)


@app.task(bind=True, max_retries=None)
def retries_for_ever(self):
    try:
        return 1
    except MaxRetriesExceededError:
        return logger.exception("given up")


@shared_task(bind=True, max_retries=0)
def never_again(self):
    return 1


@shared_task(autoretry_for=(Exception,), retry_backoff=True)
def retried(a):
    return a


@shared_task(
    autoretry_for=(FetchError, OSError),
    retry_kwargs={"max_retries": 7, "countdown": 5},
    retry_backoff=30,
    retry_backoff_max=HOUR,
    retry_jitter=True,
)
def retried_in_detail(a):
    return a


@shared_task(
    bind=True, autoretry_for=(FetchError,), dont_autoretry_for=(KeyError,), retry_backoff=5
)
def retried_but_not_by_all(self, a):
    return a


@app.task(base=LoggedTask)
def logged(a):
    return a


@app.task(base=LoggedTask, bind=True, queue="mail")
def logged_and_bound(self, a):
    return a


@shared_task(base=RetriedTask)
def retried_by_its_class(a):
    return a


@shared_task(base=RetriedTask, bind=True, retry_backoff=60, retry_kwargs={"max_retries": 3})
def retried_by_both(self, a):
    return a


@app.task(base=TransactionTask, acks_late=True)
def in_a_transaction(a):
    return a


@app.task(base=CachedTask, bind=True, lock_seconds=5)
def with_a_session(self):
    return self.session


@app.task(acks_late=True)
def acknowledged_late(a):
    return a


@shared_task(acks_late=True, reject_on_worker_lost=True)
def survives(a):
    return a


@app.task(acks_late=True, acks_on_failure_or_timeout=True, track_started=True)
def survives_in_detail(a):
    return a


@app.task(time_limit=60)
def limited(a):
    return a


@shared_task(soft_time_limit=HOUR, time_limit=HOUR + 60)
def limited_softly(a):
    try:
        return a
    except SoftTimeLimitExceeded:
        return None


@app.task(bind=True, soft_time_limit=30, queue="slow", max_retries=1)
def limited_softly_and_bound(self, a):
    return a


@app.task(throws=(FetchError, KeyError))
def throws(a):
    return a


@app.task(throws=(FetchError,), base=LoggedTask, bind=True, acks_late=True)
def throws_and_more(self, a):
    return a


@shared_task(rate_limit="10/m")
def limited_in_rate(a):
    return a


@shared_task(rate_limit=None, soft_time_limit=None, expires=None)
def limited_by_nothing(a):
    return a


@app.task(expires=3600)
def expires(a):
    return a


@shared_task(serializer="json", compression="gzip")
def serialized(a):
    return a


@shared_task(typing=False, store_errors_even_if_ignored=True, send_events=False)
def with_odd_options(a):
    return a


@shared_task(queue="mail", routing_key="mail.send", exchange_type="direct")
def with_a_routing_key(a):
    return a


@app.task
def takes_anything(*args, **kwargs):
    return args, kwargs


@shared_task(bind=True)
def takes_anything_bound(self, *args, **kwargs):
    return args, kwargs


@app.task
def takes_some(first, *others, last=None):
    return first, others, last


@shared_task
def annotated(
    pk: int,
    amount: Decimal,
    at: datetime.datetime,
    names: Optional[Dict[str, Any]] = None,
) -> Optional[str]:
    return None


@shared_task
def annotated_as_either(key: Union[str, uuid.UUID], also: "str | None" = None):
    return key


@shared_task
def annotated_for_checkers_only(invoice: "Invoice", total: int = None):
    return invoice


@app.task(base=CachedTask)
def annotated_with_a_class(error: FetchError, errors: List[FetchError] = ()):
    return error


@app.task(bind=True)
def reports(self, total: int):
    for done in range(total):
        self.update_state(state="PROGRESS", meta={"current": done, "total": total})
    return {"current": total, "total": total}


@app.task(bind=True)
def ends_by_hand(self):
    self.update_state(state=states.FAILURE, meta={"why": "known"})
    raise Ignore


@app.task(bind=True)
def rejects(self):
    raise Reject("no", requeue=False)


@shared_task
def enqueues_others(pks):
    for pk in pks:
        shared.apply_async((pk,), countdown=5, expires=HOUR, queue="mail", priority=3)
        shared.apply_async(kwargs={"a": pk}, headers={"trace": str(pk)})
        current_app.send_task("shop.named", kwargs={"a": pk})


@shared_task
def knows_itself():
    return current_task.request.id, current_task.name


@app.task
def looks_at_others(task_id):
    result = AsyncResult(task_id)
    return result.ready() and result.get(disable_sync_subtasks=False)


@app.task(bind=True)
def revokes(self, task_id):
    app.control.revoke(task_id, terminate=True)
    return app.AsyncResult(task_id).state in states.READY_STATES


@app.on_after_finalize.connect
def add_schedules(sender, **kwargs):
    sender.add_periodic_task(30.0, shared.s(1), name="often")
    sender.add_periodic_task(crontab(hour=7, minute=30, day_of_week="mon-fri"), shared.s(1, b=3))
    sender.add_periodic_task(schedule(run_every=datetime.timedelta(minutes=5)), shared.si(1))


class ByClass(Task):
    name = "shop.by_class"
    queue = "mail"
    ignore_result = True

    def run(self, pk, *, again=False):
        logging.getLogger(__name__).info("%s", self.request.retries)


by_class = app.register_task(ByClass())


class ByClassWithState(app.Task):
    def __init__(self):
        self.calls = 0

    def run(self):
        self.calls += 1


by_class_with_state = app.register_task(ByClassWithState)


@app.task(bind=True, base=LoggedTask, name="shop.all", queue="mail", max_retries=2, acks_late=True)
def all_at_once(self, pk: int, *, dry_run: bool = False) -> Dict[str, Any]:
    try:
        return {"pk": pk}
    except (FetchError, Retry) as error:
        raise self.retry(exc=error, max_retries=4, countdown=10) from error


@app.task(pydantic=True)
def with_models(a: int):
    return a


@shared_task(trail=False, track_started=True, lazy=True)
def tuned(a):
    return a


@shared_task(retry_backoff=2, retry_backoff_max=8, autoretry_for=(FetchError,), max_retries=None)
def retried_for_ever(a):
    return a


@app.task(delivery_mode=1, resultrepr_maxsize=200)
def not_durable(a):
    return a


@app.task(acks_late=False)
def at_most_once(a):
    return a


@app.task(serializer="pickle")
def pickled(a):
    return a


@app.task(backend="rpc://")
def with_a_backend(a):
    return a
