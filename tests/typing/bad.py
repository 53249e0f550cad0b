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

app.limit()  # error
app.limit("stripe", rate=5)  # error
app.limit("stripe", concurrency="5")  # error
app.limit("stripe", per=5)  # error
app.limit("stripe", per=lambda: "acme")  # error
app.limit("stripe", ordered=True, on_dead="stop")  # error
app.limit("stripe", weights=["acme"])  # error
app.limit("stripe", conc=5)  # error
app.task(limit="stripe")  # error
plain.using(limit_key=["acme"])  # error
plain.using(limit_key=1.5)  # error
app.enqueue("plain", {}, limit_key=b"acme")  # error
rowlock.Limit(concurrency=1).set(concurency=5)  # error
rowlock.Throttled()  # error


@app.task
async def fetch(url: str) -> str:
    return url


@app.task
def index(pages: list[str]) -> int:
    return len(pages)


with app.workflow("crawl") as flow:
    page = flow.add(fetch.job(url="a"))
    pages = flow.map([fetch.job(url="a")])
    flow.add(index.job(pages=page.result), after=page)  # error
    flow.add(index.job(pages=pages.results_or_none), after=pages)  # error
    flow.add(fetch.job(url=page.result_or_none), after=page)  # error
    flow.add(fetch.job(url=1))  # error
    flow.add(fetch, after=page)  # error
    flow.add(fetch.job(url="a"), after=5)  # error
    flow.add(fetch.job(url="a"), after=page, when="failed")  # error
    flow.add(fetch.job(url="a"), after=page, if_dead="skip")  # error
