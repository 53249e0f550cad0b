"""The parts of a run that need no processes: plans, journals, reports, pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace

import pytest

from rowlock.chaos.chart import draw_chart
from rowlock.chaos.job_record import HandlerRun, JobRecord, Strikes, recoveries
from rowlock.chaos.journal import Journal, Word, read
from rowlock.chaos.judge import SHOWN_MAX, Findings
from rowlock.chaos.plan import ChaosPlan, Fault, possible, wanted_jobs
from rowlock.chaos.producer import ProducerCounts
from rowlock.chaos.report import ChaosReport, Durations, QualityGate, Verdict, gates_of

PLAN = ChaosPlan(
    seed=7, jobs=10_000, kills=50, pauses=10, others={Fault.SWALLOW: 20, Fault.CRASH: 3}
)
REPORT = ChaosReport(
    store="PostgreSQL",
    version="16.1",
    plan=PLAN,
    seconds=60.0,
    drain_seconds=2.0,
    judged_seconds=0.5,
    faults={Fault.KILL_CHILD: 40},
    counts={"rescues": 100},
    recovery={"kill a child, until given back": Durations(3, 0.1, 0.2, 0.3)},
    gates=[QualityGate("rescues", 100, 5)],
    violations={},
    texts=[],
    ended=[0.5, 1.5, 1.6, 59.0],
    struck=[(1.0, Fault.KILL_CHILD), (2.0, Fault.CRASH), (3.0, Fault.CUT)],
)


def test_a_seed_decides_what_happens():
    """The same seed strikes in the same order, another one in another."""
    other = replace(PLAN, seed=8)

    assert PLAN.strikes() == PLAN.strikes()
    assert PLAN.strikes() != other.strikes()
    assert Counter(PLAN.strikes()) == Counter(other.strikes()) == Counter(PLAN.faults)


def test_all_strikes_are_there():
    """Kills and pauses are shared among processes, and none is lost by rounding."""
    kills = {fault: number for fault, number in PLAN.faults.items() if "kill" in fault}

    assert sum(kills.values()) == 50
    assert PLAN.faults[Fault.PAUSE_CHILD] + PLAN.faults[Fault.PAUSE_WORKER] == 10
    assert PLAN.faults[Fault.CRASH] == 3


def test_nobody_else_is_harmed():
    """In a database that is somebody's, its server is not crashed, nor are connections used up."""
    wanted = {"crashes": 3, "swallows": 3, "troubles": 3}

    assert possible(**wanted, full_disks=3, is_postgres=False, is_own=False) == {}
    assert possible(**wanted, full_disks=3, is_postgres=False, is_own=True) == {Fault.FILL_DISK: 3}
    assert Fault.CRASH in possible(**wanted, is_postgres=True, is_own=True)
    assert set(possible(**wanted, is_postgres=True, is_own=False)) == {
        Fault.SWALLOW,
        Fault.CUT,
        Fault.DELAY,
        Fault.BLACKHOLE,
        Fault.KILL_BACKEND,
    }


def test_producers_ask_for_all_kinds_of_jobs():
    """Of a few thousand jobs there are some of each kind, with keys, delays and tenants."""
    stream = wanted_jobs(PLAN.chance("wishes"), PLAN.shares)
    made = [next(stream) for _ in range(5_000)]
    kinds = Counter(job.kind for job in made)
    options = Counter(name for job in made for name in job.options)

    assert {"brief", "plain", "fleeting", "falter", "doom", "linger", "book", "lead"} <= set(kinds)
    assert {"pooled", "metered", "lined"} <= set(kinds)
    assert all(options[name] for name in ("key", "delay", "tenant", "priority"))


