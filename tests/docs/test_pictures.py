"""The committed pictures are those of their sources, as far as that can be told at once."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from rowlock.job import JobState
from tests.docs.pages import DOCS
from tests.docs.pictures.diagrams import DIAGRAMS, PLACES
from tests.docs.pictures.recording import STEPS
from tests.docs.pictures.terminal import COLUMNS, Shown, lay_out

PICTURES = DOCS / "pictures"
BYTES_MAX = 200_000


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_as_its_source_draws_it(name: str):
    """If this fails, run `make pictures PICTURES=diagrams` and look at the result."""
    drawn = DIAGRAMS[name]()

    assert (PICTURES / name).read_text("utf-8") == drawn
    assert ET.fromstring(drawn).get("aria-label")


def test_every_state_is_drawn():
    """A new state needs a place in the diagram."""
    assert PLACES.keys() == set(JobState)


def test_the_recording_has_the_commands_of_its_script():
    """What they print differs each time. If this fails, run `make pictures PICTURES=recording`."""
    texts = ET.parse(PICTURES / "terminal.svg").iter("{http://www.w3.org/2000/svg}text")
    shown = "".join(each.text or "" for each in texts)

    places = [shown.find(f"$ {step.command}") for step in STEPS]
    assert -1 not in places
    assert shown.count("succeeded after") == 3


def test_a_terminal_wraps_and_keeps_colours():
    """A long line goes on below, and a colour until the next one."""
    events = [(1.0, "\x1b[32mok\x1b[0m " + "x" * COLUMNS), (2.0, "\r\nnext")]

    assert lay_out(events) == [
        Shown(1.0, 0, 0, "ok", "green"),
        Shown(1.0, 0, 2, " " + "x" * (COLUMNS - 3), ""),
        Shown(1.0, 1, 0, "xxx", ""),
        Shown(2.0, 2, 0, "next", ""),
    ]


@pytest.mark.parametrize("path", sorted(PICTURES.iterdir()), ids=lambda path: path.name)
def test_a_picture_is_small(path: Path):
    """A README loads quickly."""
    assert path.stat().st_size < BYTES_MAX
