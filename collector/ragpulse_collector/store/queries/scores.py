"""Scores: the units behind every quality number, one value and one inclusion probability each; verdicts and labels.

A unit enters an estimate in one of two ways: it was drawn online (its latest decision says `sampled`), or it is part of
a replay, which runs in order of u, so that the finished part is a random sample of what the replay selected.
A forced score that chance would not have drawn stays out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ragpulse_collector.refusals import Invalid
from ragpulse_collector.settings import Binding
from ragpulse_collector.store.connection import literal
from ragpulse_collector.store.estimates import CLUSTER, IDENTIFIED
from ragpulse_collector.store.protocol import Store, Within
from ragpulse_collector.store.queries.decisions import BARE_NAME, LIVE, TEST_ENVIRONMENT
from ragpulse_collector.store.queries.labels import labels_in
from ragpulse_collector.store.queries.runs import shares
from ragpulse_collector.store.queries.traces import FACTS, Filter, bound_to, facts_of, with_columns
from ragpulse_collector.store.views import COUNTED, SERIES, UNCLEAR, hex_span, hex_trace

FEEDBACK = "feedback"
"""The family of people's scores, and the name of one whose sender does not name it."""
_DECIDES = f"(passing IS NOT NULL OR {UNCLEAR})"
MEASURES = {
    "quality": "normalized",
    "score": "score",
    "pass_rate": "passing::INTEGER",
    FEEDBACK: "score",
    "fail_rate": f"CASE WHEN {_DECIDES} THEN coalesce(NOT passing, false)::INTEGER END",
    "unclear_rate": f"CASE WHEN {_DECIDES} THEN (passing IS NULL)::INTEGER END",
}
"""Metric family → what it averages over a sample (see `sample_of`); evaluators without pass or fail have no rates."""
RISING_IS_WORSE = frozenset({"fail_rate", "unclear_rate"})


def measured(family: str, evaluator: str) -> str:
    """Return what `sample_of` reads for a metric: an evaluator, or `feedback:NAME`, people's scores of a name."""
    return f"{FEEDBACK}:{evaluator}" if family == FEEDBACK else evaluator


def feedback_name(evaluator: str | None) -> str | None:
    """Return NAME of `feedback:NAME`, None for an evaluator."""
    family, colon, name = (evaluator or "").partition(":")
    return name if colon and family == FEEDBACK else None


@dataclass(frozen=True, slots=True)
class Sample:
    """A query for the scored units of one evaluator, or of all.

    Columns: unit (a hash to join by), evaluator, trace_id, span_id, request_time, version, judge, source, status,
    normalized, score, passing, label, explanation, parts, run_id, created_at, label_version, score_key, pi (NULL:
    not part of any random sample), cluster (a hash of the user, else the session, else the trace), identified (2:
    the user is known, 1: the session, 0: neither), and the columns of `traces` asked for.
    """

    sql: str
    parameters: dict[str, Any]


# Units are joined by a 64-bit hash: half the time of joining by ids, and one pair in 10^7 units' square would be wrong.
# Online and replay are selected by `<>`: with IN the planner expects a fifth of the scores and builds the hash table on
# them, with all their columns, instead of on the two of the decisions, which takes half as long again.
_GIVEN = """
SELECT *, hash(trace_id, span_id, evaluator) AS unit{key} FROM {scores}
WHERE {named}request_time >= $first AND request_time < $last AND source <> 'human' AND source <> 'code'"""
# A failure never supersedes an answer: it counts as a century older.
_KEY = """, hash(trace_id, span_id, evaluator, version, judge) AS k,
       created_at - CASE WHEN status = 'error' THEN INTERVAL 36500 DAY ELSE INTERVAL 0 DAY END AS standing"""
_LATEST = f"""given AS ({_GIVEN.replace("{key}", _KEY)}
), repeated AS (
    SELECT k, max(standing) AS latest_standing FROM given GROUP BY k HAVING count(*) > 1
), verdicts AS (
    SELECT g.* FROM given g LEFT JOIN repeated r ON r.k = g.k WHERE r.k IS NULL OR r.latest_standing = g.standing)"""
