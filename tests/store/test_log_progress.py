"""Progress and log lines of a running job are visible at once, bounded, and fenced."""

from __future__ import annotations

import pytest

from rowlock import config
from rowlock.clock import ManualClock, from_us
from rowlock.errors import LeaseLost, OptionInvalid
from rowlock.job import Lease, LogLine, Progress
from rowlock.store import Store
from tests.store.fencing import ENDINGS, lose
from tests.store.jobs import UNKNOWN_ID, claim_one, enqueue, kept_for, start, stored


def test_progress_is_visible(store: Store):
    """The latest word of a job on how far it is can be read while it runs and after."""
    lease = start(store)
    seen = []
    for fraction, text in ((0, ""), (0.25, "a quarter"), (1, "fäst \U0001f600")):
        store.progress(lease, fraction=fraction, text=text)
        seen.append(stored(store, lease.id).progress)
    store.succeed([lease])

    assert seen == [
        Progress(0.0, ""),
        Progress(0.25, "a quarter"),
        Progress(1.0, "fäst \U0001f600"),
    ]
    assert seen[-1] == stored(store, lease.id).progress


@pytest.mark.parametrize(
    ("fraction", "kept"), [(-0.01, 0), (1.01, 1), (float("nan"), 0), (float("inf"), 1), (True, 1)]
)
def test_progress_lies_between_0_and_1(store: Store, fraction: float, kept: float):
    """The nearest number in that range is stored: sums of tenths are seldom exact."""
    lease = start(store)
    store.progress(lease, fraction=fraction)

    assert stored(store, lease.id).progress == Progress(float(kept))


def test_progress_is_a_number(store: Store):
    """What is none is refused, and changes nothing."""
    lease = start(store)
    with pytest.raises(OptionInvalid, match="fraction"):
        store.progress(lease, fraction="half")

    assert stored(store, lease.id).progress is None


def test_long_progress_is_cut(store: Store):
    """A text that is too long, or can't be stored, is cut and cleaned."""
    lease = start(store)
    store.progress(lease, fraction=0.5, text="a\0b" + "ü" * 5_000)

    progress = stored(store, lease.id).progress
    assert progress is not None
    assert progress.text.startswith("a\ufffdb")
    assert len(progress.text.encode()) <= config.PROGRESS_TEXT_BYTES_MAX


def test_log_lines_are_visible(store: Store, clock: ManualClock):
    """Lines are read in the order in which they were written, each with its time."""
    lease = start(store)
    first = from_us(clock.now_us())
    store.log(lease, ["one", "two"])
    clock.advance(1)
    store.log(lease, ["three"])
    store.log(lease, [])

    expected = [
        LogLine(first, "one"),
        LogLine(first, "two"),
        LogLine(from_us(clock.now_us()), "three"),
    ]
    assert store.read_log(lease.id) == expected
    store.succeed([lease])
    assert store.read_log(lease.id) == expected


def test_logs_are_of_their_job(store: Store):
    """Jobs do not share lines, and one without any has none."""
    first, second = start(store), start(store)
    store.log(first, ["mine"])

    assert (len(store.read_log(first.id)), len(store.read_log(second.id))) == (1, 0)
    assert store.read_log(UNKNOWN_ID) == []


def test_a_log_goes_on_over_attempts(store: Store):
    """The lines of a retry follow those of the run before, also back from the dead."""
    lease = start(store)
    store.log(lease, ["first"])
    store.fail(lease, "boom", delay=0)
    lease = claim_one(store)
    store.log(lease, ["second"])
    store.fail(lease, "boom", permanent=True)
    store.retry(lease.id)
    store.log(claim_one(store), ["third"])

    assert [line.text for line in store.read_log(lease.id)] == ["first", "second", "third"]


def test_a_log_is_bounded(store: Store):
    """A job has a thousand lines; what it writes beyond them is dropped."""
    lease = start(store)
    store.log(lease, [f"{number}" for number in range(990)])
    store.log(lease, [f"{number}" for number in range(990, 1_200)])
    store.log(lease, ["too late"])

    lines = store.read_log(lease.id)
    assert [f"{number}" for number in range(config.LOG_LINES_MAX)] == [line.text for line in lines]


def test_long_lines_are_cut(store: Store):
    """A line that is too long, or can't be stored, is cut and cleaned."""
    lease = start(store)
    store.log(lease, ["x" * 100_000, "a\0b\udcff"])

    long, cleaned = store.read_log(lease.id)
    assert len(long.text.encode()) <= config.LOG_LINE_BYTES_MAX
    assert cleaned.text == "a\ufffdb\ufffd"


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_lost_lease_writes_nothing(store: Store, clock: ManualClock, ending: str):
    """Progress and lines with a stale token are refused, and change nothing."""
    lease = lose(store, clock, ending)
    before = store.get(lease.id)
    with pytest.raises(LeaseLost) as told:
        store.progress(lease, fraction=0.5)
    with pytest.raises(LeaseLost) as logged:
        store.log(lease, ["I am still here"])

    assert [lease] == told.value.leases == logged.value.leases
    assert before == store.get(lease.id)
    assert store.read_log(lease.id) == []


def test_a_settled_run_writes_nothing(store: Store):
    """What has ended, by its own worker or another way, takes no more progress or lines."""
    lease = start(store)
    store.release(lease)
    with pytest.raises(LeaseLost):
        store.progress(lease, fraction=0.5)
    with pytest.raises(LeaseLost):
        store.log(Lease(id=UNKNOWN_ID, token=1), ["hello"])

    assert None is stored(store, lease.id).progress


def test_the_log_of_a_job_kept_for_no_time(store: Store):
    """The lines go with the row."""
    lease = start(store, policy=kept_for(0))
    store.log(lease, ["line"])
    store.succeed([lease])

    assert store.read_log(lease.id) == []


def test_progress_starts_anew_with_a_retry(store: Store):
    """A job taken back from the dead has said nothing yet."""
    lease = start(store)
    store.progress(lease, fraction=0.9)
    store.fail(lease, "boom", permanent=True)

    assert None is store.retry(lease.id).progress


def test_the_log_of_no_id_is_refused(store: Store):
    """What is no id is a mistake of the caller, on both stores alike."""
    enqueue(store)
    with pytest.raises(OptionInvalid, match="id"):
        store.read_log("garbage")
