"""Support for tests of programs that use rowlock, and of rowlock itself.

Names are imported on first use: pytest loads our plugin in every project, even if no test uses
jobs.
"""

from __future__ import annotations

# The form that type checkers know, without importing `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from rowlock.testing.app import AppUnderTest, rowlock_crash, use_test_database
    from rowlock.testing.clock import VirtualClock
    from rowlock.testing.expect import (
        assert_enqueued,
        assert_workflow,
        enqueued,
        refute_enqueued,
    )
    from rowlock.testing.postgres import ThrowAwayPostgres

__all__ = [
    "AppUnderTest",
    "ThrowAwayPostgres",
    "VirtualClock",
    "assert_enqueued",
    "assert_workflow",
    "enqueued",
    "refute_enqueued",
    "rowlock_crash",
    "use_test_database",
]

_HOMES = {
    "AppUnderTest": "app",
    "ThrowAwayPostgres": "postgres",
    "VirtualClock": "clock",
    "assert_enqueued": "expect",
    "assert_workflow": "expect",
    "enqueued": "expect",
    "refute_enqueued": "expect",
    "rowlock_crash": "app",
    "use_test_database": "app",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