_ONLY = f"verdicts AS ({_GIVEN.replace('{key}', '')})"
_UNITS = """
WITH {verdicts}, drawn AS (
    SELECT hash(trace_id, span_id, {name}) AS unit, pi FROM raw.decisions
    WHERE latest AND sampled AND pi > 0 AND {live} AND {decided}request_time >= $first AND request_time < $last
){replayed}
SELECT s.unit, s.evaluator, s.trace_id, s.span_id, s.request_time, s.version, s.judge, s.source, s.status,
       s.normalized, s.score, s.passing, s.label, s.explanation, s.parts, s.run_id,
       s.created_at, s.label_version, s.score_key,
       {pi} AS pi, coalesce(t.cluster, hash(s.trace_id)) AS cluster,
       coalesce(t.identified, 0) AS identified{columns}
FROM verdicts s LEFT JOIN drawn d ON d.unit = s.unit{joins}
"""
_REPLAYED = """, parts AS (
    SELECT unnest($run_ids::VARCHAR[]) AS run_id, unnest($run_pis::DOUBLE[]) AS pi, unnest($run_us::DOUBLE[]) AS below
), replayed AS (
    SELECT i.score_key, max(p.pi) AS pi FROM raw.run_items i JOIN parts p ON p.run_id = i.run_id AND i.u < p.below
    GROUP BY i.score_key
)"""
_BOTH_PI = """CASE WHEN s.source = 'online' THEN greatest(d.pi, r.pi)
            ELSE coalesce(r.pi, d.pi) END"""


def sample_of(
    store: Store, evaluator: str | None, within: Within, filter: Filter, *, columns: tuple[str, ...] = (),
    prefix: str = "", exploratory: bool = False, cluster: str = CLUSTER,
) -> Sample:  # fmt: skip
    """Return the query for the scored units of an evaluator (None: of all) whose traces pass the filter.

    `feedback:NAME` in place of an evaluator gives people's scores of that name, one for each trace, with the
    probability of an upstream sampler. Test runs are excluded unless the filter names an environment. The units get
    `columns` of `traces`. A `prefix` separates the parameters of two samples in one query. Verdicts and chances of
    exploratory replays are included with `exploratory` only.
    """
    if (name := feedback_name(evaluator)) is not None:
        return _feedback_sample(name, within, filter, columns, cluster)
    runs = shares(store, evaluator, exploratory=exploratory)
    parameters: dict[str, Any] = {} if evaluator is None else {"evaluator": evaluator}
    condition = "" if evaluator is None else "evaluator = $evaluator AND "
    several = repeats(store, f"{condition}{_WITHIN}", {**parameters, **within})
    joins, pi = "", _BOTH_PI if runs else "d.pi"
    if runs:
        parameters |= {"run_ids": [share.run_id for share in runs], "run_pis": [share.pi for share in runs]}
        parameters |= {"run_us": [share.below for share in runs]}
        joins += " LEFT JOIN replayed r ON r.score_key = s.score_key"
    joins += (
        f" {'' if filter or columns else 'LEFT '}JOIN (SELECT *, {cluster} AS cluster, {IDENTIFIED} AS identified"
        f" FROM {with_columns(f'({FACTS})', columns, filter)} WHERE start_time >= $first::TIMESTAMP - INTERVAL 1 DAY"
        f" AND start_time < $last AND {filter.on_columns}) t ON t.trace_id = s.trace_id"
    )
    sql = _UNITS.format(
        verdicts=(_LATEST if several else _ONLY).format(
            named=condition, scores="raw.scores" if exploratory else COUNTED
        ),
        name="$evaluator" if condition else BARE_NAME,
        decided="(evaluator = $evaluator OR evaluator LIKE $evaluator || '@%') AND " if condition else "",
        live="true" if filter.tests else LIVE,
        replayed=_REPLAYED if runs else "",
        pi=f"least({pi}, t.upstream_pi)" if filter.labels or labels_in(columns) else pi,
        columns="{columns}",
        joins="{joins}",
    )
    for name in parameters if prefix else ():
        sql = sql.replace(f"${name}", f"${prefix}{name}")
    sql = sql.format(columns="".join(f", t.{column}" for column in columns), joins=joins)
    return Sample(sql, {**within, **filter.parameters, **{f"{prefix}{name}": parameters[name] for name in parameters}})


