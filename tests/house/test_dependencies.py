"""What the package leans on is little and pinned, and how to report trouble with it is said."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.house.source import ROOT

REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))


def test_the_core_needs_little():
    """Four packages without any of an extra; a fifth needs a reason."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = [re.match(r"[\w-]+", each).group() for each in project["dependencies"]]

    assert names == ["click", "cronsim", "msgspec", "tzdata"]


# Older versions install, and then fail or are vulnerable.
NEEDED = {
    "starlette": (0, 49, 1),  # a Range header took quadratic time
    "psycopg": (3, 2, 4),  # notifications that came with an answer were dropped
    "cronsim": (2, 7),  # no seconds in expressions
}


def test_no_version_is_allowed_that_does_not_work():
    """Each requirement has a lower bound, and what is known to fail is below it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    others = [each for group in groups for each in group if not each.startswith("rowlock[")]
    bounds = {
        re.match(r"[\w-]+", each).group(): re.search(r">=([\d.]+)$", each).group(1)
        for each in others
    }

    for name, needed in NEEDED.items():
        assert tuple(map(int, bounds[name].split("."))) >= needed, name


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.name)
def test_every_package_is_pinned_by_its_digest(path):
    """One version, and what it must hash to: nothing else is installed."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]

    assert [
        line for line in lines if not re.match(r"[\w.\[\]-]+==\S+ .*--hash=sha256:", line)
    ] == []


def test_how_to_report_a_vulnerability_is_said():
    """In private, and with the times within which somebody answers."""
    text = (ROOT / "SECURITY.md").read_text("utf-8")

    assert "private vulnerability report" in text
    assert re.findall(r"^\| (\d+ \w+) \|", text, re.MULTILINE) == ["48 hours", "7 days", "14 days"]
