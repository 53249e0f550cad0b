"""`rowlock` and `python -m rowlock`: the command, which handles signals from its start.

Imports at the top delay that moment, so the commands are imported afterwards.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rowlock.worker import signals

# These commands run until a signal stops them.
SUPERVISING = ("up", "worker")
# Options of `rowlock` itself that take a value as a separate word.
VALUED = ("--app", "--database-url")


def main() -> None:
    """Run the command that the arguments name."""
    _open_standard_streams()
    if command_of(sys.argv[1:]) in SUPERVISING:
        # Nothing was started yet, so it exits with success. The supervisor takes over later.
        signals.obey(lambda *_: os._exit(0))
    from rowlock import cli

    cli.main(prog_name="rowlock")


def _open_standard_streams() -> None:
    """Open the standard streams that our parent closed, so that no other file takes their place.

    A pipe or a file with stderr's number would get our log lines, and those of our children.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # This takes the lowest free number, which is this stream's.
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))


def command_of(words: Sequence[str]) -> str | None:
    """Return the first word that is neither an option nor an option's value."""
    before = ""
    for word in words:
        if not word.startswith("-") and before not in VALUED:
            return word
        before = word
    return None


if __name__ == "__main__":
    main()
