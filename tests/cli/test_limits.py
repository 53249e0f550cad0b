"""`rowlock limits`, and what other commands say of limits."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from rowlock.cli import findings
from rowlock.job import Count, WorkerInfo, WorkerVitals
from rowlock.limit_info import LimitInfo, LimitKeyInfo, LimitRules
from rowlock.limits import Limit, chosen_numbers
from rowlock.store.ops.health import DueLane
from rowlock.store.ops.limit_info import declared_text
from tests.cli.conftest import HOSTILE, on_terminal
from tests.support.limits import declare, put


@pytest.fixture
def stripe(app):
    """A limit with two keys, of which one is full."""
    declare(app.store, "stripe", concurrency=50, rate="100/s", per="customer", rate_per_key="5/s")
    app.store.set_limit("stripe", "acme", chosen_numbers(key="acme", concurrency=1))
    put(app.store, "stripe", "bolt")
    jobs = put(app.store, "stripe", "acme", jobs=3)
    app.store.claim(worker="w", queues=["default"], limit=1, lease=3600)
    return jobs


def rows(text: str) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in text.splitlines()]


def test_limits_are_listed(app, run, stripe):
    """What runs of how many, what waits, and which are paused, full or unknown."""
    declare(app.store, "pool", concurrency=1)
    put(app.store, "pool", jobs=2, queue="other")
    app.store.claim(worker="w", queues=["other"], lease=3600)
    declare(app.store, "shut", ordered=True)
    app.store.pause_limit("shut")
    put(app.store, "ghost")
    done = run("limits", "list")
    head, *lines = rows(done.stdout)

    assert head[:5] == ["LIMIT", "STATUS", "RUNNING", "WAITING", "OLDEST"]
    assert [line[:4] for line in lines] == [
        ["ghost", "not", "declared", "0"],
        ["pool", "full", "1/1", "1"],
        ["shut", "paused", "0", "0"],
        ["stripe", "open", "1/50", "3"],
    ]
    assert lines[3][-4:] == ["100/s", "customer", "5/s", "0"]


def test_no_limits_are_listed_as_none(run):
    """It says where they come from."""
    assert run("limits", "list").stdout.startswith("no limits yet: a worker writes those of")


def test_limits_are_listed_as_json(run, stripe):
    """Every field of `rowlock.LimitInfo`."""
    (found,) = json.loads(run("limits", "list", "--json").stdout)

    assert list(found) == list(LimitInfo.__struct_fields__)
    assert (found["name"], found["running"]) == ("stripe", {"value": 1, "exact": True})
    assert found["declared_at"].endswith("Z")


def test_a_limit_is_shown_with_its_keys(app, run, stripe):
    """The busiest first; what was set stands beside what was declared."""
    run("limits", "set", "stripe", "--concurrency", "20")
    run("limits", "pause", "stripe", "--key", "cato", "--seconds", "1h", "--reason", "429")
    done = run("limits", "show", "stripe")
    about, keys = done.stdout.split("\n\n")

    assert done.exit_code == 0
    fields = dict(line.split(maxsplit=1) for line in about.splitlines() if "  " in line)
    assert (fields["limit"], fields["running"]) == ("stripe", "1/20")
    assert fields["concurrency"] == "20 (set; declared: 50)"
    assert [line[0] for line in rows(keys)] == ["KEY", "acme", "bolt", "cato"]
    assert rows(keys)[3][-1] == "429"
    assert "paused for 60m" in keys


def test_a_full_key_is_shown(run, stripe):
    """With its own numbers."""
    _, keys = run("limits", "show", "stripe").stdout.split("\n\n")

    assert rows(keys)[1] == ["acme", "full", "1/1", "2", "5/s", "1", "own", "numbers"]


def test_keys_are_shown_in_pages(run, stripe):
    """By name, with the place where the next page begins."""
    busiest = run("limits", "show", "stripe", "--limit", "1")
    first = run("limits", "show", "stripe", "--limit", "1", "--after", "")
    second = run("limits", "show", "stripe", "--limit", "1", "--after", "acme")

    assert busiest.stderr == "there are more keys: see all in order with --after ''\n"
    assert first.stderr == "more: --after acme\n"
    assert (second.stderr, rows(second.stdout)[-1][0]) == ("", "bolt")


def test_a_limit_is_shown_as_json(run, stripe):
    """With the fields of its keys."""
    found = json.loads(run("limits", "show", "stripe", "--json").stdout)

    assert [key["key"] for key in found["keys"]] == ["acme", "bolt"]
    assert list(found["keys"][0]) == list(LimitKeyInfo.__struct_fields__)
    assert (found["is_cut"], found["next"]) == (False, None)
    assert found["waiting"] == {"value": 3, "exact": True}


def test_a_limit_that_nobody_declared_is_shown(app, run):
    """Its jobs wait."""
    put(app.store, "ghost", jobs=2)
    done = run("limits", "show", "ghost")

    assert ["status", "not", "declared"] in rows(done.stdout)
    assert json.loads(run("limits", "show", "ghost", "--json").stdout)["keys"] == []


def test_numbers_are_set_and_unset(app, run, stripe):
    """Of the limit and of a key."""
    told = [
        run("limits", "set", "stripe", "--concurrency", "2", "--rate", "10/m").stdout,
        run("limits", "set", "stripe", "--rate-per-key", "1/s").stdout,
        run("limits", "set", "stripe", "--key", "bolt", "--weight", "3").stdout,
    ]
    (limit,), keys = app.limits(), app.limit_keys("stripe", after="").keys

    assert told == ["set stripe\n", "set stripe\n", "set stripe/bolt\n"]
    assert (limit.rules.concurrency, limit.rules.rate) == (2, "10/m")
    assert [(key.key, key.weight, key.rate) for key in keys] == [
        ("acme", 1, "1/s"),
        ("bolt", 3, "1/s"),
    ]
    assert run("limits", "unset", "stripe").stdout == "unset stripe\n"
    assert run("limits", "unset", "stripe", "--key", "bolt").stdout == "unset stripe/bolt\n"
    (limit,), keys = app.limits(), app.limit_keys("stripe", after="").keys
    assert (limit.rules.concurrency, limit.chosen) == (50, None)
    assert [key.weight for key in keys] == [1, 1]


def test_limits_are_paused_and_resumed(app, run, stripe):
    """As a whole, and a key alone."""
    told = [
        run("limits", "pause", "stripe", "--reason", "maintenance").stdout,
        run("limits", "pause", "stripe", "--key", "acme", "--seconds", "5m").stdout,
    ]
    (paused,) = app.limits()

    assert told == ["paused stripe\n", "paused stripe/acme\n"]
    assert (paused.is_paused, paused.paused_reason) == (True, "maintenance")
    assert ["reason", "maintenance"] in rows(run("limits", "show", "stripe").stdout)
    assert run("limits", "resume", "stripe").stdout == "resumed stripe\n"
    assert run("limits", "resume", "stripe", "--key", "acme").stdout == "resumed stripe/acme\n"
    (resumed,) = app.limits()
    assert (resumed.is_paused, resumed.paused_keys.value) == (False, 0)


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["show", "nope"], 3, "there is no limit 'nope'"),
        (["pause", "nope"], 3, "there is no limit 'nope'"),
        (["set", "stripe"], 4, "give at least one number"),
        (["set", "stripe", "--rate", "5"], 4, "must be a rate such as"),
        (["set", "stripe", "--concurrency", "0"], 4, "concurrency"),
        (["set", "stripe", "--weight", "3"], 4, "needs key="),
        (["set", "stripe", "--key", "a", "--rate-per-key", "1/s"], 4, "for a key"),
        (["pause", "stripe", "--key", ""], 4, "key"),
    ],
)
def test_mistakes_are_told_in_one_line(run, stripe, words, code, problem):
    """And change nothing."""
    before = run("limits", "show", "stripe", "--json").stdout
    done = run("limits", *words)

    assert (done.exit_code, done.stderr.count("\n")) == (code, 1)
    assert problem in done.stderr
    after = json.loads(run("limits", "show", "stripe", "--json").stdout)
    assert json.loads(before)["rules"] == after["rules"]


def test_names_of_limits_are_escaped(app, run):
    """They can't write to the terminal of whoever looks."""
    declare(app.store, HOSTILE, per="customer")
    app.store.pause_limit(HOSTILE, HOSTILE, reason=HOSTILE)
    texts = [
        run("limits", *words).stdout
        for words in (["list"], ["show", HOSTILE], ["resume", HOSTILE, "--key", HOSTILE])
    ]

    assert all(texts)
    assert not {"\x1b", "\x9b", "\r"} & set("".join(texts))


