"""`/v1/queues`, `/v1/stats`, `/v1/schedules`: what there is, and what may run."""

from __future__ import annotations

import json
import subprocess
from typing import Any
from urllib.parse import quote

import pytest

from rowlock.job import JobState


def test_queues_and_their_counts(api):
    """Each with all states, the age of its oldest ready job, and whether it is paused."""
    api.app.enqueue("big", queue="mail")
    api.app.enqueue("big", queue="mail", delay=60)
    api.app.pause("mail")
    queues = api("read").get("/v1/queues").json()["queues"]
    named = api("read").get("/v1/queues?queue=empty&queue=mail").json()["queues"]

    assert [queue["queue"] for queue in queues] == ["mail"]
    assert [queue["queue"] for queue in named] == ["empty", "mail"]
    (mail,) = queues
    assert mail["is_paused"] and mail["oldest_ready_seconds"] >= 0
    assert {"value": 1, "exact": True} == mail["counts"]["ready"] == mail["counts"]["scheduled"]
    assert len(mail["counts"]) == len(JobState)


def test_stats_are_sums(api):
    """Over all queues, or those that are named."""
    for queue in ("a", "a", "b"):
        api.app.enqueue("big", queue=queue)
    api.app.pause("b")
    whole, part = api().get("/v1/stats").json(), api().get("/v1/stats?queue=a").json()

    assert (whole["queues"], whole["paused"], whole["counts"]["ready"]["value"]) == (2, 1, 3)
    assert (part["queues"], part["paused"], part["counts"]["ready"]["value"]) == (1, 0, 2)


def test_a_tenant_counts_its_own(api):
    """Others' jobs are not among the numbers."""
    api.app.enqueue("big", queue="a", tenant="acme")
    api.app.enqueue("big", queue="a", tenant="zoo")
    api.app.enqueue("big", queue="b", tenant="zoo")
    (queue,) = api("read", tenant="acme").get("/v1/queues").json()["queues"]
    stats = api("read", tenant="acme").get("/v1/stats").json()

    assert (queue["queue"], queue["counts"]["ready"]["value"]) == ("a", 1)
    assert (stats["queues"], stats["counts"]["ready"]["value"]) == (1, 1)


@pytest.mark.parametrize("name", ["mail", "a/b", "ü ?#%", "'; DROP TABLE job; --", "...", "%2F"])
def test_pause_and_resume(api, name):
    """Under any name, encoded in the path."""
    place = f"/v1/queues/{quote(name, safe='')}"
    paused = api().post(f"{place}/pause")
    stats = {each.queue: each.is_paused for each in api.app.stats()}
    resumed = api().post(f"{place}/resume")

    assert (paused.status_code, paused.json()) == (200, {"queue": name, "is_paused": True})
    assert stats == {name: True}
    assert resumed.json() == {"queue": name, "is_paused": False}


def by_curl(api, path: str) -> dict[str, Any]:
    """What a client gets that normalises paths, as browsers do too."""
    token = api.tokens["admin", None]
    command = ["curl", "-s", "-X", "POST", "-H", f"Authorization: Bearer {token}"]
    done = subprocess.run([*command, f"{api.address}{path}"], capture_output=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        (".", "~."),
        ("..", "~.."),
        ("a/../b", "~a~2F..~2Fb"),
        ("~", "~~7E"),
        ("~2F", "~~7E2F"),
        ("a~b", "a~b"),
        ("株/%", "~~e6~A0~AA~2F~25"),
    ],
)
def test_names_that_are_like_paths(api, name, escaped):
    """Written with a tilde, nobody on the way resolves or decodes them."""
    api.app.schedule(name, "big", cron="@daily")
    paused = by_curl(api, f"/v1/queues/{escaped}/pause")
    stats = {each.queue: each.is_paused for each in api.app.stats()}
    resumed = by_curl(api, f"/v1/queues/{escaped}/resume")
    schedule = by_curl(api, f"/v1/schedules/{escaped}/pause")

    assert paused == {"queue": name, "is_paused": True}
    assert stats[name] is True
    assert resumed == {"queue": name, "is_paused": False}
    assert (schedule["name"], schedule["is_paused"]) == (name, True)


@pytest.mark.parametrize("segment", ["~a~", "~~2", "~~zz", "~~FF", "~~00", "~"])
def test_a_wrong_escape_is_refused(api, segment):
    """It is not guessed what was meant."""
    refused = api().post(f"/v1/queues/{segment}/pause")

    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "queue")
    assert api.app.stats() == []


def test_a_name_too_long_is_refused(api):
    """As everywhere."""
    assert api().post(f"/v1/queues/{'x' * 201}/pause").status_code == 422


def test_schedules_tell_what_comes_and_what_became_of_the_last(api):
    """The next times, in their own zone, and the state of the last job."""
    api.app.schedule("daily", "report", cron="30 2 * * *", timezone="Europe/Berlin")
    before = api("read").get("/v1/schedules").json()["schedules"][0]
    made = api().post("/v1/schedules/daily/run").json()
    api.app.cancel(made["id"])
    after = api("read").get("/v1/schedules").json()["schedules"][0]

    assert [before["upcoming"][0], len(before["upcoming"])] == [before["next_at"], 5]
    assert sorted(before["upcoming"]) == before["upcoming"]
    assert (before["last_state"], after["last_state"]) == (None, "cancelled")


def test_schedules(api):
    """Listed by page; run, paused and resumed."""
    for name in ("b", "a", "c"):
        api.app.schedule(name, "big", cron="@daily", payload={"n": 1})
    first = api("read").get("/v1/schedules?limit=2").json()
    rest = api("read").get(f"/v1/schedules?limit=2&cursor={first['next']}").json()
    ran = api().post("/v1/schedules/a/run")
    paused = api().post("/v1/schedules/a/pause").json()
    resumed = api().post("/v1/schedules/a/resume").json()

    assert (
        [each["name"] for each in first["schedules"]],
        [each["name"] for each in rest["schedules"]],
        rest["next"],
    ) == (["a", "b"], ["c"], None)
    assert (ran.status_code, ran.json()["kind"], ran.json()["created"]) == (200, "big", True)
    assert ran.json()["id"] == paused["last_job_id"]
    assert (paused["is_paused"], resumed["is_paused"]) == (True, False)


def test_an_unknown_schedule(api):
    """404, whatever is to be done to it."""
    for action in ("run", "pause", "resume"):
        assert api().post(f"/v1/schedules/nobody/{action}").status_code == 404
