"""Runs verbs: feeds the steps of a generator to a connection, blocking or async.

This is also the one place that binds a step for a driver. It knows no database library.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from rowlock.store.statements import Dialect, ParameterStyle, compiled
from rowlock.store.steps import Batch, Rows, Statement, Step, Steps

T = TypeVar("T")


def run(steps: Steps[T], perform: Callable[[Step], Rows]) -> T:
    """Run a verb to its end on a blocking connection."""
    try:
        step = next(steps)
        while True:
            step = steps.send(perform(step))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


async def arun(steps: Steps[T], perform: Callable[[Step], Awaitable[Rows]]) -> T:
    """Run a verb to its end on an async connection."""
    try:
        step = next(steps)
        while True:
            step = steps.send(await perform(step))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


class Binder(msgspec.Struct, frozen=True):
    """Turns a step into SQL and parameters, in a driver's style."""

    dialect: Dialect
    schema: str
    style: ParameterStyle

    def bind(self, step: Statement | Batch, *, now: int | None) -> tuple[str, Any]:
        """Bind for PostgreSQL: one statement, in which the rows of a batch are arrays."""
        statement = compiled(step.statement, self.dialect, self.schema, self.style)
        values: dict[str, Any] = {"now": now, **step.values}
        if isinstance(step, Batch) and step.statement == step.alone:
            values.update(zip(step.columns, step.rows[0], strict=True))
        elif isinstance(step, Batch):
            values.update(zip(step.columns, map(list, zip(*step.rows, strict=True)), strict=True))
        (sql,) = statement.parts
        if self.style is ParameterStyle.NUMERIC:
            return sql, [values[name] for name in statement.parameters]
        # psycopg accepts a dict with more names than it needs, and so does psycopg2.
        return sql, {name: array_literal(value) for name, value in values.items()}

    def bind_rows(
        self, step: Statement | Batch, *, now: int | None
    ) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
        """Bind for SQLite: the statements, and the parameters of each run. Lists are JSON."""
        statement = compiled(step.name, self.dialect, self.schema, self.style)
        values = {"now": now, **{name: _plain(value) for name, value in step.values.items()}}
        if isinstance(step, Statement):
            return statement.parts, [values]
        columns = step.columns
        if statement.columns is not None:
            assert statement.columns == columns, f"{step.name} takes other columns"
            return statement.parts, [{**values, "rows": _json(step.rows)}]
        return statement.parts, [
            {**values, **dict(zip(columns, row, strict=True))} for row in step.rows
        ]


def array_literal(value: Any) -> Any:
    """A list in PostgreSQL's array syntax. psycopg's own dumper took five times as long."""
    if not isinstance(value, list):
        return value
    first = value[0] if value else None
    # Most columns of a batch are the same in every row: kinds, queues, policies, unset values.
    if value.count(first) == len(value):
        elements = [_element(first)] * len(value)
    else:
        elements = [_element(item) for item in value]
    return "{" + ",".join(elements) + "}"


def _element(item: Any) -> str:
    if item is None:
        return "NULL"
    if isinstance(item, str):
        if '"' in item or "\\" in item:
            item = item.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{item}"'
    return str(item)


def _plain(value: Any) -> Any:
    return _json(value) if isinstance(value, list) else value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
