"""Stamps: headers that a visitor gives to each signature of a canvas, as in Celery."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

STAMPED: Final = "stamped_headers"
"""The option, and the header, that names the stamps."""


class StampingVisitor(ABC):
    """Derive from it, and return the stamps of each part of a canvas."""

    @abstractmethod
    def on_signature(self, sig: Any, **headers: Any) -> dict[str, Any]:
        """Return the stamps of a task."""

    def on_group_start(self, group: Any, **headers: Any) -> dict[str, Any]:
        """Return the stamps of the tasks of a group."""
        return {}

    def on_group_end(self, group: Any, **headers: Any) -> None:  # noqa: B027  # optional
        """Called after a group."""

    def on_chain_start(self, chain: Any, **headers: Any) -> dict[str, Any]:
        """Return the stamps of the steps of a chain."""
        return {}

    def on_chain_end(self, chain: Any, **headers: Any) -> None:  # noqa: B027  # optional
        """Called after a chain."""

    def on_chord_header_start(self, sig: Any, **header: Any) -> dict[str, Any]:
        """Return the stamps of the header of a chord: those of a group."""
        return self.on_group_start(sig.header, **header)

    def on_chord_header_end(self, sig: Any, **header: Any) -> None:
        """Called after the header of a chord."""
        self.on_group_end(sig.header, **header)

    def on_chord_body(self, sig: Any, **header: Any) -> dict[str, Any]:
        """Return the stamps of the body of a chord."""
        return {}

    def on_callback(self, callback: Any, **header: Any) -> dict[str, Any]:
        """Return the stamps of a callback."""
        return {}

    def on_errback(self, errback: Any, **header: Any) -> dict[str, Any]:
        """Return the stamps of an errback."""
        return {}


def merged_stamps(
    headers: Mapping[str, Any],
    more: Mapping[str, Any] | None,
    known: Mapping[str, Any],
    *,
    append: bool,
) -> dict[str, Any]:
    """Return the stamps of a signature as options, with the list of their names.

    Args:
        headers: Those that come from outside.
        more: Those of the visitor. It may name those that are stamps; else all are.
        known: The options that the signature has already.
        append: Whether values of the same name become a list. Else a known one stays.
    """
    stamps = {name: value for name, value in headers.items() if name != STAMPED}
    names = dict.fromkeys(headers.get(STAMPED, stamps))
    visited = dict(more or {})
    names.update(dict.fromkeys(visited.pop(STAMPED, visited)))
    _merge(stamps, visited, append=append)
    names.update(dict.fromkeys(known.get(STAMPED, ())))
    _merge(stamps, {name: known[name] for name in names if name in known}, append=append)
    return {**stamps, STAMPED: list(names)}


def _merge(stamps: MutableMapping[str, Any], more: Mapping[str, Any], *, append: bool) -> None:
    for name, value in more.items():
        if append and name in stamps and stamps[name] != value:
            stamps[name] = [*_listed(stamps[name]), *_listed(value)]
        else:
            stamps[name] = value


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | set) else [value]


def stamps_in(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers that carry the stamps among the options of a call."""
    names = list(options.get(STAMPED) or ())
    if not names:
        return {}
    return {STAMPED: names, "stamps": {name: options.get(name) for name in names}}
