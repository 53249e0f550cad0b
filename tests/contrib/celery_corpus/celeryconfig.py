"""The settings of `apps.config_module`."""

import os
from os import environ

broker_url = environ.get("BROKER", "amqp://guest:guest@localhost:5672//")
result_backend = "rpc://"
task_default_queue = "theirs"
worker_send_task_events = True
task_send_sent_event = True
redis_max_connections = 10
HERE = os.getcwd()
