"""Tokens: known by their digest, until they expire or are revoked."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from rowlock import config
from rowlock.errors import NotFound, OptionInvalid
from rowlock.store.ops import tokens as tokens_ops
from rowlock.store.ops.tokens import (
    LOGIN_NAME,
    NewSession,
    NewToken,
    TokenState,
    end_session,
    find_session,
    find_token,
    list_tokens,
    new_token,
    revoke_token,
    token_state,
    use_tokens,
)
from rowlock.tokens import Scope, Secret, digest_of


def made(store, **options) -> NewToken:
    """A token, written."""
    options = {"name": "ci", "scopes": ["read"], **options}
    new = new_token(**options)
    store.run(new.add())
    return new


def test_a_token_is_found_by_its_secret(store):
    """With all that was said of it; a secret of the same id but another text is not."""
    new = made(store, scopes=["work", "enqueue"], tenant="acme")
    token = store.run(find_token(new.secret))
    forged = Secret(new.secret.id, new.secret.text[:-1] + "!")

    assert (token.name, token.scopes, token.tenant) == ("ci", [Scope.ENQUEUE, Scope.WORK], "acme")
    assert None is store.run(find_token(forged))


def test_a_token_expires(store, clock):
    """By the database's clock."""
    new = made(store, expires=60)
    before = store.run(find_token(new.secret))
    clock.advance(60)

    assert before is not None
    assert None is store.run(find_token(new.secret))


def test_a_token_is_revoked_at_once(store):
    """For good; again is no error, and what is unknown is not found."""
    new, other = made(store), made(store)
    store.run(revoke_token(new.secret.id))
    store.run(revoke_token(new.secret.id))

    assert None is store.run(find_token(new.secret))
    assert store.run(find_token(other.secret)) is not None
    for unknown in ("a" * 12, "unknown", "", "\0"):
        with pytest.raises(NotFound):
            store.run(revoke_token(unknown))


def test_tenants_have_their_own(store):
    """Whoever is bound to a tenant lists and revokes that tenant's tokens only."""
    ours, theirs = made(store, tenant="acme"), made(store, tenant="zoo")
    made(store)

    assert [token.id for token in store.run(list_tokens(tenant="acme")).tokens] == [ours.secret.id]
    assert len(store.run(list_tokens()).tokens) == 3
    with pytest.raises(NotFound):
        store.run(revoke_token(theirs.secret.id, tenant="acme"))
    assert store.run(find_token(theirs.secret)) is not None


def test_all_tokens_are_listed_by_page(store):
    """Newest first, each once, though they were made at the same time."""
    made = {store.run(new_token(name="n", scopes=["read"]).add()).id for _ in range(5)}
    found, cursor = [], None
    while True:
        page = store.run(list_tokens(limit=2, cursor=cursor))
        found += [token.id for token in page.tokens]
        if (cursor := page.next) is None:
            break

    assert (len(found), {*found}) == (5, made)


def test_what_was_made_stays_made(store, clock):
    """A server that starts can say whether there never was a token, or none is valid any more."""
    states = [store.run(token_state())]
    first = made(store, expires=10)
    states.append(store.run(token_state()))
    store.run(revoke_token(first.secret.id))
    states.append(store.run(token_state()))
    made(store, expires=10)
    clock.advance(10)
    states.append(store.run(token_state()))

    assert states == [
        TokenState(any_made=False, any_live=False),
        TokenState(any_made=True, any_live=True),
        TokenState(any_made=True, any_live=False),
        TokenState(any_made=True, any_live=False),
    ]


def rows_of(table: str, url: str) -> list[Any]:
    """What anybody who can read the database sees."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return connection.execute(f"SELECT * FROM rowlock_{table}").fetchall()
    with psycopg.connect(url) as connection:
        return connection.execute(f"SELECT * FROM rowlock.{table}".encode()).fetchall()


def test_the_secret_is_not_in_the_database(store, store_url):
    """Whoever reads the table can't use it."""
    new = made(store)
    rows = rows_of("token", store_url)

    assert new.secret.id in repr(rows)
    # Not by the last underscore: the random part may hold some.
    assert new.secret.text.split("_", 2)[2] not in repr(rows)


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"scopes": []}, {"tenant": ""}, {"expires": 0}, {"expires": -1}]
)
def test_bad_options_are_refused(wrong):
    """Before anything is written."""
    with pytest.raises(OptionInvalid):
        new_token(**{"name": "ci", "scopes": ["read"], **wrong})