def verdicts_of(sample: str, family: str) -> str:
    """Return the query for what each unit of a sample adds to a measure: `y`, or else in `lost` its weight."""
    is_lost = "status IN ('invalid', 'error')" + (f" OR {UNCLEAR}" if family == "pass_rate" else "")
    return f"""
        SELECT *, CASE WHEN status = 'ok' THEN {MEASURES[family]} END AS y,
               CASE WHEN {is_lost} THEN 1 / pi ELSE 0 END AS lost
        FROM ({sample}) WHERE pi IS NOT NULL"""


MOST_UNCLEAR = 0.05
"""With a larger share of unclear answers a pass rate is no gate: it says how freely answers are worded."""


def refuse_unclear(store: Store, metric: str) -> None:
    """Raise Invalid for the pass rate of an evaluator that leaves too many answers unclear."""
    family, _, name = metric.partition(":")
    if family != "pass_rate":
        return
    share = store.read(
        f"SELECT count(*) FILTER ({UNCLEAR}) / count(*) FROM {COUNTED}"
        f" WHERE status = 'ok' AND {_DECIDES} AND evaluator = $name",
        {"name": name.partition("@")[0]},
    ).value
    refuse_share(metric, share or 0.0)


def refuse_share(metric: str, unclear: float) -> None:
    """Raise Invalid for a pass rate of answers of which too large a share is unclear."""
    if unclear > MOST_UNCLEAR:
        name = metric.partition(":")[2]
        raise Invalid(
            f"{metric}: {100 * unclear:.0f} % of the answers are unclear, so that no pass rate is known;"
            f" use quality:{name}, fail_rate:{name} or unclear_rate:{name}"
        )


_FEEDBACK_UNITS = """
SELECT hash(trace_id, unit_span_id) AS unit, {evaluator} AS evaluator, trace_id, unit_span_id AS span_id,
       start_time AS request_time, NULL::VARCHAR AS version, NULL::VARCHAR AS judge, 'online' AS source,
       'ok' AS status, y AS normalized, y AS score, NULL::BOOLEAN AS passing, NULL::VARCHAR AS label,
       NULL::VARCHAR AS explanation,
       NULL::VARCHAR AS parts, NULL::VARCHAR AS run_id, start_time AS created_at, NULL::VARCHAR AS label_version,
       NULL::VARCHAR AS score_key, coalesce(upstream_pi, 1) AS pi,
       {cluster} AS cluster, {identified} AS identified{columns}
FROM (SELECT *, feedbacks[{name}] AS y FROM {facts})
WHERE y IS NOT NULL AND start_time >= $first AND start_time < $last AND {filter} AND {live}"""


def _feedback_sample(name: str, within: Within, filter: Filter, columns: tuple[str, ...], cluster: str) -> Sample:
    sql = _FEEDBACK_UNITS.format(
        evaluator=literal(measured(FEEDBACK, name)), name=literal(name), cluster=cluster, identified=IDENTIFIED,
        facts=with_columns(f"({FACTS})", columns, filter), columns="".join(f", {column}" for column in columns),
        filter=filter.on_columns, live="true" if filter.tests else f"environment IS DISTINCT FROM '{TEST_ENVIRONMENT}'",
    )  # fmt: skip
    return Sample(sql, {**within, **filter.parameters})


def off_scale(store: Store, name: str, within: Within, filter: Filter) -> int:
    """Return how many traces of the range have a score of this name that lies outside its scale."""
    sql = (
        f"SELECT count(*) FROM ({FACTS}) WHERE list_contains(feedbacks_off_scale, $name)"
        f" AND start_time >= $first AND start_time < $last AND {filter.sql}"
    )
    return int(store.read(sql, {**within, **filter.parameters, "name": name}).value)


