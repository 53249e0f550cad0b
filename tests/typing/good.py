"""What the type checkers must accept."""

from typing import assert_type

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
