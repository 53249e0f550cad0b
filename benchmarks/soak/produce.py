"""The producer of the soak: so many jobs a second until SIGTERM, late or not.

`python -m benchmarks.soak.produce RATE`; in the end it prints what it has made, as JSON.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from typing import Any

import rowlock
from benchmarks.soak.jobs import app
from rowlock.ids import new_id

# So many enqueues a second, each of what is due by then: as many web requests would make.
BATCHES_PER_SECOND = 100
# After a standstill it catches up in bites of this size.
BATCH_MAX = 1_000
AGAIN_SECONDS = 0.1
REST = {"to": "someone@example.com", "template": "welcome to the house", "lang": "en"}


def produce(rate: float, over: threading.Event) -> dict[str, int]:
    """Enqueue until it is over; how many were made, and how many calls were refused."""
    made = refused = 0
    start = time.monotonic()
    while not over.wait(1 / BATCHES_PER_SECOND):
        due = int((time.monotonic() - start) * rate) - made
        batch = [_job() for _ in range(min(due, BATCH_MAX))]
        while batch:
            try:
                app.enqueue_many(batch)
            except rowlock.StoreUnavailable as error:
                # The ids are ours: what was committed all the same is not made twice.
                print(error, file=sys.stderr, flush=True)
                refused += 1
                time.sleep(AGAIN_SECONDS)
            else:
                made += len(batch)
                batch = []
    return {"made": made, "refused": refused}


def _job() -> dict[str, Any]:
    payload = {"sent_us": time.time_ns() // 1000, **REST}
    return {"kind": "mark", "payload": payload, "id": new_id()}


def main() -> None:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    # Ctrl-C is for the soak, which then ends this process in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with app:
        print(json.dumps(produce(float(sys.argv[1]), over)), flush=True)


if __name__ == "__main__":
    main()
