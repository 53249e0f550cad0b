"""As in Celery's guide for Django, with schedules and signals."""

import os
from datetime import timedelta

from celery import Celery
from celery.schedules import crontab
from celery.signals import (
    before_task_publish,
    setup_logging,
    task_failure,
    worker_process_init,
    worker_shutdown,
)
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings")

app = Celery("proj")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(lambda: settings.INSTALLED_APPS, related_name="more_tasks")
app.conf.beat_schedule = {
    "nightly": {"task": "shop.tasks.report", "schedule": crontab(hour=3, minute=0), "args": (7,)},
    "often": {
        "task": "shop.orders.sweep",
        "schedule": timedelta(minutes=10),
        "options": {"expires": 300},
    },
}


def note(line):
    with open(os.environ["SHOP_NOTES"], "a", encoding="utf-8") as file:
        file.write(f"{line}\n")


@setup_logging.connect
def set_up_logging(**kwargs):
    note("logging")


@worker_process_init.connect
def open_pools(**kwargs):
    note("process")


@worker_shutdown.connect
def close_pools(**kwargs):
    note("shutdown")


@before_task_publish.connect
def add_shop(headers=None, **kwargs):
    headers["shop"] = "berlin"


@task_failure.connect
def on_failure(sender=None, exception=None, **kwargs):
    note(f"signal: {sender.name} failed: {exception!r}")


@app.task(bind=True, ignore_result=True)
def debug_task(self):
    note(f"Request: {self.request.task}")
