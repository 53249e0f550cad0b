"""A shop: an order is paid, confirmed by e-mail, and its photos get thumbnails.

It shows retries, priorities, keys, progress, jobs that follow others, and giving up on purpose.

    rowlock --app examples.shop:app up          until Ctrl-C
    python -m examples.shop                     once, with a summary at its end
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from dataclasses import dataclass

import rowlock

logger = logging.getLogger("shop")


@dataclass
class Order:
    """A payload may be a dataclass: it is checked when the job is enqueued."""

    number: int
    email: str
    photos: list[str]


class Shop:
    """The app's own state, `ctx.state` in a handler. `rowlock up` calls `on_up` at its start."""

    def on_up(self) -> None:
        orders = [
            Order(1, "ada@example.com", ["boat.jpg", "oar.jpg"]),
            Order(2, "no address at all", ["lock.jpg"]),
            Order(3, "grace@example.com", ["bug.jpg", "moth.tiff"]),
        ]
        for order in orders:
            # An order that is sent twice is one job: its key is held while it is in flight.
            take_payment.using(key=f"order-{order.number}").enqueue(order=order)


url = os.environ.get("ROWLOCK_DATABASE_URL", "sqlite:///rowlock.db")
app = rowlock.App(url, state=Shop())


@app.task(queue="orders", priority=10, retry=rowlock.retry.fixed(0.2), max_attempts=5)
def take_payment(ctx: rowlock.Context, order: Order) -> None:
    """The bank is away at first, as banks are; what follows exists only if this succeeds."""
    if ctx.attempt == 1:
        raise ConnectionError("the bank does not answer")
    ctx.log(f"order {order.number} is paid")
    ctx.enqueue_on_success(send_email, to=order.email, subject=f"Order {order.number} is paid")
    for photo in order.photos:
        ctx.enqueue_on_success(make_thumbnails, photo=photo)


@app.task(queue="mail", max_attempts=3)
async def send_email(to: str, subject: str) -> None:
    """Trying again does not help against a wrong address: `Fail` ends the job, it is dead."""
    if "@" not in to:
        raise rowlock.Fail("that is no e-mail address")
    # This line carries the job's id, kind and attempt: see the JSON format of the log.
    logger.info("sent: %s", subject)


@app.task(queue="images", timeout=30)
def make_thumbnails(ctx: rowlock.Context, photo: str) -> list[str]:
    """Tell how far it is; `rowlock top` and `rowlock jobs show` see it."""
    if photo.endswith(".tiff"):
        raise rowlock.Cancel("nobody looks at those")
    made = []
    for number, width in enumerate((100, 200, 400)):
        ctx.progress(number / 3, f"{photo}: {width} pixels")
        made.append(f"{photo.removesuffix('.jpg')}-{width}.jpg")
    return made


def main() -> None:
    """Run all of it here, retries too, and say what became of the jobs."""
    app.state.on_up()
    while app.drain(["orders", "mail", "images"]) or not all(
        payment.state.is_terminal for payment in app.list(queue="orders")
    ):
        time.sleep(0.05)
    ended = Counter((job.kind, str(job.state)) for job in app.list())
    for (kind, state), count in sorted(ended.items()):
        print(f"{count} × {kind}: {state}")


if __name__ == "__main__":
    main()
