"""Questions with what the application did with them: read from stored traces, kept in a file, read back."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ragpulse_collector.analysis.regression import Answered, Score
from ragpulse_collector.cli.options import Ask, Failure
from ragpulse_collector.conventions.dedupe import Node, context_spans, within

_AT_ONCE = 200
"""Traces whose spans are asked for in one query, far below its row limit."""
_NEAR = "start_time BETWEEN ?::TIMESTAMP - INTERVAL 1 HOUR AND ?::TIMESTAMP + INTERVAL 1 DAY"
"""Where the spans of traces that started between two times lie; it lets the store skip the other days."""
_Rows = list[dict[str, Any]]


def answered(
    ask: Ask,
    *,
    since: datetime,
    where: str | None = None,
    limit: int | None = None,
    queries: Sequence[str] | None = None,
    without: Sequence[str] = (),
    trace_ids: Sequence[str] = (),
) -> list[Answered]:
    """Read the newest trace of each distinct question since a time, the newest question first.

    With `queries` only these questions, failed ones too; else only such as were answered. `without` names traces that
    do not count; of `trace_ids` only these do, failed ones too. Raises Failure where the condition is refused.
    """
    kept: list[tuple[str, Any]] = [
        ("start_time >= ?::TIMESTAMP", since.isoformat(sep=" ")),
        ("NOT list_contains(?::VARCHAR[], trace_id)", list(without)),
    ]
    conditions = ["query IS NOT NULL", *([f"({where}\n)"] if where else [])]
    if trace_ids:
        kept.append(("list_contains(?::VARCHAR[], trace_id)", list(trace_ids)))
    elif queries is None:
        conditions.append("response IS NOT NULL AND NOT coalesce(error, false)")
    else:
        kept.append(("query IN (SELECT unnest(?::VARCHAR[]))", list(queries)))
    conditions += [condition for condition, _ in kept]
    rows = _rows(
        ask,
        "SELECT trace_id, start_time, query, CASE WHEN error THEN NULL ELSE response END AS response, latency_ms,"
        f" cost_usd, unit_span_id FROM traces WHERE {' AND '.join(conditions)}"
        " QUALIFY row_number() OVER (PARTITION BY query ORDER BY start_time DESC, trace_id) = 1"
        f" ORDER BY start_time DESC, trace_id{f' LIMIT {int(limit)}' if limit else ''}",
        [value for _, value in kept],
    )
    return [one for at in range(0, len(rows), _AT_ONCE) for one in _whole(ask, rows[at : at + _AT_ONCE])]


def unscored(ask: Ask, found: Sequence[Answered], evaluators: Iterable[str]) -> int:
    """Count the verdicts of these traces that are still to come: undecided traces, and draws without a score."""
    ids, names = [one.trace_id for one in found], sorted(set(evaluators))
    if not (ids and names):
        return 0
    first = min(one.at for one in found)
    (row,) = _rows(
        ask,
        "SELECT (SELECT count(*) FROM traces WHERE start_time >= ?::TIMESTAMP AND NOT decided"
        " AND list_contains(?::VARCHAR[], trace_id)) AS undecided,"
        " (SELECT count(*) FROM (SELECT trace_id, span_id, evaluator FROM decisions WHERE latest AND sampled"
        "   AND request_time >= ?::TIMESTAMP AND list_contains(?::VARCHAR[], trace_id)"
        "   AND list_contains(?::VARCHAR[], evaluator)) d"
        "  ANTI JOIN (SELECT trace_id, span_id, evaluator FROM scores WHERE request_time >= ?::TIMESTAMP) s"
        "  USING (trace_id, span_id, evaluator)) AS due",
        [first, ids, first, ids, names, first],
    )
    return int(row["undecided"] + row["due"])


def write_frozen(path: Path, frozen: Iterable[Answered]) -> int:
    """Write one JSON object a line and return how many."""
    lines = [json.dumps(asdict(one), ensure_ascii=False) for one in frozen]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def read_dataset(ask: Ask, name: str) -> list[Answered]:
    """Read a dataset of the collector; what is still stored of its traces adds contexts and scores.

    Raises Failure where there is none of this name.
    """
    found = [_answered(fields) for fields in ask(f"GET datasets/{quote(name, safe='')}", {})["items"]]
    bare = [one for one in found if one.trace_id and one.at and one.retrieved is None]
    whole: dict[str, Answered] = {}
    for at in range(0, len(bare), _AT_ONCE):
        some = bare[at : at + _AT_ONCE]
        since = min(datetime.fromisoformat(one.at) for one in some)
        whole |= {one.trace_id: one for one in answered(ask, since=since, trace_ids=[one.trace_id for one in some])}
    return [whole.get(one.trace_id, one) for one in found]


def _answered(fields: Mapping[str, Any]) -> Answered:
    return Answered(**{**fields, "scores": tuple(Score(**one) for one in fields.get("scores") or ())})


def read_frozen(path: Path) -> list[Answered]:
    """Read a file of `ragpulse freeze`; raises Failure naming the line that is none of it."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            found.append(_answered(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise Failure(f"{path}:{number}: not a line of `ragpulse freeze`: {error}") from error
    if not found:
        raise Failure(f"{path} holds no question: `ragpulse freeze` writes one")
    return found


