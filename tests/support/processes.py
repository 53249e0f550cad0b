"""Processes that share nothing with the tests but modules that were imported before."""

from __future__ import annotations

import multiprocessing

# Forked from a process that has opened nothing and has one thread: like one that is started anew,
# without the imports, which take longer than what most tests do in it.
FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(["rowlock.store.postgres.engine", "rowlock.store.sqlite.engine"])
