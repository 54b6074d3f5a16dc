"""Figures for `GET status` and readiness: totals, undecided and pending work, recent failures, unpriced calls."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from ragpulse_collector.records import MODEL_KINDS
from ragpulse_collector.store.protocol import Store, Transaction
from ragpulse_collector.store.queries.jobs import pending
from ragpulse_collector.store.units.decided import MAX_DEDUPLICATED_SPANS
from ragpulse_collector.store.units.undecided import LOW

_SPANS = """
    SELECT count(*) AS spans, max(start_time) AS newest_span,
           count(*) FILTER (contexts_state = 'truncated') AS truncated FROM raw.spans"""
_FACTS = f"""
    SELECT coalesce(sum(late_spans), 0)::BIGINT AS late, coalesce(sum(misdated_spans), 0)::BIGINT AS misdated,
           count(*) FILTER (n_spans > {MAX_DEDUPLICATED_SPANS}) AS not_deduplicated
    FROM raw.trace_facts WHERE latest"""
_UNDECIDED = f"""
    WITH since AS (SELECT CASE WHEN {LOW} > $now THEN TIMESTAMP '1970-01-01' ELSE {LOW} END AS low)
    SELECT count(*), min(first_at) FROM (
        SELECT trace_id, min(received_at) AS first_at FROM raw.spans
        WHERE received_at >= (SELECT low FROM since) GROUP BY trace_id) s
    ANTI JOIN (SELECT trace_id FROM raw.trace_facts WHERE latest) f ON f.trace_id = s.trace_id"""
_DROPPED = """
    SELECT reason, count(*) FROM raw.decisions
    WHERE latest AND NOT sampled AND reason IN ('budget', 'throttled', 'filtered') GROUP BY 1"""
_RESULTS = """
    SELECT count(*) FILTER (status <> 'error' OR attempt >= 5) AS done,
           count(*) FILTER (status = 'error' AND judge IS NOT NULL) AS errors,
           max(created_at) FILTER (status <> 'error' AND judge IS NOT NULL) AS answered,
           min(created_at) FILTER (status = 'error' AND judge IS NOT NULL) AS first_failed,
           max(created_at) FILTER (status = 'error' AND judge IS NOT NULL) AS last_failed,
           arg_max(explanation, created_at) FILTER (status = 'error' AND judge IS NOT NULL) AS reason,
           (SELECT count(*) FROM raw.eval_jobs WHERE created_at >= $since) AS made
    FROM raw.scores WHERE created_at >= $since AND source IN ('online', 'replay')"""
_UNPRICED = f"""
    SELECT coalesce(model, 'no model name') AS model, count(*) FROM raw.spans
    WHERE start_time >= $since AND kind IN {MODEL_KINDS} AND cost_unknown_reason IS NOT NULL
      AND coalesce(input_tokens, output_tokens) IS NOT NULL
    GROUP BY 1 ORDER BY 2 DESC LIMIT 20"""
_GROWTH = "SELECT count(*), count(*) FILTER (received_at >= $since), min(received_at) FROM raw.spans"


class Totals(NamedTuple):
    """Counts over all stored spans and decided traces."""

    spans: int
    newest_span: datetime | None
    """A start time."""
    truncated: int
    late: int
    misdated: int
    not_deduplicated: int


def totals(store: Store) -> Totals:
    """Return the counts of what is stored."""
    return Totals(*store.read(f"SELECT * FROM ({_SPANS}), ({_FACTS})").rows[0])


def undecided(store: Store, now: datetime) -> tuple[int, datetime | None]:
    """Return how many traces the sampler has not decided since its low-water mark, and when the first arrived.

    All traces are read if the mark is in the future.
    """
    traces, oldest = store.read(_UNDECIDED, {"now": now}).rows[0]
    return traces, oldest


def pending_jobs(store: Store) -> list[tuple[str, int, datetime]]:
    """Return by evaluator how many jobs are pending, and when the oldest was made: the longest wait first."""
    sql = f"SELECT evaluator, count(*), min(created_at) FROM ({pending()}) GROUP BY 1 ORDER BY 3, 1"
    return store.read(sql).rows


def results_by_status(store: Store) -> dict[str, int]:
    """Return how many results of evaluators there are, by status."""
    where = "source IN ('online', 'replay')"  # not what people and applications sent
    return dict(store.read(f"SELECT status, count(*) FROM raw.scores WHERE {where} GROUP BY 1").rows)


def dropped_by_reason(store: Store) -> dict[str, int]:
    """Return how many units were not evaluated, by the reason of the decision."""
    return dict(store.read(_DROPPED).rows)


class Outcomes(NamedTuple):
    """The outcomes of jobs in some time, and the judges' answers and errors."""

    done: int
    errors: int
    answered: datetime | None
    first_failed: datetime | None
    last_failed: datetime | None
    reason: str | None
    made: int


def results_since(store: Store, since: datetime) -> Outcomes:
    """Return the outcomes of jobs since then."""
    return Outcomes(*store.read(_RESULTS, {"since": since}).rows[0])


class JobCounts(NamedTuple):
    """How many jobs of an evaluator were made and done in some time."""

    made: int = 0
    done: int = 0


def jobs_since(store: Store, since: datetime) -> dict[str, JobCounts]:
    """Return how many jobs were made and done since then, by evaluator."""
    rows = store.read(
        "SELECT split_part(evaluator, '@', 1), sum(made)::BIGINT, sum(1 - made)::BIGINT FROM ("
        " SELECT evaluator, 1 AS made FROM raw.eval_jobs WHERE created_at >= $since UNION ALL"
        " SELECT evaluator, 0 FROM raw.scores WHERE created_at >= $since AND source <> 'human'"
        "   AND (status <> 'error' OR attempt >= 5)) GROUP BY 1",
        {"since": since},
    ).rows
    return {evaluator: JobCounts(made, done) for evaluator, made, done in rows}


def unpriced_calls(store: Store, since: datetime) -> dict[str, int]:
    """Return how many calls since then have usage but no known cost, by model."""
    return dict(store.read(_UNPRICED, {"since": since}).rows)


def growth(store: Store, since: datetime) -> tuple[int, int, datetime | None]:
    """Return the number of spans, how many arrived since then, and when the oldest arrived."""
    spans, recent, oldest = store.read(_GROWTH, {"since": since}).rows[0]
    return spans, recent, oldest


def spans_of_service(store: Store, service: str) -> int:
    """Return how many spans of a service are stored."""
    return int(store.read("SELECT count(*) FROM raw.spans WHERE service = $service", {"service": service}).value)


def probe(tx: Transaction) -> None:
    """Change a row: a transaction that changes nothing does not reach the disk."""
    tx.execute("DELETE FROM raw.meta WHERE key = 'probed_at'")
    tx.append("meta", ("key", "value"), [("probed_at", str(tx.at))])


def results_of_day(store: Store) -> list[tuple[str, str, int, float | None, float | None]]:
    """Return for each evaluator and status of the last day: traces evaluated online, cost in USD, mean time in ms.

    These are the traces that `GET traces` lists with `outcome` and `evaluated_from`.
    """
    return store.read(
        "SELECT evaluator, status, count(DISTINCT trace_id) FILTER (source = 'online'), sum(cost_usd), avg(elapsed_ms)"
        " FROM raw.scores WHERE created_at > now()::TIMESTAMP - INTERVAL 1 DAY GROUP BY 1, 2"
    ).rows
