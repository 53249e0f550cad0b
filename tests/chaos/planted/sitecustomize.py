"""Found by every Python of a run whose PYTHONPATH has this directory: plants the bug it is told."""

import os

if os.environ.get("ROWLOCK_PLANTED"):
    from tests.mutants import plant

    plant(os.environ["ROWLOCK_PLANTED"])
