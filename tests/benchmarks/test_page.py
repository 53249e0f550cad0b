"""What the benchmark makes of its figures: medians, verdicts, tables and charts. Pure."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from benchmarks import aims, charts, page
from benchmarks.__main__ import _shown
from benchmarks.charts import Bar, Kind, Line, Range
from benchmarks.results import Measurement, Results, quantile, read_results
from tests.house.source import ROOT

SIZES = {
    "backlog": 1_000_000,
    "drain_jobs": 100,
    "finished": 1,
    "foreign": 1,
    "held_jobs": 10,
    "held_rounds": 4,
    "memory_first": 1,
    "memory_last": 2,
}
MACHINE = {
    "cores": 2,
    "processor": "some",
    "memory_gib": 8,
    "system": "Linux",
    "file_system": "ext4",
    "others_cores": 0.1,
    "sync_p50_ms": 0.1,
    "sync_p99_ms": 0.2,
}
ABOUT = {
    "started": "2030-01-01T00:00:00+00:00",
    "command": "python -m benchmarks",
    "sizes": SIZES,
    "machine": MACHINE,
    "versions": {"rowlock": "1", "commit": "c", "python": "3", "psycopg": "3", "sqlite": "3"},
    "postgres_settings": {},
    "contestants": {"rowlock sqlite": "as it is"},
    "steps": {"drain": 60.0},
}


def drained(name: str, *rates: float, variant: str = "1") -> list[Measurement]:
    return [
        Measurement("drain", name, "postgres", {"per_s": rate, "worker_cpu_us": 1.0}, variant)
        for rate in rates
    ]


@pytest.fixture
def results() -> Results:
    """Some of what a run measures."""
    held = {"rounds_per_s": [100.0, 90.0, 80.0, 70.0], "rounds_server_cpu_us": [1.0, 1, 1, 2]}
    return Results(
        ABOUT,
        [
            *drained("rowlock", 60.0, 100.0, 70.0),
            *drained("bare loop", 100.0),
            *drained("pgqueuer", 40.0),
            Measurement("drain", "pgqueuer", "postgres", {"error": "it broke"}, "1"),
            Measurement("held", "rowlock", "postgres", held),
        ],
    )


def test_medians_leave_out_what_failed(results):
    """A median is of the repeats that succeeded; there is none of what was never measured."""
    assert results.median("drain", "rowlock", "postgres", "per_s", "1") == 70.0
    assert results.median("drain", "pgqueuer", "postgres", "per_s", "1") == 40.0
    assert results.median("drain", "rowlock", "sqlite", "per_s", "1") is None
    assert results.names("drain", "postgres") == ["rowlock", "bare loop", "pgqueuer"]


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1), (0.0, 1)]
)
def test_quantile(share, value):
    """The smallest value that so many are not above."""
    assert quantile(list(range(100, 0, -1)), share) == value


def test_verdicts(results):
    """An aim is held, missed, or was not measured."""
    found = {each.figure: each for each in aims.verdicts(results)}
    bare = found["drain, PostgreSQL: share of the bare loop"]
    peer = found["drain, PostgreSQL: times PgQueuer"]

    assert (bare.aim, bare.measured, bare.is_held) == ("≥ 0.7", "0.70", True)
    assert (peer.measured, peer.is_held) == ("1.75", False)
    assert found["WAL a job, history kept"].is_held is None


def test_kept_share():
    """The last three rounds against the first three, or fewer of few."""
    assert aims.kept_share([10, 100, 100, 100, 50, 50]) == 0.5
    assert aims.kept_share([100, 50]) == 0.5
    assert aims.kept_share([7]) == 1.0


def test_results_can_be_read_again(results, tmp_path):
    """What is written is what was measured."""
    results.write(tmp_path / "results.json")

    assert read_results(tmp_path / "results.json") == results


def test_the_page_keeps_its_text(results):
    """Blocks are written anew, as often as one likes; all other text stays."""
    template = (ROOT / "docs" / "performance.md").read_text("utf-8")
    once = page.rendered(template, results)

    assert once == page.rendered(once, results)
    assert "| **rowlock** | 70 |  | 1 |  |" in once
    assert "| drain, PostgreSQL: times PgQueuer | ≥ 2 | 1.75 | **no** |" in once
    assert "## How far to trust this" in once
    assert all(f"<!-- results: {name} -->" in template for name in page.BLOCKS)


def test_charts_are_drawings(results):
    """Every chart is well-formed, with and without figures, and shows names as they are."""
    drawn = [chart(results) for chart in page.CHARTS.values()]
    drawn += [chart(Results(ABOUT)) for chart in page.CHARTS.values()]
    drawn.append(charts.bars("a < b", [("", [Bar("<&>", 0.0, Kind.PEER)])], unit=""))
    drawn.append(charts.ranges("r", [("", [Range("x", 0.5, 700.0, Kind.OURS)])], unit=" ms"))
    drawn.append(charts.lines("l", [Line("x", [], Kind.OURS)], places=["1"], below="", unit=""))

    assert [ET.fromstring(each).tag for each in drawn] == ["{http://www.w3.org/2000/svg}svg"] * len(
        drawn
    )


def test_labels_stand_apart():
    """No label of a line covers another."""
    placed = charts._apart({"a": 10.0, "b": 12.0, "c": 100.0})

    assert placed == {"a": 10.0, "b": 26.0, "c": 100.0}


def test_the_command_is_shown_without_places():
    """Where things were is nobody's business."""
    shown = _shown(["--peers", "/home/me/x", "--peer", "a,b", "--publish"])

    assert shown == "python -m benchmarks --peers DIR --peer a,b --publish"
