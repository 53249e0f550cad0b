"""Settings by their names of Celery 3, as several Django projects still have them."""

from celery import Celery
from celery.schedules import crontab


class Settings:
    DEBUG = True
    BROKER_URL = "amqp://localhost"
    CELERY_RESULT_BACKEND = "django-db"
    CELERY_ACCEPT_CONTENT = ["application/json"]
    CELERY_TASK_SERIALIZER = "json"
    CELERY_DEFAULT_QUEUE = "old"
    CELERY_ALWAYS_EAGER = False
    CELERYD_CONCURRENCY = 2
    CELERYD_TASK_SOFT_TIME_LIMIT = 600
    CELERY_TIMEZONE = "Europe/Madrid"
    CELERY_SEND_TASK_ERROR_EMAILS = False
    CELERYBEAT_SCHEDULE = {"a": {"task": "old.add", "schedule": crontab(minute="*/5")}}


app = Celery("old")
app.config_from_object(Settings)


@app.task(name="old.add")
def add(x=1, y=2):
    return x + y
