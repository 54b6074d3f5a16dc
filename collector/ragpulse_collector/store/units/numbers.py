"""The number u of a unit, by which it is sampled: a hash, so that every process draws alike."""

from __future__ import annotations

import hashlib

_BELOW_ONE = 1 - 1e-16
U_SQL = f"""least(('0x' || sha256($salt || ':' || replace(m.trace_id::VARCHAR, '-', '') || ':'
                  || printf('%016x', m.span_id))[1:16])::UBIGINT / 18446744073709551616.0, {_BELOW_ONE!r})"""
"""The number of a row `m` that has `trace_id` and `span_id`; `$salt` is a parameter of the query."""


def sampling_number(salt: str, trace_id: str, span_id: str) -> float:
    """Return u in [0, 1): the first 64 bits of sha256 over salt, trace id and span id (hex)."""
    digest = hashlib.sha256(f"{salt}:{trace_id}:{span_id}".encode()).digest()
    return min(int.from_bytes(digest[:8], "big") / 2**64, _BELOW_ONE)
