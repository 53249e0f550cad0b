"""Who sent a request: the peer of the connection, or the client that a trusted proxy names.

1. Only the headers of a trusted proxy count. Everybody else could write anything into them.
2. Proxies append. So the list is read from its end, and the last address that is not a trusted
   proxy's own is the client's.
3. A proxy sets one sort of header and may pass on the other as the client sent it. If both are
   present and disagree, neither counts, and the address is the proxy's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from ipaddress import IPv4Network as _IPv4Network
from typing import Any, Final

from rowlock import config
from rowlock.errors import OptionInvalid

Address = IPv4Address | IPv6Address
Network = _IPv4Network | IPv6Network
Scope = Mapping[str, Any]

_FOR: Final = re.compile(r'(?:^|;)\s*for\s*=\s*"?([^";]*)', re.IGNORECASE)
_PROTO: Final = re.compile(r'(?:^|;)\s*proto\s*=\s*"?([a-z]*)', re.IGNORECASE)
_FORWARDED: Final = (b"forwarded", b"x-real-ip", b"via")


def networks_of(texts: Sequence[str]) -> tuple[Network, ...]:
    """Parse the addresses and networks of trusted proxies. Raises `OptionInvalid`."""
    try:
        return tuple(ip_network(text.strip(), strict=False) for text in texts)
    except ValueError as error:
        raise OptionInvalid(
            "trusted-proxy", f"{error}; give an address such as 10.0.0.5, or a network: 10.0.0.0/8"
        ) from None


def was_forwarded(scope: Scope) -> bool:
    """Whether a request came through a proxy, as far as it shows.

    nginx speaks HTTP/1.0 to the server behind it unless it is configured otherwise. No browser, and
    hardly any client, still does.
    """
    return scope.get("http_version") == "1.0" or any(
        name in _FORWARDED or name.startswith(b"x-forwarded-") for name, _ in scope["headers"]
    )


def texts_of(scope: Scope, name: bytes) -> list[str]:
    """The values of all headers of a name, in the order in which they came."""
    return [value.decode("latin-1") for each, value in scope["headers"] if each == name]


class Proxies:
    """The proxies whose headers are believed. Without any, only connections count."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        self._networks = networks

    def client(self, scope: Scope) -> str:
        """The address of the client, or "" if the connection has none."""
        peer = _peer(scope)
        if not self._trusts(peer):
            return peer
        lists = [
            _reversed_hops(texts_of(scope, b"x-forwarded-for")),
            _forwarded_hops(texts_of(scope, b"forwarded")),
        ]
        named = {self._last_foreign(hops, peer) for hops in lists if hops}
        return named.pop() if len(named) == 1 else peer

    def is_https(self, scope: Scope) -> bool:
        """Whether the client uses TLS, as far as the connection or a trusted proxy says."""
        if scope.get("scheme") == "https":
            return True
        if not self._trusts(_peer(scope)):
            return False
        plain = _reversed_hops(texts_of(scope, b"x-forwarded-proto"))
        named = [
            found[1]
            for hop in _reversed_hops(texts_of(scope, b"forwarded"))
            if (found := _PROTO.search(hop)) is not None
        ]
        # The nearest proxy alone says how it was reached. Others before it may have used less.
        return [each.lower() for each in (plain[:1] or named[:1])] == ["https"]

    def _trusts(self, address: str) -> bool:
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def _last_foreign(self, hops: list[str], peer: str) -> str:
        address = peer
        for hop in hops:
            parsed = _parsed(hop)
            if parsed is None:
                # A proxy that hides its client, or nonsense from before the last trusted proxy.
                return address
            address = str(parsed)
            if not self._trusts(address):
                return address
        return address


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _reversed_hops(texts: list[str]) -> list[str]:
    """The items of a list in headers, the last one first. Only so many as proxies are likely."""
    # From the right, so that the cost does not grow with what a client has put before.
    hops = ",".join(texts).rsplit(",", config.FORWARDED_HOPS_MAX) if texts else []
    return [hop.strip() for hop in reversed(hops[-config.FORWARDED_HOPS_MAX :])]


def _forwarded_hops(texts: list[str]) -> list[str]:
    found = [_FOR.search(hop) for hop in _reversed_hops(texts)]
    return ["" if each is None else each[1].strip() for each in found]


def _parsed(text: str) -> Address | None:
    """An address that may have a port (`192.0.2.1:80`, `[2001:db8::1]:80`), or None."""
    bare = text[1:].partition("]")[0] if text.startswith("[") else text
    if bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        return ip_address(bare)
    except ValueError:
        return None