def test_a_terminal_shows_limits_in_colour(app, stripe, any_url):
    """What is full or paused stands out."""
    app.store.pause_limit("stripe")
    _, drawn = on_terminal("limits", "list", url=any_url)

    assert "\x1b[33mpaused" in drawn


def test_a_job_names_its_limit(run, stripe):
    """And its key there."""
    assert ["limit", "stripe/acme"] in rows(run("jobs", "show", stripe[2].id).stdout)


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        (["pause", "stripe", "--key", "acme"], "rowlock limits resume stripe --key acme"),
        (["pause", "stripe"], "rowlock limits resume stripe"),
        (["set", "stripe", "--concurrency", "1"], "rowlock limits show stripe"),
    ],
)
def test_why_says_what_helps_at_a_limit(app, run, stripe, change, advice):
    """The command, ready to be copied."""
    app.store.announce(worker="w", queues=[], kinds=[], host="h", pid=1)
    run("limits", *change)
    told = run("jobs", "why", stripe[2].id).stdout.splitlines()

    assert told[-1].endswith(f" with: {advice}")


def examine(run) -> dict[str, dict[str, str]]:
    """The findings of the doctor by their names."""
    document = json.loads(run("doctor", "--json").stdout)
    return {each["check"]: each for each in document["findings"]}


