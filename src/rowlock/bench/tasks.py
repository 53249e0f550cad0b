"""The tasks that are measured, and the app that a bench's worker loads."""

from __future__ import annotations

import os
from typing import Any, Final

from rowlock.app import App
from rowlock.clock import SystemClock
from rowlock.task import Tasks

SPEC: Final = f"{__name__}:app"
# The URL comes as every app's does; the schema is the scratch's.
SCHEMA_VARIABLE: Final = "ROWLOCK_SCRATCH_SCHEMA"

tasks: Tasks = Tasks()


@tasks.task
async def noop(to: str, template: str, lang: str) -> None:
    """Nothing."""


@tasks.task
async def late(sent_at: int) -> int:
    """How many microseconds after `sent_at` it has started."""
    return SystemClock().now_us() - sent_at


# About 90 bytes of JSON with its names, as a small job's payload is.
PAYLOAD: Final = {"to": "someone@example.com", "template": "welcome to the house", "lang": "en"}


def bench_app(url: str | None, *, schema: str) -> App:
    """The app of a scratch; `url` None is the environment's."""
    app = App(url, schema=schema)
    app.include(tasks)
    return app


def __getattr__(name: str) -> Any:
    """`app`, for the worker's children: made when they ask for it, not by an import."""
    if name == "app":
        return bench_app(None, schema=os.environ[SCHEMA_VARIABLE])
    raise AttributeError(name)
