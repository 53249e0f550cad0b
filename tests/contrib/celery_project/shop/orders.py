"""Orders as canvases: priced side by side, paid, and shipped."""

import celery
from celery import chain, chord, group, shared_task
from celery.exceptions import Reject, SoftTimeLimitExceeded
from celery.result import AsyncResult
from proj.celery import note


class Unpaid(Exception):
    pass


@shared_task(bind=True, autoretry_for=(ConnectionError,), retry_backoff=True, retry_jitter=False)
def price(self, item):
    if item == "tea" and self.request.retries == 0:
        raise self.retry(exc=ConnectionError("away"), countdown=0)
    return len(item)


@shared_task
def total(prices):
    return sum(prices)


@shared_task(bind=True, soft_time_limit=60)
def pay(self, amount, limit=10):
    try:
        if amount > limit:
            raise Unpaid(amount, limit)
    except SoftTimeLimitExceeded:
        raise Reject("too slow", requeue=False) from None
    return {"amount": amount, "shop": self.request.shop}


@shared_task(bind=True)
def ship(self, receipt, parcels):
    if parcels > 1:
        raise self.replace(group(pack.s(receipt["shop"], n) for n in range(parcels)) | join.s())
    return f"{receipt['shop']}: 1 parcel"


@shared_task
def pack(shop, number):
    return f"{shop}-{number}"


@shared_task
def join(parcels):
    return ", ".join(parcels)


@shared_task
def tell(request, exc, traceback):
    note(f"errback: {exc!r}")


@shared_task
def sweep():
    return None


def order(items, parcels=1):
    """Start an order, as a view does."""
    priced = chord([price.s(item) for item in items], total.s())
    return chain(priced, pay.s(), ship.s(parcels)).on_error(tell.s()).apply_async()


def state_of(task_id):
    """Look at an order, as another view does."""
    result = AsyncResult(task_id)
    return {result.state} <= celery.states.READY_STATES, result.state
