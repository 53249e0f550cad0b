"""What the type checkers must refuse: each line with an `error` comment, and no other."""

import rowlock

app = rowlock.App("sqlite:///typing.db")


@app.task
def plain(to: str, copies: int = 1) -> int:
    return copies


@app.task
def seeing(ctx: rowlock.Context, name: str) -> None: ...


plain.enqueue()  # error
plain.enqueue(to=1)  # error
plain.enqueue(to="x", copys=1)  # error
plain.using(priority="high").enqueue(to="x")  # error
plain.using(prio=1)  # error
plain.using(key="k").enqueue(copies=2)  # error
seeing.enqueue(name=3)  # error
app.enqueue("plain", {}, prio=1)  # error
app.task(queue=3)  # error
