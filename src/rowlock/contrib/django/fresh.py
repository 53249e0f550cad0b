"""Handlers as Django's requests: no connection that is stale at the start, none kept at the end."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections


def with_fresh_connections(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with old connections of this thread closed before and after it.

    A coroutine gets a thread of its own for its queries, as a request does, and its connections
    are closed with it.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            async with ThreadSensitiveContext():
                try:
                    return await function(*args, **kwargs)
                finally:
                    await sync_to_async(_close_all)()

        return awaited

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        _close_old()
        try:
            return function(*args, **kwargs)
        finally:
            _close_old()

    return called


def _close_old() -> None:
    """As `close_old_connections`, which would also end the transaction of a test around it all."""
    for connection in _not_in_transactions():
        connection.close_if_unusable_or_obsolete()


def _close_all() -> None:
    for connection in _not_in_transactions():
        connection.close()


def _not_in_transactions() -> list[Any]:
    opened = connections.all(initialized_only=True)
    return [connection for connection in opened if not connection.in_atomic_block]
