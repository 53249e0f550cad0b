"""What the type checkers must accept."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, assert_type
from uuid import UUID

import rowlock

app = rowlock.App("sqlite:///typing.db")


@app.task
def plain(to: str, copies: int = 1) -> int:
    return copies


@app.task(queue="mail", retry=rowlock.retry.fixed(3))
async def soft(to: str) -> str:
    return to


@app.task
def seeing(ctx: rowlock.Context, name: str) -> None:
    ctx.enqueue_on_success(plain, to=name)


assert_type(plain.enqueue(to="a@b.c"), rowlock.Job)
assert_type(plain.using(priority=3, key="k").enqueue("a@b.c", copies=2), rowlock.Job)
assert_type(plain(to="a@b.c"), int)
seeing.enqueue(name="Ada")
seeing.using(delay=3).enqueue(name="Ada")
app.enqueue("plain", {"to": "a@b.c"}, priority=3, key="k", key_hold="kept")
app.enqueue("plain", {"to": "a@b.c"}, key="k", key_hold="until_started", if_held="replace")
app.enqueue("plain", {"to": "a@b.c"}, key="k", quiet=5, max_wait=60.0)
app.enqueue_many([plain.job(to="x"), {"kind": "soft", "payload": {"to": "y"}}])


app.schedule("s", soft.using(queue="q"), cron="@daily", payload={"to": "x"}, missed="once")
assert_type(app.schedule("t", plain, cron="0 3 * * *", payload={"to": "x"}), rowlock.Schedule)


@app.task(cron="0 3 * * *", timezone="Europe/Berlin")
def nightly() -> None: ...


async def twins() -> None:
    assert_type(await soft.aenqueue(to="a@b.c"), rowlock.Job)
    assert_type(await soft(to="a@b.c"), str)
    assert_type(await app.aget("id"), rowlock.Job | None)


stripe = app.limit("stripe", rate="100/s", per="customer", concurrency_per_key=2, weights={"a": 3})
assert_type(stripe, rowlock.Limit)
exports = rowlock.Limit(per=rowlock.TENANT, rate_per_key=rowlock.Rate(5, period=1, burst=10))
hooks = app.limit("hooks", per=lambda payload: payload["id"], ordered=True, on_dead="pause")


def account_of(payload: Mapping[str, Any]) -> UUID:
    return UUID(payload["account"])


@app.task(limit=stripe)
def charge(ctx: rowlock.Context, customer: str, cents: int = 1) -> str:
    raise rowlock.Throttled(30, reason="429")


@app.task(queue="exports", limit=rowlock.Limit(per=account_of))
async def export(account: str) -> None: ...


assert_type(charge.enqueue("acme", cents=5), rowlock.Job)
charge.using(limit_key="acme").enqueue("acme")
charge.using(limit_key=7).enqueue("acme")
app.enqueue("charge", {"customer": "acme"}, limit_key=UUID(int=7))
assert_type(charge.enqueue("acme").limit_key, str | None)
stripe.set(key="acme", concurrency=5, rate=rowlock.Rate(0.5), weight=2)
stripe.pause(key=7, seconds=timedelta(minutes=1), reason="they asked for it")


async def change() -> None:
    await stripe.aset(concurrency_per_key=3, rate_per_key="5/m")
    await hooks.aresume(key="7")


@app.task
async def fetch(url: str) -> str:
    return url


@app.task
def index(pages: list[str]) -> int:
    return len(pages)


@app.task
def report(total: int, note: str | None = None) -> None: ...


def crawl(urls: list[str], rows: list[dict[str, Any]]) -> rowlock.WorkflowState:
    with app.workflow("crawl", key="k", deadline=60) as flow:
        pages = flow.map(fetch.job(url=url) for url in urls)
        total = flow.add(index.job(pages=pages.results), after=pages)
        flow.add(report.job(total=total.result, note=pages[0].result), after=[total, pages])
        flow.add(report.job(total=0, note=pages[0].result_or_none), after=pages, when="ended")
        flow.add(report.job(total=0), after=total, when="dead")
        flow.map(fetch.job(**row) for row in rows)
    app.chain(fetch.job(url="a"), lambda page: index.job(pages=[page])).enqueue()
    app.chord([fetch.job(url="a")], lambda found: index.job(pages=found)).enqueue()
    app.enqueue_many([fetch.using(queue="q").job(**row) for row in rows])
    return flow.wait(timeout=5).state


async def acrawl(ctx: rowlock.Context) -> None:
    ctx.workflow.add(fetch.job(url="a"))
    async with app.workflow("crawl") as flow:
        flow.add(fetch.job(url="a"))
    assert_type(await flow.await_(), rowlock.WorkflowInfo)
    assert_type(await flow.acancel() + await flow.aretry(), int)
