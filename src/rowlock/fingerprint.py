"""Fingerprints of errors: the kind, the type of the last error, and its location. Pure.

The location is a file and a function, not a line, because lines move with every release. It is the
innermost frame of the traceback that, judging by its path, is not in a library.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

from rowlock.job import JobError

_PYTHON: Final = re.compile(r'^\s*File "([^"\n]+)", line \d+, in ([^\n]+)$', re.MULTILINE)
# `at work (/srv/app/worker.js:10:5)`, the innermost first.
_NODE: Final = re.compile(r"^\s*at (?:async )?([^\s(]+) \(([^)\n]+?)(?::\d+)*\)$", re.MULTILINE)
_LIBRARY: Final = re.compile(r"site-packages|dist-packages|/lib/python3|node_modules|^node:|^<")
_CHARACTERS_MAX: Final = 200


def place_of(traceback: str) -> str:
    """Return where an error arose, such as `jobs/mail.py send`. Empty if it is unknown."""
    frames = [(file, name) for file, name in _PYTHON.findall(traceback)][::-1]
    frames = frames or [(file, name) for name, file in _NODE.findall(traceback)]
    if not frames:
        return ""
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])]
    file, name = (own or frames)[0]
    # The last two parts: where a release is unpacked differs between machines.
    short = "/".join(file.replace("\\", "/").split("/")[-2:])
    return f"{short} {name.strip()}"[:_CHARACTERS_MAX]


def fingerprint(kind: str, error: JobError) -> str:
    """Return the fingerprint of an error: sixteen hexadecimal digits."""
    text = "\0".join((kind, error.type, place_of(error.traceback)))
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