def started(store, new: NewToken) -> NewSession:
    """A session of a token, written."""
    session = NewSession()
    store.run(session.of_token(new.secret.id))
    return session


def test_a_session_ends_with_its_token(store, clock):
    """Or after 12 hours, or when its user signs out; never later."""
    revoked, expiring, lasting = made(store), made(store, expires=60), made(store)
    of_revoked, of_lasting = started(store, revoked), started(store, lasting)
    ended = started(store, lasting)
    short = NewSession()
    left = store.run(short.of_token(expiring.secret.id))

    def is_valid(session: NewSession) -> bool:
        return store.run(find_session(digest_of(session.code))) is not None

    assert all(map(is_valid, [of_revoked, of_lasting, ended, short]))
    assert left == timedelta(seconds=60)
    store.run(revoke_token(revoked.secret.id))
    assert store.run(end_session(digest_of(ended.code)))
    assert not store.run(end_session(digest_of(ended.code)))
    clock.advance(60)
    assert [*map(is_valid, [of_revoked, of_lasting, ended, short])] == [False, True, False, False]
    clock.advance(config.SESSION_SECONDS)
    assert not is_valid(of_lasting)


def test_a_token_has_a_bounded_number_of_sessions(store, monkeypatch):
    """The oldest one ends when another one starts."""
    monkeypatch.setitem(tokens_ops._TRIM, "kept", 2)
    new, other = made(store), made(store)
    kept = started(store, other)
    sessions = [started(store, new) for _ in range(5)]
    found = [store.run(find_session(digest_of(each.code))) for each in [*sessions, kept]]

    assert sum(each is not None for each in found) == 4
    assert found[-2] is not None and found[-1] is not None


def test_expired_sessions_and_login_links_are_pruned(store, store_url, clock):
    """In batches. Tokens with a secret stay, so that the audit can name them."""
    new = made(store, expires=60)
    for _ in range(5):
        started(store, new)
    store.run(NewSession().of_login("a" * 12))
    listed = [token.name for token in store.run(list_tokens()).tokens]
    clock.advance(config.SESSION_SECONDS)
    fresh = started(store, made(store))
    before = len(rows_of("session", store_url))
    store.prune(batch_rows=2)
    after = rows_of("session", store_url)

    assert (before, len(after)) == (7, 1)
    assert fresh.code not in repr(after) and digest_of(fresh.code) in repr(after)
    assert sorted(listed) == ["ci", LOGIN_NAME]
    assert [token.name for token in store.run(list_tokens()).tokens] == ["ci", "ci"]
    assert store.run(find_session(digest_of(fresh.code))) is not None


def test_a_login_link_is_no_token(store):
    """It can be listed and revoked, which ends its session. Nobody can send it as a token."""
    session = NewSession()
    store.run(session.of_login("a" * 12))
    forged = Secret("a" * 12, f"rwl_{'a' * 12}_{'b' * 43}")
    found = store.run(find_session(digest_of(session.code)))

    assert (found.name, found.scopes) == (LOGIN_NAME, [Scope.ADMIN])
    assert store.run(token_state()) == TokenState(any_made=False, any_live=False)
    assert store.run(find_token(forged)) is None
    store.run(revoke_token("a" * 12))
    assert store.run(find_session(digest_of(session.code))) is None


def test_the_last_use_is_written_once_a_minute(store, clock):
    """However often a token is used; unknown ids do no harm."""
    new, idle = made(store), made(store)

    def last_used() -> dict[str, datetime | None]:
        return {token.id: token.last_used_at for token in store.run(list_tokens()).tokens}

    store.run(use_tokens([new.secret.id, "unknown"]))
    first = last_used()
    clock.advance(30)
    store.run(use_tokens([new.secret.id]))
    second = last_used()
    clock.advance(30)
    store.run(use_tokens([new.secret.id]))
    third = last_used()

    assert first[new.secret.id] is not None and first[idle.secret.id] is None
    assert second == first
    assert third[new.secret.id] - first[new.secret.id] == timedelta(seconds=60)
