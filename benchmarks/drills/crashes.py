"""A SQLite queue whose process, disk or power fails at any write or sync: what is left of it?

The same deeds are done again and again; each time another call of the kernel goes wrong. What is
stored afterwards must be what was stored before the deed under way, or after it: never something
else, never less than what was acknowledged. Then the rest of the deeds is done, without a repair.
"""

from __future__ import annotations

import errno
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.drills.deeds import (
    DEEDS,
    DeedClock,
    enqueue_together,
    fold_often,
    open_for_deeds,
    stored,
)
from benchmarks.drills.syscalls import KILL, SYNCS, Call, Line, watched
from rowlock.errors import RowlockError

# Of these each request is acknowledged by itself: some of them may be there.
PIECEMEAL: Final = frozenset({DEEDS.index(enqueue_together)})
# Opening a file reads no less than it writes; these change one, or make a change last.
CHANGES: Final = frozenset(
    {"write", "pwrite64", "fsync", "fdatasync", "ftruncate", "unlink", "unlinkat", "fallocate"}
)
FAULTS: Final = {"kill": KILL, "ENOSPC": errno.ENOSPC, "EIO": errno.EIO}
BLOCK_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class Story:
    """An undisturbed run: what was stored after each deed, and the calls that made it so."""

    states: list[str]
    # The deed under way, and the call.
    calls: list[tuple[int, Call]]
    # How often the database file was opened by anyone in the process, and how often by SQLite.
    opened: int
    connected: int

    @property
    def syncs(self) -> list[int]:
        """For each deed that changed something: how many times the log was synced meanwhile."""
        counts = Counter(
            deed for deed, call in self.calls if call.name in SYNCS and "-wal" in call.path.name
        )
        changed = [d for d in range(1, len(DEEDS)) if self.states[d] != self.states[d - 1]]
        return [counts[deed] for deed in changed]

    def __str__(self) -> str:
        names = Counter(call.name for _, call in self.calls)
        told = ", ".join(f"{count} {name}" for name, count in names.most_common())
        return (
            f"{len(DEEDS)} deeds, {len(self.calls)} calls ({told}); the log was synced "
            f"{min(self.syncs)} times or more for each of {len(self.syncs)} that changed a row; "
            f"the file was opened {self.opened} times, {self.connected} of them by SQLite"
        )


@dataclass(slots=True)
class Crashed:
    """What became of the deeds that a fault struck, and what was wrong afterwards."""

    fault: str
    points: int = 0
    ends: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {end}" for end, count in self.ends.most_common())
        return f"{self.fault} at {self.points} calls: {ends}; {len(self.wrong)} wrong"


class Play:
    """One run of the deeds in a process that is watched, and what its watcher knows of it."""

    def __init__(self, path: Path, states: list[str] | None = None) -> None:
        self.path = path
        self.states = states
        # The deed under way.
        self.deed = 0
        self.seen: list[str] = []
        self.refusals: list[str] = []
        self.counts: dict[str, int] = {}

    def act(self, line: Line) -> None:
        """The child's part."""
        fold_often()
        clock = DeedClock()
        store = open_for_deeds(self.path, clock)
        counts = _count_opens(self.path)
        deed = 0
        while deed < len(DEEDS):
            clock.deed = deed
            try:
                DEEDS[deed](store)
                word = "done"
            except RowlockError as error:
                word = f"{type(error).__name__}: {error}"
            deed = line.ask([word, deed, counts])
        store.close()

    def hear(self, told: Any) -> int:
        """What to do next."""
        word, deed, self.counts = told
        if self.states is None:
            assert word == "done", word
            self.seen.append(stored(self.path))
            self.deed = deed + 1
        elif word == "done" and deed >= self.deed:
            self.deed = deed + 1
        else:
            # Refused, or opened anew after a crash.
            if word != "done":
                self.refusals.append(word)
            self.deed = self.judge(self.deed)
        return self.deed

    def judge(self, deed: int) -> int:
        """Where to go on, by what is stored. Raises `AssertionError` if it is neither here nor
        there.
        """
        assert self.states is not None
        if deed == 0:
            return 0
        found, before = stored(self.path), self.states[deed - 1]
        after = self.states[min(deed, len(DEEDS) - 1)]
        if found == after:
            return deed + 1
        check_between(deed, found, before=before, after=after)
        return deed


def _count_opens(path: Path) -> dict[str, int]:
    """Count what Python itself opens, and how often SQLite is asked to."""
    counts = {"python": 0, "sqlite": 0}

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "sqlite3.connect":
            counts["sqlite"] += 1
        elif event == "open" and str(arguments[0]) == str(path):
            counts["python"] += 1

    sys.addaudithook(heard)
    return counts


def check_between(deed: int, found: str, *, before: str, after: str) -> None:
    """What is stored is as before a deed, or some of its requests are done."""
    if found == before:
        return
    lines, least, most = (set(text.splitlines()) for text in (found, before, after))
    assert deed in PIECEMEAL and least <= lines <= most, (
        f"half of {DEEDS[deed].__name__}: {sorted(lines - most)[:3]} too many, "
        f"{sorted(least - lines)[:3]} missing"
    )


def tell_story() -> Story:
    """Do all deeds undisturbed."""
    calls: list[tuple[int, Call]] = []
    opened = 0
    with _place() as path:
        play = Play(path)

        def answer(call: Call) -> int:
            nonlocal opened
            if call.name in CHANGES and _is_of(path, call):
                calls.append((play.deed, call))
            opened += call.name == "openat" and call.path == path
            return 0

        code = watched(play.act, answer=answer, hear=play.hear)
    assert code == 0, f"the undisturbed run ended with {code}"
    return Story(play.seen, calls, opened, play.counts["sqlite"])


