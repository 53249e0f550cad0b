"""Money moves between accounts in `ctx.transaction()` while processes are killed: is it all there?

The ledger gets a row from every transfer, and has no constraint: one applied twice would show.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass

from benchmarks.drills.nemesis import Nemesis
from benchmarks.drills.scene import PAUSE, Scene
from benchmarks.drills.transitions import Account

ACCOUNTS = 10
CENTS = 100_000
WORDS = ("-p", "2", "-c", "4", "--lease", "5")
TABLES = (
    "CREATE TABLE account (id integer PRIMARY KEY, cents bigint NOT NULL)",
    "CREATE TABLE ledger (job text, first integer, second integer, cents bigint)",
)


@dataclass(frozen=True, slots=True)
class Books:
    """What the accounts and the ledger say."""

    transfers: int
    struck: str
    seconds: float
    account: Account
    lost: int
    applied_never: int
    applied_twice: int
    # The sum of all accounts against what it was.
    cents_off: int
    # Accounts that are not what the transfers make of them.
    accounts_off: int

    def __str__(self) -> str:
        account = self.account
        return (
            f"{self.transfers:,} transfers, killed {self.struck}, {self.seconds:.0f} s: "
            f"not succeeded {self.lost}, applied never {self.applied_never}, "
            f"applied twice {self.applied_twice}, sum off by {self.cents_off} cents, "
            f"accounts off {self.accounts_off} of {ACCOUNTS}; "
            f"accepted settles {account.settled:,}, settled twice {account.settled_twice}, "
            f"stale {account.stale}, held twice {account.overlapping}, claims {account.claims:,}"
        )


def transfers(scene: Scene, *, count: int, every_seconds: float, crashes: int) -> Books:
    """Half of them by plain functions, half by coroutines."""
    opened = (f"INSERT INTO account VALUES ({number}, {CENTS})" for number in range(ACCOUNTS))
    scene.execute(*TABLES, *opened)
    moves = _moves(count)
    jobs = scene.app.enqueue_many(
        [
            {"kind": ("pay", "apay")[number % 2], "payload": move}
            for number, move in enumerate(moves)
        ]
    )
    start = time.monotonic()
    with Nemesis(scene, *WORDS, workers=2, crashes=crashes, seed=2) as nemesis:
        while scene.waiting():
            PAUSE.wait(every_seconds)
            nemesis.strike()
        scene.drain()
    seconds = time.monotonic() - start
    found = [scene.app.get(job.id) for job in jobs]
    applied = Counter(job for (job,) in scene.execute("SELECT job FROM ledger"))
    balances = dict(scene.execute("SELECT id, cents FROM account"))
    wanted = _balances(moves)
    return Books(
        transfers=count,
        struck=str(nemesis),
        seconds=seconds,
        account=scene.account(),
        lost=sum(job is None or job.state != "succeeded" for job in found),
        applied_never=sum(applied[job.id] == 0 for job in jobs),
        applied_twice=sum(applied[job.id] > 1 for job in jobs),
        cents_off=sum(balances.values()) - ACCOUNTS * CENTS,
        accounts_off=sum(balances[number] != cents for number, cents in wanted.items()),
    )


def _moves(count: int) -> list[dict[str, int]]:
    chance = random.Random(7)
    moves = []
    for _ in range(count):
        first, second = chance.sample(range(ACCOUNTS), 2)
        moves.append({"first": first, "second": second, "cents": chance.randint(1, 9_999)})
    return moves


def _balances(moves: list[dict[str, int]]) -> dict[int, int]:
    balances = dict.fromkeys(range(ACCOUNTS), CENTS)
    for move in moves:
        balances[move["first"]] -= move["cents"]
        balances[move["second"]] += move["cents"]
    return balances
