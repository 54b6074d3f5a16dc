"""What a replay found: sums over its verdicts, and over the answers that the evaluator in use scored as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from ragpulse_collector.store.estimates import CLUSTER, CLUSTER_SUMS, IDENTIFIED, MOMENTS
from ragpulse_collector.store.protocol import Store
from ragpulse_collector.store.queries.runs import Run
from ragpulse_collector.store.views import COUNTED, UNCLEAR

_OWN = """
    SELECT trace_id, span_id, u, unnest(v) FROM (
        SELECT s.trace_id, s.span_id, min(i.u) AS u,
               arg_max({'request_time': s.request_time, 'status': s.status, 'normalized': s.normalized,
                   'y': coalesce(s.normalized, s.score), 'passing': s.passing, 'label': s.label,
                   'explanation': s.explanation}, (s.status <> 'error', s.created_at)) AS v
        FROM (SELECT * FROM raw.run_items WHERE run_id = $run) i JOIN raw.scores s ON s.score_key = i.score_key
        GROUP BY s.trace_id, s.span_id)"""
"""One row per finished unit of `$run`: its last verdict."""
_FACTS_OF_USERS = f"SELECT trace_id, {CLUSTER} AS cluster, {IDENTIFIED} AS identified FROM raw.trace_facts WHERE latest"
_SUMS = "SELECT [{moments}] FROM (SELECT cluster, {sums} FROM {source} GROUP BY cluster)"


def _moments(source: str, y: str) -> str:
    """Return SQL for the sums of `statistics.Moments` of a value, as a list."""
    moments = MOMENTS.replace(
        "sum(c_n), count(*) FILTER (c_n > 0)", "sum(c_n)::DOUBLE, count(*) FILTER (c_n > 0)::DOUBLE"
    )
    return _SUMS.format(moments=moments, sums=CLUSTER_SUMS.format(y=y), source=source)


class RunSums(NamedTuple):
    """What the finished units of a replay add up to."""

    moments: Sequence[float]
    """Sums over the scores; those of a stopped replay in order of u, a random sample."""
    passed: int
    called: int
    identified: int
    people: Sequence[float]
    """Sums over decided answers that people labelled, too: 1 where they and the replay agree."""
    first: datetime | None
    last: datetime | None
    bounded: bool
    """Whether scores are from 0 to 1."""
    bins: Sequence[tuple[int, int]]
    """Tenths of the scale of the scores, with their numbers."""
    left_out: Sequence[tuple[str, str | None, int]]
    """Status and reason of units without a score, the most frequent first."""


def run_sums(store: Store, run: Run, below: float, labels: str) -> RunSums:
    """Return the sums of a replay; `below` limits its random sample, `labels` is a relation of people's labels."""
    bin_of = "least(9, floor((y - low) / nullif(high - low, 0) * 10))::INTEGER"
    rows = store.read(
        f"WITH own AS MATERIALIZED ({_OWN}), scored AS MATERIALIZED (SELECT o.*, 1.0 AS pi, coalesce(f.cluster,"
        f"   hash(o.trace_id)) AS cluster, f.identified FROM own o LEFT JOIN ({_FACTS_OF_USERS}) f USING (trace_id)"
        "   WHERE status = 'ok' AND y IS NOT NULL AND coalesce(u < $below, true)),"
        " ends AS (SELECT bool_and(normalized IS NOT NULL) AS unit, CASE WHEN unit THEN 0 ELSE min(y) END AS low,"
        "   CASE WHEN unit THEN 1 ELSE max(y) END AS high FROM scored),"
        f" labelled AS (SELECT o.*, (human >= 0.5) = coalesce(passing, y >= 0.5) AS agree FROM scored o"
        f"   JOIN ({labels}) l ON l.trace_id = o.trace_id AND l.span_id = o.span_id WHERE NOT {UNCLEAR})"
        f" SELECT ({_moments('scored', 'y')}), count(*) FILTER (passing), count(passing), coalesce(max(identified), 0),"
        f"   ({_moments('labelled', 'agree::INTEGER')}), (SELECT min(request_time) FROM own),"
        "   (SELECT max(request_time) FROM own), coalesce((SELECT unit FROM ends), true),"
        f"   (SELECT list((bin, n) ORDER BY bin) FROM (SELECT coalesce({bin_of}, 0) AS bin, count(*) AS n"
        "     FROM scored, ends GROUP BY bin)),"
        "   (SELECT list((status, reason, n) ORDER BY n DESC, reason)[:10] FROM (SELECT status, explanation[:300] AS"
        "     reason, count(*) AS n FROM own WHERE status <> 'ok' GROUP BY ALL)) FROM scored",
        {"run": run.run_id, "below": below, "evaluator": run.evaluator.partition("@")[0]},
    ).rows
    return RunSums(*rows[0])


