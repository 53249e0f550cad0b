"""The supervisor: starts children that run user code, sends heartbeats for their leases, and cleans
up after them. It runs no user code itself, so no handler can stop its heartbeats.

1. It beats for exactly the leases that its children have in shared memory. But not for a stopped
   child, which could not notice a lost lease, nor for leases that it has revoked (`Stalls`).
2. A child's leases are given back only when the child is dead. Runs that had started have crashed,
   the others are released. It looks once more a little later, for a claim that was under way.
3. A child with a run past its deadline claims nothing more, and another takes its place. It is
   killed when its other jobs have ended, or had their grace. Then that run has failed.
4. It ends when all children have ended, and its exit code says whether that went well.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import random
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from rowlock import config
from rowlock.chance import CHANCE
from rowlock.errors import StoreRefused, StoreUnavailable
from rowlock.ids import new_id
from rowlock.job import Lease
from rowlock.lifecycle import Crashed, Interrupted, NotBegun, Outcome
from rowlock.store import Settlement, Store, open_store
from rowlock.store.ops.recover import Seen, sweep
from rowlock.store.ops.settle import Settled, settle
from rowlock.store.url import hurried, masked
from rowlock.version import __version__
from rowlock.worker import signals
from rowlock.worker.children import Child, Stalls, overdue_outcome, start_child, suspects
from rowlock.worker.counts import ProcessCounts
from rowlock.worker.process import SourceWatch, Title, how_it_ended
from rowlock.worker.report import DETAILS, first_names, report
from rowlock.worker.settings import (
    EXIT_LEFT_BEHIND,
    EXIT_NOT_LOADED,
    EXIT_NOT_STARTED,
    EXIT_UNFIT,
    WorkerSettings,
)
from rowlock.worker.shared_memory import LeaseSlot, SlotState, Snapshot, Totals
from rowlock.worker.trouble import ServiceName, Trouble

logger: logging.Logger = logging.getLogger("rowlock.worker")

_TICK_SECONDS = 0.2
# The problems with their database that children report.
_PROBLEMS = {"waiting": "waits to start", "unfit": "can't work here"}
# Why a child never ran, by its exit code. If the first one does not start, the others won't either.
_NEVER_STARTED = {
    EXIT_NOT_LOADED: "{} can't be loaded",
    EXIT_NOT_STARTED: "a start hook of {} has failed",
}
# Most problems and warnings of children that are logged.
_LOGGED_MAX = 1_000
# A drain has failed if this many children in a row die without running a job.
_FRUITLESS_MAX = 5


class Supervisor:
    """Runs `processes` children until it is stopped."""

    def __init__(
        self,
        *,
        app: str,
        processes: int,
        settings: WorkerSettings,
        max_memory_mb: int | None = None,
        reload_from: Path | None = None,
        has_metrics: bool = False,
        has_banner: bool = True,
    ) -> None:
        self._app = app
        self._processes = processes
        self._settings = settings
        self._max_memory_mb = max_memory_mb
        self._has_metrics = has_metrics
        self._has_banner = has_banner
        self._was_idle = False
        # The counts of children that are gone.
        self._past_totals = Totals()
        self._watch = None if reload_from is None else SourceWatch(reload_from)
        self._title = Title("rowlock worker")
        self._children: dict[int, Child] = {}
        self._guard = threading.Lock()
        self._failures = 0
        self._exit_code = 0
        # The problems that were logged.
        self._logged: set[str] = set()
        self._next_start: dict[int, float] = {}
        self._must_look_again = False
        self._fruitless: dict[int, int] = {}
        self._wishes = signals.Wishes()
        self._is_hurried = False
        self._stop_since: float | None = None
        self._counts = ProcessCounts()
        self._stalls = Stalls()
        self._leases = ChildLeases(
            self._children,
            self._guard,
            stalls=self._stalls,
            settings=settings,
            counts=self._counts,
            on_late_return=self._on_late_return,
        )
        what = "children can't be started"
        self._starting = Trouble(what, ServiceName.START, self._counts.errors)
        self._wake, self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._name = f"{socket.gethostname()[:60]}-{os.getpid()}"

    def run(self) -> int:
        """Supervise until the end, and return the exit code."""
        # Before the first child: a SIGTERM during start-up must not be lost.
        self._listen_to_signals()
        self._next_start = dict.fromkeys(range(self._processes), 0.0)
        try:
            while not self._is_done():
                self._start_missing()
                self._wait()
                self._bury_dead()
                self._stalls.look(self._children.values(), self._leases.give_back_revoked)
                self._end_overdue()
                self._reload_changed()
                self._leases.do_due()
                self._push_stop()
        finally:
            self._kill_all()
            self._leases.close()
        return self._exit_code or min(1, self._failures)

    # Signals and waiting

    def _listen_to_signals(self) -> None:
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._drain_wake)
        signals.obey(self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        wish = self._wishes.hear()
        if self._stop_since is None:
            logger.info("stopping: %s", signal.Signals(number).name)
            self._stop_since = time.monotonic()
            self._leases.is_stopping = True
            for child in self._children.values():
                child.leave()
        elif wish is signals.Wish.STOP_AT_ONCE:
            self._is_hurried = True
            self._kill_all()

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)

    def _wait(self) -> None:
        self._title.show(f"rowlock supervisor: {len(self._children)} children of {self._app}")
        for key, _ in self._selector.select(_TICK_SECONDS):
            key.data()

    def _is_done(self) -> bool:
        if self._children or (self._leases.is_busy and not self._is_out_of_patience()):
            return False
        return self._stop_since is not None or not self._next_start

    def _push_stop(self) -> None:
        """Kill children that do not end in time at a stop."""
        if self._is_out_of_patience():
            self._kill_all()

    def _is_out_of_patience(self) -> bool:
        """Whether a stop has taken too long to wait any longer for a database that is away."""
        if self._stop_since is None:
            return False
        patience = self._settings.grace_seconds + 2 * config.STOP_SECONDS
        return time.monotonic() - self._stop_since > patience

    def _kill_all(self) -> None:
        for child in self._children.values():
            child.process.kill()

    # Children

    def _start_missing(self) -> None:
        now = time.monotonic()
        for number, due in list(self._next_start.items()):
            # A signal may come between two of them.
            if due <= now and self._stop_since is None:
                del self._next_start[number]
                self._start(number)

    def _start(self, number: int) -> None:
        is_first = self._stalls.needs_maintainer
        # Short: it is in two rows of every job. Process ids are reused, but not soon.
        worker = f"{self._name}-{number}-{new_id()[-8:]}"
        settings = msgspec.structs.replace(self._settings, is_first=is_first)
        try:
            child = start_child(
                number,
                app=self._app,
                worker=worker,
                settings=settings,
                has_counts=self._has_metrics,
            )
        except OSError as error:
            # No process, descriptor or memory is left. The running children continue.
            self._next_start[number] = time.monotonic() + self._starting.pause(error)
            return
        self._starting.over()
        process = child.process
        with self._guard:
            self._children[process.pid] = child
        if is_first:
            self._stalls.appoint(child)
        self._selector.register(child.hear, selectors.EVENT_READ, lambda: self._read(child))
        if self._stop_since is not None:
            # The signal came while it was being started, so it does not know yet.
            child.leave()
        logger.info("child %d started: process %d, worker %s", number, process.pid, worker)

    def _read(self, child: Child) -> None:
        received = os.read(child.hear, 65536)
        if not received:
            self._selector.unregister(child.hear)
            return
        *lines, child.unread = (child.unread + received).split(b"\n")
        for line in lines:
            self._on_message(json.loads(line))

    def _on_message(self, message: dict[str, Any]) -> None:
        if "url" in message:
            self._on_hello(message)
            return
        if "idle" in message:
            self._on_idle()
            return
        # All children have the same problem: it is logged once.
        for name, text in message.items():
            if text in self._logged or len(self._logged) >= _LOGGED_MAX:
                continue
            self._logged.add(text)
            if name == "warning":
                logger.warning("%s", text)
            else:
                logger.error("the worker %s: %s", _PROBLEMS[name], text)

    def _on_hello(self, message: dict[str, Any]) -> None:
        """The first child sends the database's URL: the supervisor never imports the app."""
        if not self._leases.is_open:
            if self._has_banner:
                self._log_banner(message["url"], message["tasks"])
            self._leases.open(message["url"], schema=message["schema"])

    def _log_banner(self, url: str, tasks: list[str]) -> None:
        settings = self._settings
        queues = [f"{name}:{slots}" if slots else name for name, slots in _named(settings)]
        details = {
            "database": masked(url),
            "queues": first_names(queues) if queues else "all",
            "tasks": tasks or "none",
            "concurrency": settings.concurrency,
            "processes": self._processes,
        }
        logger.info(
            "rowlock %s runs the jobs of %s", __version__, self._app, extra={DETAILS: details}
        )

    def _on_idle(self) -> None:
        if not self._was_idle:
            self._was_idle = True
            is_last = self._settings.is_drain
            logger.info("nothing to do: %s", "no job is ready" if is_last else "waiting for jobs")

    def _bury_dead(self) -> None:
        for pid, child in list(self._children.items()):
            code = child.process.poll()
            if code is not None:
                with self._guard:
                    del self._children[pid]
                self._on_death(child, code)

    def _on_death(self, child: Child, code: int) -> None:
        ended_well, is_drained = child.ended_well(code), child.leases.is_drained()
        has_failed, is_unfit = child.has_failed(code), child.is_unfit(code)
        with contextlib.suppress(BlockingIOError, KeyError):
            # Its last messages.
            os.set_blocking(child.hear, False)
            self._read(child)
        self._leases.clean_up(child, code)
        with contextlib.suppress(KeyError):
            self._selector.unregister(child.hear)
        has_worked = child.has_worked()
        with self._guard:
            if child.counts is not None:
                self._past_totals.merge(child.counts.read())
            child.close()
        if code in _NEVER_STARTED and not self._leases.is_open and self._watch is None:
            problem = _NEVER_STARTED[code].format(self._app)
            self._give_up(f"{problem}: nothing was started", code=1)
            return
        if is_unfit and self._watch is None:
            self._give_up("the worker ends: it can't work on this database", code=EXIT_UNFIT)
            return
        if has_failed:
            self._counts.errors.count(ServiceName.ENGINE)
        if not ended_well:
            pid = child.process.pid
            how = "its engine has failed" if has_failed else how_it_ended(code)
            logger.error("child %d (process %d) died: %s", child.number, pid, how)
        if self._stop_since is not None:
            is_good = ended_well or self._is_hurried or bool(child.overdue)
            self._failures += not is_good
        elif not (ended_well and is_drained) and not self._has_successor(child):
            is_fit = (ended_well or has_worked) and not (has_failed or is_unfit)
            self._replace(child, is_fit=is_fit)
        else:
            self._look_again()

    def _give_up(self, reason: str, *, code: int) -> None:
        """End, because no child can work: the user should know."""
        if self._stop_since is None:
            logger.error("%s", reason)
            self._stop_since = time.monotonic()
            self._leases.is_stopping = True
            self._exit_code = code
        self._failures += 1
        for child in self._children.values():
            child.leave()

    def _replace(self, child: Child, *, is_fit: bool) -> None:
        """Start another: at once if this one could work, else after a growing pause.

        A child that a job has crashed could work. Each job's limit of crashes ends that.
        """
        if is_fit:
            self._fruitless.pop(child.number, None)
            self._next_start[child.number] = 0.0
            return
        if time.monotonic() - child.started_at > config.RESPAWN_SECONDS_MAX:
            self._fruitless.pop(child.number, None)
        count = self._fruitless[child.number] = self._fruitless.get(child.number, 0) + 1
        if self._settings.is_drain and count >= _FRUITLESS_MAX:
            self._failures += 1
            return
        longest = min(config.RESPAWN_SECONDS_MAX, config.RESPAWN_SECONDS * 2.0 ** min(count, 16))
        self._next_start[child.number] = time.monotonic() + CHANCE.uniform(longest / 2, longest)

    def snapshot(self) -> Snapshot:
        """What this worker has done and is doing. From any thread."""
        counts = Totals()
        with self._guard:
            children = [each for each in self._children.values() if each.counts is not None]
            counts.merge(self._past_totals)
            counts.merge(self._counts.totals)
            for child in children:
                assert child.counts is not None
                counts.merge(child.counts.read())
            busy = sum(child.leases.started() for child in children)
            ready = sum(child.is_ready() for child in children)
        slots = self._settings.concurrency * len(children)
        states = {"busy": busy, "free": max(0, slots - busy)}
        return Snapshot(counts, states, len(children), ready)

    def _on_late_return(self) -> None:
        """Jobs came back of which the other children may have looked for the last time by now."""
        if self._settings.is_drain:
            self._must_look_again = True
            self._look_again()

    def _look_again(self) -> None:
        """Start another child of a drain for jobs that came back late, after the others ended."""
        if self._must_look_again and not self._children:
            self._must_look_again = False
            self._next_start.setdefault(0, 0.0)

    def _end_overdue(self) -> None:
        """Retire a child with a run past its deadline, or that is too large or has run enough."""
        now = time.monotonic()
        for child in self._children.values():
            if child.is_killed:
                continue
            child.overdue = [slot for slot in child.leases.slots() if slot.is_overdue(now)]
            if child.overdue:
                self._retire(child)
            elif self._is_too_large(child):
                logger.info("child %d is replaced: it uses too much memory", child.number)
                child.leave()
            elif child.needs_relief(self._settings):
                child.is_relieved = True
                self._next_start.setdefault(child.number, 0.0)

    def _retire(self, child: Child) -> None:
        """Let the other runs of a child with one that does not stop finish, then kill it.

        Another child takes its place meanwhile.
        """
        job, fields = child.overdue[0].id, {"job_id": child.overdue[0].id}
        if not child.is_retired:
            child.is_retired = True
            logger.error(
                "child %d takes no more jobs: job %s does not stop",
                child.number,
                job,
                extra=fields,
            )
            child.leave()
            if self._count_of(child.number) < config.CHILDREN_OF_PLACE_MAX:
                self._next_start.setdefault(child.number, 0.0)
        if child.must_be_killed(self._settings):
            logger.error(
                "child %d is killed: job %s does not stop", child.number, job, extra=fields
            )
            child.is_killed = True
            child.process.kill()

    def _count_of(self, number: int) -> int:
        return sum(each.number == number for each in self._children.values())

    def _has_successor(self, child: Child) -> bool:
        staying = (each.number for each in self._children.values() if each.leaving_since is None)
        return child.number in {*staying, *self._next_start}

    def _reload_changed(self) -> None:
        """Replace all children when a source file has changed."""
        if self._watch is None or not self._watch.has_changed():
            return
        logger.info("a source file has changed: the children are replaced")
        for child in self._children.values():
            child.leave()
        # Children that failed to start may succeed now.
        self._fruitless.clear()
        self._next_start = dict.fromkeys(self._next_start, 0.0)

    def _is_too_large(self, child: Child) -> bool:
        # A child that has run no job yet is no larger than its successor would be.
        if self._max_memory_mb is None or child.leaving_since is not None:
            return False
        if not child.leases.finished():
            return False
        return child.memory_mb() > self._max_memory_mb


