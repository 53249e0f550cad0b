"""The app of `benchmarks.worker`; its database comes from the environment."""

from __future__ import annotations

import time

import rowlock

app = rowlock.App()


@app.task
async def noop(i: int, t: float, to: str, template: str, lang: str) -> None: ...


@app.task
async def late(t: float) -> float:
    """How long after `t` it started."""
    return time.time() - t
