"""`rowlock tokens`: made once, listed without their secrets, revoked."""

from __future__ import annotations

import json

from rowlock import config
from rowlock.store.ops.audit import list_audit
from rowlock.store.ops.tokens import find_token, new_token, use_tokens
from rowlock.store.steps import Begin, Steps, writing
from rowlock.tokens import read_secret


def found(app, text: str):
    secret = read_secret(text)
    assert secret is not None
    return app.store.run(find_token(secret))


def test_a_token_is_printed_once(run, app):
    """Alone on stdout, for a pipe; listed later without its secret."""
    made = run("tokens", "create", "shop", "--scope", "enqueue", "--scope", "read")
    text = made.stdout.strip()
    listed = run("tokens", "list")

    assert made.exit_code == 0, made.output
    assert found(app, text).scopes == ["enqueue", "read"]
    assert "shop" in listed.stdout and "enqueue,read" in listed.stdout
    assert text not in listed.stdout and text.split("_")[1] in listed.stdout


def test_all_that_can_be_said(run, app):
    """A tenant and an expiry, as JSON."""
    made = json.loads(
        run(
            *("tokens", "create", "ci", "--scope", "work", "--tenant", "acme"),
            *("--expires", "2d", "--json"),
        ).stdout
    )
    (listed,) = json.loads(run("tokens", "list", "--json").stdout)

    assert found(app, made["token"]).tenant == "acme"
    assert made["expires_at"] is not None
    assert {name: value for name, value in made.items() if name != "token"} == listed


def test_all_tokens_are_listed(run, app):
    """Also those beyond the first page of the store."""

    def steps() -> Steps[None]:
        yield Begin()
        for _ in range(config.LIST_LIMIT_MAX + 1):
            yield from new_token(name="n", scopes=["read"]).add().start()

    app.store.run(writing("many", steps))
    listed = json.loads(run("tokens", "list", "--json").stdout)

    assert len({token["id"] for token in listed}) == config.LIST_LIMIT_MAX + 1


def test_a_token_is_revoked(run, app):
    """By its id; what is unknown is exit code 3."""
    text = run("tokens", "create", "shop", "--scope", "admin").stdout.strip()
    done = run("tokens", "revoke", text.split("_")[1])
    unknown = run("tokens", "revoke", "nobody")
    actions = [entry.action for entry in app.store.run(list_audit()).entries]

    assert (done.exit_code, unknown.exit_code) == (0, 3)
    assert None is found(app, text)
    assert actions == ["token.revoke", "token.create"]


def test_an_unknown_token_keeps_no_other_from_being_revoked(run, app):
    """A mistake in a list of leaked tokens must not leave the rest of them good."""
    texts = [run("tokens", "create", "shop", "--scope", "read").stdout.strip() for _ in range(2)]
    first, second = [text.split("_")[1] for text in texts]
    done = run("tokens", "revoke", first, "nobody", second)

    assert (done.exit_code, done.stdout) == (3, f"revoked {first}\nrevoked {second}\n")
    assert [found(app, text) for text in texts] == [None, None]


def test_a_scope_is_needed(run):
    """And a known one."""
    assert run("tokens", "create", "shop").exit_code == 2
    assert run("tokens", "create", "shop", "--scope", "root").exit_code == 2


def test_the_last_use_is_listed(run, app):
    """As a column, and in the JSON."""
    text = run("tokens", "create", "shop", "--scope", "read").stdout.strip()
    app.store.run(use_tokens([text.split("_")[1]]))
    table = run("tokens", "list").stdout
    (listed,) = json.loads(run("tokens", "list", "--json").stdout)

    assert "used" in table.splitlines()[0].lower()
    assert listed["last_used_at"] is not None
