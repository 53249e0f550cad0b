"""Enqueue as a view does, run a worker, and print what became of it."""

import os
import subprocess
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings")
import django

django.setup()

from django.db import transaction
from proj.celery import app, debug_task
from shop.orders import Unpaid, order, state_of
from shop.tasks import charge, report

with transaction.atomic():
    debug_task.delay_on_commit()
results = [report.delay(30), charge.delay(5), app.send_task("shop.more_tasks.found")]
orders = [order(["tea", "cup"]), order(["tea", "pot"], parcels=3), order(["a large kettle"])]
print([result.queue for result in results], [result.state for result in results])
worker = [sys.executable, "-m", "rowlock", "--app", "proj.celery:app", "worker", "--drain"]
subprocess.run(worker, check=True)
print([result.state for result in results], results[0].get(timeout=5))
print([state_of(result.id) for result in orders], [result.get(timeout=5) for result in orders[:2]])
try:
    orders[2].get(timeout=5)
except Unpaid as error:
    print(error.args)
print([f"{name}: {cron.text} in {cron.timezone}" for name, _, cron in app.scheduled()])
