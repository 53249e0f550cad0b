"""`rowlock cron`: schedules from the command line."""

from __future__ import annotations

import json

from tests.cli.conftest import HOSTILE, documents


def test_list(app, run):
    """A row a schedule, with its state and its times; as JSON, all that is known."""
    app.schedule("b", "report", cron="0 3 * * *", timezone="Europe/Berlin", payload={"n": 1})
    app.schedule("a", "report", cron="@hourly")
    app.store.pause_schedule("a")
    head, first, second = run("cron", "list").stdout.splitlines()
    found = json.loads(run("cron", "list", "--json").stdout)

    assert head.split() == ["SCHEDULE", "STATUS", "CRON", "TIMEZONE", "KIND", "NEXT", "LAST"]
    assert first.split() == ["a", "paused", "@hourly", "UTC", "report", "-", "-"]
    assert {"b", "on", "Europe/Berlin", "report"} <= set(second.split())
    assert [document["name"] for document in found] == ["a", "b"]
    assert tuple(found[1][name] for name in ("payload", "source", "missed")) == (
        {"n": 1},
        "user",
        "skip",
    )
    assert found[1]["next_at"].endswith("Z")


def test_an_empty_list(run):
    """It says so, and is an empty list as JSON."""
    assert run("cron", "list").stdout == "no schedules\n"
    assert json.loads(run("cron", "list", "--json").stdout) == []


def test_run(app, run):
    """A run by hand is enqueued at once; with a key, one that is in flight answers."""
    app.schedule("s", "report", cron="@daily")
    done = run("cron", "run", "s")
    document = json.loads(run("cron", "run", "s", "--json").stdout)
    jobs = {job.id for job in app.list(kind="report")}

    assert jobs == {done.stdout.split()[-1], document["id"]}
    assert document["meta"] == {"schedule": "s"}


def test_run_what_is_in_flight(app, run):
    """With a key there is one job in flight, and its id is told."""
    task = app.task(name="report")(lambda: None)
    app.schedule("s", task.using(key="one"), cron="@daily")
    first, second = run("cron", "run", "s"), run("cron", "run", "s")

    assert first.stdout.startswith("enqueued ")
    assert second.stdout == f"already in flight: {first.stdout.split()[-1]}\n"


def test_pause_and_resume(app, run):
    """Several schedules are paused and resumed by name."""
    for name in ("a", "b"):
        app.schedule(name, "report", cron="@daily")
    paused = run("cron", "pause", "a", "b")
    resumed = run("cron", "resume", "a")

    assert paused.stdout == "paused a\npaused b\n"
    assert resumed.stdout.startswith("resumed a, next ")
    assert [schedule.is_paused for schedule in app.store.list_schedules()] == [False, True]


def test_delete(app, run):
    """Schedules are removed by name, and what they enqueued stays; as JSON a line for each."""
    for name in ("a", "b", "c"):
        app.schedule(name, "report", cron="@daily")
    run("cron", "run", "a")

    assert run("cron", "delete", "a").stdout == "deleted a\n"
    assert documents(run("cron", "delete", "b", "--json")) == [{"name": "b", "deleted": True}]
    assert [schedule.name for schedule in app.store.list_schedules()] == ["c"]
    assert len(app.list(kind="report")) == 1


def test_the_others_are_still_worked_on(app, run):
    """An unknown name among several is told, and decides the exit code."""
    app.schedule("a", "report", cron="@daily")
    paused = run("cron", "pause", "nobody", "a", "--json")
    resumed = run("cron", "resume", "nobody", "a", "--json")
    deleted = run("cron", "delete", "nobody", "a")

    assert [
        (done.exit_code, [document["is_paused"] for document in documents(done)])
        for done in (paused, resumed)
    ] == [(3, [True]), (3, [False])]
    assert (deleted.exit_code, deleted.stdout) == (3, "deleted a\n")


def test_an_unknown_name(run):
    """Exit code 3, and one line that says so."""
    for action in ("run", "pause", "resume", "delete"):
        done = run("cron", action, "nobody")
        assert (done.exit_code, "no schedule 'nobody'" in done.stderr) == (3, True)


def test_hostile_names_are_escaped(app, run):
    """A name can't write to the terminal of whoever lists it."""
    app.schedule(HOSTILE, "report", cron="@daily")

    assert not {"\x1b", "\x9b", "\r"} & set(run("cron", "list").stdout)
    assert not {"\x1b", "\x9b", "\r"} & set(run("cron", "pause", HOSTILE).stdout)
