"""Limits as users declare them: what is accepted, what a key is, and what is refused."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pydantic
import pytest

import rowlock
from rowlock import JobState, OptionInvalid
from rowlock.scheduler import declare_schedules

ID = uuid.UUID("0192F0C1-2B3C-7D4E-8F5A-6B7C8D9EAFB0")
LONG = "x" * 201
HUGE = 10**5000


@dataclasses.dataclass
class Account:
    owner: str


class Customer(pydantic.BaseModel):
    id: int
    name: str = "?"


class Order(msgspec.Struct):
    region: str


class Plan(enum.StrEnum):
    FREE = "free"


class Enqueue:
    """Each way to enqueue one job, blocking or async."""

    def __init__(self, app: rowlock.App, is_async: bool) -> None:
        self._app = app
        self._is_async = is_async

    def task(self, task: Any, **payload: Any) -> rowlock.Job:
        """By a task, or a task with options."""
        return self._run(task.aenqueue(**payload)) if self._is_async else task.enqueue(**payload)

    def named(self, kind: str, payload: dict[str, Any], **options: Any) -> rowlock.Job:
        """By the name of a kind."""
        if self._is_async:
            return self._run(self._app.aenqueue(kind, payload, **options))
        return self._app.enqueue(kind, payload, **options)

    def many(self, *items: Any) -> list[rowlock.Job]:
        """Several in one call."""
        if self._is_async:
            return list(self._run(self._app.aenqueue_many(items)))
        return list(self._app.enqueue_many(items))

    def _run(self, awaitable: Any) -> Any:
        async def run() -> Any:
            try:
                return await awaitable
            finally:
                await self._app.aclose()

        return asyncio.run(run())


@pytest.fixture(params=["blocking", "async"])
def send(request: pytest.FixtureRequest, app: rowlock.App) -> Enqueue:
    return Enqueue(app, request.param == "async")


@pytest.fixture(autouse=True)
def closed(app: rowlock.App) -> Iterator[None]:
    yield
    app.close()


def refused(call: Callable[[], object]) -> str:
    """The option that an `OptionInvalid` names."""
    with pytest.raises(OptionInvalid) as caught:
        call()
    return caught.value.option


# What a declaration refuses


RATES: list[Any] = [
    "", "fast", "100", "100/", "/s", "0/s", "-1/s", "1/w", "1/0s", "1/s/s", "١/s", "1e3/s",
    "1/" + "9" * 5000 + "s", 10, 1.5, True, ["1/s"], b"1/s", rowlock.Rate(0), rowlock.Rate(-1),
    rowlock.Rate(True), rowlock.Rate(float("nan")), rowlock.Rate(float("inf")), rowlock.Rate(1e-9),
    rowlock.Rate(1, period=0), rowlock.Rate(1, period=-1), rowlock.Rate(1, period=10**12),
    rowlock.Rate(1, burst=0),
]  # fmt: skip
MISTYPED_RATES: list[dict[str, Any]] = [
    {"starts": "5"}, {"starts": 1, "period": "s"}, {"starts": 1, "burst": 1.5},
]  # fmt: skip
WEIGHTS: list[Any] = [
    [1], "acme", {"acme": 0}, {"acme": -1}, {"acme": "3"}, {"acme": 1_001}, {None: 1}, {"": 1},
    {LONG: 1}, dict.fromkeys(map(str, range(1_001)), 1),
]  # fmt: skip
NONSENSE: list[tuple[str, dict[str, Any]]] = [
    *[("rate", {"rate": rate}) for rate in RATES],
    *[("rate", {"rate": rowlock.Rate(**given)}) for given in MISTYPED_RATES],
    *[("rate_per_key", {"per": "customer", "rate_per_key": rate}) for rate in ("x", 1, "0/s")],
    *[("concurrency", {"concurrency": number}) for number in (0, -1, 1.5, True, "5", HUGE)],
    *[
        ("concurrency_per_key", {"per": "customer", "concurrency_per_key": number})
        for number in (0, -1, 1.5, "5")
    ],
    *[("weights", {"per": "customer", "weights": weights}) for weights in WEIGHTS],
    ("concurrency_per_key", {"concurrency": 1, "concurrency_per_key": 1}),
    ("rate_per_key", {"concurrency": 1, "rate_per_key": "1/s"}),
    ("weights", {"concurrency": 1, "weights": {"acme": 3}}),
    ("concurrency_per_key", {"per": "customer", "ordered": True, "concurrency_per_key": 2}),
    ("on_dead", {"per": "customer", "on_dead": "pause"}),
    ("on_dead", {"per": "customer", "ordered": True, "on_dead": "stop"}),
    ("ordered", {"per": "customer", "ordered": "yes"}),
    ("concurrency", {}),
    *[("per", {"per": per}) for per in ("", 5, ["customer"], LONG)],
    *[("name", {"name": name, "concurrency": 1}) for name in ("", 5, LONG, "a\0b", True)],
]


def test_a_declaration_that_makes_no_sense_is_refused(app):
    """By the app and by itself, with the name of the option, and nothing is declared."""
    wanted = [option for option, _ in NONSENSE]

    def declared(rules: dict[str, Any]) -> tuple[str, str]:
        named = {"name": "x", **rules}
        return refused(lambda: rowlock.Limit(**rules)), refused(lambda: app.limit(**named))

    assert [declared(rules) for _, rules in NONSENSE] == [(option, option) for option in wanted]
    assert refused(lambda: app.limit(None, concurrency=1)) == "name"
    assert list(app.declared_limits) == []


def test_a_rate_is_a_text_or_a_record():
    """Both say the same; more than one start per microsecond is as good as none."""
    alike = {
        "100/s": rowlock.Rate(100),
        " 10 / m ": rowlock.Rate(10, period=60),
        "500/h": rowlock.Rate(500, period=timedelta(hours=1)),
        "1000/d": rowlock.Rate(1000, period=86_400),
        "0.5/s": rowlock.Rate(1, period=2),
        "3/10s": rowlock.Rate(3, period=10),
        "100/m burst 20": rowlock.Rate(100, period=60, burst=20),
        "1000000/s": rowlock.Rate(HUGE),
    }

    assert [rowlock.Limit("x", rate=text).numbers for text in alike] == [
        rowlock.Limit("x", rate=rate).numbers for rate in alike.values()
    ]


def test_a_task_takes_a_limit_and_nothing_else(app):
    """Not its name: a typing error would be a limit of its own."""

    def charge() -> None: ...

    for limit in ("stripe", 5, {"concurrency": 1}, rowlock.Limit):
        assert refused(lambda limit=limit: app.task(limit=limit)(charge)) == "limit"
    assert app.find("charge") is None


def test_per_names_a_parameter_of_each_task(app):
    """Not one that it lacks, not its context, not its further fields."""

    def charge(ctx: rowlock.Context, customer: str, **fields: str) -> None: ...

    def problem(per: str) -> str:
        with pytest.raises(OptionInvalid) as caught:
            app.task(limit=rowlock.Limit(per=per))(charge)
        return caught.value.problem

    told = "task 'charge' has no parameter {}; it has: customer"
    assert [problem(per) for per in ("customr", "ctx", "fields")] == [
        told.format(repr(per)) for per in ("customr", "ctx", "fields")
    ]
    assert (app.find("charge"), list(app.declared_limits)) == (None, [])


def test_types_may_be_defined_below_a_limited_task(app):
    """Hints are resolved when the first job is enqueued."""

    @app.task(limit=rowlock.Limit(per="customer"))
    def charge(customer: str, where: Below) -> None: ...

    global Below  # noqa: PLW0603  # as a module has it
    Below = Account

    assert charge.enqueue("acme", Account("a")).limit_key == "acme"


def test_two_limits_of_one_name_must_agree(app):
    """The same numbers twice are one limit; others need another name."""
    app.limit("stripe", rate="100/s", per="customer")
    again = app.limit("stripe", rate="100/s", per="customer")
    different = [
        {"rate": "99/s", "per": "customer"},
        {"rate": "100/s", "per": "account"},
        {"rate": "100/s", "per": lambda payload: payload["customer"]},
        {"rate": "100/s"},
    ]

    assert [refused(lambda rules=rules: app.limit("stripe", **rules)) for rules in different] == [
        "limit"
    ] * 4
    assert [limit.numbers for limit in app.declared_limits] == [again.numbers]


def test_a_limit_without_a_name_is_that_of_one_task(app):
    """It has the task's name; a second task can't have it."""
    own = rowlock.Limit(concurrency=1)

    @app.task(limit=own)
    def first() -> None: ...

    def second() -> None: ...

    assert first.enqueue().limit == "first"
    assert refused(lambda: app.task(limit=own)(second)) == "limit"
    assert app.find("second") is None


def test_an_order_has_one_queue_and_no_priorities(app, send):
    """Neither of tasks nor of jobs: another place in the line would be another order."""
    hooks = app.limit("hooks", per="account", ordered=True, on_dead="pause")

    @app.task(limit=hooks, queue="hooks")
    def deliver(account: int) -> None: ...

    def other(account: int) -> None: ...

    twin = rowlock.Limit("hooks", per="account", ordered=True, on_dead="pause")
    calls: list[tuple[str, Callable[[], object]]] = [
        ("priority", lambda: app.task(limit=hooks, queue="hooks", priority=1)(other)),
        ("queue", lambda: app.task(limit=hooks)(other)),
        ("limit", lambda: app.task(limit=twin)(other)),
        ("priority", lambda: send.task(deliver.using(priority=1), account=7)),
        ("queue", lambda: send.task(deliver.using(queue="default"), account=7)),
        ("priority", lambda: send.named("deliver", {"account": 7}, priority=-1)),
        ("queue", lambda: send.many({"kind": "deliver", "payload": {"account": 7}, "queue": "q"})),
    ]

    assert [refused(call) for _, call in calls] == [option for option, _ in calls]
    assert list(app.list()) == []
    assert send.task(deliver, account=7).limit_key == "7"


# What a key is


KEYS: list[tuple[Any, Any, str]] = [
    (str, "acme", "acme"),
    (str, "1", "1"),
    (str, " ÄÖÜ 🚂 ", " ÄÖÜ 🚂 "),
    (int, 1, "1"),
    (float, 1, "1"),
    (float, 1.0, "1"),
    (float, -0.0, "0"),
    (float, 1.5, "1.5"),
    (int, 10**22, "10000000000000000000000"),
    (float, 1e22, "10000000000000000000000"),
    (uuid.UUID, ID, str(ID)),
    (Plan, Plan.FREE, "free"),
    (str | None, "acme", "acme"),
    (Any, 7, "7"),
]


def test_a_key_has_one_text(app, send):
    """However a number or a UUID is written: by the task, by name, or given by hand."""
    for number, (hint, value, key) in enumerate(KEYS):

        def charge(customer) -> None: ...

        charge.__annotations__["customer"] = hint
        kind = f"charge-{number}"
        task = app.task(name=kind, limit=rowlock.Limit("stripe", per="customer"))(charge)
        jobs = [
            send.task(task, customer=value),
            send.named(kind, {"customer": value}),
            send.task(task.using(limit_key=value), customer=value),
        ]

        assert {(job.limit, job.limit_key) for job in jobs} == {("stripe", key)}


def test_a_uuid_sent_as_text_is_the_same_key(app, send):
    """In whatever case and form it was written; a parameter that is a text stays as it is."""

    @app.task(limit=rowlock.Limit(per="customer"))
    def charge(customer: uuid.UUID) -> None: ...

    @app.task(limit=rowlock.Limit(per="customer"))
    def greet(customer: str) -> None: ...

    forms = [str(ID), str(ID).upper(), ID.hex]

    assert {send.named("charge", {"customer": form}).limit_key for form in forms} == {str(ID)}
    assert {send.named("greet", {"customer": form}).limit_key for form in forms} == set(forms)


NO_KEYS: list[Any] = [None, True, [], ["acme"], {"name": "acme"}, "", LONG]


def test_what_is_no_key_is_refused(app, send):
    """Where it comes from the payload, from a function, and by hand; nothing is written."""
    returned: list[Any] = []

    @app.task(limit=rowlock.Limit("one", per="customer"))
    def charge(customer: Any) -> None: ...

    @app.task(limit=rowlock.Limit("two", per=lambda payload: returned[-1]))
    def pay(customer: str) -> None: ...

    def calls(value: Any) -> Iterator[Callable[[], object]]:
        acme = {"customer": "acme"}
        if value in NO_KEYS:
            yield lambda: send.task(charge, customer=value)
            yield lambda: send.named("charge", {"customer": value})
        if value is not None:
            yield lambda: send.task(charge.using(limit_key=value), customer="acme")
            yield lambda: send.named("charge", acme, limit_key=value)
        yield lambda: send.task(pay, customer="acme")
        yield lambda: send.many({"kind": "charge", "payload": acme}, pay.job("acme"))

    for value in (*NO_KEYS, HUGE, -HUGE, float("nan"), float("inf"), "a\0b", b"acme", object()):
        returned.append(value)
        assert {refused(call) for call in calls(value)} == {"limit_key"}

    assert list(app.list()) == []


def test_the_error_says_whose_value_is_no_key(app):
    """The parameter, or the function, and what to do."""

    @app.task(limit=rowlock.Limit("one", per="customer"))
    def charge(customer: str | None) -> None: ...

    with pytest.raises(OptionInvalid) as caught:
        charge.enqueue(None)

    assert str(caught.value) == (
        "limit_key: its 'customer' must be a text, a number or a UUID, not NoneType, "
        "or set limit_key="
    )


def test_a_default_is_a_key_too(app, send):
    """It is not written to the payload, and it is the value all the same."""

    @app.task(limit=rowlock.Limit(per="region"))
    def report(region: str = "north", id: uuid.UUID = ID) -> None: ...

    @app.task(limit=rowlock.Limit(per=lambda payload: payload["region"] + payload["id"][:4]))
    def count(region: str = "north", id: uuid.UUID = ID) -> None: ...

    jobs = [
        send.task(report),
        send.named("report", {"region": "south"}),
        send.task(count),
        send.named("count", {"region": "south"}),
    ]

    assert [job.limit_key for job in jobs] == ["north", "south", "north0192", "south0192"]
    assert [job.payload for job in jobs[::2]] == [{}, {}]


def test_a_function_finds_keys_in_records(app, send):
    """It gets the payload as JSON has it, whatever the parameters are."""

    @app.task(limit=rowlock.Limit(per=lambda payload: payload["to"]["owner"]))
    def deliver(ctx: rowlock.Context, to: Account) -> None: ...

    @app.task(limit=rowlock.Limit(per=lambda payload: payload["of"]["id"]))
    def charge(of: Customer) -> None: ...

    @app.task(limit=rowlock.Limit(per=lambda payload: payload["order"]["region"]))
    async def ship(order: Order) -> None: ...

    jobs = [
        send.task(deliver, to=Account("ada")),
        send.task(charge, of=Customer(id=7)),
        send.named("charge", {"of": {"id": 8}}),
        send.task(ship, order=Order("north")),
    ]

    assert [job.limit_key for job in jobs] == ["ada", "7", "8", "north"]


def test_records_themselves_are_no_keys(app, send):
    """A dataclass, a model and a struct have no text of their own."""
    app.task(limit=rowlock.Limit(per="to"), name="a")(lambda to: None)

    @app.task(limit=rowlock.Limit(per="to"))
    def deliver(to: Account) -> None: ...

    @app.task(limit=rowlock.Limit(per="of"))
    def charge(of: Customer) -> None: ...

    @app.task(limit=rowlock.Limit(per="order"))
    def ship(order: Order) -> None: ...

    calls: list[Callable[[], object]] = [
        lambda: send.task(deliver, to=Account("ada")),
        lambda: send.task(charge, of=Customer(id=7)),
        lambda: send.task(ship, order=Order("north")),
    ]

    assert [refused(call) for call in calls] == ["limit_key"] * 3
    assert list(app.list()) == []


def test_what_a_function_raises_the_enqueue_raises(app, send):
    """No job is lost without a word, and none is written."""

    def per(payload: Any) -> str:
        if payload["customer"] == "bad":
            raise ZeroDivisionError("by a bad customer")
        return "fine"

    @app.task(limit=rowlock.Limit(per=per))
    def charge(customer: str) -> None: ...

    with pytest.raises(ZeroDivisionError, match="by a bad customer"):
        send.task(charge, customer="bad")
    with pytest.raises(KeyError):
        send.task(app.task(limit=rowlock.Limit(per=lambda payload: payload["nope"]))(named))
    with pytest.raises(ZeroDivisionError):
        send.many(charge.job("good"), {"kind": "charge", "payload": {"customer": "bad"}})

    assert list(app.list()) == []


def named() -> None: ...


def test_a_function_is_asked_once_per_job(app):
    """Not a second time for the first one."""
    asked: list[str] = []

    def per(payload: Any) -> str:
        asked.append(payload["customer"])
        return "one"

    @app.task(limit=rowlock.Limit(per=per))
    def charge(customer: str) -> None: ...

    charge.enqueue("a")
    charge.using(delay=1).enqueue("b")
    app.enqueue("charge", {"customer": "c"})
    app.enqueue_many([charge.job("d"), {"kind": "charge", "payload": {"customer": "e"}}])

    assert asked == ["a", "b", "c", "d", "e"]


def test_the_tenant_is_a_key(app, send):
    """Jobs without one have a key of their own, together; another can be given by hand."""

    @app.task(limit=rowlock.Limit("exports", per=rowlock.TENANT, weights={"acme": 3}))
    def export() -> None: ...

    jobs = [
        send.task(export.using(tenant="acme")),
        send.named("export", {}, tenant="bolt"),
        send.task(export),
        send.task(export.using(tenant="acme", limit_key=7)),
    ]

    assert [job.limit_key for job in jobs] == ["acme", "bolt", "", "7"]


def test_a_key_by_hand_counts_for_every_way_to_enqueue(app, send):
    """By a task, by name, among many, and on success of another job."""

    @app.task(limit=rowlock.Limit("stripe", per="customer"))
    def charge(customer: str) -> None: ...

    @app.task
    def order(ctx: rowlock.Context) -> None:
        ctx.enqueue_on_success(charge.using(limit_key="follows"), customer="acme")
        ctx.enqueue_on_success(charge, customer="acme")

    jobs = [
        send.task(charge.using(limit_key="by hand"), customer="acme"),
        send.named("charge", {"customer": "acme"}, limit_key="by name"),
        *send.many(
            charge.using(limit_key="of many").job("acme"),
            {"kind": "charge", "payload": {"customer": "acme"}, "limit_key": ID},
            {"kind": "charge", "payload": {"customer": "acme"}, "limit_key": None},
        ),
    ]
    send.task(order)
    app.drain(limit=6)
    followed = {job.limit_key for job in app.list(kind="charge")} - {job.limit_key for job in jobs}

    assert [job.limit_key for job in jobs] == ["by hand", "by name", "of many", str(ID), "acme"]
    assert followed == {"follows"}


def test_a_key_needs_a_limit_that_has_keys(app, send):
    """Neither a task without one, nor a kind that is unknown here, nor a limit without `per`."""
    total = app.limit("total", concurrency=1)

    @app.task
    def free() -> None: ...

    @app.task(limit=total)
    def bound() -> None: ...

    calls: list[Callable[[], object]] = [
        lambda: send.task(free.using(limit_key="a")),
        lambda: send.named("free", {}, limit_key="a"),
        lambda: send.named("elsewhere", {}, limit_key="a"),
        lambda: send.task(bound.using(limit_key="a")),
        lambda: send.many({"kind": "bound", "limit_key": "a"}),
    ]

    assert [refused(call) for call in calls] == ["limit_key"] * 5
    assert list(app.list()) == []
    assert send.task(bound).limit_key == ""


# Collections, and what is set at run time


def test_a_collection_of_tasks_brings_its_limits(app, send):
    """They belong to the app that includes it; one that disagrees is refused there."""
    tasks = rowlock.Tasks()
    stripe = rowlock.Limit("stripe", per="customer", concurrency_per_key=1)

    @tasks.task(limit=stripe)
    def charge(customer: str) -> None: ...

    @tasks.task(limit=stripe)
    def refund(customer: str) -> None: ...

    assert refused(lambda: stripe.set(concurrency=5)) == "limit"
    assert refused(stripe.pause) == "limit"
    assert refused(lambda: asyncio.run(stripe.aresume())) == "limit"
    app.include(tasks)
    stripe.set(key="acme", concurrency=2)
    jobs = [send.task(task, customer="acme") for task in (charge, refund, charge)]
    seen: list[str] = []
    for task in (charge, refund):
        task.function = lambda customer, name=task.name: seen.append(name)
    other = rowlock.Tasks()
    other.task(limit=rowlock.Limit("stripe", concurrency=7))(named)

    assert {(job.limit, job.limit_key) for job in jobs} == {("stripe", "acme")}
    assert (app.drain(), sorted(seen)) == (3, ["charge", "charge", "refund"])
    assert refused(lambda: app.include(other)) == "limit"


@pytest.mark.parametrize(
    ("option", "numbers"),
    [
        ("concurrency", {}),
        ("concurrency", {"concurrency": 0}),
        ("concurrency", {"key": "acme"}),
        ("rate", {"rate": "fast"}),
        ("weight", {"weight": 3}),
        ("weight", {"key": "acme", "weight": 0}),
        ("key", {"key": True, "concurrency": 1}),
        ("key", {"key": LONG, "concurrency": 1}),
        ("key", {"key": "acme", "concurrency_per_key": 1}),
        ("key", {"key": "acme", "rate_per_key": "1/s"}),
    ],
)
def test_what_can_not_be_set_is_refused(app, option, numbers):
    """Blocking and async; the limit stays as it was."""
    stripe = app.limit("stripe", per="customer", concurrency_per_key=1)

    async def aset() -> None:
        await stripe.aset(**numbers)

    assert refused(lambda: stripe.set(**numbers)) == option
    assert refused(lambda: asyncio.run(aset())) == option


def test_a_limit_without_keys_has_no_numbers_of_keys(app):
    """Nor can one of its keys be paused."""
    total = app.limit("total", concurrency=1)

    assert refused(lambda: total.set(concurrency_per_key=3)) == "per"
    assert refused(lambda: total.set(rate_per_key="1/s")) == "per"
    assert refused(lambda: total.set(key="acme", concurrency=3)) == "key"
    assert refused(lambda: total.pause(key="acme")) == "key"


# Runs


@pytest.fixture(params=["blocking", "async"])
def drain(request: pytest.FixtureRequest, app: rowlock.App) -> Callable[[], int]:
    async def adrain() -> int:
        try:
            return await app.adrain()
        finally:
            await app.aclose()

    return app.drain if request.param == "blocking" else lambda: asyncio.run(adrain())


def test_a_drain_obeys_limits(app, clock, drain):
    """A rate opens when the clock has moved."""
    seen: list[int] = []

    @app.task(limit=rowlock.Limit(rate=rowlock.Rate(1, period=10, burst=2)))
    def call(number: int) -> None:
        seen.append(number)

    app.enqueue_many([call.job(number) for number in range(4)])

    runs = [drain(), drain()]
    clock.advance(10)
    runs.append(drain())
    assert (runs, seen) == ([2, 0, 1], [0, 1, 2])
    assert [job.state for job in app.list(kind="call", state="ready")] == [JobState.READY]


def test_a_drain_finds_the_one_key_that_is_open(app, clock, drain):
    """Among more keys than a claim looks at; and ends, though one can't give its job yet."""
    seen: list[str] = []
    limit = app.limit("hooks", per="account", ordered=True)

    @app.task(limit=limit)
    def deliver(account: str) -> None:
        seen.append(account)

    for number in range(30):
        limit.pause(key=f"closed-{number}")
        deliver.enqueue(f"closed-{number}")
    deliver.using(delay=60).enqueue("waits")
    deliver.enqueue("waits")
    deliver.enqueue("zeta")

    assert (app.drain(limit=1), seen) == (1, ["zeta"])
    deliver.enqueue("beta")
    assert (drain(), seen) == (1, ["zeta", "beta"])
    assert drain() == 0
    clock.advance(60)
    assert (drain(), seen) == (2, ["zeta", "beta", "waits", "waits"])


