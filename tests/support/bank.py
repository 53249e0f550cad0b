"""Accounts in the jobs' database, and tasks that transfer between them in `ctx.transaction()`."""

from __future__ import annotations

import asyncio
import random
import sqlite3

import psycopg

import rowlock

TABLES = (
    "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)",
    "CREATE TABLE transfer (number INTEGER NOT NULL)",
    "INSERT INTO account VALUES (1, 1000), (2, 1000), (3, 1000)",
)


def execute(app: rowlock.App, *statements: str) -> list[tuple]:
    """Run statements on a connection of the test's own; the rows of the last one."""
    rows: list[tuple] = []
    connection = connect(app)
    try:
        for statement in statements:
            cursor = connection.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
        connection.commit()
    finally:
        connection.close()
    return rows


def connect(app: rowlock.App):
    if app.url.startswith("sqlite"):
        return sqlite3.connect(app.url.removeprefix("sqlite:///"), timeout=30)
    return psycopg.connect(app.url)


async def send(connection, sql: str) -> None:
    """Execute on either colour's connection: SQLite has one for both."""
    done = connection.execute(sql)
    if asyncio.iscoroutine(done):
        await done


def transfers(app: rowlock.App) -> list[int]:
    return [number for (number,) in execute(app, "SELECT number FROM transfer ORDER BY number")]


def note(number: int) -> str:
    return f"INSERT INTO transfer VALUES ({number})"


def make_task(app: rowlock.App, colour: str, before=None, inside=None, after=None, **options):
    """A task that notes its number inside a block, and calls what the test wants around that.

    `inside` gets the context and the transaction.
    """
    options = {"max_attempts": 1, **options}
    if colour == "plain":

        @app.task(name="work", **options)
        def plain(ctx: rowlock.Context, number: int = 1) -> str:
            if before:
                before(ctx)
            with ctx.transaction() as tx:
                tx.connection.execute(note(number))
                if inside:
                    inside(ctx, tx)
            if after:
                after(ctx)
            return "returned"

        return plain

    @app.task(name="work", **options)
    async def coroutine(ctx: rowlock.Context, number: int = 1) -> str:
        if before:
            before(ctx)
        async with ctx.transaction() as tx:
            await send(tx.connection, note(number))
            if inside:
                # Off the loop, where the test may block.
                await asyncio.to_thread(inside, ctx, tx)
        if after:
            after(ctx)
        return "returned"

    return coroutine


def run(app: rowlock.App, task: rowlock.Task, **payload) -> rowlock.Job:
    """Enqueue, drain, and read the job again."""
    job = task.enqueue(**payload)
    app.drain(limit=1)
    found = app.get(job.id)
    assert found is not None
    return found


def fail(*_: object) -> None:
    raise ValueError("made up")


async def serve(app: rowlock.App, *jobs: rowlock.Job, **options) -> None:
    """Run a worker until the jobs have ended."""
    async with app.worker(**options):
        for job in jobs:
            await app.await_(job.id, timeout=30)
    await app.aclose()


def plan(count: int) -> list[dict[str, int]]:
    """Transfers between accounts, in one order for all, so that they wait and don't deadlock."""
    chance = random.Random(7)
    moves = []
    for number in range(count):
        first, second = sorted(chance.sample([1, 2, 3], 2))
        amount = chance.randint(-20, 20)
        moves.append({"number": number, "first": first, "second": second, "amount": amount})
    return moves


def balances(app: rowlock.App) -> list[int]:
    return [balance for (balance,) in execute(app, "SELECT balance FROM account ORDER BY id")]


def expected_balances(moves: list[dict[str, int]]) -> list[int]:
    totals = {1: 1000, 2: 1000, 3: 1000}
    for each in moves:
        totals[each["first"]] -= each["amount"]
        totals[each["second"]] += each["amount"]
    return list(totals.values())
