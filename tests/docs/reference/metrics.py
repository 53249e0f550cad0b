"""Metrics: names, types, labels and help, as Prometheus gets them, and from whom."""

from __future__ import annotations

import tempfile
import urllib.request
from collections import Counter
from pathlib import Path

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

import rowlock
from rowlock.job import Count, JobState, QueueStats
from rowlock.limit_info import LimitInfo, LimitRules
from rowlock.observe.metrics import of_counts, of_limits, of_queues, of_slots, of_workflows
from rowlock.observe.port import WorkerPort
from rowlock.server.serve import HttpServer
from rowlock.tally import Sums
from rowlock.worker.shared_memory import Snapshot, Totals
from tests.docs.reference.markdown import as_cell, code, codes, table

# A name that stands for any; labels that have other values have no others.
ANY = "any"
_SLOTS = {"busy": 0, "free": 0}


def sections() -> dict[str, str]:
    """The table of metrics."""
    tellers = {"workers": _told_by_worker(), "servers": _told_by_server()}
    return {
        "metrics": table(
            ["metric", "type", "labels", "reported by", ""],
            [
                (
                    code(_full_name(each)),
                    each.type,
                    _labels(each),
                    ", ".join(who for who, told in tellers.items() if each.name in told),
                    as_cell(each.documentation),
                )
                for each in _families()
            ],
        )
    }


def _counts() -> Totals:
    return Totals({(ANY, ANY): Sums()}, Counter({ANY: 1}), Counter({(ANY, ANY): 1}))


def _families() -> list[Metric]:
    """Every metric, each with every value of its labels that there is."""
    queue = QueueStats(ANY, {state: Count(0) for state in JobState}, None, is_paused=False)
    none = Count(0)
    limit = LimitInfo(name=ANY, rules=LimitRules(), running=none, waiting=none, paused_keys=none)
    database = [*of_queues([queue], workers=0), *of_limits([limit]), *of_workflows([])]
    return [*of_counts(_counts()), *of_slots(_SLOTS), *database]


def _full_name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def _labels(metric: Metric) -> str:
    values: dict[str, dict[str, None]] = {}
    for sample in metric.samples:
        for name, value in sample.labels.items():
            if name != "le":
                values.setdefault(name, {})[value] = None
    return ", ".join(
        code(name) if list(found) == [ANY] else f"{code(name)} ({codes(found)})"
        for name, found in values.items()
    )


def _told_by_worker() -> set[str]:
    snapshot = Snapshot(counts=_counts(), slots=_SLOTS, children=1, ready=1)
    with WorkerPort(lambda: snapshot, host="127.0.0.1", port=0) as port:
        return _scraped(port.address)


def _told_by_server() -> set[str]:
    with (
        tempfile.TemporaryDirectory() as place,
        rowlock.App(f"sqlite:///{Path(place) / 'jobs.db'}") as app,
        HttpServer(app, host="127.0.0.1", port=0, is_open=True) as server,
    ):
        return _scraped(server.address)


def _scraped(address: str) -> set[str]:
    # This machine is asked, whatever proxy the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{address}/metrics", timeout=30) as answer:
        return {each.name for each in text_string_to_metric_families(answer.read().decode())}
