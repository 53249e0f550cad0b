"""Cursors: where a page ended, sealed so that only this installation can read and make them.

1. A place may be the row of another tenant, at which a bounded read stopped. So it is encrypted.
2. A cursor is bound to a list: to its filters and to the tenant of its caller. So it is refused
   anywhere else, and nobody can make one.
3. The key is in the database, made with its tables. So all servers accept each other's cursors, and
   so do servers that start later.

The form is that of SIV: the tag authenticates the place and what it is bound to, and is also the
nonce of the key stream. Both are HMAC-SHA-256. The same place always has the same cursor.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from rowlock.errors import OptionInvalid

_TAG_BYTES: Final = 16
_BLOCK_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class CursorSeal:
    """Seals places, and opens them again."""

    key: bytes = field(repr=False)

    def close(self, place: str, *bound: Any) -> str:
        """The cursor of a place in the list that is described by the values it is bound to."""
        text = place.encode()
        tag = self._tag(text, bound)
        return base64.urlsafe_b64encode(tag + self._mixed(text, tag)).decode().rstrip("=")

    def open(self, cursor: str, *bound: Any, option: str = "cursor") -> str:
        """The place of a cursor. Raises `OptionInvalid` if it is not one of this list."""
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        except (ValueError, binascii.Error):
            raw = b""
        tag, mixed = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
        text = self._mixed(mixed, tag)
        if not hmac.compare_digest(tag, self._tag(text, bound)):
            raise OptionInvalid(
                option,
                "was not returned by this list with the same filters, for a token of the same "
                "tenant; start again without it",
            )
        return text.decode()

    def _tag(self, text: bytes, bound: tuple[Any, ...]) -> bytes:
        about = msgspec.json.encode(bound)
        head = b"tag" + len(about).to_bytes(8, "big")
        return hmac.digest(self.key, head + about + text, "sha256")[:_TAG_BYTES]

    def _mixed(self, text: bytes, tag: bytes) -> bytes:
        """The text and the key stream of a tag, combined: twice is the text again."""
        blocks = [
            hmac.digest(self.key, b"key" + tag + place.to_bytes(8, "big"), "sha256")
            for place in range(-(-len(text) // _BLOCK_BYTES))
        ]
        stream = b"".join(blocks)[: len(text)]
        mixed = int.from_bytes(text, "big") ^ int.from_bytes(stream, "big")
        return mixed.to_bytes(len(text), "big")