_WITHIN = "request_time >= $first AND request_time < $last"


def repeats(store: Store, condition: str, parameters: Mapping[str, Any], *, also: str = "false") -> bool:
    """Whether a unit may have several verdicts of one version: only after errors, replays or forced evaluations.

    It looks at the scores and jobs that meet the condition; `also` names further scores that may be several. The check
    costs a hundredth of the grouping, which is rarely needed.
    """
    found = store.read(
        f"SELECT (SELECT coalesce(bool_or(status = 'error' OR attempt > 1 OR run_id IS NOT NULL OR {also}), false)"
        f" FROM raw.scores WHERE {condition})"
        f" OR EXISTS (SELECT 1 FROM raw.eval_jobs WHERE (u IS NULL OR source <> 'online') AND {condition})",
        parameters,
    )
    return bool(found.value)


LABELS = """
    SELECT trace_id, span_id, arg_max(score, created_at) AS human, arg_max(label_pi, created_at) AS label_pi
    FROM raw.labels WHERE evaluator = $evaluator GROUP BY ALL"""
"""One row per unit that a person labelled for `$evaluator`: the latest label, and the probability of being asked."""


def has_drawn_labels(store: Store, evaluator: str) -> bool:
    """Whether people labelled answers that were drawn with a known probability."""
    sql = "SELECT 1 FROM raw.labels WHERE evaluator = $evaluator AND label_pi IS NOT NULL LIMIT 1"
    return bool(store.read(sql, {"evaluator": evaluator}).rows)


RUN_SCORES = "SELECT score_key FROM raw.run_items WHERE run_id = $run"
"""The keys of the scores that the replay `$run` made or found."""
EVENTS = f"""
    SELECT {hex_trace("trace_id")} AS trace_id, {hex_span("span_id")} AS span_id, created_at, status, evaluator,
           version, judge, score, label, explanation, passing, normalized, run_id
    FROM {COUNTED}
    WHERE created_at >= $first AND created_at < $last AND source IN ('online', 'replay') AND status <> 'skipped'
      AND ($evaluator IS NULL OR evaluator = $evaluator)"""
"""One row per verdict that was made (not: requested) in the range, of `$evaluator` or of all (NULL)."""


_OTHERS = f"""
    WITH others AS (
        SELECT {SERIES} AS name, score, label FROM {COUNTED} s JOIN ({{traces}}) t ON t.trace_id = s.trace_id
        WHERE status = 'ok' AND (normalized IS NULL OR source IN ('human', 'code'))
          AND request_time >= $first AND request_time < $last),
    labels AS (
        SELECT name, label, count(*) AS n FROM others WHERE label IS NOT NULL GROUP BY name, label
        QUALIFY row_number() OVER (PARTITION BY name ORDER BY n DESC, label) <= 5)
    SELECT name, count(*) AS n, avg(score) AS mean, min(score) AS least, max(score) AS most,
           (SELECT map_from_entries(list((l.label, l.n) ORDER BY l.n DESC, l.label)) FROM labels l
            WHERE l.name = others.name) AS labels
    FROM others GROUP BY name ORDER BY n DESC, name LIMIT 20"""


@dataclass(frozen=True, slots=True)
class OtherScores:
    """Scores of one name as they are: of people, sent ones, or on a scale of their own."""

    name: str
    n: int
    mean: float | None
    least: float | None
    most: float | None
    labels: Mapping[str, int] | None
    """The most frequent labels with their numbers."""


def other_scores(store: Store, within: Within, filter: Filter) -> list[OtherScores]:
    """Return what else was scored in the range: people's and sent scores, labels, and scores on scales of their own.

    The mean is that of the scores as they are; they are no sample of the traffic.
    """
    return store.read(_OTHERS.format(traces=facts_of(filter)), {**within, **filter.parameters}).tuples(OtherScores)


