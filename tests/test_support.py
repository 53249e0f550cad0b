"""What the tests themselves stand on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.order import long_ones_first

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
