"""How long it took until what a lost process ran was run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rowlock.chaos.job_record import Run, Story
from rowlock.chaos.journal import Line, Word
from rowlock.chaos.plan import Fault


@dataclass(slots=True)
class Strikes:
    """What the nemesis did, as its journal tells: when (nanoseconds), and to whom."""

    all: list[tuple[int, Fault]] = field(default_factory=list[tuple[int, Fault]])
    # When a process was struck, and by what.
    struck: dict[int, list[tuple[int, Fault]]] = field(
        default_factory=dict[int, list[tuple[int, Fault]]]
    )

    def hear(self, line: Line) -> None:
        """A line of any journal."""
        if line.word is not Word.STRIKE:
            return
        what, _, pids = line.rest.partition(":")
        fault = Fault(what)
        self.all.append((line.at, fault))
        for pid in filter(None, pids.split(",")):
            self.struck.setdefault(int(pid), []).append((line.at, fault))


@dataclass(slots=True)
class Recovery:
    """Seconds from each strike in the middle of a run: until its job was given back, and ran."""

    returned: list[float] = field(default_factory=list[float])
    again: list[float] = field(default_factory=list[float])


def recoveries(
    stories: Iterable[Story], struck: Mapping[int, list[tuple[int, Fault]]]
) -> dict[Fault, Recovery]:
    """By what had struck the process of the run."""
    found: dict[Fault, Recovery] = {}
    for story in stories:
        for run in story.runs.values():
            for at, fault in struck.get(run.pid, ()):
                if run.start < at and (run.end is None or run.end > at):
                    _note(found.setdefault(fault, Recovery()), story, run, at)
    return found


def _note(recovery: Recovery, story: Story, run: Run, at: int) -> None:
    if run.returned is None or run.returned < at:
        return
    recovery.returned.append((run.returned - at) / 1e9)
    later = [each.start for each in story.runs.values() if each.start > at]
    if later:
        recovery.again.append((min(later) - at) / 1e9)
