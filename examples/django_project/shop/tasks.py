"""What the shop does in the background: Django's tasks, and two of rowlock's own."""

import os

from django.db import connection

import rowlock
from rowlock.contrib.django import app, policy
from shop.models import Purchase

try:
    from django.tasks import task
except ModuleNotFoundError:  # Django 5.2
    from django_tasks import task


# The mail server takes five connections, of all workers together.
mail_server = rowlock.Limit("mail-server", concurrency=5)


@task(queue_name="mail")
@policy(limit=mail_server)
def confirm(number: int) -> dict:
    """Confirm a purchase; the result says which process did it."""
    Purchase.objects.filter(number=number).update(is_confirmed=True, confirmed_by="confirm")
    return {"number": number, "process": os.getpid()}


@task(queue_name="mail")
@policy(limit=mail_server)
async def confirm_later(number: int) -> int:
    """As `confirm`, in a coroutine."""
    purchase = await Purchase.objects.aget(number=number)
    purchase.is_confirmed = True
    purchase.confirmed_by = "confirm_later"
    await purchase.asave()
    return number


@task(takes_context=True)
@policy(max_attempts=2, retry=rowlock.retry.fixed(0))
def reluctant(context, wanted: int) -> str:
    """Fails until the attempt that is wanted."""
    if context.attempt < wanted:
        raise ValueError(f"attempt {context.attempt} is not the one")
    return f"attempt {context.attempt} of {context.task_result.id}"


@task
def lose_connection() -> None:
    """Leave a connection behind that is dead, as a server that restarts does."""
    connection.ensure_connection()
    connection.connection.close()


@app.task(max_attempts=1)
def count(ctx: rowlock.Context, least: int = 0) -> int:
    """A task of rowlock's own: how many purchases there are."""
    ctx.log("counting")
    return Purchase.objects.filter(number__gte=least).count()


@app.task
async def greet(name: str) -> str:
    """A coroutine of rowlock's own."""
    return f"Hello {name}"