def announce(app, worker: str = "w", **limits: str) -> None:
    """A worker whose code declares these limits."""
    vitals = WorkerVitals(slots=5, limits=limits)
    app.store.announce(worker=worker, queues=[], kinds=[], host="h", pid=1, vitals=vitals)


def test_the_doctor_finds_limits_that_nobody_declared(app, run):
    """Their jobs would wait forever."""
    before = examine(run)
    put(app.store, "ghost", jobs=2)
    found = examine(run)

    assert "limits" not in before
    assert found["limits"]["level"] == "bad"
    assert found["limits"]["text"].endswith("no worker has declared: ghost (2 jobs)")
    assert "task in default" in found["workers"]["text"]


def test_the_doctor_finds_limits_that_the_code_dropped(app, run):
    """If jobs still use them, and workers that say what they declare are there."""
    declare(app.store, "old", concurrency=1)
    unused = examine(run)["limits"]
    put(app.store, "old")
    without_workers = examine(run)["limits"]
    app.store.announce(worker="http", queues=[], kinds=[], host="h", pid=1)
    over_http = examine(run)["limits"]
    announce(app, new="concurrency 1")
    dropped = examine(run)["limits"]
    announce(app, "w2", old="concurrency 1")
    declared = examine(run)["limits"]

    assert [each["level"] for each in (unused, without_workers, over_http)] == ["ok"] * 3
    assert (dropped["level"], "declares old," in dropped["text"]) == ("warn", True)
    assert (declared["level"], declared["text"]) == ("ok", "1 limit, all declared")


def test_the_doctor_compares_the_numbers_of_workers(app, run):
    """One that declares others than are stored is named, with both."""
    declare(app.store, "stripe", concurrency=20, per="customer", weights={"acme": 3})
    numbers = declared_text(
        Limit("stripe", concurrency=20, per="customer", weights={"acme": 3}).numbers
    )
    announce(app, "b", stripe=numbers)
    same = examine(run)["limit numbers"]
    announce(app, "a", stripe="concurrency 50, per customer")
    other = examine(run)["limit numbers"]

    assert numbers.startswith("concurrency 20, per customer, 1 weights (")
    assert same["level"] == "ok"
    assert (other["level"], "later declaration counts" in other["advice"]) == ("warn", True)
    assert "stripe: a has (concurrency 50, per customer), stored is (" in other["text"]


def lane(seconds: float = 400, **values: str) -> DueLane:
    """Jobs that wait for a limit."""
    return DueLane(**{"queue": "q", "kind": "k", "seconds": seconds, "limit": "api", **values})


def info(**values: object) -> LimitInfo:
    """An open limit under which nothing runs."""
    none = Count(0)
    rules = LimitRules(concurrency=1)
    given = {"running": none, "waiting": Count(1), "paused_keys": none, "declared": rules}
    return LimitInfo(name="api", rules=rules, **{**given, **values})


@pytest.mark.parametrize(
    ("limit", "due", "is_starved"),
    [
        (info(), lane(), True),
        (info(), lane(seconds=10), False),
        (info(), lane(limit="other"), False),
        (info(), lane(kind="unserved"), False),
        (info(running=Count(1)), lane(), False),
        (info(is_paused=True), lane(), False),
        (info(is_ordered=True), lane(), False),
        (info(opens_at=datetime(2030, 1, 1, tzinfo=UTC)), lane(), False),
        (info(declared=None), lane(), False),
    ],
)
def test_a_starved_limit_is_recognised(limit, due, is_starved):
    """It is open, a worker serves its jobs, and none has run for long."""
    worker = WorkerInfo(id="w", kinds=["k"])

    assert findings.is_starved(limit, [due], [worker]) is is_starved


def test_the_doctor_names_starved_limits(app, run, monkeypatch):
    """Unless all keys with jobs are paused."""
    monkeypatch.setattr(findings, "STARVED_SECONDS_WARN", 0.0)
    declare(app.store, "api", per="customer")
    announce(app, api="per customer")
    put(app.store, "api", "acme")
    starved = examine(run)["limit rooms"]
    app.store.pause_limit("api", "acme")
    paused = examine(run)["limit rooms"]

    assert (starved["level"], starved["text"].endswith(": api")) == ("warn", True)
    assert paused["level"] == "ok"
