"""A shop that is busy for some minutes: what the screenshots of the dashboard show."""

from __future__ import annotations

import asyncio
import math
import random
import time

import rowlock

app = rowlock.App("sqlite:///shop.db")


@app.task(queue="mail", max_attempts=5)
async def send_email(to: str, subject: str) -> None:
    await asyncio.sleep(random.uniform(0.01, 0.12))


@app.task(queue="images", timeout=30)
def make_thumbnails(ctx: rowlock.Context, photo: str) -> list[str]:
    for number, width in enumerate((100, 200, 400)):
        ctx.progress(number / 3, f"{photo}: {width} pixels")
        time.sleep(random.uniform(0.05, 0.25))
    return [f"{photo}-{width}" for width in (100, 200, 400)]


@app.task(queue="orders", priority=10, max_attempts=3, retry=rowlock.retry.fixed(2))
def take_payment(ctx: rowlock.Context, order: int, amount_cents: int, card: str) -> str:
    time.sleep(random.uniform(0.02, 0.2))
    if card == "unknown" or (ctx.attempt == 1 and random.random() < 0.15):
        raise TimeoutError("the bank did not answer within 10 s")
    ctx.enqueue_on_success(send_email, to=f"customer-{order}@example.com", subject="Paid")
    return "paid"


@app.task(queue="reports", cron="*/15 * * * *")
def sales_report() -> str:
    time.sleep(2)
    return "42 orders"


@app.task(queue="reports", timeout=600)
def export_orders(ctx: rowlock.Context, year: int) -> int:
    for month in range(12):
        ctx.progress(month / 12, f"{year}-{month + 1:02}")
        time.sleep(8)
    return 12


def keep_busy(seconds: float) -> None:
    """Enqueue jobs as customers would: more at some times, fewer at others."""
    random.seed(7)
    begin = time.monotonic()
    order = 6_600
    while (passed := time.monotonic() - begin) < seconds:
        # It takes a minute and a half, and as long as it runs there is no second one.
        export_orders.using(key="export", tags=["accounting"]).enqueue(year=2025)
        wave = 1 + 0.45 * math.sin(passed / 35) + 0.25 * math.sin(passed / 11)
        jobs: list[rowlock.NewJob] = []
        for _ in range(max(1, round(6 * wave * random.uniform(0.6, 1.4)))):
            order += 1
            payment = take_payment.using(key=f"order-{order}", tags=["shop"])
            jobs.append(payment.job(order=order, amount_cents=order % 90 * 100 + 99, card="visa"))
            jobs.append(make_thumbnails.job(photo=f"photo-{order}.jpg"))
        jobs.append(
            send_email.using(delay=3_600).job(to=f"customer-{order}@example.com", subject="And?")
        )
        app.enqueue_many(jobs)
        time.sleep(0.5)


def be_given_up() -> rowlock.Job:
    """A payment that fails at every attempt."""
    return take_payment.using(key="order-7001", tags=["shop", "vip"]).enqueue(
        order=7_001, amount_cents=12_900, card="unknown"
    )
