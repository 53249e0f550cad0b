"""Queues and exchanges of a broker, routes by name and by pattern."""

import re

from celery import Celery
from kombu import Exchange, Queue

app = Celery("shop", broker="amqp://guest@localhost//")
app.conf.task_queues = (
    Queue("default", Exchange("default"), routing_key="default"),
    Queue("mail", Exchange("mail"), routing_key="mail.#", queue_arguments={"x-max-priority": 10}),
)
app.conf.task_default_queue = "default"
app.conf.task_default_exchange = "default"
app.conf.task_default_routing_key = "default"
app.conf.task_create_missing_queues = True
app.conf.task_routes = (
    {"shop.tasks.add": "mail", "shop.mail.*": {"queue": "mail", "routing_key": "mail.send"}},
    [(re.compile(r"(video|image)\..*"), {"queue": "media", "priority": 2})],
)
app.autodiscover_tasks(["tests.contrib.celery_corpus.apps"], related_name="more_tasks")
