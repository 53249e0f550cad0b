"""Who sent a request: a trusted proxy names its client, and nobody else does."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock import config
from rowlock.errors import OptionInvalid
from rowlock.server.proxies import Proxies, networks_of

PROXIES = Proxies(networks_of(["10.0.0.0/8", "::1"]))


def asked(peer: str = "10.0.0.1", **headers: str | list[str]) -> dict[str, Any]:
    """An ASGI scope. A header with several values came several times."""
    pairs = [
        (name.replace("_", "-").encode(), value.encode())
        for name, values in headers.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    return {"client": (peer, 4711), "headers": pairs, "scheme": "http"}


@pytest.mark.parametrize(
    ("scope", "client"),
    [
        (asked("192.0.2.9", x_forwarded_for="198.51.100.7"), "192.0.2.9"),
        (asked(), "10.0.0.1"),
        (asked(x_forwarded_for="198.51.100.7"), "198.51.100.7"),
        (asked(x_forwarded_for="6.6.6.6, 198.51.100.7, 10.2.3.4"), "198.51.100.7"),
        (asked(x_forwarded_for=["6.6.6.6", "198.51.100.7"]), "198.51.100.7"),
        (asked(x_forwarded_for="198.51.100.7:4711"), "198.51.100.7"),
        (asked(x_forwarded_for="[2001:db8::1]:4711"), "2001:db8::1"),
        (asked(x_forwarded_for="10.1.1.1, 10.2.2.2"), "10.1.1.1"),
        (asked(x_forwarded_for="6.6.6.6, unknown, 10.2.2.2"), "10.2.2.2"),
        (asked(x_forwarded_for="<script>"), "10.0.0.1"),
        (asked("::1", forwarded='for=6.6.6.6, for="[2001:db8::1]:80";proto=https'), "2001:db8::1"),
        (asked(forwarded="for=_hidden"), "10.0.0.1"),
        # A proxy sets one of them, and passes the other on as the client wrote it.
        (asked(forwarded="for=6.6.6.6", x_forwarded_for="198.51.100.7"), "10.0.0.1"),
        (asked(forwarded="for=198.51.100.7", x_forwarded_for="198.51.100.7"), "198.51.100.7"),
    ],
)
def test_the_client_is_the_last_untrusted_hop(scope, client):
    """Whatever clients write before it; and only if the connection is the proxy's."""
    assert PROXIES.client(scope) == client


@pytest.mark.parametrize(
    ("scope", "is_https"),
    [
        (asked(x_forwarded_proto="https"), True),
        (asked(x_forwarded_proto="https, http"), False),
        (asked(forwarded="for=192.0.2.1;proto=https"), True),
        (asked(), False),
        (asked("192.0.2.9", x_forwarded_proto="https"), False),
        ({**asked("192.0.2.9"), "scheme": "https"}, True),
        ({**asked(), "client": None}, False),
    ],
)
def test_https_is_known_by_the_connection_or_a_proxy(scope, is_https):
    """By a trusted proxy only."""
    assert PROXIES.is_https(scope) is is_https


def test_a_long_list_is_read_from_its_end():
    """Only so many addresses as proxies are likely."""
    hops = ["198.51.100.7"] + ["10.0.0.2"] * (config.FORWARDED_HOPS_MAX - 1)
    near = PROXIES.client(asked(x_forwarded_for=", ".join(["6.6.6.6"] * 5_000 + hops)))
    far = PROXIES.client(asked(x_forwarded_for=", ".join([*hops, "10.0.0.2"])))

    assert (near, far) == ("198.51.100.7", "10.0.0.2")


def test_what_is_no_network_is_refused():
    """By its text, and an example."""
    with pytest.raises(OptionInvalid, match=r"nginx.*such as 10"):
        networks_of(["nginx"])