def test_a_journal_is_read_as_it_was_written(tmp_path):
    """Lines of one process come back in their order, and those of all are there."""
    first, second = Journal(tmp_path, "one"), Journal(tmp_path, "two")
    first.note_all(Word.ASK, [("a", "brief - 0"), ("b", "brief acme 10")])
    second.note(Word.START, "a", 3, "1 brief -")
    first.note(Word.END, "a", 3, "ok")
    first.close()
    second.close()
    lines = list(read(tmp_path))

    assert [(line.word, line.job, line.token, line.rest) for line in lines] == [
        (Word.ASK, "a", 0, "brief - 0"),
        (Word.ASK, "b", 0, "brief acme 10"),
        (Word.END, "a", 3, "ok"),
        (Word.START, "a", 3, "1 brief -"),
    ]
    assert lines[2].at > lines[0].at


def test_numbers_are_shared(tmp_path):
    """What one process writes, another one reads."""
    one, other = ProducerCounts(tmp_path / "counts", 2), ProducerCounts(tmp_path / "counts", 2)
    one.allowed = 100
    other.add(0, 3)
    other.add(1, 4)

    assert other.allowed == 100
    assert one.made == 7
    one.close()
    other.close()


def test_findings_are_bounded():
    """All are counted, some are kept."""
    findings = Findings()
    for number in range(100):
        findings.add(5, f"finding {number}")

    assert findings.counts == {5: 100}
    assert len(findings.lines()) == SHOWN_MAX
    assert findings.lines()[0] == "I5: finding 0"


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, Verdict.GOOD),
        ({"gates": [QualityGate("rescues", 4, 5)]}, Verdict.VOID),
        ({"violations": {5: 1}}, Verdict.BAD),
        ({"violations": {5: 1}, "gates": [QualityGate("rescues", 4, 5)]}, Verdict.BAD),
    ],
)
def test_the_verdict(changed, verdict):
    """Bad if anything was found, void if too little was reached."""
    report = replace(REPORT, **changed)

    assert verdict is report.verdict
    assert report.document()["verdict"] == verdict


def test_gates_grow_with_the_run():
    """A larger run must have reached more."""
    small = {gate.name: gate.wanted for gate in gates_of(PLAN, {})}
    larger = replace(PLAN, jobs=100_000, kills=500, pauses=100, others={Fault.SWALLOW: 200})
    large = {gate.name: gate.wanted for gate in gates_of(larger, {})}

    names = ("struck", "rescues", "late ends", "swallowed")
    assert all(large[name] > small[name] for name in names)


def test_a_run_in_which_nobody_was_struck_is_void():
    """However small it is: there was nobody whom its kills could befall."""
    plan = ChaosPlan(seed=7, jobs=100, kills=1, pauses=0)

    assert {gate.name for gate in gates_of(plan, {}) if not gate.is_open} == {"struck", "ticks"}
    assert all(gate.is_open for gate in gates_of(plan, {"struck": 1, "ticks": 1}))


def test_how_long_a_recovery_took():
    """From the strike in the middle of a run to its return, and to the next run."""
    strikes = Strikes()
    strikes.struck[11] = [(2_000_000_000, Fault.KILL_CHILD)]
    struck = HandlerRun(1_000_000_000, 11, returned=2_500_000_000)
    record = JobRecord(runs={1: struck, 2: HandlerRun(5_000_000_000, 12, end=6_000_000_000)})
    over_before = JobRecord(runs={1: HandlerRun(1_000_000_000, 11, end=1_500_000_000)})
    found = recoveries([record, over_before], strikes.struck)

    assert found[Fault.KILL_CHILD].returned == [0.5]
    assert found[Fault.KILL_CHILD].again == [3.0]


def test_a_spread():
    """Half, all but a hundredth, and all."""
    assert None is Durations.of([])
    assert Durations.of([number / 100 for number in range(100)]) == Durations(100, 0.5, 0.99, 0.99)


def test_the_picture():
    """It is an image that says what it shows, with a mark for each strike."""
    root = ET.fromstring(draw_chart(REPORT))
    marks = [path for path in root if path.tag.endswith("path") and path.get("stroke-width")]

    assert "seed 7: 10,000 jobs" in root.attrib["aria-label"]
    assert len(marks) == 3