def test_a_drain_runs_what_was_sent_by_name(app, clock, drain):
    """It is sent to its limit first, and runs all the same, as the limit says."""
    seen: list[str] = []
    with rowlock.App(app.url, clock=clock) as elsewhere:
        for customer in ("acme", "acme", "bolt"):
            elsewhere.enqueue("charge", {"customer": customer})

    @app.task(limit=rowlock.Limit("stripe", per="customer", rate_per_key="1/h"))
    def charge(customer: str) -> None:
        seen.append(customer)

    assert (drain(), sorted(seen)) == (2, ["acme", "bolt"])
    (left,) = app.list(state="ready")
    assert (left.limit, left.limit_key, left.attempt) == ("stripe", "acme", 0)


@pytest.mark.parametrize("payload", [{"customer": None}, {"customer": LONG}, {"customer": "bad"}])
def test_a_job_sent_by_name_without_a_key_is_limited_all_the_same(app, clock, caplog, payload):
    """In total, with all others that have none; nothing that its function raises stops a claim."""
    with rowlock.App(app.url, clock=clock) as elsewhere:
        for _ in range(2):
            elsewhere.enqueue("charge", payload)

    def per(payload: Any) -> Any:
        return payload["customer"] if payload["customer"] != "bad" else 1 // 0

    @app.task(limit=rowlock.Limit("stripe", rate="1/h", per=per))
    def charge(customer: str | None) -> None: ...

    assert app.drain() == 1
    (left,) = app.list(state="ready")
    assert (left.limit, left.limit_key) == ("stripe", "")
    assert "has no key at limit 'stripe'" in caplog.text


