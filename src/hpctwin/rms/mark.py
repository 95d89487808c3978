"""What a placer writes on its jobs, so that it knows them again and nobody else can write it."""

from __future__ import annotations

import hashlib
import hmac

__all__ = ["Mark"]

_PREFIX = "hpctwin-facility"
_HEX = 32


class Mark:
    """Marks of one queue: the job's key, and proof that it was written by who knows the queue's secret.

    A mark can be read by whoever sees the job's comment, and copied: whose job it stands on must be looked
    at too.

    Args:
        secret: known to the queue's owner only.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, key: str) -> str:
        """The mark of the job with a key."""
        return f"{_PREFIX}:{key}:{self._proof(key)}"

    def key(self, text: object) -> str | None:
        """The key that a mark of this queue stands for; None if the text is none."""
        if not isinstance(text, str):
            return None
        head, _, proof = text.strip().rpartition(":")
        prefix, _, key = head.partition(":")
        good = prefix == _PREFIX and hmac.compare_digest(proof.encode(), self._proof(key).encode())
        return key if good else None

    def _proof(self, key: str) -> str:
        return hmac.new(self._secret, key.encode(), hashlib.sha256).hexdigest()[:_HEX]
