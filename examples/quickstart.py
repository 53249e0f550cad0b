"""A small shop: e-mails, thumbnails, and a report that fails at first.

Run it with `make up`, or: rowlock --app examples.quickstart:app up
"""

from __future__ import annotations

import random

import rowlock


class Shop:
    """The app's own state; `rowlock up` calls `on_up` once at its start."""

    def on_up(self) -> None:
        app.enqueue_many(
            [send_email.job(to=f"customer-{n}@example.com", subject="Welcome") for n in range(20)]
            + [make_thumbnail.using(priority=5).job(path=f"photo-{n}.jpg") for n in range(10)]
            + [nightly_report.using(key="report").job(day="today")]
        )


app = rowlock.App(state=Shop())


@app.task(queue="mail", max_attempts=5)
async def send_email(to: str, subject: str) -> None:
    """Pretend to send an e-mail."""


@app.task(queue="images")
def make_thumbnail(ctx: rowlock.Context, path: str, width: int = 200) -> dict[str, int]:
    """Pretend to shrink a picture, and tell the customer once it is done."""
    ctx.progress(0.5, f"{path} to {width} px")
    ctx.enqueue_on_success(send_email, to="owner@example.com", subject=f"{path} is ready")
    return {"width": width}


@app.task(retry=rowlock.retry.fixed(1), max_attempts=3)
def nightly_report(ctx: rowlock.Context, day: str) -> str:
    """Fail the first time, as reports do."""
    if ctx.attempt == 1:
        raise RuntimeError("the warehouse is still closed")
    return f"{random.randint(10, 99)} orders {day}"