def test_throttled_stops_its_key_at_once(app, clock, drain):
    """Also for jobs that were leased with it; no attempt is used, and other keys go on."""
    seen: list[str] = []

    @app.task(limit=rowlock.Limit("stripe", per="customer"))
    def charge(customer: str) -> None:
        seen.append(customer)
        if len(seen) == 1:
            raise rowlock.Throttled(30, reason="429")

    app.enqueue_many([charge.job(customer) for customer in ("acme", "acme", "acme", "bolt")])

    assert (drain(), seen) == (2, ["acme", "bolt"])
    assert {(job.state, job.attempt) for job in app.list(state="ready")} == {(JobState.READY, 0)}
    clock.advance(30)
    assert (drain(), seen) == (3, ["acme", "bolt", "acme", "acme", "acme"])


def test_throttled_without_a_limit_is_a_release(app, clock, drain):
    """Only that job waits."""
    seen: list[str] = []

    @app.task
    def charge(customer: str) -> None:
        seen.append(customer)
        if len(seen) == 1:
            raise rowlock.Throttled(timedelta(seconds=30))

    app.enqueue_many([charge.job(customer) for customer in ("acme", "bolt")])

    assert (drain(), seen) == (2, ["acme", "bolt"])
    clock.advance(30)
    assert (drain(), seen) == (1, ["acme", "bolt", "acme"])


def test_a_schedule_enqueues_under_the_limit(app, clock, drain):
    """With the key that the defaults say, or the payload of the schedule."""
    seen: list[str] = []

    @app.task(cron="0 * * * *", limit=rowlock.Limit("reports", per="region"))
    def report(region: str = "north") -> None:
        seen.append(region)

    app.schedule("south", report, cron="0 * * * *", payload={"region": "south"})
    declare_schedules(app.store, app)
    clock.advance(3600)
    app.store.fire_due()

    assert (drain(), sorted(seen)) == (2, ["north", "south"])
    assert {(job.limit, job.limit_key) for job in app.list()} == {
        ("reports", "north"), ("reports", "south"),
    }  # fmt: skip
