"""Tasks of the names that the worker in Node has, for a worker in Python beside it."""

from __future__ import annotations

import asyncio

import rowlock

app = rowlock.App()


@app.task
async def count(to: int, seconds: float = 0) -> int:
    for _ in range(to):
        await asyncio.sleep(seconds)
    return to
