"""The Consistency-Token: what a writer carries to a reader to see its own write.

It names a version of one stream, never an offset, so it holds on every site that has the stream.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from services.kernel import KernelError


class MalformedToken(KernelError, ValueError):
    """Not a token that the shop gave out."""


class Token(NamedTuple):
    """`stream` is `order/<id>` or `stock/<sku>`; `event_id` is empty where a command changed nothing."""

    stream: str
    version: int
    event_id: str
    epoch: int

    def encode(self) -> str:
        text = f"{self.stream}@{self.version}.{self.event_id}.{self.epoch}"
        return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()

    @classmethod
    def decode(cls, text: str) -> Token:
        """Raises `MalformedToken`."""
        try:
            plain = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)).decode()
            stream, _, rest = plain.rpartition("@")
            version, event_id, epoch = rest.split(".")
            token = cls(stream, int(version), event_id, int(epoch))
        except (binascii.Error, UnicodeError, ValueError) as error:
            raise MalformedToken(f"not a consistency token: {text!r:.80}") from error
        numbers = 0 <= token.version < 2**63 and 0 <= token.epoch < 2**31
        if not stream or "\0" in stream or not numbers or token.encode() != text:
            raise MalformedToken(f"not a consistency token: {text!r:.80}")
        return token
