"""Digests of the traces, response ids and sessions of forgotten people: feedback about them is not stored later."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta

from ragpulse_collector.records import ScoreRecord
from ragpulse_collector.store.protocol import Transaction
from ragpulse_evaluators.digest import sha256_hex

_FORGET_DELAY = timedelta(hours=1)
"""An evaluation that began before a person was forgotten has ended after this time."""
_REMEMBER = """
    INSERT INTO raw.forgotten BY NAME
    SELECT sha256(id) AS digest, $at::TIMESTAMP AS created_at FROM (
        SELECT 'trace:' || replace(trace_id::VARCHAR, '-', '') AS id FROM forgotten
        UNION SELECT 'response:' || response_id FROM raw.spans
            WHERE trace_id IN (FROM forgotten) AND response_id IS NOT NULL
        UNION SELECT 'session:' || session_id FROM raw.trace_facts
            WHERE trace_id IN (FROM forgotten) AND session_id IS NOT NULL AND session_id NOT IN (
                SELECT session_id FROM raw.trace_facts
                WHERE session_id IS NOT NULL AND trace_id NOT IN (FROM forgotten)))
    WHERE sha256(id) NOT IN (SELECT digest FROM raw.forgotten)"""
_KNOWN = "SELECT digest FROM raw.forgotten WHERE digest IN (SELECT unnest($digests::VARCHAR[]))"


def remember(transaction: Transaction) -> None:
    """Keep digests of the traces in the temporary table `forgotten`, of their calls, and of sessions that end so."""
    transaction.execute(_REMEMBER, {"at": transaction.at})


def without_forgotten(transaction: Transaction, scores: Sequence[ScoreRecord]) -> list[ScoreRecord]:
    """Return the scores that are not about a forgotten person's answers."""
    if not scores:
        return []
    digests = [_digests(score) for score in scores]
    parameters = {"digests": [digest for own in digests for digest in own]}
    known = set(transaction.execute(_KNOWN, parameters).values)
    return [score for score, own in zip(scores, digests, strict=True) if known.isdisjoint(own)]


def is_forgotten(transaction: Transaction, trace_id: str) -> bool:
    """Whether a trace (hex) was deleted with the data of a person."""
    return bool(transaction.execute(_KNOWN, {"digests": [sha256_hex(f"trace:{trace_id}")]}).rows)


def _digests(score: ScoreRecord) -> Iterable[str]:
    ids = {"trace": score.trace_id, "response": score.response_id, "session": score.session_id}
    return [sha256_hex(f"{kind}:{value}") for kind, value in ids.items() if value is not None]


def forgotten_traces(tx: Transaction, trace_ids: Collection[str]) -> set[str]:
    """Return those of these traces (ids as hex text) that were forgotten while they were evaluated."""
    recent = tx.execute(
        "SELECT 1 FROM raw.audit WHERE action = 'prune' AND created_at >= $since::TIMESTAMP"
        " AND (detail->>'$.reason') IN ('user', 'session', 'trace') LIMIT 1",
        {"since": tx.at - _FORGET_DELAY},
    ).rows
    if not recent:
        return set()
    stored = tx.execute(
        "SELECT DISTINCT trace_id FROM raw.spans WHERE trace_id IN (SELECT unnest($ids::VARCHAR[])::UUID)",
        {"ids": list(trace_ids)},
    ).values
    return set(trace_ids) - {trace_id.hex for trace_id in stored}
