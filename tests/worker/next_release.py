"""The command and the jobs of the tests in a release that has one more migration than this one."""

from __future__ import annotations

from contextlib import ExitStack

from rowlock.__main__ import main
from tests.store.upgrades import ADDS, compatible, release
from tests.worker.jobs_app import app

# For as long as the process lives.
_NEXT = ExitStack()
_NEXT.enter_context(release(compatible(ADDS)))

__all__ = ["app"]

if __name__ == "__main__":
    main()