def counterpart(store: Store, run: Run, lead: str) -> tuple[str, str, str | None] | None:
    """Return another evaluator, version and judge in use on the same answers: of its name, else `lead`, else any."""
    rows = store.read(
        f"SELECT evaluator, version, judge FROM {COUNTED} s SEMI JOIN (SELECT trace_id, span_id FROM raw.eval_jobs"
        "   WHERE run_id = $run) i ON i.trace_id = s.trace_id AND i.span_id = s.span_id"
        " WHERE status = 'ok' AND normalized IS NOT NULL AND version IS NOT NULL"
        "   AND (evaluator <> $name OR version <> $version OR judge IS DISTINCT FROM $judge)"
        " GROUP BY evaluator, version, judge"
        " ORDER BY evaluator = $name DESC, evaluator = $lead DESC, max(request_time) DESC, count(*) DESC LIMIT 1",
        {"run": run.run_id, "name": run.evaluator.partition("@")[0], "lead": lead, "version": run.version,
         "judge": run.judge},
    ).rows  # fmt: skip
    return rows[0] if rows else None


class ScoredPair(NamedTuple):
    """The verdicts of the evaluator in use (a) and of a replay (b) on one answer."""

    trace_id: UUID
    a: float
    b: float
    a_passes: bool | None
    b_passes: bool | None
    a_explanation: str | None
    b_explanation: str | None


class PairSums(NamedTuple):
    """What the answers with both verdicts add up to, and the largest disagreements."""

    difference: Sequence[float]
    agreement: Sequence[float]
    a: float | None
    b: float | None
    both_pass: int
    both_fail: int
    only_a_fails: int
    only_b_fails: int
    known: float | None
    """The weight of the answers with both scores."""
    b_failed: float
    """The weight of answers that a scored and that b failed to evaluate, and the mean of a there; and the reverse."""
    a_there: float
    a_failed: float
    b_there: float
    largest: Sequence[ScoredPair]


def pair_sums(store: Store, run_id: str, used: str, parameters: Mapping[str, Any]) -> PairSums:
    """Return the sums over answers with a verdict of the run and one in the relation `used`, weighted by its `pi`."""
    lost = "coalesce(sum(1 / pi) FILTER ({0}), 0), coalesce(sum({1} / pi) FILTER ({0}) / sum(1 / pi) FILTER ({0}), 0)"
    rows = store.read(
        f"WITH own AS MATERIALIZED ({_OWN}), used AS MATERIALIZED ({used}),"
        " pairs AS MATERIALIZED (SELECT a.trace_id, a.span_id, a.pi, a.cluster, a.normalized AS a, b.normalized AS b,"
        "   a.passing AS a_passes, b.passing AS b_passes, a.status AS a_is, b.status AS b_is,"
        "   a.explanation[:1000] AS a_explanation, b.explanation[:1000] AS b_explanation FROM used a JOIN own b"
        "   ON a.trace_id = b.trace_id AND a.span_id = b.span_id),"
        " whole AS (SELECT * FROM pairs WHERE a_is = 'ok' AND b_is = 'ok' AND a IS NOT NULL AND b IS NOT NULL)"
        f" SELECT ({_moments('whole', '(b - a)')}), ({_moments('whole', '(a_passes = b_passes)::INTEGER')}),"
        "   (SELECT sum(a / pi) / sum(1 / pi) FROM whole), (SELECT sum(b / pi) / sum(1 / pi) FROM whole),"
        "   count(*) FILTER (a_passes AND b_passes), count(*) FILTER (NOT a_passes AND NOT b_passes),"
        "   count(*) FILTER (NOT a_passes AND b_passes), count(*) FILTER (a_passes AND NOT b_passes),"
        "   (SELECT sum(1 / pi) FROM whole),"
        f"   {lost.format('''a_is = 'ok' AND b_is IN ('invalid', 'error')''', 'a')},"
        f"   {lost.format('''b_is = 'ok' AND a_is IN ('invalid', 'error')''', 'b')},"
        "   (SELECT list((trace_id, a, b, a_passes, b_passes, a_explanation, b_explanation) ORDER BY abs(b - a) DESC,"
        "     trace_id) FROM (SELECT * FROM whole WHERE a <> b ORDER BY abs(b - a) DESC, trace_id LIMIT 10))"
        " FROM pairs",
        {**parameters, "run": run_id},
    ).rows
    sums = PairSums(*rows[0])
    return sums._replace(largest=[ScoredPair(*pair) for pair in sums.largest or ()])
