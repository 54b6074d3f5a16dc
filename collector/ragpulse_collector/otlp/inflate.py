"""Inflating under a cap: what would grow beyond it is refused before it takes the memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import anyio.to_thread
from zlib_ng import zlib_ng as zlib

from ragpulse_collector.otlp.intake import MIB, Limits, Refusal, Ticket

ENCODINGS = ("gzip", "x-gzip", "deflate")
_PIECE = _CHUNK = 1 * MIB
"""How much goes in and comes out at a time: between two of them Python's lock must be had again."""
_KEPT = 4 * MIB
"""Bodies beyond this are measured to their end before any more of them is kept, so that a bomb costs no more memory."""
_ON_THE_LOOP = 64 * 1024
"""Compressed bodies up to this are inflated at once: a thread's wake-up would cost more."""
_MAX_MEMBERS = 64
"""A gzip file may be several in a row; nobody sends that many but to keep us busy."""


async def inflate_aside(
    body: bytes, encoding: str, limits: Limits, ticket: Ticket, inflaters: anyio.CapacityLimiter
) -> bytes:
    """Inflate like `inflate`, big bodies on a thread; the bytes of the compressed body are given back."""
    inflated: bytes | Refusal
    if len(body) <= _ON_THE_LOOP:
        inflated = inflate(body, encoding, limits, ticket)
    else:
        inflated = await anyio.to_thread.run_sync(_outcome, body, encoding, limits, ticket, limiter=inflaters)
        if isinstance(inflated, Refusal):
            raise Refusal(inflated.status, inflated.message, retry_after_s=inflated.retry_after_s)
    ticket.give_back(len(body))
    return inflated


def _outcome(body: bytes, encoding: str, limits: Limits, ticket: Ticket) -> bytes | Refusal:
    """Return a refusal instead of raising it: through a future it would keep the body until garbage is collected."""
    try:
        return inflate(body, encoding, limits, ticket)
    except Refusal as refusal:
        return refusal.with_traceback(None)


def inflate(body: bytes, encoding: str, limits: Limits, ticket: Ticket) -> bytes:
    """Return the inflated body; raises Refusal: 400 corrupt or truncated, 413 too big, 503 no budget left."""
    kept: list[bytes] = []
    total = 0
    for chunk in _chunks(body, encoding):
        total += len(chunk)
        if total > limits.max_body_bytes:
            kept.clear()  # the traceback keeps this frame alive for a while
            raise Refusal(413, f"the body inflates to more than {limits.max_body_bytes} bytes")
        if total <= _KEPT:
            kept.append(chunk)
    ticket.take(total)
    if total > _KEPT:
        kept = list(_chunks(body, encoding))
    return b"".join(kept)  # of a single chunk no copy is made


def _chunks(body: bytes, encoding: str) -> Iterator[bytes]:
    window = _window(body, encoding)
    inflater = zlib.decompressobj(window)
    members = 1
    try:
        for start in range(0, len(body), _PIECE):
            rest = body[start : start + _PIECE]
            while rest:
                if inflater.eof:
                    members += 1
                    inflater = _next_member(window, members)
                yield inflater.decompress(rest, _CHUNK)
                rest = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
        if rest := inflater.flush():
            yield rest
    except zlib.error as error:  # type: ignore[misc]  # its stub calls the class an instance
        raise Refusal(400, f"the {encoding} body is corrupt: {error}") from error
    if not inflater.eof:
        raise Refusal(400, f"the {encoding} body is truncated")


def _window(body: bytes, encoding: str) -> int:
    """Return zlib's window setting; `deflate` means zlib by the standard and bare deflate from some senders."""
    if encoding != "deflate":
        return 16 + zlib.MAX_WBITS
    zlib_header = len(body) >= 2 and body[0] & 0x0F == 8 and (body[0] * 256 + body[1]) % 31 == 0
    return zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS


def _next_member(window: int, members: int) -> Any:
    if window <= zlib.MAX_WBITS:
        raise Refusal(400, "the deflate body has bytes after its end")
    if members > _MAX_MEMBERS:
        raise Refusal(400, f"the gzip body has more than {_MAX_MEMBERS} members")
    return zlib.decompressobj(window)
