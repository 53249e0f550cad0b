"""Audit: who did what to which job or queue, written in the transaction that did it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from rowlock import codec, config
from rowlock.clock import from_us
from rowlock.ids import new_id, parse_id
from rowlock.store import options
from rowlock.store.steps import Begin, Op, Row, Statement, Steps, reading, writing

T = TypeVar("T")


class Actor(msgspec.Struct, frozen=True):
    """Who makes a request, by a token or by name only. `tenant` None: not bound to a tenant."""

    name: str
    token_id: str | None = None
    tenant: str | None = None


class Deed(msgspec.Struct, frozen=True):
    """An action of an actor, such as `job.cancel`, its target, and where the request came from."""

    actor: Actor
    action: str
    target: str
    address: str | None = None


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the audit, as it was written."""

    id: str
    at: datetime
    actor: str
    token_id: str | None
    tenant: str | None
    action: str
    target: str
    address: str | None
    detail: dict[str, Any]


class AuditPage(msgspec.Struct, frozen=True):
    """A page of the audit, newest first. `next` is None on the last page."""

    entries: list[AuditEntry]
    next: str | None


def audited(
    op: Op[T], deed: Deed, *, detail: Callable[[T], Mapping[str, object] | None] | None = None
) -> Op[T]:
    """Add an audit entry to a verb, in the same transaction. A verb that fails leaves no entry.

    Args:
        detail: Returns what the result adds to the deed, as a small JSON object. None: nothing was
            done, and no entry is written.
    """
    values = {
        "id": new_id(),
        "token_id": deed.actor.token_id,
        "actor": codec.clean_text(deed.actor.name, bytes_max=config.AUDIT_NAME_BYTES_MAX),
        "tenant": deed.actor.tenant,
        "action": deed.action,
        "target": codec.clean_text(deed.target, bytes_max=config.AUDIT_NAME_BYTES_MAX),
        "address": deed.address or None,
    }

    def noted(start: Callable[[], Steps[T]]) -> Callable[[], Steps[T]]:
        def steps() -> Steps[T]:
            yield Begin()
            result = yield from start()
            extra = {} if detail is None else detail(result)
            if extra is not None:
                text = msgspec.json.encode(extra).decode()
                yield Statement("audit_write", {**values, "detail": text})
            return result

        return steps

    repeat = None if op.repeat is None else noted(op.repeat)
    return writing(op.name, noted(op.start), repeat=repeat)


def list_audit(
    *,
    tenant: str | None = None,
    target: str | None = None,
    limit: int = config.LIST_LIMIT_DEFAULT,
    cursor: str | None = None,
) -> Op[AuditPage]:
    """A page of the audit, optionally of one tenant or one target."""
    values = {
        "limit": options.integer(limit, option="limit", low=1, high=config.LIST_LIMIT_MAX),
        "cursor": None if cursor is None else parse_id(cursor, option="cursor"),
    }
    if target is not None:
        asked = Statement("audit_of_target", {**values, "tenant": tenant, "target": target})
    elif tenant is not None:
        asked = Statement("audit_of_tenant", {**values, "tenant": tenant})
    else:
        asked = Statement("audit_list", values)

    def steps() -> Steps[AuditPage]:
        rows = yield asked
        entries = [_entry(row) for row in rows]
        return AuditPage(entries, entries[-1].id if len(entries) == limit else None)

    return reading("list_audit", steps)


def _entry(row: Row) -> AuditEntry:
    id, at, token_id, actor, tenant, action, target, address, detail = row
    return AuditEntry(
        id=id,
        at=from_us(at),
        actor=actor,
        token_id=token_id,
        tenant=tenant,
        action=action,
        target=target,
        address=address,
        detail={} if detail is None else codec.decode(detail),
    )
