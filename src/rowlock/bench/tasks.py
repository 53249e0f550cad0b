"""The tasks of a bench, and the app that its worker loads."""

from __future__ import annotations

import os
from typing import Any, Final

from rowlock.app import App
from rowlock.clock import SystemClock
from rowlock.task import Tasks

SPEC: Final = f"{__name__}:app"
# The URL comes from the environment, as for every app. The schema is the scratch's.
SCHEMA_VARIABLE: Final = "ROWLOCK_SCRATCH_SCHEMA"

tasks: Tasks = Tasks()


@tasks.task
async def noop(to: str, template: str, lang: str) -> None:
    """Do nothing."""


@tasks.task
async def late(sent_at: int) -> int:
    """Return how many microseconds after `sent_at` it started."""
    return SystemClock().now_us() - sent_at


# About 90 bytes of JSON with its names, like the payload of a small job.
PAYLOAD: Final = {"to": "someone@example.com", "template": "welcome to the house", "lang": "en"}


def bench_app(url: str | None, *, schema: str) -> App:
    """Return the app of a scratch. Without `url`, the environment's is used."""
    app = App(url, schema=schema)
    app.include(tasks)
    return app


def __getattr__(name: str) -> Any:
    """Create `app` when a child of the worker asks for it, not on import."""
    if name == "app":
        return bench_app(None, schema=os.environ[SCHEMA_VARIABLE])
    raise AttributeError(name)
