"""A real store behind the model's face: numbers for ids, microseconds since the start for times."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from rowlock.clock import ManualClock, from_us
from rowlock.job import Job, Lease, Page, Policy
from rowlock.lifecycle import (
    CancelSeen,
    Crashed,
    Failed,
    Interrupted,
    NotBegun,
    Outcome,
    Released,
    Succeeded,
    Throttle,
)
from rowlock.limits import Limit, Rate, chosen_numbers
from rowlock.store import JobFilter, KnownPolicy, NewJob, Settlement, Store
from rowlock.store.ops.hold import begin
from rowlock.store.ops.recover import GIVEN_UP
from rowlock.store.options import LimitPlace, new_job
from rowlock.store.steps import Op
from tests.model.limits import LimitSpec, RateSpec
from tests.model.model import SECOND, Chosen, New, Rules, Run, View, Wanted, id_of

UNSTORABLE = float("nan")
PAGES_MAX = 1_000
_EVIDENCE = "signal 9"


class LowestChance(random.Random):
    """Chance that always draws the lowest number, so that the waits of jitter are known."""

    def uniform(self, a: float, b: float) -> float:
        return min(a, b)


class StoreSubject:
    """Speaks to a store as to the model, blocking or, with a loop's runner, async."""

    def __init__(self, store: Store, clock: ManualClock, loop: asyncio.Runner | None) -> None:
        self._store = Store(store.engine, chance=LowestChance())
        self._clock = clock
        self._start = clock.now_us()
        self._loop = loop
        self._ids: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._leases: dict[tuple[int, int], Lease] = {}

    def _call(self, verb: str, *args: Any, **options: Any) -> Any:
        if self._loop is None:
            return getattr(self._store, verb)(*args, **options)
        return self._loop.run(getattr(self._store, f"a{verb}")(*args, **options))

    def _run(self, make: Callable[..., Op[Any]], *args: Any, **options: Any) -> Any:
        """As `_call`, for what is no verb of the store."""
        op = make(*args, **options)
        return self._store.run(op) if self._loop is None else self._loop.run(self._store.arun(op))

    def number(self, id: str) -> int:
        return self._numbers[id]

    def advance(self, microseconds: int) -> None:
        """Nothing: the clock is shared, and the model's keeper moves it."""

    def reopen(self) -> None:
        self._call("close")

    def enqueue(self, asked: Sequence[tuple[int, New]]) -> list[tuple[bool, View]]:
        jobs = [self._new_job(number, new) for number, new in asked]
        return [
            (job.created, self._view(job) if job.created else self._brief(job))
            for job in self._call("enqueue", jobs)
        ]

    def _new_job(self, number: int, new: New) -> NewJob:
        asked = new_job(
            kind=new.kind,
            payload=f'{{"n":{new.payload}}}',
            queue=new.queue,
            priority=new.priority,
            tenant=new.tenant,
            key=new.key,
            key_hold=_hold(new.hold),
            if_held="replace" if new.replaces else None,
            quiet=None if new.quiet is None else new.quiet / SECOND,
            max_wait=None if new.max_wait is None else new.max_wait / SECOND,
            max_attempts=new.max_attempts,
            run_at=None if new.run_at is None else from_us(self._start + new.run_at),
            delay=None if new.delay is None else new.delay / SECOND,
            tags=new.tags,
            id=self._ids.get(number),
            policy=None if new.rules is None else _policy(new.rules),
            limit=(
                None if new.limit is None else LimitPlace(new.limit, new.limit_key, new.is_ordered)
            ),
        )
        self._ids[number] = asked.id
        self._numbers[asked.id] = number
        return asked

    def claim(self, wanted: Wanted) -> list[View]:
        known = {
            kind: KnownPolicy(_policy(rules).encoded(), attempts)
            for kind, (rules, attempts) in wanted.policies.items()
        }
        leases: list[Lease] = self._call(
            "claim",
            worker=wanted.worker,
            queues=wanted.queues,
            kinds=wanted.kinds,
            tenants=wanted.tenants,
            limit=wanted.limit,
            lease=wanted.lease / SECOND,
            include_expired=wanted.include_expired,
            policies=known,
            begun=wanted.begun,
        )
        for held in leases:
            assert (held.token, held.worker) == (held.job.token, held.job.worker)
            self._leases[self._numbers[held.id], held.token] = held
        return [self._view(held.job) for held in leases]

    def _lease(self, number: int, token: int, *, by_hand: bool = False) -> Lease:
        held = self._leases[number, token]
        return Lease(id=held.id, token=held.token) if by_hand else held

    def heartbeat(self, leases: Sequence[tuple[int, int]], lease: int) -> list[str]:
        held = [self._lease(number, token) for number, token in leases]
        return [beat.value for beat in self._call("heartbeat", held, lease=lease / SECOND)]

    def begin(self, leases: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        held = self._run(begin, [self._lease(number, token) for number, token in leases])
        return sorted((self._numbers[id], token) for id, token in held)

    def progress(self, number: int, token: int, fraction: float, text: str) -> None:
        self._call("progress", self._lease(number, token), fraction=fraction, text=text)

    def log(self, number: int, token: int, lines: Sequence[str]) -> None:
        self._call("log", self._lease(number, token), lines)

    def read_log(self, number: int) -> list[str]:
        return [line.text for line in self._call("read_log", self._id(number))]

    def settle(self, runs: Sequence[Run], *, by_hand: bool) -> None:
        """By the verb that a user would call, or by `settle` where there is none."""
        leases = [self._lease(run.number, run.token, by_hand=by_hand) for run in runs]
        follow_ups = [[self._new_job(*new) for new in run.follow_ups] for run in runs]
        endings = {run.ending for run in runs}
        if any(follow_ups) or len(endings) > 1:
            self._settle_mixed(runs, leases, follow_ups)
        elif endings <= {"succeed", "unstorable"}:
            self._call("succeed", leases, [_result(run) for run in runs])
        elif endings <= {"crash", "crash_together"} and _is_natural(runs):
            self._call("crash", leases, _EVIDENCE)
        elif len(runs) > 1 or endings <= {"crash", "crash_together", "interrupted", "not_begun"}:
            self._settle_mixed(runs, leases, follow_ups)
        else:
            self._settle_one(runs[0], leases[0])

    def _settle_one(self, run: Run, lease: Lease) -> None:
        match run.ending:
            case "fail" | "permanent":
                permanent = run.ending == "permanent"
                self._call("fail", lease, "boom", delay=run.seconds, permanent=permanent)
            case "release":
                self._call("release", lease, run.seconds or 0)
            case "throttle":
                self._call("settle", [Settlement(lease, _outcome(run))])
            case _:
                self._call("finish_cancelled", lease)

    def _settle_mixed(
        self, runs: Sequence[Run], leases: Sequence[Lease], follow_ups: Sequence[list[NewJob]]
    ) -> None:
        together = zip(runs, leases, follow_ups, strict=True)
        settlements = [Settlement(lease, _outcome(run), jobs) for run, lease, jobs in together]
        self._call("settle", settlements)

    def recover(self, older_than: int, queues: Sequence[str] | None) -> int:
        count: int = self._call("recover", older_than / SECOND, queues)
        return count

    def adopt_orphans(self, queues: Sequence[str], action: str, older_than: int) -> int:
        count: int = self._call("adopt_orphans", queues, action, older_than / SECOND)
        return count

    def release_worker(self, worker: str) -> int:
        count: int = self._call("release_worker", worker)
        return count

    def cancel(self, number: int) -> tuple[str, str]:
        answer = self._call("cancel", self._id(number))
        return answer.outcome.value, answer.state.value

    def retry(self, number: int, payload: int | None) -> View:
        text = None if payload is None else f'{{"n":{payload}}}'
        return self._view(self._call("retry", self._id(number), text))

    def retry_dead(self, chosen: Chosen) -> tuple[int, list[int]]:
        answer = self._call("retry_dead", _filter(chosen))
        return answer.retried, [self._numbers[id] for id in answer.skipped]

    def run_now(self, number: int) -> View:
        return self._view(self._call("run_now", self._id(number)))

    def reschedule(self, number: int, delay: int) -> View:
        wait = timedelta(microseconds=delay)
        return self._view(self._call("reschedule", self._id(number), delay=wait))

    def reroute(self, number: int, queue: str) -> View:
        return self._view(self._call("reroute", self._id(number), queue))

    def delete(self, number: int) -> None:
        self._call("delete", self._id(number))

    def pause(self, queue: str) -> None:
        self._call("pause", queue)

    def resume(self, queue: str) -> None:
        self._call("resume", queue)

    def set_order(self, queue: str, order: str) -> None:
        self._call("set_order", queue, order)

    def declare_limit(self, name: str, spec: LimitSpec) -> bool:
        return bool(self._call("declare_limits", [_limit(name, spec).declared]))

    def set_limit(self, name: str, key: str | None, spec: LimitSpec, weight: int | None) -> None:
        chosen = chosen_numbers(
            key=key,
            concurrency=spec.concurrency,
            rate=_rate(spec.rate),
            concurrency_per_key=spec.key_concurrency,
            rate_per_key=_rate(spec.key_rate),
            weight=weight,
        )
        self._call("set_limit", name, key, chosen)

    def unset_limit(self, name: str, key: str | None) -> None:
        self._call("unset_limit", name, key)

    def pause_limit(self, name: str, key: str | None, microseconds: int | None) -> None:
        seconds = None if microseconds is None else microseconds / SECOND
        self._call("pause_limit", name, key, seconds)

    def resume_limit(self, name: str, key: str | None) -> None:
        self._call("resume_limit", name, key)

    def prune(self) -> int:
        count: int = self._call("prune")
        return count

    def get(self, number: int) -> View | None:
        job = self._call("get", self._id(number))
        return None if job is None else self._view(job)

    def list(self, chosen: Chosen, *, state: str | None, limit: int) -> Sequence[View]:
        views: list[View] = []
        cursor = None
        for _ in range(PAGES_MAX):
            page: Page = self._call(
                "list", _filter(chosen), state=state, limit=limit, cursor=cursor, full=True
            )
            assert len(page) <= limit
            views += [self._view(job) for job in page]
            cursor = page.next
            if cursor is None:
                return views
        raise AssertionError("a listing that never ends")

    def stats(self, queues: Sequence[str] | None) -> Sequence[View]:
        return [
            {
                "queue": stats.queue,
                "counts": {state.value: count.value for state, count in stats.counts.items()},
                "oldest": stats.oldest_ready_seconds,
                "is_paused": stats.is_paused,
            }
            for stats in self._call("stats", queues)
        ]

    def workers(self) -> dict[str, Sequence[int]]:
        return {
            worker.id: sorted(self._numbers[id] for id in worker.running)
            for worker in self._call("workers")
        }

    def _id(self, number: int) -> str:
        return self._ids.get(number, id_of(number))

    def _brief(self, job: Job) -> View:
        return {
            "number": self._numbers[job.id],
            "kind": job.kind,
            "queue": job.queue,
            "tenant": job.tenant,
            "key": job.key,
            "state": job.state.value,
            "token": job.token,
        }

    def _view(self, job: Job) -> View:
        progress = job.progress
        return {
            **self._brief(job),
            "payload": job.payload,
            "priority": job.priority,
            "attempt": job.attempt,
            "max_attempts": job.max_attempts,
            "run_at": self._since(job.run_at),
            "created_at": self._since(job.created_at),
            "started_at": self._since(job.started_at),
            "finished_at": self._since(job.finished_at),
            "lease_expires_at": self._since(job.lease_expires_at),
            "worker": job.worker,
            "crashes": job.crashes,
            "cancel_requested": job.cancel_requested,
            "errors": [
                (error.attempt, error.time_us - self._start, error.type, self._message(error))
                for error in job.errors
            ],
            "result": job.result,
            "progress": None if progress is None else (progress.fraction, progress.text),
            "tags": job.tags,
            "retry": job.retry,
            "keep": job.keep,
            "max_crashes": job.max_crashes,
            "limit": job.limit,
            "limit_key": job.limit_key,
        }

    def _message(self, error: Any) -> str:
        """The text of an error, without what the contract leaves open."""
        if error.type == "ResultNotStored":
            return ""
        if error.type == "Superseded":
            return f"superseded by {self._numbers[error.message.rpartition(' ')[2]]}"
        if error.message == GIVEN_UP.reason:
            return "gave up"
        return "orphaned" if error.message.startswith("orphaned") else str(error.message)

    def _since(self, moment: Any) -> int | None:
        if moment is None:
            return None
        return int((moment - from_us(self._start)) // timedelta(microseconds=1))


def _rate(rate: RateSpec | None) -> Rate | None:
    return None if rate is None else Rate(rate.starts, period=rate.seconds, burst=rate.burst)


def _limit(name: str, spec: LimitSpec) -> Limit:
    return Limit(
        name,
        concurrency=spec.concurrency,
        rate=_rate(spec.rate),
        per="n",
        concurrency_per_key=spec.key_concurrency,
        rate_per_key=_rate(spec.key_rate),
        weights=dict(spec.weights),
        ordered=spec.is_ordered,
        on_dead="pause" if spec.pauses_when_dead else "continue",
    )


def _hold(hold: int | str | None) -> Any:
    if hold is None:
        return "in_flight"
    return hold if isinstance(hold, str) else hold / SECOND


def _policy(rules: Rules) -> Policy:
    return Policy(
        retry=["fixed", rules.retry],
        keep=rules.keep,
        keep_dead=rules.keep_dead,
        max_crashes=rules.max_crashes,
    )


def _filter(chosen: Chosen) -> JobFilter:
    return JobFilter(
        kind=chosen.kind,
        queue=chosen.queue,
        tenant=chosen.tenant,
        key=chosen.key,
        tag=chosen.tag,
    )


def _result(run: Run) -> Any:
    return UNSTORABLE if run.ending == "unstorable" else run.result


def _is_natural(runs: Sequence[Run]) -> bool:
    """Whether `crash` itself would judge these runs as they say: one alone, several together."""
    return (len(runs) == 1) == (runs[0].ending == "crash")


def _outcome(run: Run) -> Outcome:  # noqa: PLR0911  # one line an ending
    delay = None if run.seconds is None else round(run.seconds * SECOND)
    match run.ending:
        case "succeed":
            return Succeeded(None if run.result is None else str(run.result))
        case "unstorable":
            return Succeeded(None, "can't be stored")
        case "fail" | "permanent":
            return Failed("Error", "boom", permanent=run.ending == "permanent", delay=delay)
        case "release":
            return Released(delay or None)
        case "throttle":
            return Throttle(delay or 0, "429")
        case "not_begun":
            return NotBegun(delay or None)
        case "interrupted":
            return Interrupted(_EVIDENCE)
        case "cancelled":
            return CancelSeen()
        case _:
            return Crashed(_EVIDENCE, alone=run.ending == "crash")
