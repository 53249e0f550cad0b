"""Schedules in a database of their own: the one thing here that has no equal."""

from celery import Celery

app = Celery("shop", broker="redis://")
app.conf.beat_scheduler = "django_celery_beat.schedulers:DatabaseScheduler"
