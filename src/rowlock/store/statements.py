"""The SQL files: read once, their macros expanded, in the parameter style of the driver.

A file in `sql/` holds the statements of one verb module, in sections:

    -- name: claim (postgres)       one statement, in PostgreSQL's dialect
    -- name: claim (sqlite)         the same in SQLite's; several statements run in order, and the
                                    rows of the last one are returned
    -- name: token_list             one text for both dialects, written for PostgreSQL
    -- fragment: fits (sqlite)      text that statements use as `{fits job}`, where `{of}` is `job`

A text for both dialects is turned into SQLite's by a few mechanical rules: see `_for_sqlite`.

Values are named `:value`. Macros: `{now}` is the clock, `{job}` and `{finished}` the columns of a
`JobRow` (`{row}` the same unqualified, for SQLite's RETURNING; `{held}` and `{ended}` the same
without the columns that can be large and decide nothing, such as payloads; `{listed_job}` and
`{listed_finished}` the same with the end of the errors), `{shared}` those that both tables share
(`{plain}` without those of workflows),
`{schedule}` the columns of a `ScheduleRow`. More are in `columns.py`.

In a batch's statement for SQLite, `{rows id, token}` is a query of all its rows, with these
columns. Without it, the statement runs once per row. The first statement names all columns. Others
name as many of them as they need, beginning with the first.

A statement can have variants, which are named with a slash. `lanes/tenant` keeps the first part of
`{tenant? this | that}`, plain `lanes` the second. Several variants can share a part, as in
`{limited,node? this | that}`. `move_put/finished` is the variant for one of the
tables in `TABLES`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from rowlock import columns
from rowlock.columns import macros
from rowlock.errors import OptionInvalid

_SCHEDULE = (
    "schedule.name, schedule.kind, schedule.queue, schedule.rank, schedule.tenant, schedule.key, "
    "schedule.key_hold, schedule.payload, schedule.max_attempts, schedule.tags, schedule.meta, "
    "schedule.policy, schedule.cron, schedule.timezone, schedule.missed, schedule.source, "
    "schedule.is_paused, schedule.next_at, schedule.last_at, schedule.last_job_id{text}"
)
_SECTION = re.compile(r"^-- (name|fragment): (\w+)(?: \((sqlite|postgres)\))?\n", re.MULTILINE)
_FRAGMENT = re.compile(r"\{(\w+) (\w+)\}")
_CHOICE = re.compile(r"\{([\w,]+)\? ((?:[^{}|]|\{[\w ,]+\})*)(?:\| ((?:[^{}]|\{[\w ,]+\})*))?\}")
_MACRO = re.compile(r"\{(\w+)\}")
_ROWS = re.compile(r"\{rows ([a-z_, \n]+)\}")
_PARAMETER = re.compile(r"'(?:[^']|'')*'|--[^\n]*|(?<!:):([a-z][a-z_]*)")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")


class Dialect(StrEnum):
    """Which database a statement is written for."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


class ParameterStyle(StrEnum):
    """How a driver wants its parameters written."""

    NAMED = "named"
    PYFORMAT = "pyformat"
    NUMERIC = "numeric"


_NOW = {
    Dialect.SQLITE: ":now",
    Dialect.POSTGRES: (
        "coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"
    ),
}


class Compiled(msgspec.Struct, frozen=True):
    """A statement in one driver's parameter style. `parameters` are its names, in order.

    `columns` are those of `{rows}`, if it takes all rows of a batch at once, as JSON.
    """

    parts: tuple[str, ...]
    parameters: tuple[str, ...]
    columns: tuple[str, ...] | None = None


def check_schema(schema: str) -> str:
    """The schema's name, if it needs no quoting. Raises `OptionInvalid` otherwise."""
    if not _SCHEMA.fullmatch(schema):
        raise OptionInvalid(
            "schema", f"{schema!r} must be lower-case letters, digits and _, 40 at most"
        )
    return schema


def in_schema(sql: str, *, dialect: Dialect, schema: str) -> str:
    """The same SQL for a schema (SQLite: a prefix of table names) of another name."""
    if schema == "rowlock":
        return sql
    if dialect is Dialect.SQLITE:
        return re.sub(r"\browlock_(?=[a-z])", f"{schema}_", sql)
    return re.sub(r"\browlock\.(?=[a-z])", f"{schema}.", sql)


