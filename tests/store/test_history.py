"""History: parts are added up, folded into longer slots, and removed after a week."""

from __future__ import annotations

import pytest

from rowlock import config
from rowlock.ids import id_at, new_id
from rowlock.job import Policy
from rowlock.store.ops.history import (
    Flow,
    History,
    HistoryQuery,
    fold_history,
    read_flow,
    read_history,
    sample_depth,
    write_history,
)
from rowlock.tally import OTHER, RunEnd, Sums, Tally
from tests.store.jobs import enqueue, made, start

HOUR = 3_600 * config.SECOND_US


def sums(number: int, *, end: RunEnd = RunEnd.SUCCEEDED) -> Sums:
    made = Sums()
    made.add(end, number)
    made.run.add(20_000, number)
    made.wait.add(700, number)
    return made


def write(store, tally: Tally, *, part: str | None = None) -> None:
    store.run(write_history(tally, part=part or new_id()))


def read(store, last: int = HOUR, **options) -> History:
    return store.run(read_history(HistoryQuery(None, None, last, **options)))


def total(store, last: int = HOUR) -> int:
    return read(store, last).series[0].total.of(RunEnd.SUCCEEDED)


def rows(store) -> int:
    """How many parts there are: folding a thousand hours later would not change them."""
    return store.run(read_history_rows())


def read_history_rows():
    from rowlock.store.steps import Statement, reading

    def steps():
        values = {"since": 0, "until": 2**60, "queue": None, "kind": None, "limit": 10**6}
        return len((yield Statement("history_read", values)))

    return reading("rows", steps)


def test_parts_of_many_are_added_up(store, clock):
    """Whoever wrote them."""
    write(store, {("mail", "send"): sums(3)})
    write(store, {("mail", "send"): sums(4), ("shop", "order"): sums(2, end=RunEnd.DEAD)})
    clock.advance(10)
    found = read(store, by_queue=True, by_kind=True)

    assert [(s.queue, s.kind) for s in found.series] == [("mail", "send"), ("shop", "order")]
    mail, shop = (each.total for each in found.series)
    assert (mail.of(RunEnd.SUCCEEDED), mail.run.count) == (7, 7)
    assert (shop.of(RunEnd.SUCCEEDED), shop.of(RunEnd.DEAD)) == (0, 2)
    assert 0.01 < (mail.run.quantile(0.5) or 0) <= 0.02
    assert not found.is_cut


def test_a_part_that_is_written_twice_counts_once(store):
    """The answer to the first was lost."""
    part = new_id()
    write(store, {("mail", "send"): sums(3)}, part=part)
    write(store, {("mail", "send"): sums(3)}, part=part)

    assert total(store) == 3


def test_times_lie_where_they_belong(store, clock):
    """Each step has its own sums, and the steps cover the stretch that was asked for."""
    write(store, {("mail", "send"): sums(1)})
    clock.advance(120)
    write(store, {("mail", "send"): sums(2)})
    found = read(store, step=60 * config.SECOND_US)
    (series,) = found.series
    places = sorted(series.steps)

    assert [series.steps[place].total for place in places] == [1, 2]
    assert places[1] - places[0] == 2
    assert 60 <= len(found.times) <= 62 and found.step_seconds == 60
    assert all(0 <= place < len(found.times) for place in places)


def test_filters_and_groups(store):
    """By queue, by kind, by both, or all together."""
    write(store, {("a", "x"): sums(1), ("a", "y"): sums(2), ("b", "y"): sums(4)})

    assert total(store) == 7
    by_kind = read(store, by_kind=True).series
    assert [(s.queue, s.kind, s.total.total) for s in by_kind] == [(None, "y", 6), (None, "x", 1)]
    (only,) = read(store, queue="a", kind="y").series
    assert only.total.total == 2


def test_nothing_happened(store):
    """One empty series, for a chart that stays."""
    (series,) = read(store).series

    assert series.steps == {}
    assert read(store, by_kind=True).series == []


def test_old_sums_are_folded(store, clock):
    """Into minutes, then five, then an hour; nothing of them is lost."""
    for _ in range(12):
        write(store, {("mail", "send"): sums(1), ("shop", "order"): sums(1)})
        clock.advance(10)
    before = rows(store)
    counts = [24, before]
    for later in (900, 2 * 3_600, 26 * 3_600):
        clock.advance(later)
        store.run(fold_history())
        counts.append(rows(store))
        assert total(store, 7 * 24 * HOUR) == 24

    assert counts[:2] == [24, 24]
    assert counts[2] in (4, 6) and counts[3] in (2, 4) and counts[4] in (2, 4)
    assert store.run(fold_history()) == 0


def test_folding_bounds_the_names(store, clock):
    """Names that come and go in many processes become few."""
    for number in range(3):
        made = {("q", f"{number}-{name}"): sums(1) for name in range(config.TALLY_NAMES_MAX)}
        write(store, made)
    clock.advance(3_600)
    store.run(fold_history())
    found = read(store, 2 * HOUR, by_queue=True, by_kind=True)

    assert found.is_cut
    assert (found.series[0].queue, found.series[0].kind) == (OTHER, OTHER)
    assert total(store, 2 * HOUR) == 3 * config.TALLY_NAMES_MAX


