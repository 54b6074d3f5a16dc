"""Digests of texts, computed without releasing the interpreter's lock."""

from __future__ import annotations

import hashlib

_PIECE = 2047
"""From 2,048 bytes on hashlib releases the lock: microseconds of work, then up to 5 ms until it is acquired again."""


def sha256_hex(text: str) -> str:
    """The sha256 of a text in UTF-8 as 64 hex digits; lone surrogates are digested as they are."""
    data = text.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(data[:_PIECE])
    for start in range(_PIECE, len(data), _PIECE):
        digest.update(data[start : start + _PIECE])
    return digest.hexdigest()
