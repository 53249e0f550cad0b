"""Every fault and every item of security that we know of has its proof, and the proof is there."""

from __future__ import annotations

import pytest

from tests.house.proofs import PAGES, functions_of, numbers_by_test, read_rows, rows_of
from tests.house.source import ROOT


@pytest.mark.parametrize("page", PAGES)
def test_every_number_has_one_row(page):
    """None is left out, and none is there twice."""
    letter, count = PAGES[page]

    assert [f"{letter}{number:02}" for number in range(1, count + 1)] == sorted(
        row.number for row in rows_of(page)
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_row_has_a_test_or_a_reason(page):
    """A row without a test says why there is none."""
    assert [row.number for row in rows_of(page) if not row.is_told_why] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_proof_exists(page):
    """Each test that a row names is there, and so is each file."""
    missing = [
        f"{row.number}: {test}"
        for row in rows_of(page)
        for test in row.tests
        if test.partition("::")[2] not in functions_of(test.partition("::")[0])
    ]
    missing += [
        f"{row.number}: {file}"
        for row in rows_of(page)
        for file in row.files
        if not (ROOT / file).is_file()
    ]

    assert missing == []


def test_a_row_can_be_run_by_its_number(request):
    """Tests carry the numbers of their rows as keywords: `pytest -k F13`."""
    collected = {item.nodeid.partition("[")[0]: item for item in request.session.items}
    told = {test: collected[test] for test in numbers_by_test() if test in collected}

    assert [
        test
        for test, item in told.items()
        if not numbers_by_test()[test] <= item.listextrakeywords()
    ] == []


def test_the_rules_catch_what_they_forbid():
    """A row without proof, a test that is not there, and a file that is not."""
    head = "| F01 | a fault | a promise |"
    empty, excused, named = read_rows(
        f"{head} soon |\n{head} Does not apply: none |\n{head} `tests/no.py::test_a`, `NO.md` |"
    )

    assert [row.is_told_why for row in (empty, excused, named)] == [False, True, True]
    assert (named.tests, named.files) == (["tests/no.py::test_a"], ["NO.md"])
    assert functions_of("tests/no.py") == frozenset()
