"""What dead jobs have in common: their kind, the type of the last error, and where it arose. Pure.

The place is a file and a function, not a line: lines move with every release. Of a traceback it is
the innermost frame that is not of a library, as far as its path tells.
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
    """Where an error arose: `jobs/mail.py send`; empty if the traceback does not say."""
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
    """Sixteen hexadecimal digits that jobs which died of the same have in common."""
    text = "\0".join((kind, error.type, place_of(error.traceback)))
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
