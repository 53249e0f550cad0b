"""The judge: reads what was said and what was committed, and knows what must never be.

The numbers are those of the invariants, as the simulation has them:

1.  An acknowledged enqueue is never lost: the job ends in exactly one terminal state. A follow-up
    is there if its parent has succeeded.
2.  No job comes from nowhere; no follow-up without its parent's success.
3.  An id is one job, however often it is enqueued.
4.  A run is settled once, a job ends once; and it succeeds only by a run that said so.
5.  Nobody changes a job by a lease that is another's, or that was ended.
6.  Attempts and tokens rise by one with each claim, attempts to their bound; a job is given up for
    its own failures only.
7.  A lease is not given before the one before it was ended, or has expired by the database's clock.
8.  A key is held by one live job.
12. Nothing is claimed or started before its time.
13. What a dead process ran is run again within a bounded time.
14. What was cancelled while it waited is not run, what was asked to cancel does not come back, and
    who waits to be cancelled hears of it.
15. What is stored in the end is what was committed on the way.
16. When nothing goes wrong any more, all jobs end.
17. A handler gets the job that was asked for: its kind, its tenant.
18. The database says of itself that it is whole.
19. What a handler writes in the transaction of its success is there once, and only with it.
20. Each tick of a schedule is enqueued once, and none is left out of one that makes up for all;
    and they go on coming.
21. A run that is cut short leaves a trace in the job's errors; and what never began is not counted
    as an attempt.
22. A job with one attempt is run at most once, and not given up before it was run.

First it is told every line of the journals, then every event of the witness, then what is stored
in the end. It keeps a record a job, and looks at each line once.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from rowlock.chaos.job_record import FLEETING, Acknowledged, Run, Story
from rowlock.chaos.journal import Line, Word
from rowlock.chaos.witness import Event, Settled, What

# Two clocks of one machine, of which one counts milliseconds.
SLACK_US: Final = 5_000
SLACK_NS: Final = 50_000_000
ONCE: Final = "once"
MORTAL: Final = ("doom", "poison", ONCE)
TICK: Final = "tick"
# A scheduler may be late: all of them are lost now and then.
TICK_NS_MAX: Final = 60_000_000_000

# This many findings of each number are shown; all are counted.
SHOWN_MAX: Final = 10

ToMonotonic = Callable[[int], int]


class Judge:
    """Hears everybody, then sees everything."""

    def __init__(self, to_monotonic: ToMonotonic) -> None:
        """`to_monotonic`: the nanosecond of a time of the database."""
        self._to_monotonic = to_monotonic
        self.findings: Findings = Findings()
        self.counts: Counter[str] = Counter()
        self.stories: dict[str, Story] = {}
        self.ended_at: list[int] = []
        self._follows: dict[str, tuple[str, int]] = {}
        self._keys: dict[tuple[str, str, str], str] = {}
        self._ticks: dict[str, set[int]] = {}

    def _story(self, job: str) -> Story:
        story = self.stories.get(job)
        if story is None:
            story = self.stories[job] = Story()
        return story

    # What processes said

    def hear(self, line: Line) -> None:
        """A line of a journal; those of one process come in their order."""
        match line.word:
            case Word.ASK:
                self._asked(line)
            case Word.ACK:
                self._acknowledged(line)
            case Word.UNKNOWN:
                self.counts["unknown"] += 1
            case Word.CANCELLED:
                self._story(line.job).cancel = line.rest
                self.counts["cancels"] += 1
            case Word.START:
                self._started(line)
            case Word.END:
                run = self._story(line.job).runs.get(line.token)
                if run is not None:
                    run.end, run.how = line.at, line.rest
            case Word.FOLLOW:
                self._follows[line.job] = (line.rest, line.token)
                self._ask_for(line.job, "brief", None)
            case Word.CANCEL | Word.STRIKE | Word.OVER:
                pass

    def _asked(self, line: Line) -> None:
        kind, tenant, delay = line.rest.split()
        story = self._ask_for(line.job, kind, None if tenant == "-" else tenant)
        # The first time counts: what is sent again was due from then on.
        story.asked_at = story.asked_at or line.at
        story.delay = int(delay)
        self.counts["asked"] += 1

    def _ask_for(self, job: str, kind: str, tenant: str | None) -> Story:
        story = self._story(job)
        story.kind, story.tenant = kind, tenant
        return story

    def _acknowledged(self, line: Line) -> None:
        story, is_own = self._story(line.job), line.rest == line.job
        is_again = story.told is not Acknowledged.NOTHING
        self.counts["repeats" if is_again else "acknowledged"] += 1
        story.told = Acknowledged.OWN if is_own else Acknowledged.ANOTHER

    def _started(self, line: Line) -> None:
        story, job, token = self._story(line.job), line.job, line.token
        self.counts["runs"] += 1
        if token in story.runs:
            self.findings.add(4, f"{job} is run twice with token {token}")
        story.runs[token] = Run(line.at, line.pid)
        _, kind, tenant = line.rest.split()
        if kind == TICK:
            story.kind = TICK
        elif (kind, tenant) != (story.kind, story.tenant or "-") and story.asked_at:
            wanted = f"{story.kind} of {story.tenant}"
            self.findings.add(17, f"{job} was asked for as {wanted}, and run as {kind} of {tenant}")

    # What was committed

    def see(self, event: Event) -> None:
        """An event of the witness; those of one job come in their order."""
        story = self._story(event.job)
        match event.what:
            case What.INSERTED:
                self._inserted(story, event)
            case What.CLAIMED:
                self._claimed(story, event)
            case What.BEATEN:
                self._check_actor(story, event, "beat for")
            case What.MARKED:
                story.marked.add(event.token)
            case What.FLAGGED:
                story.is_flagged = event.is_cancelled
            case What.RETURNED:
                self._returned(story, event)
            case What.DELETED:
                self._deleted(story, event)
            case What.FINISHED:
                self._finished(story, event)
            case What.CHANGED:
                self.findings.add(4, f"{event.job} was finished, and is written again")

    def _inserted(self, story: Story, event: Event) -> None:
        story.inserted += 1
        story.is_again = story.inserted > 1
        if not story.is_again:
            # Of an id that was given, tokens start at the clock.
            story.token = event.token
        if event.kind == TICK:
            story.kind = TICK
            self._tick(event)
        elif story.kind is None:
            self.findings.add(2, f"{event.job} ({event.kind}) was never asked for")
        if event.key is not None:
            key = (event.tenant or "", event.kind, event.key)
            other = self._keys.get(key)
            if other is not None and other != event.job:
                self.findings.add(8, f"{event.job} has the key {key}, which {other} holds")
            self._keys[key] = event.job

    def _tick(self, event: Event) -> None:
        meta = json.loads(event.meta or "{}")
        tick = round(datetime.fromisoformat(meta["tick"]).timestamp())
        ticks = self._ticks.setdefault(meta["schedule"], set())
        if tick in ticks:
            self.findings.add(20, f"tick {tick} of {meta['schedule']} was fired twice")
        ticks.add(tick)
        self.counts["ticks"] += 1

    def _claimed(self, story: Story, event: Event) -> None:
        job = event.job
        self.counts["claims"] += 1
        if story.is_again:
            self.findings.add(3, f"{job} is there a second time, and is claimed")
        if story.is_over:
            number = 14 if story.state == "cancelled" else 4
            self.findings.add(number, f"{job} is {story.state or 'gone'}, and is claimed")
        if story.is_held:
            self.findings.add(7, f"{job} is claimed over the lease of token {event.was_token}")
        if event.token != (event.was_token or 0) + 1:
            self.findings.add(6, f"{job}: a claim made token {event.was_token} {event.token}")
        if event.attempt != (event.was_attempt or 0) + 1:
            self.findings.add(6, f"{job}: a claim made attempt {event.was_attempt} {event.attempt}")
        if event.max_attempts is not None and event.attempt > event.max_attempts:
            self.findings.add(6, f"{job} has more attempts than {event.max_attempts}")
        if event.run_at is not None and event.run_at > event.at + SLACK_US:
            early = event.run_at - event.at
            self.findings.add(12, f"{job} was claimed {early} µs before its time")
        if event.is_cancelled:
            self.findings.add(14, f"{job} was claimed though somebody asked to cancel it")
        story.token, story.is_held, story.holder = event.token, True, event.actor

    def _returned(self, story: Story, event: Event) -> None:
        job = event.job
        self._check_held(story, event, "given back")
        was = event.was_attempt or 0
        # What is known not to have begun comes back without a trace, too.
        is_expired = event.lease is not None and event.lease <= event.at
        is_lost = event.is_taken and (event.is_noted or is_expired)
        if not is_lost:
            self._check_actor(story, event, "gave back")
        story.is_held = False
        run = story.runs.get(event.token)
        if run is not None:
            run.returned = self._to_monotonic(event.at)
        if event.attempt not in (was, max(0, was - 1)):
            self.findings.add(6, f"attempt {was} of {job} became {event.attempt}")
        if run is not None and not event.is_noted:
            self.findings.add(21, f"{job} was run with token {event.token}, and left no trace")
        if run is None and event.attempt == was and event.token not in story.marked:
            self.findings.add(21, f"{job} never began with token {event.token}, and was counted")
        if run is not None and event.attempt < was:
            self.counts["interrupted"] += 1
        if event.is_cancelled:
            self.findings.add(14, f"{job} was asked to cancel, and came back")
        if not is_lost:
            return
        self._check_expired(event)
        self.counts["rescues"] += 1
        if run is not None and run.end is not None and run.end > (run.returned or 0):
            self.counts["late ends"] += 1

    def _check_expired(self, event: Event) -> None:
        if event.lease is not None and event.lease > event.at + SLACK_US:
            left = event.lease - event.at
            self.findings.add(7, f"{event.job} was taken while its lease had {left} µs left")

    def _check_held(self, story: Story, event: Event, how: str) -> None:
        if not story.is_held or story.token != event.token:
            self.findings.add(5, f"{event.job} is {how} with token {event.token}, not its holder's")

    def _check_actor(self, story: Story, event: Event, what: str) -> None:
        """Whether it was the holder itself; known only where connections have names."""
        if event.actor is not None and story.is_held and event.actor != story.holder:
            self.findings.add(5, f"{event.actor} {what} {event.job}, which {story.holder} holds")

    def _deleted(self, story: Story, event: Event) -> None:
        if event.key is not None:
            self._keys.pop((event.tenant or "", event.kind, event.key), None)
        if event.lease is not None:
            self._ended(story, event)
        elif story.is_again:
            story.is_again, story.inserted = False, story.inserted - 1
            self.counts["withdrawn"] += 1
        elif story.state is None:
            story.is_withdrawn, story.inserted = True, story.inserted - 1

    def _ended(self, story: Story, event: Event) -> None:
        story.ends += 1
        if story.ends > 1:
            self.findings.add(4, f"{event.job} has ended a second time")
        if story.is_held or story.state is None:
            self._check_held(story, event, "ended")
        if story.kind == FLEETING and not event.is_cancelled:
            self._check_actor(story, event, "ended")
            self._check_success(story, event)
        if story.kind == FLEETING or story.state is not None:
            story.is_held = False

    def _finished(self, story: Story, event: Event) -> None:
        story.settles += 1
        if story.settles > 1:
            self.findings.add(4, f"{event.job} was {story.state}, and has become {event.state}")
        if story.is_withdrawn:
            story.is_withdrawn, story.inserted = False, story.inserted + 1
        if not event.is_taken:
            self._check_actor(story, event, "ended")
        story.state = event.state
        if event.state == "succeeded":
            self._check_success(story, event)
        elif event.state == "dead":
            self.counts["dead"] += 1
            if story.kind not in MORTAL:
                self.findings.add(6, f"{event.job} ({story.kind}) was given up")
            self.counts["poisoned"] += story.kind == "poison"
        if story.ends:
            story.is_held = False

    def _check_success(self, story: Story, event: Event) -> None:
        job, token, run = event.job, event.token, story.runs.get(event.token)
        at = self._to_monotonic(event.at)
        self.ended_at.append(at)
        self.counts["succeeded"] += 1
        if run is None:
            self.findings.add(4, f"{job} has succeeded with token {token}, which was never run")
        elif run.end is None or run.how != "ok":
            said = run.how or "nothing"
            self.findings.add(4, f"{job} has succeeded with token {token}, whose run said {said}")
        elif run.end > at + SLACK_NS:
            late = (run.end - at) / 1e6
            self.findings.add(5, f"{job} has succeeded {late:.0f} ms before run {token} ended")

    # What is stored in the end

    def close(
        self,
        *,
        settled: Iterable[Settled],
        live: Iterable[str],
        effects: Iterable[tuple[str, int]],
        scheduled: tuple[int, int],
    ) -> None:
        """Compare with what is there in the end.

        Args:
            scheduled: From when, and until when, there was a schedule (monotonic nanoseconds).
        """
        stored = 0
        for row in settled:
            stored += 1
            story = self._story(row.job)
            if (row.state, row.token) != (story.state, story.token):
                known = f"{story.state} with token {story.token}"
                self.findings.add(15, f"{row.job} is {row.state} with {row.token}, and was {known}")
        if stored != sum(story.state is not None for story in self.stories.values()):
            self.findings.add(15, f"{stored} jobs are stored as finished, and others were")
        for job in live:
            self.findings.add(16, f"{job} ({self._story(job).kind}) has not ended")
        for job, story in self.stories.items():
            self._check_end(job, story)
        for job, (parent, token) in self._follows.items():
            self._check_follow(job, parent, token)
        self._check_effects(effects)
        self._check_ticks(*scheduled)

    def _check_ticks(self, first: int, last: int) -> None:
        all_ticks = itertools.chain.from_iterable(self._ticks.values())
        fired = [self._to_monotonic(tick * 1_000_000) for tick in all_ticks]
        begun, ended = (min(fired), max(fired)) if fired else (last, first)
        if begun - first > TICK_NS_MAX or last - ended > TICK_NS_MAX:
            silent = max(begun - first, last - ended) / 1e9
            self.findings.add(20, f"no schedule was fired for {silent:.0f} s")
        for name, ticks in self._ticks.items():
            for before, after in itertools.pairwise(sorted(ticks)):
                if after - before != 1:
                    self.findings.add(20, f"{name} was fired at {before} and next at {after}")

    def _check_end(self, job: str, story: Story) -> None:
        if story.kind == ONCE:
            self._check_once(job, story)
        if story.is_again:
            self.findings.add(3, f"{job} is there a second time")
        if story.told is Acknowledged.OWN and not story.inserted:
            self.findings.add(1, f"{job} was acknowledged, and never was there")
        elif story.told is Acknowledged.OWN and not story.is_over:
            self.findings.add(1, f"{job} was acknowledged, and has not ended")
        if story.told is Acknowledged.ANOTHER and story.inserted:
            self.findings.add(3, f"{job} is there, and another answered for it")
        if story.cancel == "cancelled" and story.state != "cancelled" and story.kind != FLEETING:
            self.findings.add(14, f"{job} was cancelled, and is {story.state}")
        is_deaf = story.kind == "linger" and story.state != "cancelled"
        if story.cancel == "pending_on_worker" and is_deaf:
            self.findings.add(14, f"{job} waited to be cancelled, and is {story.state}")
        for token, run in story.runs.items():
            if story.delay and run.start < story.asked_at + story.delay * 1_000_000:
                early = story.asked_at + story.delay * 1_000_000 - run.start
                self.findings.add(12, f"{job} started {early / 1e6:.0f} ms too early ({token})")

    def _check_once(self, job: str, story: Story) -> None:
        if len(story.runs) > 1:
            self.findings.add(22, f"{job} has one attempt, and was run {len(story.runs)} times")
        if story.state == "dead":
            self.counts["once and interrupted"] += 1
            # Marked as begun, and killed before its first line: a moment of some microseconds.
            self.counts["once and never run"] += not story.runs

    def _check_follow(self, job: str, parent: str, token: int) -> None:
        leader = self._story(parent)
        is_wanted = leader.state == "succeeded" and leader.token == token
        if is_wanted and not self._story(job).inserted:
            self.findings.add(1, f"{job} was to follow {parent}, which succeeded")
        if not is_wanted and self._story(job).inserted:
            self.findings.add(2, f"{job} follows {parent}, which did not succeed with {token}")

    def _check_effects(self, effects: Iterable[tuple[str, int]]) -> None:
        written: Counter[str] = Counter()
        for job, token in effects:
            written[job] += 1
            story = self._story(job)
            if story.state != "succeeded" or story.token != token:
                self.findings.add(19, f"{job} is {story.state}, and run {token} has left its row")
        for job, story in self.stories.items():
            if story.kind == "book" and story.state == "succeeded" and written[job] != 1:
                self.findings.add(19, f"{job} has succeeded, and left {written[job]} rows")
        self.counts["effects"] = sum(written.values())


class Findings:
    """Counts everything, and keeps the first few texts of each number."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.texts: dict[int, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, number: int, text: str) -> None:
        """Something that must never be was."""
        self.counts[number] += 1
        texts = self.texts.setdefault(number, [])
        if len(texts) < SHOWN_MAX:
            texts.append(text)

    def lines(self) -> list[str]:
        """All that is kept, in the order of the numbers."""
        return [
            f"I{number}: {text}" for number in sorted(self.texts) for text in self.texts[number]
        ]
