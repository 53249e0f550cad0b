"""A wrong argument is a type error in the editor, before it is one at run time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"],
    "pyright": [str(Path(sys.executable).parent / "basedpyright")],
}


def errors_of(checker: str, file: Path) -> set[int]:
    """The lines that a checker complains about."""
    done = subprocess.run(
        [*CHECKERS[checker], str(file)],
        capture_output=True,
        text=True,
        cwd=HERE.parents[1],
        check=False,
    )
    found = re.findall(rf"{file.name}:(\d+).*\berror\b", done.stdout)
    assert found or done.returncode == 0, done.stdout + done.stderr
    return {int(line) for line in found}


def expected(file: Path) -> set[int]:
    lines = file.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# error")}


@pytest.mark.parametrize("checker", CHECKERS)
def test_right_calls_are_accepted(checker):
    """Everything that works is well typed."""
    assert errors_of(checker, HERE / "good.py") == set()


@pytest.mark.parametrize("checker", CHECKERS)
def test_wrong_calls_are_refused(checker):
    """Wrong names, wrong types and missing arguments are errors, at their line."""
    assert expected(HERE / "bad.py") == errors_of(checker, HERE / "bad.py")
