"""The judge tells every promise that is broken, and no other: on journals written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime

import pytest

from rowlock import config
from rowlock.chaos.journal import Word
from rowlock.chaos.judge import TICK_NS_MAX
from rowlock.chaos.plan import Fault
from rowlock.chaos.witness import FinishedRow, What
from tests.chaos.history import OTHER, SECOND_US, History, to_monotonic

CRASHED = json.dumps([{"type": "Crashed", "message": "its process died: killed by SIGKILL"}])
GOOD: list[Callable[[History], None]] = []
BAD: list[tuple[int, Callable[[History], None]]] = []


def good(write: Callable[[History], None]) -> Callable[[History], None]:
    GOOD.append(write)
    return write


def breaks(number: int) -> Callable[[Callable[[History], None]], Callable[[History], None]]:
    def note(write: Callable[[History], None]) -> Callable[[History], None]:
        BAD.append((number, write))
        return write

    return note


@good
def a_plain_life(history: History) -> None:
    history.live_well()


@good
def unknown_and_never_there(history: History) -> None:
    history.ask()
    history.say(Word.UNKNOWN)


@good
def unknown_and_there(history: History) -> None:
    history.ask()
    history.say(Word.UNKNOWN)
    history.insert()
    history.run()
    history.finish()


@good
def sent_again_after_its_end(history: History) -> None:
    history.live_well()
    history.insert()
    history.note(What.DELETED)
    history.acknowledge()


@good
def its_key_is_another_s(history: History) -> None:
    history.live_well("a")
    history.ask("b")
    history.acknowledge("b", answer="a")


@good
def interrupted_with_a_trace(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.give_back(attempt=0)
    history.run(token=2)
    history.finish(token=2)


@good
def given_back_before_it_began(history: History) -> None:
    history.make()
    history.claim()
    history.give_back(attempt=0, is_noted=False)
    history.run(token=2)
    history.finish(token=2)


@good
def marked_and_lost_before_its_first_line(history: History) -> None:
    history.make()
    history.claim()
    history.lose()
    history.claim(token=2, attempt=1)
    history.lose(token=2, was_attempt=1, attempt=0)
    history.claim(token=3, attempt=1)
    history.note(What.MARKED, token=3)
    history.lose(token=3, was_attempt=1, attempt=1)
    history.claim(token=4, attempt=2)
    history.start(token=4)
    history.end(token=4)
    history.finish(token=4, attempt=2)


@good
def killed_alone_before_its_first_line(history: History) -> None:
    history.make()
    history.claim()
    history.crash()
    history.run(token=2)
    history.finish(token=2)


@good
def lost_before_it_began_and_taken_by_another(history: History) -> None:
    history.make(kind="once")
    history.claim(kind="once")
    history.give_back(kind="once", attempt=0, is_noted=False, is_taken=True, actor=OTHER)
    history.run(token=2, kind="once")
    history.finish(token=2, kind="once")


@good
def once_and_interrupted(history: History) -> None:
    history.make(kind="once")
    history.claim(kind="once")
    history.start(told="once -")
    history.finish(state="dead", kind="once")


@breaks(21)
def run_and_given_back_without_a_trace(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.give_back(attempt=0, is_noted=False)
    history.run(token=2)
    history.finish(token=2)


@breaks(21)
def counted_though_it_never_began(history: History) -> None:
    history.make()
    history.claim()
    history.give_back()
    history.run(token=2)
    history.finish(token=2)


@breaks(21)
def crashed_and_counted_though_only_one_can_have_begun(history: History) -> None:
    for job in ("a", "b"):
        history.make(job=job)
        history.claim(job=job)
        history.crash(job)
        history.run(job=job, token=2)
        history.finish(job=job, token=2)


@breaks(22)
def once_and_again(history: History) -> None:
    history.make(kind="once")
    history.claim(kind="once")
    history.start(told="once -")
    history.give_back(kind="once", attempt=0)
    history.run(token=2, kind="once")
    history.finish(token=2, kind="once")


@good
def killed_and_run_again(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.strike()
    history.crash()
    history.run(token=2)
    history.finish(token=2)


@good
def failed_and_run_again(history: History) -> None:
    history.make(kind="falter")
    history.claim(kind="falter")
    history.start(told="falter -")
    history.end(how="fail")
    history.give_back(kind="falter")
    history.run(token=2, kind="falter")
    history.finish(token=2, kind="falter")


@good
def killed_with_another(history: History) -> None:
    for job in "ab":
        history.make(job)
        history.claim(job)
        history.start(job)
    history.strike()
    for job in "ab":
        history.crash(job, attempt=0)
    for job in "ab":
        history.claim(job, token=2, attempt=1)
        history.start(job, token=2)
        history.end(job, token=2)
        history.finish(job, token=2, attempt=1)


@good
def poison_that_crashes_alone(history: History) -> None:
    history.make(kind="poison")
    for token in (1, 2):
        history.claim(token=token, kind="poison")
        history.start(token=token, told="poison -")
        history.crash(token=token, kind="poison", worker=f"w{token}")
    history.claim(token=3, kind="poison")
    history.start(token=3, told="poison -")
    history.finish(token=3, state="dead", kind="poison")


@good
def failed_without_a_word_before_another_crashed(history: History) -> None:
    history.make("a", kind="book")
    history.claim("a", kind="book")
    history.start("a", told="book -")
    history.give_back("a", kind="book", worker="w")
    history.make("b")
    history.claim("b")
    history.start("b")
    history.strike()
    history.crash("b")
    history.run("b", token=2)
    history.finish("b", token=2)
    history.run("a", token=2, kind="book")
    history.finish("a", token=2, kind="book")
    history.effects.append(("a", 2))


def strike_alone(history: History, times: int) -> None:
    """Kill the process of a job, each time while nothing else runs in it."""
    for token in range(1, times + 1):
        history.claim(token=token, max_attempts=2)
        history.start(token=token, pid=token)
        history.strike(pid=token)
        if token < times:
            history.crash(token=token, worker=f"w{token}")


@good
def struck_alone_until_its_attempts_are_used_up(history: History) -> None:
    history.make()
    strike_alone(history, times=2)
    history.finish(token=2, state="dead", max_attempts=2, errors=CRASHED)


@good
def used_up_and_not_kept(history: History) -> None:
    history.make(kind="fleeting")
    history.claim(kind="fleeting", max_attempts=1)
    history.start(told="fleeting -")
    history.strike()
    # One of the two databases writes it in this order.
    history.note(What.DELETED, token=1, lease=history.now, kind="fleeting", actor=OTHER)
    dead = {"state": "dead", "kind": "fleeting", "errors": CRASHED, "max_attempts": 1}
    history.note(What.FINISHED, token=1, is_taken=False, **dead)
    history.settled.append(FinishedRow("a", "dead", 1))


@good
def interrupted_until_the_bound(history: History) -> None:
    history.make()
    for token in range(1, config.INTERRUPTIONS_MAX + 1):
        history.claim(token=token, attempt=1, was_attempt=0, max_attempts=5)
        history.start(token=token)
        if token < config.INTERRUPTIONS_MAX:
            history.give_back(token=token, was_attempt=1, attempt=0)
    history.finish(token=config.INTERRUPTIONS_MAX, attempt=1, state="dead", max_attempts=5)


@breaks(6)
def crashed_and_counted_though_nothing_struck_it(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.crash()
    history.run(token=2)
    history.finish(token=2)


@breaks(6)
def crashed_and_counted_though_another_process_was_struck(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.strike(pid=2)
    history.crash()
    history.run(token=2)
    history.finish(token=2)


@breaks(6)
def crashed_and_counted_though_its_process_was_only_stopped(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.strike(Fault.PAUSE_CHILD)
    history.crash()
    history.run(token=2)
    history.finish(token=2)


@breaks(6)
def counted_as_alone_beside_another(history: History) -> None:
    for job in "ab":
        history.make(job)
        history.claim(job)
        history.start(job)
    history.strike()
    history.crash("a")
    history.crash("b", attempt=0)
    history.run("a", token=2)
    history.finish("a", token=2)
    history.claim("b", token=2, attempt=1)
    history.start("b", token=2)
    history.end("b", token=2)
    history.finish("b", token=2, attempt=1)


@breaks(6)
def lost_once_and_counted(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.lose(attempt=1)
    history.run(token=2)
    history.finish(token=2)


@breaks(6)
def failed_though_its_handler_did_not(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.give_back()
    history.run(token=2)
    history.finish(token=2)


@breaks(6)
def dead_with_attempts_left(history: History) -> None:
    history.make()
    strike_alone(history, times=1)
    history.finish(state="dead", max_attempts=2, errors=CRASHED)


@breaks(6)
def dead_of_its_last_attempt_though_nothing_struck_it(history: History) -> None:
    history.make()
    strike_alone(history, times=1)
    history.crash()
    history.claim(token=2, max_attempts=2)
    history.start(token=2, pid=2)
    history.finish(token=2, state="dead", max_attempts=2, errors=CRASHED)


@good
def expired_and_taken_and_ended_late(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.lose()
    history.end()
    history.claim(token=2, attempt=1, actor=OTHER)
    history.start(token=2)
    history.end(token=2)
    history.finish(token=2, attempt=1, actor=OTHER)


@good
def released(history: History) -> None:
    history.make()
    history.claim()
    history.give_back(attempt=0)
    history.claim(token=2, attempt=1)
    history.start(token=2)
    history.end(token=2)
    history.finish(token=2, attempt=1)


@good
def cancelled_while_it_waited(history: History) -> None:
    history.make()
    history.note(What.FINISHED, state="cancelled")
    history.note(What.DELETED)
    history.settled.append(FinishedRow("a", "cancelled", 0))
    history.say(Word.CANCELLED, rest="cancelled")


@good
def the_same_told_in_the_other_order(history: History) -> None:
    history.make()
    history.note(What.DELETED)
    history.note(What.FINISHED, state="cancelled")
    history.settled.append(FinishedRow("a", "cancelled", 0))


@good
def not_kept(history: History) -> None:
    history.make(kind="fleeting")
    history.run(kind="fleeting")
    history.note(What.DELETED, token=1, lease=history.now, kind="fleeting")


@good
def a_key_that_is_free_again(history: History) -> None:
    history.make("a", key="k")
    history.run("a")
    history.finish("a", key="k")
    history.make("b", key="k")
    history.run("b")
    history.finish("b", key="k")


@good
def followed(history: History) -> None:
    history.make("a", kind="lead")
    history.claim("a", kind="lead")
    history.start("a", told="lead -")
    history.say(Word.FOLLOW, "b", 1, "a")
    history.end("a")
    history.finish("a", kind="lead")
    history.insert("b")
    history.run("b")
    history.finish("b")


@good
def written_once(history: History) -> None:
    history.live_well(kind="book")
    history.effects.append(("a", 1))


@breaks(1)
def acknowledged_and_never_there(history: History) -> None:
    history.ask()
    history.acknowledge()


@breaks(1)
def acknowledged_and_gone(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.end()
    history.note(What.DELETED, token=1, lease=history.now)


@breaks(1)
def a_follow_up_is_missing(history: History) -> None:
    history.make(kind="lead")
    history.claim(kind="lead")
    history.start(told="lead -")
    history.say(Word.FOLLOW, "b", 1, "a")
    history.end()
    history.finish(kind="lead")


@breaks(2)
def nobody_asked_for_it(history: History) -> None:
    history.insert()
    history.run()
    history.finish()


@breaks(2)
def it_follows_nothing(history: History) -> None:
    history.make("a", kind="lead")
    history.claim("a", kind="lead")
    history.start("a", told="lead -")
    history.say(Word.FOLLOW, "b", 1, "a")
    history.insert("b")
    history.run("b")
    history.finish("b")
    history.give_back("a")
    history.claim("a", 2, kind="lead")
    history.start("a", 2, told="lead -")
    history.end("a", 2)
    history.finish("a", 2, kind="lead")


@breaks(3)
def there_a_second_time(history: History) -> None:
    history.live_well()
    history.insert()


@breaks(3)
def run_a_second_time(history: History) -> None:
    history.live_well()
    history.insert()
    history.claim(token=1)


@breaks(3)
def there_though_another_answered(history: History) -> None:
    history.live_well("a")
    history.ask("b")
    history.insert("b")
    history.acknowledge("b", answer="a")
    history.run("b")
    history.finish("b")


@breaks(4)
def succeeded_without_a_word(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.finish()


@breaks(4)
def succeeded_after_a_failure(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.end(how="fail")
    history.finish()


@breaks(4)
def succeeded_and_never_run(history: History) -> None:
    history.make()
    history.claim()
    history.finish()


@breaks(4)
def ended_twice(history: History) -> None:
    history.live_well()
    history.note(What.FINISHED, token=1, state="dead", kind="doom")


@breaks(4)
def overwritten(history: History) -> None:
    history.live_well()
    history.note(What.CHANGED, token=1, state="dead")


@breaks(4)
def run_twice_with_one_token(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.start()
    history.end()
    history.finish()


@breaks(4)
def claimed_after_its_end(history: History) -> None:
    history.live_well()
    history.claim(token=2)


@breaks(5)
def ended_by_another(history: History) -> None:
    history.make()
    history.run()
    history.finish(actor=OTHER)


@breaks(5)
def ended_before_its_run(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.finish()
    history.end()


@breaks(5)
def beaten_by_another(history: History) -> None:
    history.make()
    history.claim()
    history.note(What.BEATEN, token=1, actor=OTHER)
    history.start()
    history.end()
    history.finish()


@breaks(5)
def given_back_by_another(history: History) -> None:
    history.make()
    history.claim()
    history.give_back(actor=OTHER)
    history.run(token=2)
    history.finish(token=2)


@breaks(5)
def given_back_and_not_held(history: History) -> None:
    history.make()
    history.give_back(token=0)
    history.run()
    history.finish()


@breaks(6)
def a_token_that_does_not_grow(history: History) -> None:
    history.make()
    history.claim(was_token=1)
    history.start()
    history.end()
    history.finish()


@breaks(6)
def an_attempt_is_left_out(history: History) -> None:
    history.make()
    history.claim(was_attempt=3)
    history.start()
    history.end()
    history.finish()


@breaks(6)
def more_attempts_than_allowed(history: History) -> None:
    history.make()
    history.claim(attempt=3, max_attempts=2)
    history.start()
    history.end()
    history.finish()


@breaks(6)
def a_return_takes_two_attempts_back(history: History) -> None:
    history.make()
    history.claim(attempt=3)
    history.give_back(was_attempt=3, attempt=1)
    history.claim(token=2)
    history.start(token=2)
    history.end(token=2)
    history.finish(token=2)


@breaks(6)
def given_up_for_nothing(history: History) -> None:
    history.make()
    history.claim()
    history.start()
    history.finish(state="dead")


@breaks(7)
def claimed_over_a_lease(history: History) -> None:
    history.make()
    history.claim()
    history.run(token=2)
    history.finish(token=2)


@breaks(7)
def taken_before_it_expired(history: History) -> None:
    history.make()
    history.claim()
    history.give_back(is_taken=True, lease=history.now + 20 * SECOND_US)
    history.run(token=2)
    history.finish(token=2)


@breaks(8)
def two_with_one_key(history: History) -> None:
    history.make("a", key="k")
    history.make("b", key="k")
    for job in "ab":
        history.run(job)
        history.finish(job)


@breaks(12)
def claimed_too_early(history: History) -> None:
    history.make()
    history.claim(run_at=history.now + 20 * SECOND_US)
    history.start()
    history.end()
    history.finish()


@breaks(12)
def started_too_early(history: History) -> None:
    history.ask(delay=60_000)
    history.insert()
    history.acknowledge()
    history.run()
    history.finish()


@breaks(14)
def cancelled_and_claimed(history: History) -> None:
    cancelled_while_it_waited(history)
    history.claim()


@breaks(14)
def asked_to_cancel_and_claimed(history: History) -> None:
    history.make()
    history.claim(is_cancelled=True)
    history.start()
    history.end()
    history.finish()


@breaks(14)
def asked_to_cancel_and_back(history: History) -> None:
    history.make()
    history.claim()
    history.give_back(is_cancelled=True)
    history.run(token=2)
    history.finish(token=2)


@breaks(14)
def told_that_it_is_cancelled(history: History) -> None:
    history.live_well()
    history.say(Word.CANCELLED, rest="cancelled")


@breaks(14)
def it_never_heard_of_it(history: History) -> None:
    history.live_well(kind="linger")
    history.say(Word.CANCELLED, rest="pending_on_worker")


@breaks(15)
def stored_otherwise(history: History) -> None:
    history.live_well()
    history.settled = [FinishedRow("a", "dead", 1)]


@breaks(15)
def not_stored(history: History) -> None:
    history.live_well()
    history.settled = []


@breaks(16)
def never_drained(history: History) -> None:
    history.ask()
    history.insert()
    history.live.append("a")


@breaks(17)
def run_as_another_kind(history: History) -> None:
    history.make()
    history.claim()
    history.start(told="plain -")
    history.end()
    history.finish()


@breaks(17)
def run_for_another_tenant(history: History) -> None:
    history.make()
    history.claim()
    history.start(told="brief acme")
    history.end()
    history.finish()


@breaks(19)
def written_twice(history: History) -> None:
    history.live_well(kind="book")
    history.effects += [("a", 1), ("a", 1)]


@breaks(19)
def written_never(history: History) -> None:
    history.live_well(kind="book")


@breaks(19)
def written_by_a_run_that_failed(history: History) -> None:
    history.make(kind="book")
    history.claim(kind="book")
    history.start(told="book -")
    history.give_back()
    history.run(token=2, kind="book")
    history.finish(token=2, kind="book")
    history.effects += [("a", 1), ("a", 2)]


def fire(history: History, job: str, second: int) -> None:
    meta = {"schedule": "every second", "tick": f"2030-01-01T00:00:{second:02}+00:00"}
    history.insert(job, kind="tick", meta=json.dumps(meta))
    history.run(job, kind="tick")
    history.finish(job, kind="tick")
    at = to_monotonic(round(datetime.fromisoformat(meta["tick"]).timestamp()) * SECOND_US)
    history.scheduled = (history.scheduled[0] or at, at)


@good
def ticks(history: History) -> None:
    for second, job in enumerate("abc"):
        fire(history, job, second)


@breaks(20)
def a_tick_comes_twice(history: History) -> None:
    fire(history, "a", 1)
    fire(history, "b", 1)


@breaks(20)
def a_tick_is_left_out(history: History) -> None:
    fire(history, "a", 1)
    fire(history, "b", 3)


@breaks(20)
def ticks_come_no_more(history: History) -> None:
    fire(history, "a", 1)
    since, until = history.scheduled
    history.scheduled = (since, until + TICK_NS_MAX + 1)


@breaks(20)
def no_tick_ever_comes(history: History) -> None:
    history.live_well()
    history.scheduled = (0, TICK_NS_MAX + 1)


def pooled(history: History, job: str, lane: int = 0) -> None:
    """A claimed job under the limit of two at once of a lane, and six in all."""
    place = {"kind": "pooled", "limit_name": "pool", "limit_key": str(lane)}
    history.make(job, **place)
    history.claim(job, **place)
    history.start(job, told="pooled -")


def end_pooled(history: History, job: str) -> None:
    history.end(job)
    history.finish(job, kind="pooled", limit_name="pool", limit_key="0")


@good
def two_at_once_and_then_the_next(history: History) -> None:
    pooled(history, "a")
    pooled(history, "b")
    end_pooled(history, "a")
    pooled(history, "c")
    for job in "bc":
        end_pooled(history, job)


@good
def a_lease_that_is_lost_is_a_free_slot(history: History) -> None:
    place = {"kind": "pooled", "limit_name": "pool", "limit_key": "0"}
    pooled(history, "a")
    pooled(history, "b")
    history.lose("a", **place)
    pooled(history, "c")
    for job in "bc":
        end_pooled(history, job)
    history.claim("a", token=2, **{**place, "attempt": 1})
    history.start("a", 2, "pooled -")
    history.end("a", 2)
    history.finish("a", 2, **{**place, "attempt": 1})


@breaks(9)
def three_of_a_key_at_once(history: History) -> None:
    for job in "abc":
        pooled(history, job)


@breaks(9)
def seven_in_all_at_once(history: History) -> None:
    for number, job in enumerate("abcdefg"):
        pooled(history, job, lane=number)


def metered(history: History, job: str, *, started_at: int, lane: int = 0) -> None:
    """A run under the limit of 60 starts a second, six at once; of a lane 20, two at once."""
    place = {"kind": "metered", "limit_name": "meter", "limit_key": str(lane)}
    history.make(job, **place)
    history.claim(job, **place, started_at=started_at)
    history.start(job, told="metered -")
    history.end(job)
    history.finish(job, **place)


@good
def starts_at_the_rate(history: History) -> None:
    for number, job in enumerate("abcd"):
        metered(history, job, started_at=SECOND_US + max(0, number - 1) * 50_000)


@good
def throttled_and_run_again(history: History) -> None:
    place = {"kind": "metered", "limit_name": "meter", "limit_key": "0"}
    history.make("a", **place)
    history.claim("a", **place, started_at=SECOND_US)
    history.start("a", told="metered -")
    history.end("a", how="throttled")
    history.give_back("a", **{**place, "attempt": 0, "is_noted": False})
    history.claim("a", 2, **{**place, "attempt": 1}, started_at=2 * SECOND_US)
    history.start("a", 2, "metered -")
    history.end("a", 2)
    history.finish("a", 2, **{**place, "attempt": 1})


@breaks(9)
def a_start_too_early_for_its_key(history: History) -> None:
    for number, job in enumerate("abcd"):
        metered(history, job, started_at=SECOND_US + max(0, number - 1) * 49_999)


@breaks(9)
def a_start_too_early_in_all(history: History) -> None:
    for number, job in enumerate("abcdefgh"):
        metered(history, job, started_at=SECOND_US, lane=number)


def lined(history: History, job: str, place: int, token: int = 1) -> None:
    """A run of a job in an order."""
    limit = {"kind": "lined", "limit_name": "line", "limit_key": "0", "place": place}
    history.claim(job, token, **limit)
    history.start(job, token, "lined -")
    history.end(job, token)
    history.finish(job, token, **limit)


def make_lined(history: History, job: str, place: int) -> None:
    history.make(job, "lined", limit_name="line", limit_key="0", place=place)


@good
def one_after_the_other(history: History) -> None:
    make_lined(history, "b", 1)
    make_lined(history, "a", 2)
    lined(history, "b", 1)
    lined(history, "a", 2)


@good
def before_one_that_nobody_knew_of(history: History) -> None:
    history.ask("b", "lined")
    history.insert("b", kind="lined", limit_name="line", limit_key="0", place=1)
    make_lined(history, "a", 2)
    lined(history, "a", 2)
    history.acknowledge("b")
    lined(history, "b", 1)


@breaks(10)
def one_overtakes_another(history: History) -> None:
    make_lined(history, "b", 1)
    make_lined(history, "a", 2)
    lined(history, "a", 2)
    lined(history, "b", 1)


@breaks(10)
def one_overtakes_another_that_waits_for_its_retry(history: History) -> None:
    limit = {"kind": "lined", "limit_name": "line", "limit_key": "0", "place": 1}
    make_lined(history, "b", 1)
    make_lined(history, "a", 2)
    history.claim("b", **limit)
    history.start("b", told="lined -")
    history.end("b", how="fail")
    history.give_back("b", **limit)
    lined(history, "a", 2)
    lined(history, "b", 1, token=2)


@pytest.mark.parametrize("write", GOOD, ids=lambda write: write.__name__)
def test_a_good_life_is_good(write):
    """Nothing is found where nothing is wrong."""
    history = History()
    write(history)

    assert history.judge().findings.lines() == []


@pytest.mark.parametrize(("number", "write"), BAD, ids=lambda each: getattr(each, "__name__", each))
def test_a_broken_promise_is_told(number, write):
    """Each violation is found, by its number."""
    history = History()
    write(history)

    assert number in history.judge().findings.counts


def test_what_makes_a_run_hard_is_counted():
    """Rescues, late ends, repeats: what the gates ask for."""
    history = History()
    expired_and_taken_and_ended_late(history)
    history.acknowledge()
    counts = history.judge().counts

    assert {name: counts[name] for name in ("rescues", "late ends", "repeats")} == {
        "rescues": 1,
        "late ends": 1,
        "repeats": 1,
    }
