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

from typing import Never

from rowlock.contrib.compat import Unsupported
from rowlock.contrib.rq.job import Retry, cancel_job, get_current_job, register, requeue_job
from rowlock.contrib.rq.queue import ADVICE, Queue
from rowlock.contrib.rq.worker import SimpleWorker, SpawnWorker, Worker

__all__ = [
    "Queue",
    "Retry",
    "SimpleWorker",
    "SpawnWorker",
    "Unsupported",
    "Worker",
    "cancel_job",
    "get_current_job",
    "register",
    "requeue_job",
]

_MISSING = {
    "Callback": ADVICE["on_failure"],
    "Repeat": ADVICE["repeat"],
    "Webhook": ADVICE["webhooks"],
    "Connection": "pass the rowlock.App as connection= to each queue",
    "use_connection": "pass the rowlock.App as connection= to each queue",
    "push_connection": "pass the rowlock.App as connection= to each queue",
}


def __getattr__(name: str) -> Never:
    if name in _MISSING:
        raise Unsupported(f"rq.{name}", _MISSING[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
