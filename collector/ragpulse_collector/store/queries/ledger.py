"""Judge money and judge replies: what was spent or is reserved, and the recorded replies."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any, Literal

from ragpulse_collector.store.protocol import Read, Transaction

HELD_BACK = 0.1
"""Share of the day's budget that is released evenly over the day: a burst cannot spend it."""
Entry = tuple[date, str, str, str | None, str | None, Literal["reserve", "release", "spend"], float]
"""Day, evaluator, job id, run id, rule, kind, USD."""
_COLUMNS = ("entry_id", "day", "evaluator", "job_id", "run_id", "rule", "kind", "usd", "created_at")


def spent_usd(
    read: Read, *, day: date | datetime | None = None, run_id: str | None = None, rule: str | None = None
) -> float:
    """Return USD spent or reserved by a replay, or online on a UTC day, by one rule or by all."""
    sql = (
        "SELECT coalesce(sum(usd), 0) FROM raw.ledger WHERE run_id IS NOT DISTINCT FROM $run"
        " AND ($day IS NULL OR day = $day::DATE) AND ($rule IS NULL OR rule = $rule)"
    )
    return float(read(sql, {"run": run_id, "day": day, "rule": rule}).rows[0][0])


def add_entries(tx: Transaction, entries: Iterable[Entry], *, at: datetime) -> None:
    """Append entries; their sum is what is spent or reserved."""
    rows: list[tuple[Any, ...]] = [(uuid.uuid4().hex, *entry, at) for entry in entries]
    tx.append("ledger", _COLUMNS, rows)


def reserved(read: Read) -> dict[str, list[Entry]]:
    """Return by job id what is reserved and not settled, as the entries that release it."""
    rows = read(
        "SELECT day, evaluator, job_id, run_id, rule, 'release', -sum(usd) FROM raw.ledger WHERE kind <> 'spend'"
        " GROUP BY day, evaluator, job_id, run_id, rule HAVING sum(usd) > 1e-9"
    ).rows
    releases: dict[str, list[Entry]] = {}
    for day, evaluator, job_id, *rest in rows:
        releases.setdefault(job_id.hex, []).append((day, evaluator, job_id.hex, *rest))
    return releases


def reply_tokens(read: Read, evaluator: str, judge: str | None) -> tuple[float, float] | None:
    """Return mean and tenth percentile of the tokens of a judge's newest replies, None where no length is known.

    Replies to this evaluator count alone where there are any.
    """
    rows = read(
        "WITH made AS (SELECT evaluator = $name AS own, unnest(json_extract(calls, '$[*].output_tokens'))::BIGINT AS n"
        "   FROM (SELECT * FROM raw.scores WHERE judge = $judge AND calls IS NOT NULL"
        "     ORDER BY evaluator = $name DESC, created_at DESC LIMIT 1000))"
        " SELECT avg(n), quantile_cont(n, 0.1) FROM made WHERE n > 0 GROUP BY own ORDER BY own DESC LIMIT 1",
        {"name": evaluator, "judge": judge},
    ).rows
    return (float(rows[0][0]), float(rows[0][1])) if rows else None


def selected_usd(read: Read, since: datetime, until: datetime) -> dict[str, float]:
    """Return USD that the units selected between two instants will cost, by evaluator: pi times the mean cost of one.

    For a unit decided once more it is what its pi rose by.
    """
    rows = read(
        "WITH cost AS (SELECT l.evaluator, avg(l.usd) AS usd FROM raw.ledger l"
        "   WHERE l.kind = 'spend' AND l.created_at > $now::TIMESTAMP - INTERVAL 2 DAY GROUP BY l.evaluator)"
        ", fresh AS (SELECT d.*, c.usd FROM raw.decisions d JOIN cost c ON c.evaluator = d.evaluator AND c.usd > 0"
        "   WHERE d.decided_at > $since AND d.decided_at <= $now)"
        " SELECT f.evaluator, sum(f.pi - coalesce(b.pi, 0)) * any_value(f.usd) FROM fresh f"
        " LEFT JOIN (SELECT * FROM raw.decisions"
        "   WHERE request_time >= (SELECT min(request_time) FROM fresh WHERE revision > 0)) b"
        " ON b.trace_id = f.trace_id AND b.span_id = f.span_id AND b.evaluator = f.evaluator"
        "   AND b.revision = f.revision - 1 GROUP BY 1",
        {"since": since, "now": until},
    ).rows
    return dict(rows)


def replies(read: Read, keys: Sequence[str]) -> dict[str, str]:
    """Return the first recorded reply under each key that has one."""
    sql = (
        "SELECT key, arg_min(reply, created_at) FROM raw.judge_calls"
        " WHERE key IN (SELECT unnest($keys::VARCHAR[])) GROUP BY key"
    )
    return dict(read(sql, {"keys": list(keys)}).rows)


def remove_calls(tx: Transaction, prompts: Sequence[str]) -> None:
    """Delete the recorded calls with these prompts."""
    if prompts:
        prompt = "(reply->>'$.prompt')"
        tx.execute(f"DELETE FROM raw.judge_calls WHERE {prompt} IN (SELECT unnest($prompts::VARCHAR[]))",
                   {"prompts": list(prompts)})  # fmt: skip


def add_calls(tx: Transaction, calls: Sequence[tuple[str, str, str]]) -> None:
    """Append replies, each given as key, judge and reply."""
    tx.append("judge_calls", ("key", "judge", "reply", "created_at"), [(*call, tx.at) for call in calls])
