"""A thin shim for code written for RQ: its common subset, on rowlock.

    from rowlock.contrib.rq import Queue, Retry      # from rq import Queue, Retry

    queue = Queue("mail", connection=app)            # a rowlock.App, instead of Redis
    queue.enqueue(send_email, "ada@example.com", retry=Retry(max=3, interval=60))

1. RQ stores a function's path, and a worker imports and calls whatever a job names. So everyone who
   can write to Redis can call `os.system`. Here, only code registers a function, never a row:
   `@job(...)` or `register(app, function)` where the worker imports it, and `enqueue` in the
   process that calls it. A job whose function is unknown to the worker waits, and
   `rowlock jobs why` says so.
2. As in RQ, an exception ends the job, unless `retry=` asks for another attempt.
3. Unsupported features raise `Unsupported`, which says what to do instead.
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
