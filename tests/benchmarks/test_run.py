"""The benchmark runs: every workload in miniature, and peers through the interface it describes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.house.source import ROOT

# A queue of one table, in a directory as `--peers` wants it.
REGISTRY = """
REGISTRY = [
    {
        "name": "tiny", "venv": "tiny", "backend": "sqlite", "module": "tiny", "n": 2_000,
        "settings": "one table", "env": {"TINY": "yes"}, "left": "SELECT count(*) FROM task",
        "worker": ["-m", "peers.tiny", "worker"], "worker2": None, "native_procs": False,
        "no_drain": False,
    },
    {
        "name": "absent", "venv": "absent", "backend": "pg", "module": "absent", "n": 1,
        "settings": "", "env": {}, "left": None, "worker": [], "worker2": None,
        "native_procs": False, "no_drain": False,
    },
]
"""
TINY = """
import json, mmap, os, sqlite3, struct, sys, time

assert os.environ["TINY"] == "yes"
database = sqlite3.connect(os.environ["BENCH_DB"], timeout=30, isolation_level=None)


def hit(number):
    jobs = int(os.environ["BENCH_N"])
    with open(os.environ["BENCH_REC"], "r+b") as file, mmap.mmap(file.fileno(), 17 * jobs) as seen:
        struct.pack_into("d", seen, 8 * number, time.time())
        seen[16 * jobs + number] += 1


def work():
    while True:
        found = database.execute("SELECT number FROM task ORDER BY number LIMIT 1").fetchone()
        if found:
            hit(*found)
            database.execute("DELETE FROM task WHERE number = ?", found)
        else:
            time.sleep(0.01)


command, *numbers = sys.argv[1:]
if command == "worker":
    work()
elif command == "setup":
    database.execute("CREATE TABLE task (number integer PRIMARY KEY)")
elif command == "preload":
    low, high = map(int, numbers)
    database.executemany("INSERT INTO task VALUES (?)", [(n,) for n in range(low, high)])
else:
    raise SystemExit(f"{command} is broken here")
print(json.dumps({}))
"""


def run(output: Path, *words: str) -> dict[str, Any]:
    """The results of `python -m benchmarks` in its smallest size."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--preset", "smoke", "--output", output, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads((output / "results.json").read_text("utf-8"))
    return results


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("store", "workloads", "measured"),
    [
        (
            "postgres",
            "enqueue,drain,wal,held",
            {"enqueue_one", "enqueue_bulk", "drain", "wal", "held"},
        ),
        ("sqlite", "drain,latency,burst", {"drain", "latency", "burst"}),
        ("sqlite", "idle,weight,backlog", {"idle", "weight", "looks", "backlog", "memory"}),
    ],
)
def test_every_workload_runs(store, workloads, measured, tmp_path):
    """Each is measured, nothing fails or runs twice, and the page and its charts are written."""
    results = run(tmp_path, "--stores", store, "--only", workloads)
    found = results["measurements"]
    page = (tmp_path / "performance.md").read_text("utf-8")
    charts = sorted((tmp_path / "assets").iterdir())

    assert measured == {each["workload"] for each in found}
    if "drain" in measured:
        assert {"rowlock", "bare loop", "own loop"} <= {each["name"] for each in found}
    assert [each for each in found if "error" in each or each.get("doubles")] == []
    assert {"machine", "versions", "sizes", "seeds", "command", "steps"} <= set(results)
    assert "**rowlock**" in page
    assert len([ET.parse(chart) for chart in charts]) == 5


@pytest.mark.long
@pytest.mark.timeout(400)
def test_peers_are_driven_through_their_interface(tmp_path):
    """A peer is measured beside ours; what it can't do is its error, and one that lacks is out."""
    peers = tmp_path / "there" / "peers"
    peers.mkdir(parents=True)
    (peers / "__init__.py").write_text(REGISTRY, "utf-8")
    (peers / "tiny.py").write_text(TINY, "utf-8")
    python = tmp_path / "home" / "venv-tiny" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', "utf-8")
    python.chmod(0o755)
    chosen = ["--peers", str(peers.parent), "--peers-home", str(tmp_path / "home")]
    chosen += ["--peer", "tiny,absent", "--stores", "sqlite", "--only", "enqueue,drain"]
    results = run(tmp_path / "output", *chosen)
    tiny = [each for each in results["measurements"] if each["name"] == "tiny"]
    (drained,) = [each for each in tiny if each["workload"] == "drain"]

    assert (drained["jobs"], drained["doubles"]) == (20, 0)
    assert drained["per_s"] > 0
    assert all("is broken here" in each["error"] for each in tiny if each["workload"] != "drain")
    assert set(results["contestants"]) == {"rowlock sqlite", "tiny sqlite"}
    assert str(tmp_path) not in results["command"]
