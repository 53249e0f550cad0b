"""A wrong argument is a type error in the editor, before it is one at run time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = ("good.py", "bad.py")
CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"],
    "pyright": [str(Path(sys.executable).parent / "basedpyright")],
}


def errors_of(checker: str) -> dict[str, set[int]]:
    """The lines that a checker complains about, of each file."""
    done = subprocess.run(
        [*CHECKERS[checker], *(str(HERE / name) for name in FILES)],
        capture_output=True,
        text=True,
        cwd=HERE.parents[1],
        check=False,
    )
    assert done.stdout, done.stderr
    found = re.findall(r"(\w+\.py):(\d+).*\berror\b", done.stdout)
    assert {file for file, _ in found} <= {*FILES}, done.stdout
    return {name: {int(line) for file, line in found if file == name} for name in FILES}


def expected(file: Path) -> set[int]:
    lines = file.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# error")}


@pytest.mark.parametrize("checker", CHECKERS)
def test_right_calls_are_accepted_and_wrong_ones_refused(checker):
    """What works is well typed; wrong names, types and missing arguments are errors, at their line.

    Both files in one run: what takes its time is to read what they import.
    """
    found = errors_of(checker)

    assert found == {"good.py": set(), "bad.py": expected(HERE / "bad.py")}
