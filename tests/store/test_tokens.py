"""Tokens: known by their digest, until they expire or are revoked."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg
import pytest

from rowlock.errors import NotFound, OptionInvalid
from rowlock.store.ops.tokens import (
    NewToken,
    TokenState,
    find_token,
    list_tokens,
    new_token,
    revoke_token,
    token_state,
)
from rowlock.tokens import Scope, Secret


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

    assert [token.id for token in store.run(list_tokens(tenant="acme"))] == [ours.secret.id]
    assert len(store.run(list_tokens())) == 3
    with pytest.raises(NotFound):
        store.run(revoke_token(theirs.secret.id, tenant="acme"))
    assert store.run(find_token(theirs.secret)) is not None


def test_what_was_made_stays_made(store, clock):
    """A server that is open until there are tokens does not open again when they are gone."""
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


def test_the_secret_is_not_in_the_database(store, store_url):
    """Whoever reads the table can't use it."""
    new = made(store)
    if store_url.startswith("sqlite"):
        with closing(sqlite3.connect(store_url.removeprefix("sqlite:///"))) as connection:
            rows = connection.execute("SELECT * FROM rowlock_token").fetchall()
    else:
        with psycopg.connect(store_url) as connection:
            rows = connection.execute("SELECT * FROM rowlock.token").fetchall()

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
