"""Narrows a judge's numbers by a check that scored every answer that the judge could have been asked about.

The rule names one check for each judge, so that nothing is searched: `refusal` for judges of relevancy, `groundedness`
for every other judge, as long as the sampler gave it at least 95 % of the answers. It is used where it narrows the
interval by a tenth or more; what a judge scored wholly it cannot narrow.

The order of all corrections of a judge's figure, each on what the one before left:

1. weights: answers count 1/pi (`statistics.hajek`), with the upstream sampler's part;
2. assistance: the check moves and narrows the mean (this module);
3. labels: people's labels move it by the judge's error and widen it (`calibration.decisive`);
4. missing verdicts widen both ends (`Measured.moved`);
5. standardisation is of differences alone (`compare.mix`): weighted answers, then the missing verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ragpulse_collector.analysis.answers import Place
from ragpulse_collector.analysis.quality import Bucket
from ragpulse_collector.analysis.quality.buckets import Assistant
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.settings.lead import BUILT_IN
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER, KEPT
from ragpulse_collector.store.queries.decisions import DECISIONS
from ragpulse_collector.store.queries.scores import FIRST_SCORES, sample_of
from ragpulse_collector.store.queries.traces import Filter, facts_of
from ragpulse_evaluators.statistics.assistance import ENOUGH_JUDGED, AssistedEstimate, Pulls

__all__ = ["assisted", "narrowed"]

_CHECKS = {"relevancy": "refusal", "answer_relevancy": "refusal"}
_WHOLE = Place(None, ())
_COVERED = 0.95
"""The least share of the answers that the check has to be asked about."""
_NARROW = 0.9
"""The largest width, as a share of the one without the check, that is worth another figure."""
_NO_GAIN = "too few judged (below 30, or 10 of the rarer kind), all judged, or the check does not foresee the verdict"
_SEVERAL = "several versions were asked here, and nothing says which one an answer not drawn would have met"
_REPLAYED = "a replay judged some of these: their chances are not the rule's"


def narrowed(store: Store, query: Query, buckets: Sequence[Bucket], whole: Sequence[Bucket] = ()) -> list[Bucket]:
    """Return buckets of judges, each with the check of its subject where that narrows it by a tenth or more.

    Those of the `whole` window follow, from the same pass; only a query without groups has them.
    """
    keyed = [*((bucket, _place(bucket)) for bucket in buckets), *((bucket, _WHOLE) for bucket in whole)]
    gaining = dict.fromkeys(bucket.evaluator for bucket, _ in keyed if _may_gain(bucket))
    places = {name: _by_place(store, query, name, _check_of(name), whole=bool(whole)) for name in gaining}
    return [_if_narrower(bucket, places.get(bucket.evaluator, {}).get(place)) for bucket, place in keyed]


def _check_of(evaluator: str) -> str:
    return _CHECKS.get(evaluator, BUILT_IN)


def assisted(store: Store, query: Query, evaluator: str, check: str, buckets: Sequence[Bucket]) -> list[Bucket]:
    """Return the buckets of a judge with this check, however little it tells.

    Raises Invalid where either evaluator has no scores from 0 to 1, and where the check did not have to score every
    answer of the judge's rule.
    """
    places = _by_place(store, query, evaluator, check)
    n, covered = (sum(getattr(place, name) for place in places.values()) for name in ("n", "covered"))
    if covered < n:
        raise Invalid(
            f"{check} was to score only {covered:,} of the {n:,} answers that {evaluator} could have been"
            " asked about: give it a rule at rate 1.0 for all of them, or choose a range or filter in which it has one"
        )
    if n and not any(place.checked for place in places.values()):
        raise Invalid(f"{check} has no scores from 0 to 1 in this range, so it shares no scale with {evaluator}")
    return [_with(bucket, check, places.get(_place(bucket))) for bucket in buckets]


def _place(bucket: Bucket) -> Place:
    return Place(bucket.start, bucket.group)


def _may_gain(bucket: Bucket) -> bool:
    """Whether a judge left out so many answers that a perfect check would narrow its interval by a tenth."""
    sums = bucket.moments
    return sums is not None and bucket.judge is not None and ENOUGH_JUDGED <= sums.n <= _NARROW**2 * sums.w


def _if_narrower(bucket: Bucket, place: _CheckedPlace | None) -> Bucket:
    if place is None or place.covered < _COVERED * place.n or not _may_gain(bucket):
        return bucket
    helped = _with(bucket, _check_of(bucket.evaluator), place)
    estimate = helped.estimate
    return helped if isinstance(estimate, AssistedEstimate) and estimate.narrowing <= _NARROW else bucket


def _with(bucket: Bucket, check: str, place: _CheckedPlace | None) -> Bucket:
    if place is None or bucket.moments is None:
        return bucket
    note = None
    if place.series > 1 and bucket.online.get("ok"):
        note = _SEVERAL
    elif (place.version, place.judge) != bucket.series or place.by_rule < bucket.moments.n:
        note = _REPLAYED
    pulls = None
    if note is None and place.checked:
        pulls = Pulls(place.values, place.checks, place.common, place.shift, place.checked)
    return replace(bucket, assistant=Assistant(check, place.n, place.n - place.checked, pulls, note or _NO_GAIN))


class _CheckedPlace(NamedTuple):
    """The answers of a group and bucket that the judge's rule could have selected, added up."""

    n: int
    covered: int
    """Those that the sampler gave to the check."""
    checked: int
    series: int
    """The versions and judges that rules asked."""
    version: str | None
    judge: str | None
    by_rule: int
    """The verdicts with the chance that the rule gave."""
    values: float
    checks: float
    common: float
    shift: float


