"""The simulated loop: time that jumps, hosts that stop and die, and the same choices again."""

from __future__ import annotations

import asyncio
import time
from random import Random

import pytest

from tests.simulation.loop import Host, LivelockError, SimulatedLoop


@pytest.fixture
def loop():
    loop = SimulatedLoop(Random(1), is_shuffled=False, callbacks_max=100_000)
    yield loop
    loop.close()


def test_a_day_passes_at_once(loop):
    """Nobody sleeps: the clock jumps to the next thing that happens."""
    began = time.perf_counter()
    loop.run_until_complete(asyncio.sleep(86_400))

    assert 86_400 <= loop.now < 86_401
    assert time.perf_counter() - began < 60


def test_a_stopped_host_goes_on_later(loop):
    """What became due meanwhile happens when it goes on."""
    host, seen = Host("stopped"), list[float]()
    loop.on(host, lambda: seen.append(loop.now), delay=1)
    loop.stop_host(host)
    loop.call_later(10, loop.resume_host, host)
    loop.run_until_complete(asyncio.sleep(20))

    assert [10 <= at < 11 for at in seen] == [True]


def test_the_clock_of_a_suspended_host_stands_still(loop):
    """Its own time goes on where it was, and so do its timers."""
    host, seen = Host("suspended"), list[tuple[float, float]]()
    loop.on(host, lambda: seen.append((loop.now, loop.time())), delay=5)
    loop.call_later(2, lambda: loop.stop_host(host, is_suspended=True))
    loop.call_later(12, loop.resume_host, host)
    loop.run_until_complete(asyncio.sleep(30))

    ((at, own),) = seen
    assert (round(at), round(own)) == (15, 5)


def test_a_dead_host_does_nothing(loop):
    """Neither what was ready nor what was due."""
    host, seen = Host("dead"), list[str]()
    loop.on(host, seen.append, "ready")
    loop.on(host, seen.append, "due", delay=1)
    loop.kill_host(host)
    loop.run_until_complete(asyncio.sleep(2))

    assert seen == []


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_the_order_is_the_seeds(is_shuffled):
    """Hosts take turns as the seed says, and each in its own order, unless that is shuffled."""

    def order(seed: int) -> list[str]:
        loop = SimulatedLoop(Random(seed), is_shuffled=is_shuffled, callbacks_max=1000)
        seen = list[str]()
        hosts = [Host(name) for name in "abc"]
        for number in range(5):
            for host in hosts:
                loop.on(host, seen.append, f"{host}{number}")
        loop.run_until_complete(asyncio.sleep(1))
        loop.close()
        return seen

    assert order(1) == order(1)
    assert order(1) != order(2)
    own = [name for name in order(1) if name.startswith("a")]
    assert is_shuffled == (own != sorted(own))


def test_running_in_circles_is_noticed(loop):
    """A loop that never waits, and one that waits for ever, end with an error."""

    async def circle() -> None:
        while True:  # noqa: ASYNC110  # that is the mistake
            await asyncio.sleep(0)

    with pytest.raises(LivelockError, match="more callbacks"):
        loop.run_until_complete(circle())
