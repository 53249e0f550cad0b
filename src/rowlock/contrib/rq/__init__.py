"""A thin shim for scripts that were written for RQ: its common subset, over rowlock.

    from rowlock.contrib.rq import Queue, Retry      # from rq import Queue, Retry

    queue = Queue("mail", connection=app)            # a rowlock.App, instead of Redis
    queue.enqueue(send_email, "ada@example.com", retry=Retry(max=3, interval=60))

1. RQ stores a function's path, and a worker imports and calls whatever a job names: who can write
   to Redis can have `os.system` called. Here a function is registered by code, never by a row: by
   `@job(...)` or `register(app, function)` where the worker imports it, and by `enqueue` in the
   process that calls it. A job whose function the worker does not know waits, and
   `rowlock jobs why` says so.
2. As in RQ an exception ends the job, unless `retry=` says otherwise.
3. What is not supported raises `Unsupported`, which says what to do instead.
"""

from __future__ import annotations

from rowlock.contrib.compat import Unsupported
from rowlock.contrib.rq.job import Retry, get_current_job, register
from rowlock.contrib.rq.queue import Queue
from rowlock.contrib.rq.worker import SimpleWorker, Worker

__all__ = [
    "Queue",
    "Retry",
    "SimpleWorker",
    "Unsupported",
    "Worker",
    "get_current_job",
    "register",
]
