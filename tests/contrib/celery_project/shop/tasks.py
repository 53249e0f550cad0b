from celery import Task, shared_task
from celery.exceptions import MaxRetriesExceededError
from celery.utils.log import get_task_logger
from django.db import connection
from proj.celery import app, note

logger = get_task_logger(__name__)


class Noted(Task):
    abstract = True

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        note(f"{self.name}{tuple(args)} failed: {exc!r}")


@shared_task
def report(days):
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s + 1", [days])
        return cursor.fetchone()[0]


@app.task(base=Noted, bind=True, max_retries=1, default_retry_delay=0, acks_late=True)
def charge(self, order):
    try:
        raise ConnectionError(f"order {order}")
    except ConnectionError as error:
        try:
            self.retry(exc=error)
        except MaxRetriesExceededError:
            logger.exception("never raised: exc is")
