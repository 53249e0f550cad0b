"""Frameworks whose own tests use `assert_enqueued`: each brings its app, and knows its tasks.

A framework registers itself in production, too. So nothing of rowlock is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from rowlock.app import App


class FrameworkTask(Protocol):
    """A task that a framework declares, such as Django's."""

    @property
    def module_path(self) -> str:
        """The dotted name of its function, which is the kind of its jobs."""
        ...


class WantedTask(NamedTuple):
    """The kind of a framework's task, and the options that its jobs must have."""

    kind: str
    options: Mapping[str, Any]


class Framework(Protocol):
    """What the assertions ask a framework."""

    def app(self) -> App | None:
        """Return the project's app if a test of this framework is running."""
        ...

    def wanted(self, task: object) -> WantedTask | None:
        """Return what a task of this framework asks for. None if it is not one."""
        ...


FRAMEWORKS: Final[list[Framework]] = []


__all__ = ["FRAMEWORKS", "Framework", "FrameworkTask", "WantedTask"]
