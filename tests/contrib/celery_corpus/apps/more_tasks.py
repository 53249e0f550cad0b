"""Tasks of the other app modules, found by `include`, `imports` or discovery."""

from celery import shared_task


@shared_task(name="more.tasks.add")
def add(x, y):
    return x + y
