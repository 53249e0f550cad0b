"""Canvases for Celery: run under the real one and under the shim, they must print the same.

    python -m tests.contrib.celery_canvas real|shim DATABASE_URL

Each line is a case: its name, and what it gave.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

IS_SHIM = sys.argv[1] == "shim"

if IS_SHIM:
    from rowlock.contrib.celery import (
        Celery,
        chain,
        chord,
        group,
        maybe_signature,
        signature,
        states,
        subtask,
    )
    from rowlock.contrib.celery.canvas import StampingVisitor, chunks, xmap, xstarmap
    from rowlock.contrib.celery.signals import after_task_publish, before_task_publish

    app = Celery("script", broker=sys.argv[2])
else:
    from celery import Celery, chain, chord, group, maybe_signature, signature, states, subtask
    from celery.canvas import StampingVisitor, chunks, xmap, xstarmap
    from celery.signals import after_task_publish, before_task_publish

    app = Celery("script", broker="memory://", backend="cache+memory://")
    app.conf.update(worker_enable_remote_control=False, broker_connection_retry_on_startup=False)
    app.conf.broker_transport_options = {"polling_interval": 0.02}

said: list[Any] = []
# Of a chord with a failure in its header.
KINDS = ("ChordError", "ValueError", "OutOfStock")


@app.task
def add(x, y=1):
    return x + y


@app.task
def mul(x, y):
    return x * y


@app.task
def total(numbers, extra=0):
    return sum(numbers) + extra


@app.task
def same(value=None):
    return value


@app.task
def rest(*args, **kwargs):
    return [list(args), kwargs]


@app.task(ignore_result=True)
def unkept(x):
    return x + 1


@app.task
def fails(x=0):
    raise ValueError(f"bad {x}")


@app.task
def say(value, name="say"):
    said.append([name, value])


@app.task
def old_errback(task_id):
    said.append(["old errback", isinstance(task_id, str)])


@app.task
def new_errback(request, exc, traceback, more=None):
    lines = [isinstance(request.id, str), clean(repr(exc)), more]
    said.append(["new errback", *lines])


@app.task
def quiet_errback():
    said.append(["quiet errback"])


@app.task(bind=True)
def where(self, x):
    return [self.request.delivery_info["routing_key"], x]


class OutOfStock(Exception):
    pass


@app.task
def orders(*what):
    raise OutOfStock(*what)


@app.task(bind=True)
def becomes(self, x):
    raise self.replace(add.s(x, 10))


@app.task(bind=True)
def becomes_steps(self, x):
    return self.replace(chain(becomes.s(x), mul.s(2)))


@app.task(bind=True)
def becomes_many(self, numbers):
    raise self.replace(group(add.s(n, 1) for n in numbers))


@app.task(bind=True)
def becomes_wrong(self, x=0):
    raise self.replace(chain(fails.si(x), add.s(1)))


@app.task
def starts(given, number):
    return signature(given)(number)


@app.task(bind=True)
def ids(self, _=None):
    return [self.request.id, self.request.root_id, self.request.parent_id]


@app.task(bind=True)
def stamps_of(self, _=None):
    return [sorted(self.request.stamped_headers or ()), self.request.stamps]


class ByName(StampingVisitor):
    def on_signature(self, sig, **headers):
        return {"label": sig.name}


def clean(text: str) -> str:
    # Only some of Celery's backends name the job.
    return re.sub(r"Dependency [0-9a-f-]{36} raised ", "", text)


def show(name: str, *values: Any) -> None:
    print(json.dumps([name, *values], default=str, sort_keys=True))  # noqa: T201  # compared


def case(name: str, result: Any) -> None:
    try:
        got: Any = result.get(interval=0.02, timeout=60)
    except Exception as error:  # noqa: BLE001  # printed
        got = clean(f"{type(error).__name__}: {error}")
    show(name, got)


def spoilt(name: str, result: Any, error: str) -> None:
    """A canvas with a failure in the header of a chord.

    Celery raises a `ChordError`, or the error in it, by which it sees first.
    """
    try:
        got: Any = result.get(interval=0.02, timeout=60)
    except Exception as raised:  # noqa: BLE001  # printed
        got = [type(raised).__name__ in KINDS, error in str(raised)]
    show(name, got)


def heard(name: str, number: int) -> None:
    """What callbacks have said, once they are as many as that."""
    for _ in range(1500):
        if len(said) >= number:
            break
        time.sleep(0.02)
    show(name, *sorted(said, key=repr))
    said.clear()


def until_ready(result: Any) -> None:
    for _ in range(1500):
        if result.ready():
            break
        time.sleep(0.02)


def chains() -> None:
    case("a chain", chain(add.s(1, 2), add.s(3), mul.s(10)).apply_async())
    case("by |", (add.s(1, 2) | mul.s(2) | add.s()).delay())
    case("a list", chain([add.s(1, 2), add.s(3)])())
    case("partial", chain(add.s(2), mul.s(3)).delay(5))
    case("immutable", (add.s(1, 2) | add.si(10, 10) | mul.s(2)).delay())
    case("set immutable", (add.s(1, 2) | add.s(10, 10).set(immutable=True)).delay())
    case("by name", (add.s(1, 2) | same.s()).delay())
    case("names", (add.s(1) | rest.s(named=4)).delay())
    case("rest", (add.s(1) | rest.s(7, 8, named=4)).delay())
    case("chains in a chain", chain(chain(add.s(1, 1), add.s(1)), chain(add.s(1), add.s(1)))())
    case("of one", chain(add.s(1, 1))())
    case("after a group of one", chain(group(add.s(1, 1)), add.s(2))())
    case("of one group", chain(group(add.s(1, 1), add.s(2, 2)))())
    case("with groups of none", chain(group(add.s(1, 1), add.s(2, 2)), group(), group())())
    case("unkept", (unkept.s(1) | add.s(1)).delay())
    case("a queue", (add.s(1) | where.s().set(queue="other")).delay())
    case("a failure at its beginning", (fails.s(1) | add.s(1) | add.s(1)).delay())
    case("a failure in the middle", (add.s(1) | fails.s() | add.s(1)).delay())
    case("a failure at its end", (add.s(1) | fails.s()).delay())
    result = (add.s(1, 1) | add.s(1) | add.s(1)).delay()
    case("parents", result)
    show("their results", result.parent.get(timeout=60), result.parent.parent.get(timeout=60))
    show("no more", result.parent.parent.parent, result.parent.state)


def groups() -> None:
    result = group(add.s(n, n) for n in range(4)).apply_async()
    case("a group", result)
    show("its result", result.ready(), result.successful(), result.failed(), result.waiting())
    show("counted", result.completed_count(), len(result), [each.get() for each in result])
    show("children", [each.get(timeout=60) for each in result.children], result[1].get(timeout=60))
    case("by position", group(add.s(1), add.s(2))(10))
    case("of none", group([])())
    case("a chain in it", group(add.s(1, 1) | add.s(5), add.s(2, 2)).delay())
    case("after a task", (add.s(1, 1) | group(add.s(10), add.s(20))).delay())
    case("after a chain", (add.s(1, 1) | add.s(1) | group(add.s(10), mul.s(20))).delay())
    case("a group in it", group(add.s(1, 1), group(add.s(2, 2), add.s(3, 3))).delay())
    wrong = group(add.s(1, 1), fails.s(3)).delay()
    case("a failure", wrong)
    show("its result", wrong.ready(), wrong.successful(), wrong.failed(), wrong.completed_count())
    show("not raised", str(wrong.get(timeout=60, propagate=False)))


def chords() -> None:
    result = chord([add.s(n, n) for n in range(5)], total.s()).delay()
    case("a chord", result)
    show("its parent", result.parent.get(timeout=60), result.parent.completed_count())
    case("called", chord(add.s(n, 1) for n in range(3))(total.s(extra=100)))
    case("group | task", (group(add.s(1, 1), add.s(2, 2)) | total.s()).delay())
    case("and more", (group(add.s(1, 1), add.s(2, 2)) | total.s() | mul.s(10)).delay())
    case("in a chain", chain(add.s(1, 1), group(add.s(1), add.s(2)), total.s(), add.s(1))())
    case(
        "a chain of chords",
        (group(add.s(1, 1), same.s(3)) | total.s() | group(add.s(1), add.s(2)) | total.s()).delay(),
    )
    case("into rest", (group(add.s(1, 1), same.s(3)) | rest.s(9)).delay())
    case("immutable", chord([add.s(1, 1)], add.si(5, 5)).delay())
    case("a chain in its header", chord([add.s(1, 1) | add.s(1), add.s(7, 1)], total.s())())
    case("a chain as its body", chord([add.s(1, 1), add.s(2, 2)], total.s() | add.s(1))())
    case("a group as its body", chord([add.s(1, 1), add.s(2, 2)], group(total.s(), rest.s()))())
    case("a chord in its header", chord([chord([add.s(1, 1)], total.s()), same.s(1)], total.s())())
    case("one", chord([add.s(1, 1)], total.s()).delay())
    wrong = chord([add.s(1, 1), fails.s(4)], total.s()).delay()
    spoilt("a failure in its header", wrong, "bad 4")
    until_ready(wrong)
    show("its error", clean(repr(wrong.result)))
    show("its state", wrong.state, wrong.failed(), wrong.successful(), wrong.ready())
    case("a failure in its body", chord([add.s(1, 1)], fails.s()).delay())
    after = group(add.s(1, 1), fails.s(5)) | total.s() | add.s(1)
    spoilt("and after it", after.delay(), "bad 5")


def maps() -> None:
    case("map", total.map([[1, 2], [3]]).delay())
    case("starmap", add.starmap([(1, 2), (3, 4)]).apply_async())
    case("xmap", xmap(same.s(), [1, "a"]).delay())
    case("xstarmap", xstarmap(mul.s(), [(2, 2)]).delay())
    case("chunks", add.chunks([(n, n) for n in range(5)], 2)())
    case("chunks as a group", chunks(add.s(), [(1, 1), (2, 2), (3, 3)], 2).group()())
    case("starmap in a chain", chain(add.si(1, 1), add.starmap([(1, 1), (2, 2)])).delay())
    case("starmap in a group", group(add.starmap([(1, 1), (2, 2)]), add.s(3, 3)).delay())
    case("chunks, then", (add.chunks([(1, 1), (2, 2)], 1).group() | same.s()).delay())


def links() -> None:
    case("link", add.apply_async((1, 1), link=say.s()))
    heard("link", 1)
    case("links", add.apply_async((1, 1), link=[say.s(), say.si("own"), add.s(1) | say.s("c")]))
    heard("links", 3)
    linked = add.s(2, 2)
    linked.link(say.s("method"))
    case("linked", linked.delay())
    heard("linked", 1)
    case("link_error, not needed", add.apply_async((1, 1), link_error=old_errback.s()))
    case("with no use for it", add.apply_async((1, 1), link_error=same.s("own")))
    case("link_error", fails.apply_async((1,), link_error=old_errback.s()))
    heard("link_error", 1)
    case("new", fails.apply_async((2,), link_error=[new_errback.s(), new_errback.s("more")]))
    heard("new", 2)
    case("on_error", fails.s(3).on_error(quiet_errback.si()).delay())
    heard("on_error", 1)
    steps = add.s(1, 1) | fails.si(4) | add.s(1)
    case("of a chain", steps.on_error(new_errback.s()).delay())
    heard("of a chain", 1)
    steps = add.s(1, 1) | add.s(1)
    steps.link(say.s("after"))
    case("after a chain", steps.delay())
    heard("after a chain", 1)
    both = chord([fails.s(5), add.s(1, 1)], total.s().on_error(new_errback.s()))
    spoilt("of a chord", both.delay(), "bad 5")
    heard("of a chord", 1)
    both = chord([add.s(1, 1)], total.s())
    both.link(say.s("body"))
    case("after a chord", both.delay())
    heard("after a chord", 1)


def signatures() -> None:
    case("by name", signature("script.add", args=(2, 2)).delay())
    case("by name, with options", subtask("script.add", (2,), {"y": 3}, countdown=0).delay())
    case("of an app", app.signature("script.add", kwargs={"x": 1, "y": 1}).delay())
    case("of a task", add.signature((1,), immutable=True).delay(5))
    case("again", signature(add.s(1, 2)).delay())
    one = add.s(1, y=2).set(queue="other")
    other = one.clone((), {"y": 3}, priority=1)
    show("parts", one.args, one.kwargs, one["task"], one.task, one.name, one.immutable)
    show("a clone", other.kwargs, other.options["queue"], one.options.get("priority"))
    show("equal", one == one.clone(), one == other, add.s(1) == add.si(1))
    show("immutable", add.si(1, 1).clone((5,)).args, add.si(1).immutable)
    show("maybe", maybe_signature(None), maybe_signature(one) is one)
    show("a call", add.s(1)(5), add.s(y=4)(5))
    show("shown", repr(add.s(1, y=2)))
    kinds = [add.s() | add.s(), group(add.s()) | add.s(), add.s() | group(add.s(), add.s())]
    show("kinds", *[isinstance(each, chord) for each in kinds], len((kinds[0] | add.s()).tasks))
    show("states", states.SUCCESS in states.READY_STATES)


def replacements() -> None:
    case("replaced", becomes.delay(1))
    case("in a chain", (add.s(1, 1) | becomes.s() | mul.s(2)).delay())
    case("by a chain", (becomes_steps.s(1) | mul.s(2)).delay())
    case("by a group", (becomes_many.s([1, 2]) | total.s()).delay())
    case("in a group", group(becomes.s(1), add.s(1, 1)).delay())
    case("in a header", chord([becomes.s(1), becomes_steps.s(2)], total.s()).delay())
    wrong = becomes_wrong.s(7).on_error(quiet_errback.si()) | add.s(1)
    case("by a failure", wrong.delay())
    heard("by a failure", 1)
    case("at once", becomes.apply((1,)))


def frozen() -> None:
    one = add.s(1, 1)
    known = one.freeze()
    show("its id", one.delay().id == known.id, known.get(timeout=60))
    steps = add.s(1, 1) | add.s(2) | ids.s()
    known = steps.freeze()
    last = steps.delay()
    got = last.get(timeout=60)
    show("a chain", last.id == known.id, last.parent.id == known.parent.id)
    show("ids", got == [last.id, last.parent.parent.id, last.parent.id])
    both = chord([ids.si(), ids.si()], same.s())
    known = both.freeze()
    show("a chord", both.delay().id == known.id, len(known.parent))
    show("roots", [each[2] for each in known.get(timeout=60)])


def stored() -> None:
    steps = add.s(1) | group(add.s(1), mul.s(2)) | total.s()
    steps.link(say.s("stored"))
    again = signature(json.loads(json.dumps(steps)))
    show("equal", type(again).__name__ == type(steps).__name__, again.clone().id)
    case("again", again.delay(1))
    heard("again", 1)
    case("as an argument", starts.delay(add.s(5), 1))
    case("as a result", (same.s(mul.s(3)) | starts.s(4)).delay())


def stamped() -> None:
    one = stamps_of.s()
    one.stamp(day="monday")
    case("a header", one.delay())
    steps = stamps_of.s() | group(stamps_of.s(), stamps_of.si())
    steps.stamp(ByName())
    case("by a visitor", steps.delay())


def errors() -> None:
    for name, what in (("none", ()), ("one", ("tea",)), ("two", ("tea", 2))):
        try:
            orders.delay(*what).get(timeout=60)
        except OutOfStock as error:
            show(name, list(error.args), repr(error))
    spoilt("of a header", chord([orders.s("tea"), add.s(1, 1)], total.s()).delay(), "tea")
    before = group(orders.s("tea"), add.s(1, 1)) | group(total.s(), total.s())
    spoilt("before a group", before.delay(), "tea")


def published() -> None:
    def before(sender=None, headers=None, **_):
        heard_of.append(["before", sender, "id" in headers])

    def after(sender=None, headers=None, **_):
        heard_of.append(["after", sender, "id" in headers])

    heard_of: list[Any] = []
    before_task_publish.connect(before)
    after_task_publish.connect(after)
    case("a chain", (add.s(1, 1) | mul.s(2)).delay())
    # Celery's worker publishes the second, and its last signal may come later.
    for _ in range(1500):
        if len(heard_of) == 4:
            break
        time.sleep(0.02)
    before_task_publish.disconnect(before)
    after_task_publish.disconnect(after)
    show("published", *sorted(heard_of))


def eager() -> None:
    app.conf.task_always_eager = True
    case("eager", (add.s(1, 1) | mul.s(5)).delay())
    case("eager group", group(add.s(1, 1), add.s(2, 2)).delay())
    case("eager chord", chord([add.s(1, 1), add.s(2, 2)], total.s()).delay())
    case("eager link", add.apply_async((1, 1), link=say.s("eager")))
    case("eager link_error", fails.apply_async((1,), link_error=new_errback.s()))
    case("eager map", total.map([[1, 2], [3]]).delay())
    heard("eager", 2)
    app.conf.task_always_eager = False
    case("applied", (add.s(1) | mul.s(5)).apply((4,)))
    show("applied group", group(add.s(1, 1), fails.s()).apply().failed())


def cases() -> None:
    parts = (chains, groups, chords, maps, links, signatures)
    for part in (*parts, replacements, frozen, stored, stamped, errors, published, eager):
        show(part.__name__)
        part()


def with_shim(work: Callable[[], None]) -> None:
    """A worker of rowlock's, in a thread."""
    import asyncio

    stop, begun = threading.Event(), threading.Event()

    async def serve() -> None:
        async with app, app.worker():
            begun.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    begun.wait(60)
    try:
        work()
    finally:
        stop.set()
        thread.join()
        app.close()


def with_celery(work: Callable[[], None]) -> None:
    """Celery's own worker for tests, in a thread."""
    from celery.contrib.testing.worker import start_worker

    app.conf.task_create_missing_queues = True
    app.amqp.queues.select(["celery", "other"])
    with start_worker(
        app, pool="solo", perform_ping_check=False, loglevel="CRITICAL", queues=["celery", "other"]
    ):
        work()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    with_shim(cases) if IS_SHIM else with_celery(cases)