@cache
def _texts(dialect: Dialect) -> dict[str, str]:
    """Every statement of a dialect by its name, without comments, with its fragments in place.

    All are read at once, with the first one. A process that runs for weeks must not read one of
    another version after an upgrade, nor need a file when it has no descriptor left.
    """
    texts: dict[str, dict[str, str]] = {"name": {}, "fragment": {}}
    for file in sorted(Path(__file__).with_name("sql").glob("*.sql")):
        parts = _SECTION.split(file.read_text(encoding="utf-8"))
        for sort, name, own_dialect, section in zip(*(iter(parts[1:]),) * 4, strict=True):
            if own_dialect in (None, dialect):
                text = "\n".join(
                    line for line in section.splitlines() if not line.lstrip().startswith("--")
                )
                assert name not in texts[sort], f"{file.name} has {name} twice"
                is_theirs = own_dialect is None and dialect is Dialect.SQLITE
                texts[sort][name] = _for_sqlite(text) if is_theirs else text
    fragments = texts["fragment"]

    def fill(match: re.Match[str]) -> str:
        fragment = fragments.get(match.group(1))
        return match.group(0) if fragment is None else fragment.replace("{of}", match.group(2))

    for inner in (fragments, texts["name"]):
        for name, text in inner.items():
            inner[name] = _FRAGMENT.sub(fill, text)
    return texts["name"]


def _for_sqlite(sql: str) -> str:
    """SQLite's form of a text that is written for PostgreSQL."""
    sql = re.sub(r"\browlock\.(?=[a-z{])", "rowlock_", sql)
    sql = re.sub(r"= ANY ?\((:[a-z_]+)::[a-z]+\[\]\)", r"IN (SELECT value FROM json_each(\1))", sql)
    # A writer has the whole file, so there is nothing else to lock.
    sql = re.sub(r"\bFOR UPDATE(?: OF [a-z]+)?(?: SKIP LOCKED)?", "", sql)
    sql = re.sub(r"::[a-z_]+(?:\[\])?", "", sql)
    return sql.replace("(SELECT {now})", "{now}")


@cache
def source(name: str, dialect: Dialect, schema: str) -> str:
    """A statement's text with its macros expanded."""
    name, _, variant = name.partition("/")
    body = _CHOICE.sub(
        lambda match: match.group(2 if variant in match.group(1).split(",") else 3) or "",
        _texts(dialect)[name],
    )
    known = _macros(dialect)
    if variant in TABLES:
        known = {**known, **TABLES[variant].macros(variant)}
    expanded = _MACRO.sub(lambda match: known[match.group(1)], body)
    return in_schema(expanded, dialect=dialect, schema=schema)


@cache
def _macros(dialect: Dialect) -> dict[str, str]:
    is_postgres = dialect is Dialect.POSTGRES
    schedule = _SCHEDULE.format(text="::text" if is_postgres else "")
    return {**macros(is_postgres=is_postgres), "schedule": schedule, "now": _NOW[dialect]}


def _rows(match: re.Match[str]) -> str:
    """Many rows in one statement: Python makes one call, and releases the GIL meanwhile."""
    fields = [
        f"json_extract(value, '$[{place}]') AS {name}"
        for place, name in enumerate(_names(match.group(1)))
    ]
    return " ".join(["SELECT", ", ".join(fields), "FROM json_each(:rows)"])


def _names(listed: str) -> tuple[str, ...]:
    return tuple(listed.replace(",", " ").split())


@cache
def compiled(name: str, dialect: Dialect, schema: str, style: ParameterStyle) -> Compiled:
    """A statement ready for a driver."""
    text = source(name, dialect, schema)
    found = _ROWS.search(text)
    columns = _names(found.group(1)) if found else None
    text = _ROWS.sub(_rows, text)
    names = tuple(dict.fromkeys(match for match in _PARAMETER.findall(text) if match))
    parts = tuple(part.strip() for part in text.split(";") if part.strip())
    return Compiled(tuple(_styled(part, style, names) for part in parts), names, columns)


