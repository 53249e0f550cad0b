"""Where the files of the suite go: neither synced to a disk nor compiled anew, where possible."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
# The servers, their databases and the files of the tests that run take well below half of it.
FREE_BYTES_MIN = 2 * 2**30
BYTECODE = Path(__file__).parents[2] / ".cache" / "bytecode"


def use_memory() -> None:
    """Put temporary files of this process and its children into memory, if they fit.

    The caller's TMPDIR takes precedence. Programs are also run from there, and in containers
    `/dev/shm` is often small and doesn't allow that: then the files stay where they are.
    """
    if "TMPDIR" not in os.environ and _is_fit(MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def keep_bytecode() -> None:
    """Let the thousand processes that the tests start compile our modules once.

    A caller who wants no bytecode beside the sources gets none there.
    """
    if sys.dont_write_bytecode:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(BYTECODE)
        sys.dont_write_bytecode = False


def _is_fit(place: Path) -> bool:
    if not os.access(place, os.W_OK | os.X_OK):
        return False
    found = os.statvfs(place)
    is_large = found.f_bavail * found.f_frsize >= FREE_BYTES_MIN
    return is_large and not found.f_flag & os.ST_NOEXEC