class ChildLeases:
    """The supervisor's side of the database: heartbeats, and the leases of dead children.

    Args:
        children: By process id; `guard` protects it from the heartbeats' thread.
        on_late_return: Called when jobs of a dead child came back later than its death.
    """

    # At a stop, only what a database that is back would take is tried again.
    is_stopping: bool = False

    def __init__(
        self,
        children: Mapping[int, Child],
        guard: threading.Lock,
        *,
        stalls: Stalls,
        settings: WorkerSettings,
        counts: ProcessCounts,
        on_late_return: Callable[[], None],
    ) -> None:
        self._children = children
        self._guard = guard
        self._stalls = stalls
        self._settings = settings
        self._counts = counts
        self._on_late_return = on_late_return
        # Unknown until the first child sends its URL.
        self._store: Store | None = None
        self._over = threading.Event()
        self._chance = random.Random()
        self._later = Later()
        self._seen: Seen = {}
        self._write_at = self._tell_at = 0.0
        errors = counts.errors
        what = "jobs of dead children can't be given back"
        self._giving_back = Trouble(what, ServiceName.SETTLE, errors)
        self._releasing = Trouble(what, ServiceName.RECOVER, errors)
        what = "jobs that a stalled child has not begun can't be given back"
        self._revoking = Trouble(what, ServiceName.SETTLE, errors)
        self._sweeping = Trouble("expired leases are not found", ServiceName.RECOVER, errors)
        self._firing = Trouble("schedules are not fired", ServiceName.SCHEDULES, errors)
        what = "the history of dead children is not written"
        self._writing = Trouble(what, ServiceName.HISTORY, errors)
        what = "events of dead children are not written"
        self._telling = Trouble(what, ServiceName.EVENTS, errors)
        self._beating = threading.Thread(target=self._beat_forever, daemon=True)

    def open(self, url: str, *, schema: str) -> None:
        """Begin the heartbeats on this database."""
        # A call that hangs for longer than a third of a lease costs a beat.
        hurried_url = hurried(url, self._settings.lease_seconds / 3)
        self._store = open_store(hurried_url, schema=schema)
        self._beating.start()

    @property
    def is_open(self) -> bool:
        """Whether its database is known."""
        return self._store is not None

    @property
    def is_busy(self) -> bool:
        """Whether jobs of dead children are still to be given back."""
        return bool(self._later)

    def do_due(self) -> None:
        """Try again what is due, and write the history from time to time."""
        self._later.do_due(all_of_them=self.is_stopping)
        self._write_history(at_once=False)

    def close(self) -> None:
        """Write the last of the history, and end the heartbeats."""
        self._write_history(at_once=True)
        self._over.set()
        if self._beating.is_alive():
            self._beating.join(config.STOP_SECONDS)
        if self._store is not None:
            self._store.close()

    # Children that are dead or stalled

    def clean_up(self, child: Child, code: int) -> None:
        """Give back the jobs of a dead child."""
        # If a job has two runs here, the earlier one had lost its lease.
        by_token = sorted(child.held(), key=lambda slot: slot.token)
        slots = {slot.id: slot for slot in by_token}.values()
        is_sudden = not child.ended_well(code)
        if not slots or self._store is None:
            if is_sudden:
                self._give_back_later(child.worker)
            return
        # We killed it or asked it to end, or the engine failed: no job is to blame.
        was_asked = _was_asked(child, code) or child.has_failed(code)
        is_ours = child.is_killed or was_asked or self.is_stopping
        crashed = [] if is_ours else suspects(slots, code)
        # A run that lost its lease or settled itself is not settled here, but may be to blame.
        is_alone = len(crashed) + len(child.lost()) == 1
        crash = Crashed(f"its process died: {how_it_ended(code)}", alone=is_alone)
        overdue = {slot.key for slot in child.overdue}
        reason = self._why_ended(child, code)

        def outcome_of(slot: LeaseSlot) -> Outcome:
            if slot.key in overdue:
                return overdue_outcome(slot)
            if slot in crashed:
                return crash
            return NotBegun() if slot.state is SlotState.HELD else Interrupted(reason)

        ended = [Settlement(slot.lease(child.worker), outcome_of(slot)) for slot in slots]
        rows = config.BURY_ROWS
        batches = [ended[at : at + rows] for at in range(0, len(ended), rows)]
        self._settle(batches, worker=child.worker if is_sudden else None)

    def _why_ended(self, child: Child, code: int) -> str:
        """Why the process ended, for its runs that are not to blame."""
        if child.overdue:
            return f"its process was ended because job {child.overdue[0].id} did not stop"
        if self.is_stopping or _was_asked(child, code):
            return "its worker was stopped, and the run did not end in time"
        if child.has_failed(code):
            return "the engine of its worker has failed"
        return f"its process died before its outcome was written: {how_it_ended(code)}"

    def give_back_revoked(self, child: Child, slots: list[LeaseSlot]) -> None:
        """Give back the jobs that a stalled child will not begin."""
        if self._store is None:
            return
        ended = [Settlement(slot.lease(child.worker), NotBegun()) for slot in slots]
        try:
            self._store.run(settle(ended, chance=self._chance))
        except Exception as error:  # noqa: BLE001  # until then no other worker can run these jobs
            again = functools.partial(self.give_back_revoked, child, slots)
            self._try_later(again, self._revoking, error)
            return
        self._revoking.over()

    def _settle(
        self, batches: list[list[Settlement]], *, worker: str | None, tries: int = 0
    ) -> None:
        """Write how the runs of a dead child ended, however long the database is away.

        Only then give back the claims that were under way, for a `worker` that died without notice.
        Sooner, crashed runs would be given back too, as if they had not begun.
        """
        assert self._store is not None
        while batches:
            batch, *rest = batches
            try:
                settled = self._store.run(settle(batch, chance=self._chance))
            except StoreRefused as error:
                if len(batch) == 1:
                    lease = batch[0].lease
                    self._counts.refused()
                    logger.warning("job %s is left until its lease expires: %s", lease.id, error)
                batches = [*(_halves(batch) if len(batch) > 1 else []), *rest]
                continue
            except Exception as error:  # noqa: BLE001  # until then their ends are not known
                # A batch that fails twice is halved and tried last: it may be too large.
                left = [*rest, *(_halves(batch) if tries else [batch])]
                again = functools.partial(self._settle, left, worker=worker, tries=tries + 1)
                self._try_later(again, self._giving_back, error)
                return
            self._giving_back.over()
            self._report_ended(batch, settled)
            batches = rest
        if worker is not None:
            self._give_back_later(worker)

    def _report_ended(self, batch: list[Settlement], settled: Settled) -> None:
        self._counts.ended(settled.ended)
        gone = {lease.id for lease in (*settled.lost, *settled.repeated)}
        report([each for each in batch if each.lease.id not in gone], settled.ended)
        for id in sorted(gone):
            logger.info(
                "job %s: another worker holds it, or its run was settled before the child died",
                id,
                extra={"job_id": id},
            )

    def _give_back_later(self, worker: str) -> None:
        for pause in config.GIVE_BACK_AGAIN_SECONDS:
            self._later.add(pause, functools.partial(self._give_back, worker))

    def _give_back(self, worker: str) -> None:
        if self._store is None:
            return
        try:
            released = self._store.release_worker(worker)
        except Exception as error:  # noqa: BLE001  # until then no process knows its leases
            self._try_later(lambda: self._give_back(worker), self._releasing, error)
            return
        self._releasing.over()
        if released:
            self._on_late_return()

    def _try_later(self, action: Callable[[], None], trouble: Trouble, error: Exception) -> None:
        """Do it again after a pause. At a stop, only if the database was away."""
        pause = trouble.pause(error)
        if not self.is_stopping or isinstance(error, StoreUnavailable):
            self._later.add(pause, action)
        else:
            logger.warning("jobs of dead children are left until their leases expire: %s", error)

    def _write_history(self, *, at_once: bool) -> None:
        """Write the history of dead children's jobs from time to time."""
        now, store = time.monotonic(), self._store
        if store is None:
            return
        if self._counts.has_events and (at_once or now >= self._tell_at):
            self._tell_at = now + self._telling.attempt(lambda: self._counts.tell(store))
        if at_once or now >= self._write_at:
            pause = self._writing.attempt(lambda: self._counts.write(store))
            self._write_at = now + (pause or config.HISTORY_WRITE_SECONDS)

    # Heartbeats, in their own thread

    def _beat_forever(self) -> None:
        trouble = Trouble("leases can't be extended", ServiceName.HEARTBEAT, self._counts.errors)
        pause = third = self._settings.lease_seconds / 3
        while not self._over.wait(CHANCE.uniform(0.8, 1.0) * pause):
            try:
                self._beat()
                trouble.over()
                pause = min(third, config.SWEEP_SECONDS) if self._stalls.needs_maintainer else third
            except Exception as error:  # noqa: BLE001  # without beats every lease would be lost
                pause = min(third, config.BEAT_RETRY_SECONDS_MAX, trouble.pause(error))
            self._sweeping.attempt(self._sweep)
            self._firing.attempt(self._fire)

    def _fire(self) -> None:
        """Fire due schedules while no child does, because all are stalled or dead."""
        assert self._store is not None
        if self._settings.fires_schedules and self._stalls.needs_maintainer:
            self._counts.enqueued_by_name(self._store.fire_due().numbers)

    def _sweep(self) -> None:
        """Find expired leases while no child does, because all are stalled or dead."""
        store = self._store
        assert store is not None
        if not self._stalls.needs_maintainer:
            self._seen = {}
            return
        op = sweep(store.local, self._seen, on_refused=self._counts.refused)
        self._seen = store.run(op)

    def _beat(self) -> None:
        assert self._store is not None
        held: list[tuple[Child, Lease]] = []
        with self._guard:
            for child in list(self._children.values()):
                if not child.is_stopped():
                    kept = [slot for slot in child.held() if not slot.is_revoked]
                    held += [(child, slot.lease(child.worker)) for slot in kept]
        if not held:
            return
        leases = [lease for _, lease in held]
        beats = self._store.heartbeat(leases, lease=self._settings.lease_seconds)
        with self._guard:
            for (child, lease), beat in zip(held, beats, strict=True):
                # A child that died meanwhile has no pipe any more.
                if self._children.get(child.process.pid) is child:
                    child.tell_of(lease, beat)


def _named(settings: WorkerSettings) -> Iterable[tuple[str, int]]:
    return [] if settings.queues is None else settings.queues.items()


def _was_asked(child: Child, code: int) -> bool:
    return code in (EXIT_LEFT_BEHIND, EXIT_UNFIT) and child.ended_well(code)


def _halves(batch: list[Settlement]) -> list[list[Settlement]]:
    """A batch as two, or unchanged if it has only one row."""
    middle = len(batch) // 2
    return [batch[:middle], batch[middle:]] if middle else [batch]


Action = Callable[[], None]


class Later:
    """Actions that wait for their time. Not for several threads at once."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, Action]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, seconds: float, action: Action) -> None:
        """Do an action after a pause."""
        self._waiting.append((time.monotonic() + seconds, action))

    def do_due(self, *, all_of_them: bool) -> None:
        """Do the actions that are due, or all of them. New ones wait for the next call."""
        now = time.monotonic()
        due = [action for at, action in self._waiting if all_of_them or at <= now]
        self._waiting = [each for each in self._waiting if not all_of_them and each[0] > now]
        for action in due:
            action()
