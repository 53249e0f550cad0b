"""`rowlock`, and `python -m rowlock`: the command, polite to signals from its first moment on.

What is imported at the top delays that moment; the commands come afterwards.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rowlock.worker import signals

# These run for long, and are told to stop by signals.
SUPERVISING = ("up", "worker")
# Options of `rowlock` itself whose value is a word of its own.
VALUED = ("--app", "--database-url")


def main() -> None:
    """Run the command that the arguments name."""
    _open_standard_streams()
    if command_of(sys.argv[1:]) in SUPERVISING:
        # Nothing was started yet, so it ends well. The supervisor takes over once it is there.
        signals.obey(lambda *_: os._exit(0))
    from rowlock import cli

    cli.main(prog_name="rowlock")


def _open_standard_streams() -> None:
    """Where one was closed by whoever started us, nothing else may take its place.

    A pipe or a file under the number of stderr would get our log lines, and our children's.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest number that is free, which is this one's.
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))


def command_of(words: Sequence[str]) -> str | None:
    """The first word that is neither an option nor an option's value."""
    before = ""
    for word in words:
        if not word.startswith("-") and before not in VALUED:
            return word
        before = word
    return None


if __name__ == "__main__":
    main()
