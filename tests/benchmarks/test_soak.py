"""The soak: what counts as flat, and that it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from benchmarks.soak.verdict import judge, thinned
from tests.house.source import ROOT

SECONDS = [float(second) for second in range(1, 101)]
HELD = (100 / 3, 200 / 3)


def verdict(name: str, values: list[float]) -> bool:
    (finding,) = judge({"seconds": SECONDS, name: values}, HELD)
    return finding.is_flat


@pytest.mark.parametrize(
    ("name", "first", "last", "is_flat"),
    [
        ("per_s", 1_000, 990, True),
        ("per_s", 1_000, 960, False),
        ("p50_ms", 10, 16, True),
        ("p50_ms", 10, 20, False),
        ("worker_mib", 50, 60, True),
        ("worker_mib", 50, 75, False),
        ("descriptors", 34, 40, False),
    ],
)
def test_the_last_tenth_is_compared_with_the_second(name, first, last, is_flat):
    """What came in between, the warm-up too, does not count."""
    values = [9e9] * 9 + [first] * 11 + [9e9] * 69 + [last] * 11

    assert verdict(name, values) == is_flat


@pytest.mark.parametrize(("after", "is_flat"), [(700.0, True), (900.0, False)])
def test_a_table_may_keep_what_a_held_transaction_made_of_it(after, is_flat):
    """It is judged from the end of the hold on."""
    values = [10.0] * 33 + [350.0] * 33 + [700.0] * 24 + [after] * 10

    assert verdict("job_mib", values) == is_flat


def test_samples_are_thinned_to_means():
    """Every column alike, so that they still belong together."""
    samples = {"seconds": [1.0, 2.0, 3.0, 4.0, 5.0], "per_s": [1.0, 3.0, 5.0, 7.0, 9.0]}

    assert thinned(samples, 3) == {"seconds": [1.5, 3.5, 5.0], "per_s": [2.0, 6.0, 9.0]}


@pytest.mark.long
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_short_one_runs(store, tmp_path):
    """Every job is run, whatever a soak of three seconds says of flatness."""
    words = [store, "--minutes", "0.05", "--rate", "100", "--output", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode in (0, 1), done.stderr
    found = json.loads((tmp_path / f"soak-{store}.json").read_text("utf-8"))
    assert found["made"] == found["run"] > 0
    assert (found["left"], found["refused"]) == (0, 0)
    assert {"per_s", "worker_mib", "descriptors", "wal_mib"} <= set(found["verdict"])
    assert ET.parse(tmp_path / f"soak-{store}.svg").getroot().tag.endswith("svg")