_STARTED = Filter("start_time >= $first::TIMESTAMP - INTERVAL 1 DAY AND start_time < $last")
"""The traces with units in the range, as `sample_of` reads them: a store may hold many more."""
_OF = "(evaluator = ${0} OR evaluator LIKE ${0} || '@%')"
_JUDGED = f"{_OF.format('evaluator')} AND reason <> 'late' AND pi > 0"
_DECIDED = f"""
    SELECT trace_id, span_id, any_value(request_time) AS request_time, max(pi) FILTER ({_JUDGED}) AS pi,
           bool_or(sampled) FILTER ({_JUDGED}) AS sampled, bool_or(reason = 'budget') FILTER ({_JUDGED}) AS capped,
           any_value(u) FILTER ({_JUDGED}) AS u, max(pi) FILTER ({_OF.format("check")}) AS check_pi
    FROM ({DECISIONS}) WHERE {_OF.format("evaluator")} OR {_OF.format("check")}
    GROUP BY trace_id, span_id HAVING max(pi) FILTER ({_JUDGED}) > 0"""
_PLACES = """
    WITH answers AS MATERIALIZED (
        SELECT {place}, hash({names}) AS place, t.cluster, 1 / {kept} AS a,
               CASE WHEN d.sampled OR (d.capped AND d.u * {kept} < d.pi) OR v.y IS NOT NULL
                    THEN 1 / d.pi ELSE 0 END AS d,
               CASE WHEN v.y IS NULL THEN 0 ELSE 1 / v.pi END AS w, coalesce(v.y, 0) AS y, v.y IS NOT NULL AS judged,
               v.pi = d.pi AS by_rule, v.version, v.judge, coalesce(d.check_pi, 0) >= {kept} * (1 - 1e-9) AS covered,
               CASE WHEN covered THEN c.value END AS x
        FROM ({decided}) d JOIN ({facts}) t ON t.trace_id = d.trace_id
        LEFT JOIN ({checks}) c ON c.trace_id = d.trace_id AND c.span_id = d.span_id
        LEFT JOIN (SELECT unit, normalized AS y, pi, version, judge FROM ({sample})
                   WHERE pi IS NOT NULL AND status = 'ok' AND normalized IS NOT NULL AND source = 'online') v
          ON v.unit = hash(d.trace_id, d.span_id, $evaluator::VARCHAR)),
    users AS (
        SELECT coalesce(place, 0) AS place, sum(a) AS a, sum(d) AS d, sum(w) AS w, sum(w * y) AS wy,
               sum(x) AS x, count(x) AS n_x,
               sum(a * x) AS ax, sum(CASE WHEN x IS NOT NULL THEN a END) AS a_x,
               sum(d * x) AS dx, sum(CASE WHEN x IS NOT NULL THEN d END) AS d_x
        FROM answers GROUP BY {by_user}),
    means AS (
        SELECT place, sum(a) AS all_a, sum(d) AS all_d, sum(w) AS all_w, sum(wy) / sum(w) AS m,
               sum(x) / sum(n_x) AS middle, (sum(ax) - middle * sum(a_x)) / sum(a) AS of_all,
               (sum(dx) - middle * sum(d_x)) / sum(d) AS of_asked
        FROM users GROUP BY place),
    pulls AS (
        SELECT place, of_all - of_asked AS shift, (wy - m * w) / all_w AS p,
               (coalesce(ax - middle * a_x, 0) - of_all * a) / all_a
               - (coalesce(dx - middle * d_x, 0) - of_asked * d) / all_d AS q
        FROM users JOIN means USING (place)),
    sums AS (SELECT place, sum(p * p) AS pp, sum(q * q) AS qq, sum(p * q) AS pq, any_value(shift) AS shift
             FROM pulls GROUP BY place)
    SELECT n.* EXCLUDE (place), pp, qq, pq, shift FROM (
        SELECT coalesce(place, 0) AS place, {names}, count(*), count(*) FILTER (covered), count(x),
               count(DISTINCT (version, judge)) FILTER (judged),
               any_value(version), any_value(judge), count(*) FILTER (by_rule)
        FROM answers GROUP BY {by_place}) n JOIN sums USING (place)"""
