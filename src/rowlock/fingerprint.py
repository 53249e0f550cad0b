"""Fingerprints of errors: the kind, the type of the last error, and its location. Pure.

The location is a file and a function, not a line, because lines move with every release. It is the
innermost frame of the traceback that, judging by its path, is not in a library.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from rowlock.job import JobError

_LIBRARIES: Final = ("site-packages", "dist-packages", "/lib/python3", "node_modules")
_BUILT_IN: Final = ("node:", "<")
_CHARACTERS_MAX: Final = 200
# Anybody who may settle a job chooses the text, so it is read line by line and without regular
# expressions: those that were here took 12 seconds for 65,500 line breaks.
_LINES_MAX: Final = 2_000


def place_of(traceback: str) -> str:
    """Return where an error arose, such as `jobs/mail.py send`. Empty if it is unknown."""
    # The innermost frame comes last in Python, and first in Node.
    last = traceback.rsplit("\n", _LINES_MAX)[-_LINES_MAX:]
    frames = [*_python_frames(last)][::-1]
    if not frames:
        frames = [*_node_frames(traceback.split("\n", _LINES_MAX)[:_LINES_MAX])]
    if not frames:
        return ""
    own = [frame for frame in frames if not _is_library(frame[0])]
    file, name = (own or frames)[0]
    # The last two parts: where a release is unpacked differs between machines.
    short = "/".join(file.replace("\\", "/").split("/")[-2:])
    return f"{short} {name}"[:_CHARACTERS_MAX]


def _python_frames(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Files and functions of lines such as `File "/srv/app/jobs.py", line 10, in send`."""
    for line in map(str.strip, lines):
        if line.startswith('File "'):
            file, _, rest = line.removeprefix('File "').partition('", line ')
            number, _, name = rest.partition(", in ")
            if file and number.isdecimal() and name:
                yield file, name


def _node_frames(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Files and functions of lines such as `at async work (/srv/app/worker.js:10:5)`."""
    for line in map(str.strip, lines):
        if line.startswith("at ") and line.endswith(")"):
            name, _, place = line[3:-1].removeprefix("async ").partition(" (")
            file = _without_number(_without_number(place))
            if name and file and " " not in name and ")" not in place:
                yield file, name


def _without_number(place: str) -> str:
    """Drop the last `:10` of a place, which is a line or a column."""
    rest, _, number = place.rpartition(":")
    return rest if number.isdecimal() else place


def _is_library(file: str) -> bool:
    return file.startswith(_BUILT_IN) or any(each in file for each in _LIBRARIES)


def fingerprint(kind: str, error: JobError) -> str:
    """Return the fingerprint of an error: sixteen hexadecimal digits."""
    text = "\0".join((kind, error.type, place_of(error.traceback)))
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