def test_a_week_is_kept(store, clock):
    """Then sums and samples go."""
    write(store, {("mail", "send"): sums(3)})
    enqueue(store)
    assert store.run(sample_depth())
    clock.advance(config.HISTORY_KEEP_SECONDS + 3_600)
    store.run(fold_history())

    assert rows(store) == 0
    assert read(store, 10**15).depths == {}


def test_steps_are_no_finer_than_what_is_kept(store):
    """A chart of a week has hours, whatever it asks for."""
    steps = [read(store, last, step=10 * config.SECOND_US).step_seconds
             for last in (HOUR // 12, HOUR, 24 * HOUR, 7 * 24 * HOUR)]  # fmt: skip

    assert steps == [10, 60, 300, 3_600]


def test_queues_are_sampled_once_a_minute(store, clock):
    """How much waits and runs, and how old the oldest ready job is."""
    start(store, queue="mail")
    enqueue(store, queue="mail")
    enqueue(store, queue="mail", delay=3_600)
    clock.advance(5)
    assert store.run(sample_depth())
    assert not store.run(sample_depth())
    clock.advance(60)
    assert store.run(sample_depth())
    found = read(store, by_queue=True, step=600 * config.SECOND_US)
    (depth,) = found.depths["mail"].values()

    assert depth.counts == (1, 1, 1, 0)
    assert depth.oldest_us == 65 * config.SECOND_US


def test_an_empty_queue_is_a_zero_and_no_sample_is_a_gap(store, clock):
    """A queue that became empty is shown as 0; a minute in which nobody looked is left out."""
    clock.advance(60 - clock.now_us() // config.SECOND_US % 60)
    lease = start(store, queue="mail")
    enqueue(store, queue="other")
    store.run(sample_depth())
    clock.advance(60)
    store.succeed([lease])
    store.run(sample_depth())
    clock.advance(180)
    store.run(sample_depth())

    minute = 60 * config.SECOND_US
    for asked in ({"by_queue": True}, {"queue": "mail"}):
        found = read(store, 10 * minute, step=minute, **asked)
        depths = found.depths["mail" if "by_queue" in asked else ""]
        first = min(depths)
        assert [place - first for place in sorted(depths)] == [0, 1, 4]
        assert [depths[place].counts[2] for place in sorted(depths)] == [1, 0, 0]
    (together,) = read(store, 10 * minute, step=minute).depths.values()
    assert [together[place].counts[0] for place in sorted(together)] == [1, 1, 1]


def test_an_idle_store_is_sampled_as_empty(store):
    """Nothing waits, which is not the same as that nobody knows."""
    assert store.run(sample_depth())
    (depth,) = read(store, HOUR, step=HOUR).depths[""].values()

    assert (depth.counts, depth.oldest_us) == ((0, 0, 0, 0), None)


def test_a_sample_stands_for_its_minute(store, clock):
    """In steps of ten seconds there is no gap between the samples of two minutes."""
    clock.advance(60 - clock.now_us() // config.SECOND_US % 60)
    enqueue(store)
    store.run(sample_depth())
    clock.advance(75)
    store.run(sample_depth())
    (depths,) = read(store, HOUR // 12, step=10 * config.SECOND_US).depths.values()
    places = sorted(depths)

    assert list(range(places[0], places[0] + len(places))) == places
    assert len(places) == 8
    assert {depth.counts[0] for depth in depths.values()} == {1}


def test_a_large_backlog_is_sampled_exactly(store, monkeypatch):
    """The bound of `stats` is not drawn as a plateau."""
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 3)
    for delay in (0, 60):
        store.enqueue([made(queue="mail", delay=delay) for _ in range(20)])
    store.run(sample_depth())
    (depth,) = read(store, HOUR, step=HOUR, queue="mail").depths[""].values()

    assert depth.counts == (20, 20, 0, 0)


def test_flow_is_what_comes_and_goes(store, clock):
    """Jobs per second over the last half minute, by their ids and by the history."""
    clock.advance(10 - clock.now_us() // config.SECOND_US % 10)
    at = clock.now_us() // 1_000
    kept = [made(id=id_at(at + number)) for number in range(60)]
    gone = [made(id=id_at(at + 60 + number), policy=Policy(keep=0)) for number in range(30)]
    store.enqueue([*kept, *gone])
    store.succeed(store.claim(worker="w", queues=["default"], limit=90))
    clock.advance(6)
    write(store, {("mail", "send"): sums(72), ("mail", "spam"): sums(3, end=RunEnd.DEAD)})
    clock.advance(21)
    flow = store.run(read_flow())
    clock.advance(60)

    assert flow == Flow(enqueued=3.0, finished=2.5, succeeded=2.4)
    assert store.run(read_flow()) == Flow(0, 0, 0)


def test_a_fast_flow_is_read_off_the_newest_ids(store, clock, monkeypatch):
    """Of more jobs than are read, the rate is that of the newest."""
    monkeypatch.setattr(config, "LIST_SCAN_ROWS_MAX", 50)
    clock.advance(10 - clock.now_us() // config.SECOND_US % 10)
    at = clock.now_us() // 1_000
    store.enqueue([made(id=id_at(at + 10 * number)) for number in range(200)])
    clock.advance(20)

    assert pytest.approx(store.run(read_flow()).enqueued, rel=0.01) == 50 / (10 - 1.5)
