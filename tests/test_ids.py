"""Ids are UUIDs of version 7 that grow within a process, from any thread."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat

import pytest

from rowlock.errors import OptionInvalid
from rowlock.ids import JobIds, id_of_tenant, new_id, parse_id

# In a process of its own: this one has threads, and then a fork is a gamble.
FORK = """
import os
from rowlock.ids import new_id
new_id()
child = os.fork()
ids = [new_id() for _ in range(100)]
if child:
    os.waitpid(child, 0)
os.write(1, (" ".join(ids) + "\\n").encode())
"""

SIGNALS = """
import signal
from rowlock.ids import new_id
ids = []
def interrupt(*_):
    ids.append(new_id())
    # The next one comes when this one is over, however slow the machine is.
    signal.setitimer(signal.ITIMER_REAL, 0.0001)
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.0001)
while len(ids) < 20_000:
    ids.append(new_id())
signal.signal(signal.SIGALRM, signal.SIG_IGN)
signal.setitimer(signal.ITIMER_REAL, 0)
print(" ".join(ids))
"""


def test_an_id_is_a_uuid_of_version_7():
    """Version and variant are those of RFC 9562, and the text is canonical."""
    id = new_id()
    parsed = uuid.UUID(id)

    assert (parsed.version, parsed.variant, str(parsed)) == (7, uuid.RFC_4122, id)


def test_an_id_begins_with_the_time():
    """The first 48 bits are the milliseconds since 1970."""
    before = time.time_ns() // 1_000_000
    millisecond = uuid.UUID(JobIds().new()).int >> 80

    assert before <= millisecond <= time.time_ns() // 1_000_000


def test_ids_grow():
    """Each id is greater than the one before, also within a millisecond."""
    ids = [new_id() for _ in range(20_000)]

    assert sorted(set(ids)) == ids


def test_ids_grow_when_the_clock_does_not(monkeypatch: pytest.MonkeyPatch):
    """A clock that stands still or steps back makes no id smaller, nor the same again."""
    made = JobIds()
    times = chain(repeat(5_000_000_000, 5_000), repeat(4_000_000_000))
    monkeypatch.setattr(time, "time_ns", lambda: next(times))
    ids = [made.new() for _ in range(10_000)]
    monkeypatch.undo()

    assert sorted(set(ids)) == ids


def test_threads_share_no_id():
    """Eight threads make ids that differ, each its own in growing order."""

    def make(_: int) -> list[str]:
        return [new_id() for _ in range(2_000)]

    with ThreadPoolExecutor(8) as pool:
        lists = list(pool.map(make, range(8)))

    assert len({id for ids in lists for id in ids}) == 16_000
    assert all(ids == sorted(ids) for ids in lists)


def test_a_signal_handler_makes_ids_too():
    """One that interrupts the creation of an id does not wait for it."""
    answer = subprocess.run(
        [sys.executable, "-c", SIGNALS], capture_output=True, check=True, timeout=60
    )
    ids = answer.stdout.decode().split()

    assert (len(set(ids)), len(ids) >= 20_000) == (len(ids), True)


def test_a_forked_child_makes_other_ids():
    """Parent and child share no id, though they share the counter's past."""
    answer = subprocess.run([sys.executable, "-c", FORK], capture_output=True, check=True)
    ids = answer.stdout.decode().split()

    assert (len(set(ids)), {uuid.UUID(id).version for id in ids}) == (200, {7})


@pytest.mark.parametrize(
    "spelling", [str, str.upper, uuid.UUID, lambda text: text.replace("-", "")]
)
def test_an_id_is_read_in_any_spelling(spelling):
    """Text in any case, with or without hyphens, and UUIDs give the canonical text."""
    id = new_id()

    assert id == parse_id(spelling(id))


@pytest.mark.parametrize("value", ["", "garbage", "0" * 31, 7, None, b"0" * 32, "0" * 33])
def test_what_is_no_id_is_refused(value):
    """The error names the option that held it."""
    with pytest.raises(OptionInvalid) as caught:
        parse_id(value, option="job_id")

    assert caught.value.option == "job_id"


def test_a_tenant_s_id_is_its_own():
    """It is the same each time, another for each tenant, and never one that we create."""
    id = new_id()
    derived = uuid.UUID(id_of_tenant(id, "acme"))

    assert id_of_tenant(id, "acme") == id_of_tenant(id.upper(), "acme") == str(derived)
    assert (derived.version, derived.variant) == (8, uuid.RFC_4122)
    assert len({id_of_tenant(id, tenant) for tenant in ("acme", "zoo", "acm", "株")}) == 4


def test_a_tenant_s_id_keeps_its_time():
    """The time of a UUIDv7 stays in front. Of any other id, every bit is hashed."""
    id, random = new_id(), uuid.uuid4()

    assert id_of_tenant(id, "acme")[:13] == id[:13]
    assert uuid.UUID(id_of_tenant(str(random), "acme")).int >> 96 != random.int >> 96
    assert uuid.UUID(id_of_tenant(str(uuid.UUID(int=0)), "acme")).version == 8