def _rows(ask: Ask, query: str, params: Sequence[Any]) -> _Rows:
    answer = ask("POST sql", {"query": query, "params": list(params)})
    if answer["truncated"]:
        raise Failure("more rows than one answer may have ([collector] sql_max_rows): lower --limit")
    return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]


def _whole(ask: Ask, rows: _Rows) -> list[Answered]:
    """Add what was retrieved and how it was scored."""
    ids, times = [row["trace_id"] for row in rows], [str(row["start_time"]) for row in rows]
    scope = [ids, min(times), max(times)]
    retrieved, scores = _retrieved(ask, scope, rows), _scores(ask, scope, rows)
    return [
        Answered(
            query=row["query"],
            response=row["response"],
            trace_id=row["trace_id"],
            at=str(row["start_time"]),
            retrieved=retrieved.get(row["trace_id"]),
            latency_ms=row["latency_ms"],
            cost_usd=row["cost_usd"],
            scores=tuple(scores.get(row["trace_id"], ())),
        )
        for row in rows
    ]


def _retrieved(ask: Ask, scope: Sequence[Any], rows: _Rows) -> dict[str, list[str]]:
    """What each answer was made from, in rank order: of the spans that evaluators take contexts from."""
    spans: dict[str, list[Node]] = defaultdict(list)
    for row in _rows(
        ask,
        "SELECT trace_id, span_id, parent_span_id, start_time, kind, contexts_state IS NOT NULL AS has_contexts"
        f" FROM spans WHERE list_contains(?::VARCHAR[], trace_id) AND {_NEAR}",
        scope,
    ):
        node = Node(row["span_id"], row["parent_span_id"], str(row["start_time"]), row["kind"])
        spans[row["trace_id"]].append(node._replace(has_contexts=row["has_contexts"]))
    named: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in _rows(
        ask,
        "SELECT trace_id, span_id, coalesce(id, hash) AS name FROM contexts"
        f" WHERE list_contains(?::VARCHAR[], trace_id) AND {_NEAR} ORDER BY trace_id, span_id, rank",
        scope,
    ):
        named[row["trace_id"], row["span_id"]].append(str(row["name"]))
    found = {}
    for row in rows:
        trace_id = row["trace_id"]
        bearing = context_spans(within(row["unit_span_id"], spans[trace_id]))
        if bearing:
            found[trace_id] = list(dict.fromkeys(name for span in bearing for name in named[trace_id, span]))
    return found


def _scores(ask: Ask, scope: Sequence[Any], rows: _Rows) -> Mapping[str, list[Score]]:
    """The newest verdict of each evaluator, version and judge on the unit."""
    units = {(row["trace_id"], row["unit_span_id"]) for row in rows}
    found: dict[str, dict[tuple[str, str, str], Score]] = defaultdict(dict)
    for row in _rows(
        ask,
        "SELECT trace_id, span_id, evaluator, version, judge, normalized, pi FROM scores"
        " WHERE status = 'ok' AND normalized IS NOT NULL AND list_contains(?::VARCHAR[], trace_id)"
        f" AND {_NEAR.replace('start_time', 'request_time')} ORDER BY created_at",
        scope,
    ):
        if (row["trace_id"], row["span_id"]) in units:
            score = Score(row["evaluator"], row["version"], row["judge"], row["normalized"], row["pi"] or 1.0)
            found[row["trace_id"]][score.series] = score
    return {trace_id: list(by_series.values()) for trace_id, by_series in found.items()}
