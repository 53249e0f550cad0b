"""The form of a token: what is shown, what is compared, what is refused."""

from __future__ import annotations

import hmac

import pytest

from rowlock.errors import OptionInvalid
from rowlock.tokens import Scope, new_secret, read_secret, scopes_of


def test_a_secret_is_read_again():
    """Its id can be told from its text, and its repr shows nothing more."""
    secret = new_secret()
    read = read_secret(secret.text)

    assert secret == read
    assert read.matches(secret.digest)
    assert secret.text not in repr(secret) and secret.id in repr(secret)


def test_secrets_differ():
    """No two have the same id, text or digest, and none matches another's."""
    made = [new_secret() for _ in range(1_000)]

    assert len({part for each in made for part in (each.id, each.text, each.digest)}) == 3_000
    assert not made[0].matches(made[1].digest)


@pytest.mark.parametrize(
    "text", ["", "rwl_", "rwl_abc_def", f"rwl_{'a' * 12}_{'b' * 42}", f" rwl_{'a' * 12}_{'b' * 43}"]
)
def test_what_is_no_token(text):
    """Texts of another form are not looked up at all."""
    assert None is read_secret(text)


def test_scopes_are_checked():
    """Known ones, each once, one at least."""
    assert scopes_of(["admin", "read", "read"]) == [Scope.READ, Scope.ADMIN]
    for wrong in ([], ["root"], ["read", "root"], "read"):
        with pytest.raises(OptionInvalid, match="scopes"):
            scopes_of(wrong)


def test_digests_are_compared_in_constant_time(monkeypatch):
    """How much of a digest is right can't be told by how long it takes."""
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda *two: compared.append(two) or real(*two))
    secret, other = new_secret(), new_secret()

    assert (secret.matches(secret.digest), secret.matches(other.digest)) == (True, False)
    assert compared == [(secret.digest, secret.digest), (secret.digest, other.digest)]
