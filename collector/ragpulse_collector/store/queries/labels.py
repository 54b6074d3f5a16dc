"""Labels: what an evaluator calls the answer of a trace. Whatever takes an attribute takes `label:NAME`, too.

A trace has the label of its root. A person's label goes before the evaluator's, that of the version in use before those
of others, a later one before an earlier one. A trace without a label is in a group of its own, `null`.

Where an evaluator labels a part of the traffic, figures by its labels weight each trace with the probability of its
label (`upstream_pi` of `with_labels`): those that were not drawn are left out, and stood for by those that were.
A metric that is sampled itself is weighted by the smaller probability, because one number decides both draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from ragpulse_collector.store.connection import literal
from ragpulse_collector.store.protocol import Store, Within
from ragpulse_collector.store.queries.decisions import BARE_NAME
from ragpulse_collector.store.queries.failures import FAILURE, KINDS, evaluators_before, failure_of
from ragpulse_collector.store.sql.where import condition, holds, identifier, members_in
from ragpulse_collector.store.views import COUNTED, IN_LISTS, traces_of

PREFIX = "label:"
STORED = {"topic": "topic", FAILURE: failure_of()}
"""Labels that no evaluator gives: SQL over a row of `traces`."""
SHARES_OF = {f"{name}_share": name for name in STORED}
"""Families of metrics that are the share of a label, each with the name of its label."""
_LONGEST = 200
"""The characters of a label that count: senders choose it."""
_BETWEEN = "request_time >= $first AND request_time < $last"
_NEAR = "request_time >= $first::TIMESTAMP - INTERVAL 1 DAY AND request_time <= $last"
"""The verdicts on requests of a range, and on those that its units are part of: see `sample_of`."""


def label_column(name: str) -> str:
    """Return the SQL name of the column that `with_labels` makes."""
    return identifier(f"{PREFIX}{name}")


def labels_in(columns: Iterable[str]) -> list[str]:
    """Return the names of the labels among SQL columns, which `label_column` made."""
    return [column[1:-1].replace('""', '"').removeprefix(PREFIX) for column in columns if column[1:].startswith(PREFIX)]


def labels_of(name: str, within: str = "true") -> str:
    """Return the labels of one name (SQL): `trace_id`, `unit` (a hash of trace and span), `label`."""
    return all_labels(f"evaluator = {literal(name)} AND {within}", evaluator=literal(name))


def all_labels(chosen: str, evaluator: str = "s.evaluator") -> str:
    """Return the labels that the chosen scores give, as `labels_of` does, each with its `name`."""
    in_use = f"SELECT arg_max(version, request_time) FROM raw.scores u WHERE u.evaluator = {evaluator}"
    rank = f"(source = 'human')::BIGINT * 2 + (version IS NOT DISTINCT FROM ({in_use} AND source = 'online'))::BIGINT"
    return f"""
        SELECT evaluator AS name, any_value(trace_id) AS trace_id, hash(trace_id, span_id) AS unit,
               left(arg_max(label, ({rank}) * {_LATER} + epoch_us(created_at)), {_LONGEST}) AS label
        FROM {COUNTED} s WHERE label IS NOT NULL AND status = 'ok' AND {IN_LISTS} AND {chosen} GROUP BY name, unit"""


_LATER = 2 * 10**18
"""More microseconds than any date has."""


def of_roots(labels: str) -> str:
    """Return those of `labels_of` that are of the root of their trace."""
    return f"SELECT * FROM ({labels}) WHERE unit IN (SELECT {_ROOT} FROM raw.trace_facts f WHERE latest)"


_ROOT = "hash(f.trace_id, f.unit_span_id)"
_DRAWN = f"""
    SELECT hash(trace_id, span_id) AS unit, max(pi) AS pi, max(u) AS u, bool_or(sampled) AS sampled
    FROM raw.decisions WHERE latest AND pi > 0 AND pi < 1 AND {_NEAR} AND starts_with(evaluator, {{evaluator}})
      AND {BARE_NAME} = {{evaluator}}
    GROUP BY unit"""
"""The decisions on an evaluator that does not evaluate everything."""


def with_labels(relation: str, names: Iterable[str], *, listed: bool = False) -> str:
    """Return `traces` or `FACTS` of a range (`$first`, `$last`) with a column for each label.

    Requests are weighted by its probability, and those left out that were not drawn: unless they are `listed`.
    """
    columns, joins, pis, base = list[str](), "", list[str](), "raw.trace_facts"
    drawn = dict[str, str]()
    names = list(dict.fromkeys(names))
    for number, name in enumerate(names):
        column = label_column(name)
        if name == FAILURE:
            base = f"(SELECT *, {failure_of(_BETWEEN)} AS {column} FROM raw.trace_facts WHERE latest)"
            pis.append(_pi_of_failure(column, drawn))
        elif name in STORED:
            columns.append(f"{STORED[name]} AS {column}")
        else:
            columns.append(f"l{number}.label AS {column}")
            joins += f" LEFT JOIN ({labels_of(name, _NEAR)}) l{number} ON l{number}.unit = {_ROOT}"
            pis.append(_chance(literal(name), drawn))
    for evaluator, alias in ({} if listed else drawn).items():
        joins += f" LEFT JOIN ({_DRAWN.format(evaluator=evaluator)}) {alias} ON {alias}.unit = {_ROOT}"
    chances = [f"{pi} AS chance{number}" for number, pi in enumerate(() if listed else pis)]
    facts = f"SELECT {', '.join(('f.*', *columns, *chances))} FROM {base} f{joins} WHERE f.latest"
    if chances:
        own = ", ".join(f"chance{number}" for number in range(len(chances)))
        weighted = f"least(coalesce(upstream_pi, 1), {own}) AS upstream_pi"
        facts = f"SELECT * EXCLUDE ({own}) REPLACE ({weighted}) FROM ({facts}) WHERE least({own}, 1) > 0"
    return f"({traces_of(f'({facts})', map(label_column, names)) if relation == 'traces' else facts})"


def undecided_with_labels(undecided: str, names: Iterable[str]) -> str:
    """Return undecided traces with a column for each label: nobody has judged them yet."""
    columns = (f"{failure_of() if name == FAILURE else 'NULL::VARCHAR'} AS {label_column(name)}" for name in names)
    return f"(SELECT {', '.join(('*', *columns))} FROM ({undecided}))"


def _chance(evaluator: str, drawn: dict[str, str]) -> str:
    """Return the probability of a verdict, negative where the trace was not drawn, null where all are evaluated."""
    of = drawn.setdefault(evaluator, f"d{len(drawn)}")
    return f"CASE WHEN {of}.sampled OR {of}.u * coalesce(f.upstream_pi, 1) < {of}.pi THEN {of}.pi ELSE -{of}.pi END"


def _pi_of_failure(column: str, drawn: dict[str, str]) -> str:
    """Return the probability that a kind of failure is known: that of the rarest verdict that tells it."""
    whens = ""
    for kind in (*KINDS, None):
        chances = [_chance(evaluator, drawn) for evaluator in evaluators_before(kind)]
        rarest = f"least({', '.join((*chances, 'NULL'))})" if chances else "NULL"
        whens += f" WHEN {column} = {literal(kind)} THEN {rarest}" if kind else f" ELSE {rarest}"
    return f"CASE{whens} END"


def labels_within(store: Store, ids: Sequence[str], within: Within) -> list[tuple[str, str, list[int]]]:
    """Return each name and label of these traces of the range, and which of them have it; the column `answer` has more.

    At most a thousand labels, the most frequent.
    """
    labels = of_roots(all_labels(f"{_BETWEEN} AND label IS DISTINCT FROM 'unclear' AND evaluator <> 'refusal'"))
    chosen = "SELECT unnest($ids::UUID[]) AS id, unnest(range(len($ids))) AS place"
    sql = f"SELECT name, label, list(place) FROM ({labels}) JOIN ({chosen}) ON id = trace_id GROUP BY ALL"
    return list(store.read(f"{sql} ORDER BY count(*) DESC LIMIT 1000", {**within, "ids": ids}).rows)


def versions_of(store: Store, name: str, within: Within) -> dict[tuple[str | None, str | None], datetime]:
    """Return when each version and judge gave its first label in the range."""
    rows = store.read(
        f"SELECT version, judge, min(request_time) FROM raw.scores WHERE evaluator = $name AND source = 'online'"
        f" AND status = 'ok' AND {_BETWEEN} GROUP BY ALL",
        {**within, "name": name},
    ).rows
    return {(version, judge): first for version, judge, first in rows}


def is_labelled(name: str, labels: str) -> tuple[str, str]:
    """Return the condition that a trace has one of these labels (a parameter): on `traces`, and on `with_labels`."""
    beside = f"list_contains({labels}::VARCHAR[], {label_column(name)})"
    if name in STORED:
        return f"list_contains({labels}::VARCHAR[], {STORED[name]})", beside
    wanted = f"label IS NOT NULL AND list_contains({labels}::VARCHAR[], label)"
    return f"trace_id::UUID IN (SELECT trace_id FROM ({of_roots(labels_of(name))}) WHERE {wanted})", beside


def label_at(name: str) -> str:
    """Return SQL for a label at a row of `traces`."""
    labels = f"SELECT label, trace_id AS of_trace FROM ({of_roots(labels_of(name))})"
    return STORED.get(name) or f"(SELECT any_value(label) FROM ({labels}) l WHERE l.of_trace = trace_id::UUID)"


def holding(where: str) -> tuple[str, str]:
    """Return SQL that is true where a user's condition holds, as `is_labelled` does; raises Invalid.

    Labels are read outside of the condition, which is evaluated within TRY: there subqueries are not possible.
    """
    names, sql = members_in(where, "label"), holds(condition(where))
    if not names:
        return sql, sql
    rows = (", ".join(f"{literal(name)}: {at(name)}" for name in names) for at in (label_at, label_column))
    own, beside = (f"list_transform([{{{fields}}}], lambda label: {sql})[1]" for fields in rows)
    return own, beside