def evaluators_in(store: Store, within: Within) -> list[str]:
    """Return the evaluators with a verdict about a request of the range, by name."""
    return store.read(
        f"SELECT DISTINCT evaluator FROM {COUNTED} WHERE source IN ('online', 'replay')"
        " AND request_time >= $first AND request_time < $last ORDER BY 1",
        within,
    ).values


REMEMBER_EVALUATORS = """
    INSERT INTO raw.meta (key, value) SELECT DISTINCT 'evaluator', split_part(evaluator, '@', 1) AS name
    FROM raw.scores WHERE {where} AND name NOT IN (SELECT value FROM raw.meta WHERE key = 'evaluator')
    LIMIT greatest(0, 1000 - (SELECT count(*) FROM raw.meta WHERE key = 'evaluator'))"""
"""Keeps the names of evaluators whose scores are deleted: a link to their charts stays valid, also without scores."""


def met_evaluators(store: Store, binding: Binding | None = None) -> list[str]:
    """Return the evaluators that ever had scores here, and those of labels and decisions.

    With a binding only those of traces that a key is bound to.
    """
    tables = ("scores", "labels", "decisions")
    if binding is None:
        selects = [f"SELECT DISTINCT evaluator FROM raw.{table}" for table in tables]
        selects.append("SELECT value FROM raw.meta WHERE key = 'evaluator'")
        parameters: dict[str, Any] = {}
    else:
        bound = bound_to(binding)
        traces = f"SELECT trace_id::UUID FROM traces WHERE {bound.sql}"
        selects = [f"SELECT DISTINCT evaluator FROM raw.{table} WHERE trace_id::UUID IN ({traces})" for table in tables]
        parameters = bound.parameters
    people = "SELECT DISTINCT 'feedback:' || evaluator FROM raw.scores WHERE source = 'human'"
    if binding is not None:
        people += f" AND trace_id::UUID IN ({traces})"
    names = store.read(" UNION ".join((*selects, people)), parameters).values
    return [name if feedback_name(name) else name.partition("@")[0] for name in names]


def last_revision(store: Store, evaluator: str, version: str) -> str | None:
    """Return the label beside this version of an evaluator in its last score; None if it has none."""
    revision: str | None = store.read(
        "SELECT arg_max(label_version, created_at) FROM raw.scores"
        " WHERE evaluator = $evaluator AND version = $version AND label_version <> version",
        {"evaluator": evaluator, "version": version},
    ).value
    return revision


def holds_versions(store: Store, evaluator: str, labels: Iterable[str]) -> bool:
    """Whether the store has scores of versions with these labels."""
    rows = store.read(
        "SELECT 1 FROM raw.scores WHERE evaluator = $evaluator AND label_version IN (SELECT unnest($labels::VARCHAR[]))"
        " LIMIT 1",
        {"evaluator": evaluator, "labels": list(labels)},
    ).rows
    return bool(rows)


def mean_cost(store: Store, evaluator: str) -> tuple[float | None, float | None]:
    """Return the mean cost in USD of a verdict of this evaluator, and the share of verdicts with unknown cost."""
    cost, unknown = store.read(
        "SELECT avg(cost_usd), avg((cost_usd IS NULL)::INTEGER) FROM raw.scores WHERE evaluator = $name"
        " AND status IN ('ok', 'invalid')",
        {"name": evaluator},
    ).rows[0]
    return cost, unknown


def labelled_evaluators(store: Store) -> set[str]:
    """Return the evaluators with labels of people."""
    return set(store.read("SELECT DISTINCT evaluator FROM raw.labels").values)


def cost_and_spread(store: Store, days: int) -> dict[str, tuple[float | None, float | None]]:
    """Return by evaluator the mean cost in USD and the standard deviation of its scores of the last days' requests."""
    rows = store.read(
        "SELECT evaluator, avg(cost_usd), stddev_samp(normalized) FROM raw.scores"
        f" WHERE status = 'ok' AND request_time > now()::TIMESTAMP - INTERVAL {days} DAY GROUP BY 1"
    ).rows
    return {name: (cost, deviation) for name, cost, deviation in rows}