def strike(story: Story, fault: str, points: Iterable[int]) -> Crashed:
    """Let the n-th call go wrong, for each of the points; the first is 0."""
    crashed = Crashed(fault)
    for point in points:
        crashed.points += 1
        try:
            crashed.ends[_strike_once(story, fault, point)] += 1
        except AssertionError as error:
            deed, call = story.calls[min(point, len(story.calls) - 1)]
            crashed.wrong.append(f"{point} ({call}, {DEEDS[deed % len(DEEDS)].__name__}): {error}")
    return crashed


def _strike_once(story: Story, fault: str, point: int) -> str:
    verdict = FAULTS[fault]
    with _place() as path:
        play = Play(path, story.states)
        count, struck_at = 0, -1

        def answer(call: Call) -> int:
            nonlocal count, struck_at
            if call.name not in CHANGES or not _is_of(path, call):
                return 0
            count += 1
            if count - 1 == point:
                struck_at = play.deed
            # A full disk stays full until the deed has ended; other trouble is of one call.
            is_struck = count - 1 == point or (fault == "ENOSPC" and struck_at == play.deed)
            return verdict if is_struck and not (fault == "ENOSPC" and play.refusals) else 0

        code = watched(play.act, answer=answer, hear=play.hear)
        if code == -9:
            return _go_on(play, story)
        assert code == 0, f"ended with {code}"
        assert story.states[-1] == stored(path), "something else than without the fault"
        if not play.refusals:
            return "unharmed"
        assert all(text.startswith("StoreUnavailable") for text in play.refusals), play.refusals
    return "refused, then done"


def _go_on(play: Play, story: Story) -> str:
    """Open the file anew, as any process would, and do the rest."""
    deed = play.deed
    code = watched(play.act, answer=lambda _: 0, hear=play.hear)
    assert code == 0, f"ended with {code} after the crash"
    assert story.states[-1] == stored(play.path), "something else than without the crash"
    return "killed before the first deed" if deed == 0 else "killed, then gone on with"


def cut_power(story: Story, points: Collection[int], *, seed: int = 1) -> Crashed:
    """At each of the points, and after each deed, take away what was not synced: all of it, and
    then a random part of it.
    """
    crashed = Crashed("power cut")
    chance = random.Random(seed)
    with _place() as path, _place() as image:
        play, disk = Play(path), Disk(path)

        def look(*, done: bool) -> None:
            for some in (False, True):
                crashed.points += 1
                disk.copy_to(image, chance if some else None)
                try:
                    crashed.ends[_judge_image(story, image, deed=play.deed, done=done)] += 1
                except AssertionError as error:
                    crashed.wrong.append(f"during {play.deed}, some={some}: {error}")

        count = 0

        def answer(call: Call) -> int:
            nonlocal count
            disk.settle()
            if call.name in CHANGES and _is_of(path, call):
                if count in points:
                    look(done=False)
                count += 1
                disk.about_to(call)
            return 0

        def hear(told: Any) -> int:
            disk.settle()
            following = play.hear(told)
            look(done=True)
            return following

        code = watched(play.act, answer=answer, hear=hear)
    assert code == 0, f"ended with {code}"
    return crashed


def _judge_image(story: Story, image: Path, *, deed: int, done: bool) -> str:
    """Open what the disk has; `done`: all before `deed` is acknowledged, and it is not begun."""
    store = open_for_deeds(image, DeedClock())
    try:
        store.stats()
    except RowlockError as error:
        raise AssertionError(f"can't be opened: {error}") from error
    finally:
        store.close()
    found = stored(image)
    if deed == 0:
        return "as before"
    before = story.states[deed - 1]
    if not done and deed < len(DEEDS) and found == story.states[deed]:
        return "as after" if found != before else "as before"
    check_between(deed % len(DEEDS), found, before=before, after=story.states[deed % len(DEEDS)])
    return "as before"


class Disk:
    """What would be left of the files if the power failed now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, bytes] = {}
        self._coming: dict[str, bytes | None] = {}

    def about_to(self, call: Call) -> None:
        """A sync keeps what its file holds when it is called, once it has returned."""
        if call.name in SYNCS and call.path.is_file():
            self._coming[call.path.name] = call.path.read_bytes()
            # A removal is on the disk with the next sync: the directory's journal is one.
            gone = [name for name in self._kept if not self._path.with_name(name).exists()]
            self._coming |= dict.fromkeys(gone)

    def settle(self) -> None:
        """The process has gone on: what it called before has returned."""
        for name, content in self._coming.items():
            self._kept.pop(name, None)
            if content is not None:
                self._kept[name] = content
        self._coming = {}

    def copy_to(self, image: Path, chance: random.Random | None) -> None:
        """Make files of what is kept; with `chance`, some blocks that were not synced as well."""
        for old in image.parent.iterdir():
            old.unlink()
        for end in ("", "-wal"):
            source = self._path.with_name(self._path.name + end)
            kept = self._kept.get(source.name)
            if chance is not None and source.exists():
                kept = _mixed(kept or b"", source.read_bytes(), chance)
            if kept is not None:
                image.with_name(image.name + end).write_bytes(kept)


def _mixed(kept: bytes, wanted: bytes, chance: random.Random) -> bytes:
    """Each block that differs is the old one or the new one; the length is either."""
    size = chance.choice((len(kept), len(wanted)))
    old, new = kept.ljust(size, b"\0"), wanted.ljust(size, b"\0")
    starts = range(0, size, BLOCK_BYTES)
    return b"".join(chance.choice((old, new))[at : at + BLOCK_BYTES] for at in starts)[:size]


def _is_of(path: Path, call: Call) -> bool:
    return call.path.parent == path.parent


@contextmanager
def _place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rowlock-crash-") as directory:
        yield Path(directory).resolve() / "jobs.db"
