"""Signals of workers and tasks, for logs, traces and pools."""

import logging
import logging.config

from celery import Celery, signals
from celery.signals import (
    after_setup_logger,
    before_task_publish,
    setup_logging,
    task_failure,
    task_postrun,
    task_prerun,
    task_retry,
    task_revoked,
    task_success,
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
    worker_shutdown,
)

app = Celery("shop", broker="sqs://", include=["tests.contrib.celery_corpus.apps.more_tasks"])
pool = []


@setup_logging.connect
def set_up_logging(**kwargs):
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})


@after_setup_logger.connect
def add_handler(logger, *args, **kwargs):
    logger.addHandler(logging.NullHandler())


@worker_process_init.connect(weak=False)
def open_pool(**kwargs):
    pool.append(1)


@worker_process_shutdown.connect
def close_pool(sender=None, pid=None, exitcode=None, **kwargs):
    pool.clear()


@worker_ready.connect
def say_ready(sender, **kwargs):
    logging.info("%s is ready", sender.hostname)


@task_prerun.connect
def bind_context(task_id, task, *args, **kwargs):
    logging.debug("%s %s", task_id, task.name)


@before_task_publish.connect
def pass_context(headers=None, body=None, **kwargs):
    headers["request_id"] = "1"


@task_failure.connect
def report(sender=None, task_id=None, exception=None, traceback=None, einfo=None, **kwargs):
    logging.error("%s", einfo)


@task_success.connect
@task_postrun.connect
@task_retry.connect
@task_revoked.connect
@worker_shutdown.connect
def count(sender=None, **kwargs):
    logging.debug("%s", sender)


signals.worker_init.connect(open_pool)
