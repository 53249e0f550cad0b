"""Settings in a module by its name, and in the environment."""

from celery import Celery

app = Celery("shop", config_source="tests.contrib.celery_corpus.celeryconfig")
app.conf.task_default_queue = "mine"


@app.task(name="config_module.add")
def add(x, y):
    return x + y
