"""Metrics: the names of the reference, right numbers, bounded labels; and what is drawn of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from rowlock import config
from rowlock.job import Count, JobState, QueueStats
from rowlock.limit_info import LimitInfo, LimitRules
from rowlock.observe.metrics import (
    exposition,
    of_counts,
    of_limits,
    of_queues,
    of_slots,
    of_workflows,
)
from rowlock.tally import OTHER, RunEnd, Sums
from rowlock.worker.counts import ProcessCounts
from rowlock.worker.shared_memory import SharedCounts, Totals
from rowlock.workflow_rules import WorkflowState
from tests.support.metrics import samples

DOCS = Path(__file__).parents[2] / "docs"
HOSTILE = 'qu"eue\n\\{}'


def counts() -> Totals:
    sums = Sums()
    sums.add(RunEnd.SUCCEEDED, 5)
    sums.add(RunEnd.DEAD, 1)
    for time in (90, 900_000, 3_000_000, 5_000_000_000_000):
        sums.run.add(time)
    sums.wait.add(2_000, 6)
    return Totals(
        {(HOSTILE, "send"): sums},
        lost=Counter({"mail": 2}),
        enqueued=Counter({("mail", "send"): 7}),
        interrupted=Counter({"mail": 4}),
        refused=3,
    )


def stats(name: str, ready: int = 1) -> QueueStats:
    found = {state: Count(0) for state in JobState} | {JobState.READY: Count(ready)}
    return QueueStats(name, found, 1.5 if ready else None, False)


def limit(name: str, waiting: int = 4) -> LimitInfo:
    return LimitInfo(
        name=name,
        rules=LimitRules(),
        running=Count(3),
        waiting=Count(waiting),
        paused_keys=Count(2),
        oldest_waiting_seconds=2.5,
        is_paused=True,
    )


def everything() -> bytes:
    return exposition(
        [
            *of_counts(counts()),
            *of_slots({"busy": 1}),
            *of_queues([stats("mail")], workers=2),
            *of_limits([limit("stripe")]),
            *of_workflows([WorkflowState.DEAD]),
        ]
    )


def test_numbers_come_through():
    """With names that need escaping, too."""
    found = samples(everything())
    name = {"queue": HOSTILE, "kind": "send"}

    def of(metric: str, **labels: str) -> float:
        return found[metric, tuple(sorted(labels.items()))]

    assert of("rowlock_jobs_finished_total", **name, outcome="succeeded") == 5
    assert of("rowlock_jobs_finished_total", **name, outcome="dead") == 1
    assert of("rowlock_jobs_finished_total", **name, outcome="released") == 0
    duration = "rowlock_job_duration_seconds"
    buckets = [of(f"{duration}_bucket", **name, le=le) for le in ("0.0001", "1", "3", "+Inf")]
    assert buckets == [1, 2, 3, 4]
    assert of(f"{duration}_count", **name) == 4
    assert of(f"{duration}_sum", **name) == 5_000_003.90009
    assert of("rowlock_job_wait_seconds_bucket", **name, le="0.003") == 6
    assert of("rowlock_leases_lost_total", queue="mail") == 2
    assert of("rowlock_jobs_interrupted_total", queue="mail") == 4
    assert of("rowlock_settles_refused_total") == 3
    assert of("rowlock_jobs_enqueued_total", queue="mail", kind="send") == 7
    assert of("rowlock_queue_jobs", queue="mail", state="ready") == 1
    assert of("rowlock_queue_oldest_ready_seconds", queue="mail") == 1.5
    assert of("rowlock_workers") == 2
    assert of("rowlock_worker_slots", state="busy") == 1
    limited = ("running", "waiting", "oldest_waiting_seconds", "paused", "paused_keys")
    assert [of(f"rowlock_limit_{each}", limit="stripe") for each in limited] == [3, 4, 2.5, 1, 2]


def test_queues_are_bounded():
    """However many there are; nothing is left out of the sum."""
    many = [stats(f"q{number}", ready=number) for number in range(1_000)]
    found = samples(exposition(of_queues(many, workers=0)))
    ready = {labels: value for (name, labels), value in found.items()
             if name == "rowlock_queue_jobs" and ("state", "ready") in labels}  # fmt: skip

    assert len(ready) == config.TALLY_NAMES_MAX
    assert sum(range(1_000)) == sum(ready.values())
    assert OTHER in {dict(labels)["queue"] for labels in ready}


def test_limits_are_bounded():
    """However many there are; nothing is left out of the sum, and no key is named."""
    many = [limit(f"l{number}", waiting=number) for number in range(1_000)]
    found = samples(exposition(of_limits(many)))
    waiting = {
        dict(labels)["limit"]: value
        for (name, labels), value in found.items()
        if name == "rowlock_limit_waiting"
    }

    assert len(waiting) == config.TALLY_NAMES_MAX
    assert sum(range(1_000)) == sum(waiting.values())
    assert OTHER in waiting


def names() -> set[str]:
    """The names of series, as queries use them."""
    return {name for name, _ in samples(everything())}


def test_every_metric_is_documented():
    """In the table of the reference, and nothing else is."""
    families = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in text_string_to_metric_families(everything().decode())
    }
    text = (DOCS / "reference/metrics.md").read_text()
    told = re.findall(r"^\| `(rowlock_\w+)", text, re.MULTILINE)

    assert sorted(families) == sorted(told)


def used_in(text: str) -> set[str]:
    return set(re.findall(r"\browlock_\w+", text))


def test_the_dashboard_shows_what_there_is():
    """It is JSON, its panels have ids of their own, and every series in it exists."""
    text = (DOCS / "assets/monitoring/grafana.json").read_text()
    panels = json.loads(text)["panels"]

    assert len(panels) == len({panel["id"] for panel in panels})
    assert used_in(text) <= names()


def test_the_alerts_name_what_there_is():
    """For each of the troubles that they are for."""
    text = (DOCS / "assets/monitoring/alerts.yml").read_text()
    (group,) = yaml.safe_load(text)["groups"]
    alerts = {rule["alert"]: rule for rule in group["rules"]}

    assert alerts.keys() == {"RowlockQueueStuck", "RowlockReadyJobsOld", "RowlockDeadLettersRising",
            "RowlockLeasesLost", "RowlockNoWorkers", "RowlockLimitStuck",
            "RowlockServiceFailing"}  # fmt: skip
    for rule in alerts.values():
        used = used_in(rule["expr"])
        assert used and used <= names()
        assert rule["annotations"]["summary"] and rule["labels"]["severity"]


class Query:
    """A query of the few words that the alert needs, over series without labels, by PromQL's rules.

    `or` binds less than `and` and `unless`; a comparison keeps a value or leaves nothing.
    """

    def __init__(self, text: str, series: dict[str, list[float]]) -> None:
        self._words = re.findall(r"\w+|==|>|[()]", text)
        self._series = series

    def value(self) -> float | None:
        found = self._or()
        assert not self._words
        return found

    def _or(self) -> float | None:
        left = self._and()
        while self._take("or"):
            right = self._and()
            left = right if left is None else left
        return left

    def _and(self) -> float | None:
        left = self._compared()
        while self._words and self._words[0] in ("and", "unless"):
            keeps = self._words.pop(0) == "and"
            right = self._compared()
            left = left if (right is not None) == keeps else None
        return left

    def _compared(self) -> float | None:
        left = self._term()
        if self._take("=="):
            return left if left == float(self._words.pop(0)) else None
        if self._take(">"):
            limit = float(self._words.pop(0))
            return left if left is not None and left > limit else None
        return left

    def _term(self) -> float | None:
        if self._take("("):
            found = self._or()
            assert self._take(")")
            return found
        function = self._words.pop(0)
        assert self._take("(")
        values = self._series.get(self._words.pop(0), [])
        assert self._take(")")
        if function == "absent":
            return None if values else 1.0
        return {"max": max, "sum": sum}[function](values) if values else None

    def _take(self, word: str) -> bool:
        is_next = self._words[:1] == [word]
        if is_next:
            self._words.pop(0)
        return is_next


@pytest.mark.parametrize(
    ("series", "fires"),
    [
        ({}, True),
        ({"rowlock_workers": [0]}, True),
        ({"rowlock_workers": [0, 0], "rowlock_worker_slots": []}, True),
        ({"rowlock_worker_slots": [0, 0]}, True),
        ({"rowlock_worker_slots": [0, 10]}, False),
        ({"rowlock_workers": [2]}, False),
        ({"rowlock_workers": [2], "rowlock_worker_slots": [0, 0]}, False),
        ({"rowlock_workers": [1], "rowlock_worker_slots": [3, 7]}, False),
    ],
    ids=str,
)
def test_the_alert_for_no_workers_needs_no_server(series, fires):
    """Scraped from servers, from workers or from both; also when all of them are gone."""
    (group,) = yaml.safe_load((DOCS / "assets/monitoring/alerts.yml").read_text())["groups"]
    (rule,) = (rule for rule in group["rules"] if rule["alert"] == "RowlockNoWorkers")

    assert fires == (Query(rule["expr"], series).value() is not None)


def test_every_counter_is_there_from_the_start():
    """With a zero for each name that is known, or without names."""
    counters = {"rowlock_jobs_enqueued_total", "rowlock_jobs_finished_total",
                "rowlock_leases_lost_total", "rowlock_jobs_interrupted_total",
                "rowlock_settles_refused_total"}  # fmt: skip
    nothing = samples(exposition(of_counts(Totals())))
    known = samples(
        exposition(of_counts(ProcessCounts([("mail", "send"), ("mail", "post")]).totals))
    )

    for found in (nothing, known):
        assert counters <= {name for (name, _), value in found.items() if value == 0}
    labels = (("kind", "send"), ("outcome", "dead"), ("queue", "mail"))
    assert known["rowlock_jobs_finished_total", labels] == 0
    assert known["rowlock_leases_lost_total", (("queue", "mail"),)] == 0
    assert known["rowlock_jobs_interrupted_total", (("queue", "mail"),)] == 0
    assert known["rowlock_jobs_enqueued_total", (("kind", "post"), ("queue", "mail"))] == 0


def test_a_board_shows_the_last_counts():
    """Whole ones, from another mapping of the same memory, as often as they are written."""
    descriptor = SharedCounts.make_descriptor()
    child, supervisor = SharedCounts(descriptor), SharedCounts(descriptor)
    assert (supervisor.read().tally, supervisor.good_at) == ({}, 0.0)
    for number in range(3):
        written = counts()
        written.lost["mail"] = number
        child.write(written, good_at=number + 0.5)

        assert written == supervisor.read()
        assert number + 0.5 == supervisor.good_at


def test_a_board_that_is_too_small_shows_the_last_that_fitted():
    """Rather than a part of it."""
    board = SharedCounts(SharedCounts.make_descriptor())
    board.write(counts(), good_at=1.0)
    large = Totals({("q" * 200, f"{number}" * 60): Sums() for number in range(5_000)})
    board.write(large, good_at=2.0)

    assert (board.read(), board.good_at) == (counts(), 2.0)


def test_open_workflows_are_counted_by_state():
    """Also the states in which there are none. One that has just ended is not counted."""
    states = [
        WorkflowState.DEAD,
        WorkflowState.RUNNING,
        WorkflowState.DEAD,
        WorkflowState.SUCCEEDED,
    ]
    found = samples(exposition(of_workflows(states)))

    name = "rowlock_workflows_open"
    assert found == {
        (name, (("state", "running"),)): 1,
        (name, (("state", "waiting"),)): 0,
        (name, (("state", "dead"),)): 2,
    }