def _styled(sql: str, style: ParameterStyle, names: tuple[str, ...]) -> str:
    if style is ParameterStyle.NAMED:
        return sql

    def placeholder(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return match.group(0)
        return f"%({name})s" if style is ParameterStyle.PYFORMAT else f"${names.index(name) + 1}"

    doubled = sql.replace("%", "%%") if style is ParameterStyle.PYFORMAT else sql
    return _PARAMETER.sub(placeholder, doubled)


class MovedTable(msgspec.Struct, frozen=True):
    """A table that `rowlock move` copies: all of its columns, in any order, and its key.

    The key is one value, of a type that PostgreSQL knows. `first` is below any key.
    """

    columns: tuple[str, ...]
    key: str
    key_type: str = "uuid"

    @property
    def first(self) -> str:
        return "" if self.key_type == "text" else "00000000-0000-0000-0000-000000000000"

    def macros(self, name: str) -> dict[str, str]:
        """The values of `{columns}` and similar macros in the statements of this table."""
        return {
            "table": name,
            "columns": ", ".join(self.columns),
            "key": self.key,
            "own_key": self.key.replace("moved.", ""),
            "key_type": self.key_type,
            "object": _object(self.columns, "moved."),
            "own_object": _object(self.columns, ""),
            "fields": ", ".join(f"json_extract(value, '$.{each}')" for each in self.columns),
        }


def _object(columns: tuple[str, ...], prefix: str) -> str:
    """A row as JSON, in SQLite's syntax."""
    return "json_object(" + ", ".join(f"'{each}', {prefix}{each}" for each in columns) + ")"


TABLES: Final[Mapping[str, MovedTable]] = {
    "job": MovedTable(columns.columns_of(columns.JobTable.LIVE), "moved.id"),
    "finished": MovedTable(columns.columns_of(columns.JobTable.FINISHED), "moved.id"),
    # Read and removed by the job that they belong to.
    "log": MovedTable(_names("job_id line at text"), "moved.job_id"),
    "key_hold": MovedTable(
        _names("holder until key_until token lease_taken state kind queue tenant key"),
        "moved.holder",
    ),
    "schedule": MovedTable(
        _names(
            """name next_at last_at last_job_id key_hold max_attempts rank is_paused source missed
            cron timezone kind queue tenant key payload policy tags meta"""
        ),
        "moved.name",
        "text",
    ),
    "queue": MovedTable(_names("name is_paused by_age"), "moved.name", "text"),
    "job_limit": MovedTable(
        _names(
            """name declared_at concurrency interval_us burst key_concurrency key_interval_us
            key_burst is_ordered pauses_when_dead tat closed_until closed_by weights declared
            chosen"""
        ),
        "moved.name",
        "text",
    ),
    "limit_key": MovedTable(
        _names("limit_name key tat closed_until concurrency interval_us burst weight closed_by"),
        # The length keeps apart what a separator could not: names may contain any character.
        "length(moved.limit_name) || '/' || moved.limit_name || '/' || moved.key",
        "text",
    ),
    "workflow": MovedTable(
        _names("id created_at ended_at deadline cancelled_at parent name key tenant meta"),
        "moved.id",
    ),
    # Read with the jobs, or the workflows, that they belong to.
    "edge": MovedTable(
        _names("parent child wants is_met"), "moved.parent || '/' || moved.child", "text"
    ),
    "stack": MovedTable(
        _names("workflow stack parent wants kind"),
        "moved.workflow || '/' || moved.stack || '/' || moved.parent",
        "text",
    ),
    "token": MovedTable(
        _names("id created_at expires_at revoked_at last_used_at digest name scopes tenant"),
        "moved.id",
        "text",
    ),
    "first_answer": MovedTable(_names("id at request answer"), "moved.id", "text"),
    "audit": MovedTable(
        _names("id at token_id actor tenant action target address detail"), "moved.id"
    ),
    "history": MovedTable(
        _names("part at width queue kind sums"),
        "moved.part || '/' || moved.queue || '/' || moved.kind",
        "text",
    ),
}
