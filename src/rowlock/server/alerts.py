"""Alerts by webhook: what is wrong, sent to one address that the operator has chosen.

1. The address comes from the command line. No request can change it, and redirects are not
   followed: the server calls nobody else.
2. An alert begins or ends when two looks in a row agree, so one slow minute sends nothing.
3. A look makes at most one call, with a bounded number of alerts. What could not be delivered is
   compared again with what is true at the next look.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from rowlock import config
from rowlock.clock import from_us
from rowlock.errors import OptionInvalid
from rowlock.job import JobState, QueueStats
from rowlock.store import Store
from rowlock.store.ops.health import server
from rowlock.store.ops.history import HistoryQuery, read_history
from rowlock.store.ops.look import live_workers
from rowlock.store.ops.stats import stats
from rowlock.tally import RunEnd
from rowlock.worker.trouble import ServiceErrors, ServiceName, Trouble, repeat

logger: logging.Logger = logging.getLogger("rowlock.server")

AlertName = Literal["queue_age", "dead", "no_workers"]
_DEAD_US: Final = int(config.ALERT_DEAD_SECONDS) * config.SECOND_US
_AGENT: Final = "rowlock"


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where alerts are sent, and from which numbers on.

    Args:
        url: The address, http or https.
        secret: Signs every call, if given.
        age_seconds: How long the oldest ready job of a queue may wait.
        dead: How many jobs of a queue may die in ten minutes before an alert.
    """

    url: str
    secret: str | None = None
    age_seconds: float = config.ALERT_AGE_SECONDS
    dead: int = config.ALERT_DEAD

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        is_text = self.url.isascii() and self.url.isprintable() and " " not in self.url
        if not is_text or parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionInvalid("alert-url", "must be an address such as https://example.com/hook")
        if parts.username is not None or parts.fragment:
            raise OptionInvalid("alert-url", "must have no user name and no fragment")
        try:
            _ = parts.port
        except ValueError as error:
            raise OptionInvalid("alert-url", f"has a port that is none: {error}") from error


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs a person."""

    id: str
    alert: AlertName
    text: str
    value: float
    bound: float
    queue: str | None = None


class _SentAlert(Alert, frozen=True, kw_only=True):
    """An alert as it is sent."""

    state: Literal["firing", "resolved"]


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a call."""

    text: str
    sent_at: datetime
    alerts: list[_SentAlert]


class AlertFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What alerts are judged by."""

    queues: Sequence[QueueStats]
    dead: Mapping[str, int]
    workers: int


def judge(facts: AlertFacts, settings: AlertSettings) -> dict[str, Alert]:
    """The alerts that are true now, by id. Pure."""
    found: list[Alert] = []
    open_queues = [each for each in facts.queues if not each.is_paused]
    ready = sum(each.counts[JobState.READY].value for each in open_queues)
    if ready and not facts.workers:
        text = f"no worker is running, and {ready:,} {'job is' if ready == 1 else 'jobs are'} ready"
        found.append(
            Alert(id="no_workers", alert="no_workers", text=text, value=float(ready), bound=0.0)
        )
    for queue in open_queues:
        age = queue.oldest_ready_seconds or 0.0
        if age > settings.age_seconds:
            found.append(
                Alert(
                    id=f"queue_age:{queue.queue}",
                    alert="queue_age",
                    queue=queue.queue,
                    text=f"queue {queue.queue}: the oldest ready job has waited {age:,.0f} s "
                    f"(more than {settings.age_seconds:,.0f} s)",
                    value=age,
                    bound=settings.age_seconds,
                )
            )
    for name, number in sorted(facts.dead.items()):
        if number >= settings.dead:
            found.append(
                Alert(
                    id=f"dead:{name}",
                    alert="dead",
                    queue=name,
                    text=f"queue {name}: {number:,} jobs died in the last "
                    f"{config.ALERT_DEAD_SECONDS / 60:.0f} minutes",
                    value=float(number),
                    bound=float(settings.dead),
                )
            )
    return {each.id: each for each in found}


class AlertStates:
    """Which alerts the receiver knows of. Pure.

    A change is confirmed by a second look. It counts as known once it was delivered.
    """

    def __init__(self) -> None:
        self._known: dict[str, Alert] = {}
        self._last: dict[str, Alert] = {}

    def changes(self, found: Mapping[str, Alert]) -> tuple[list[Alert], list[Alert]]:
        """Alerts to send as firing, and as resolved, up to the bound of a call."""
        both = found.keys() & self._last.keys()
        firing = [found[id] for id in sorted(both - self._known.keys())]
        gone = self._known.keys() - found.keys() - self._last.keys()
        self._last = dict(found)
        resolved = [self._known[id] for id in sorted(gone)]
        most = config.ALERTS_SENT_MAX
        return firing[:most], resolved[: max(0, most - len(firing))]

    def note(self, firing: Sequence[Alert], resolved: Sequence[Alert]) -> None:
        """They were delivered."""
        self._known |= {each.id: each for each in firing}
        for each in resolved:
            del self._known[each.id]


def message_of(firing: Sequence[Alert], resolved: Sequence[Alert], *, now: datetime) -> bytes:
    """The body of a call."""
    alerts = [_SentAlert(**msgspec.structs.asdict(each), state="firing") for each in firing]
    alerts += [_SentAlert(**msgspec.structs.asdict(each), state="resolved") for each in resolved]
    lines = [
        each.text if each.state == "firing" else f"resolved: {each.text}"
        for each in alerts[: config.ALERT_LINES]
    ]
    if len(alerts) > len(lines):
        lines.append(f"and {len(alerts) - len(lines)} more")
    return msgspec.json.encode(_Message(text="\n".join(lines), sent_at=now, alerts=alerts))


def signature(secret: str, body: bytes, *, at: int) -> str:
    """The value of `Rowlock-Signature`."""
    mac = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256)
    return f"t={at},v1={mac.hexdigest()}"


class AlertRefused(Exception):
    """The receiver did not take an alert."""


def send(settings: AlertSettings, body: bytes, *, at: int) -> None:
    """Make one call. Blocking, for seconds at most.

    Args:
        at: The time for its signature, in seconds.

    Raises:
        AlertRefused: It answered with another status than 2xx.
        OSError: It can't be reached. `http.client.HTTPException`: it does not speak HTTP.
    """
    parts = urlsplit(settings.url)
    assert parts.hostname is not None
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"Content-Type": "application/json", "User-Agent": _AGENT, "Connection": "close"}
    if settings.secret:
        headers["Rowlock-Signature"] = signature(settings.secret, body, at=at)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = kind(parts.hostname, parts.port, timeout=config.ALERT_CALL_SECONDS)
    with closing(connection):
        connection.request("POST", path, body, headers)
        with closing(connection.getresponse()) as answer:
            if not 200 <= answer.status < 300:
                # The path may be a secret, as it is with Slack.
                raise AlertRefused(f"{parts.hostname} answered with status {answer.status}")


class Alerts:
    """Looks at the database, and calls the receiver when something has changed."""

    def __init__(self, store: Store, settings: AlertSettings, errors: ServiceErrors) -> None:
        self._store = store
        self._settings = settings
        self._states = AlertStates()
        what = "alerts can't be sent"
        self._trouble = Trouble(what, ServiceName.ALERTS, errors, log=logger)

    async def run(self) -> None:
        """Look forever."""
        await repeat(self.look, self._trouble)

    async def look(self) -> float:
        """Look once. Returns in how many seconds to look again."""
        found = judge(await self._facts(), self._settings)
        firing, resolved = self._states.changes(found)
        if firing or resolved:
            now = (await self._store.arun(server())).now
            body = message_of(firing, resolved, now=from_us(now))
            await asyncio.to_thread(send, self._settings, body, at=now // config.SECOND_US)
            self._states.note(firing, resolved)
        return config.ALERT_SECONDS

    async def _facts(self) -> AlertFacts:
        asked = HistoryQuery(since=None, until=None, last=_DEAD_US, by_queue=True)
        history = await self._store.arun(read_history(asked))
        dead = {each.queue or "": each.total.of(RunEnd.DEAD) for each in history.series}
        queues = await self._store.arun(stats())
        workers = await self._store.arun(live_workers())
        return AlertFacts(queues=queues, dead=dead, workers=workers)
