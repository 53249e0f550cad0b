"""What the tests themselves stand on."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations, product

import pytest

from tests.support.order import long_ones_first
from tests.support.pairs import STORES, Combination, Variant, by_turns, pairs

SCRIPT = """
import os, signal, subprocess, sys
from tests.support.signals import NUMBERS, keep_ignored_signals_here

{before}
keep_ignored_signals_here()
for number in NUMBERS:
    os.kill(os.getpid(), number)
look = "import signal; print(signal.getsignal(1) is signal.SIG_DFL, signal.pthread_sigmask(0, ()))"
subprocess.run([sys.executable, "-c", look], check=True)
"""
IGNORED = "for number in NUMBERS: signal.signal(number, signal.SIG_IGN)"


@pytest.mark.parametrize(
    "before",
    [IGNORED, f"{IGNORED}\nsignal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)"],
    ids=["ignored", "blocked"],
)
def test_ignored_signals_are_not_passed_on(before):
    """They are still ignored here, and programs started from here get the default actions."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before=before)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "True set()\n")


@pytest.mark.parametrize(
    ("processes", "expected"), [(1, "ABCabcdefg"), (2, "ACabcdBefg"), (3, "AabcBdefCg")]
)
def test_each_process_begins_with_long_tests(processes, expected):
    """They are shared, the others keep their order, and none is left out."""
    ordered = long_ones_first("aAbcBdefCg", str.isupper, processes)

    assert "".join(ordered) == expected


def test_of_many_combinations_every_pair_is_run():
    """Each value meets each store and each colour, in half of the combinations."""
    every = [Combination(*each) for each in product((0, 1), (0, 1), ((n,) for n in range(15)))]
    run = [*pairs(every)]

    assert len(run) == len(every) / 2
    for one, other in combinations(range(3), 2):
        assert {(each[one], each[other]) for each in run} == {
            (each[one], each[other]) for each in every
        }


def test_few_combinations_are_all_run():
    """A test without values of its own is run on each store in each colour."""
    every = [Combination(store, colour, ()) for store in (0, 1) for colour in (0, 1)]

    assert [*pairs(every)] == every


def test_values_of_a_test_take_the_stores_by_turns():
    """Each value is run once, a test with two values meets both stores."""
    every = [Variant("test", value, store) for value in range(4) for store in STORES]
    run = {*every} - by_turns(every)

    assert sorted(each.value for each in run) == [0, 1, 2, 3]
    assert [each.store for each in sorted(run)[::2]] == [min(run).store] * 2
    assert {each.store for each in run} == {*STORES}


def test_a_variant_that_is_asked_for_alone_is_run():
    """Whichever of the stores it would be run on among others."""
    assert [by_turns([Variant("test", 0, store)]) for store in STORES] == [set(), set()]
