"""The tour of the source names files, verbs and tables that are there."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from rowlock.store.statements import TABLES
from tests.house.source import PACKAGE, ROOT

PAGE = (ROOT / "docs/internals/tour.md").read_text("utf-8")
PICTURE = ET.parse(ROOT / "docs/assets/tour.svg")
PATH = re.compile(r"`([\w/]+\.(?:py|sql|tsx?))`")
# Tables that are not moved from one database to another.
MORE_TABLES = {"event"}


def drawn() -> list[str]:
    texts = PICTURE.iter("{http://www.w3.org/2000/svg}text")
    return [each.text or "" for each in texts if each.get("class") == "name"]


def is_there(path: str) -> bool:
    return any((place / path).is_file() for place in (PACKAGE, ROOT / "dashboard/src"))


@pytest.mark.parametrize(
    "path", sorted({*PATH.findall(PAGE), *(name for name in drawn() if "." in name)})
)
def test_every_file_is_there(path: str):
    """On the page and in the picture."""
    assert is_there(path)


def test_every_table_is_there():
    """The other names in the picture are tables."""
    tables = {name for name in drawn() if "." not in name}

    assert tables - TABLES.keys() - MORE_TABLES == set()


def test_the_picture_and_the_page_have_the_same_stops():
    """Each numbered box has its chapter."""
    texts = PICTURE.iter("{http://www.w3.org/2000/svg}text")
    boxes = {match[1] for each in texts if (match := re.match(r"(\d) ", each.text or ""))}

    assert set(re.findall(r"^## (\d) ", PAGE, re.MULTILINE)) == boxes
