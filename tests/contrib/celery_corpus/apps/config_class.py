"""Settings in a class, periodic tasks when the app is configured."""

from datetime import timedelta

from celery import Celery
from celery.schedules import crontab


class CeleryConfig:
    broker_url = "redis://localhost:6379/0"
    imports = ("tests.contrib.celery_corpus.apps.more_tasks",)
    result_backend = "db+sqlite:///results.db"
    worker_log_level = "DEBUG"
    task_annotations = {}
    beat_schedule = {
        "nightly": {
            "task": "more.tasks.add",
            "schedule": crontab(minute="0", hour="0"),
            "args": [1, 2],
        },
        "often": {
            "task": "more.tasks.add",
            "schedule": timedelta(minutes=10),
            "kwargs": {"x": 1, "y": 2},
            "options": {"queue": "mail", "expires": 600},
        },
        "weekend": {
            "task": "more.tasks.add",
            "schedule": crontab(hour="22-2", minute="*/15", day_of_week="fri-sun"),
            "args": (1, 2),
        },
    }


app = Celery("shop")
app.config_from_object(CeleryConfig)


@app.on_after_configure.connect
def add_schedules(sender, **kwargs):
    sender.add_periodic_task(60.0, app.tasks["more.tasks.add"].s(1, 2), name="every minute")