"""What `assisted_mean` needs: pulls of users on the judge's mean (p), and on the check's of all less that of those
asked (q). An answer without a check counts as the mean of the others, `middle`: then it has no part in these sums."""


def _by_place(
    store: Store, query: Query, evaluator: str, check: str, *, whole: bool = False
) -> dict[Place, _CheckedPlace]:
    """Add up the answers of each group and bucket with the first score of the check: later ones may depend on the draw.

    With `whole` there is `_WHOLE`, too.

    What the sampler did not surely give to the check counts as unchecked, whether it has a score or not: a score may
    be there because the judge's draw, which shares its number, was lucky.
    """
    columns = (query.window.bucket("d.request_time"), *(f"t.{group}" for group in query.groups))
    names = [f"k{number}" for number in range(len(columns))]
    sample = sample_of(store, evaluator, query.window.parameters, query.filters)
    sql = _PLACES.format(
        place=", ".join(f"{column} AS {name}" for column, name in zip(columns, names, strict=True)),
        by_user="GROUPING SETS ((place, cluster), (cluster))" if whole else "place, cluster",
        by_place=f"GROUPING SETS ((place, {', '.join(names)}), ())" if whole else f"place, {', '.join(names)}",
        names=", ".join(names), decided=_DECIDED, checks=FIRST_SCORES, sample=sample.sql,
        kept=f"({KEPT})",
        facts=facts_of(query.filters & _STARTED, (*query.groups, "upstream_pi", f"{CLUSTER} AS cluster")),
    )  # fmt: skip
    rows = store.read(sql, {"evaluator": evaluator, "check": check, **sample.parameters, **query.parameters}).rows
    return {Place(row[0], row[1 : len(names)]): _CheckedPlace(*row[len(names) :]) for row in rows}
