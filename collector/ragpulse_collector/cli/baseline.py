"""Baselines: questions with their answers, documents and scores, from stored traces, a file or a dataset."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ragpulse_collector.analysis.compare.regression import Answered, Score
from ragpulse_collector.cli.case_files import lines_of
from ragpulse_collector.cli.options import Ask, Failure
from ragpulse_collector.conventions.dedupe import Node, context_spans, within

_BATCH = 200
"""Traces whose spans one query reads, far below its row limit."""
_NEAR = "start_time BETWEEN ?::TIMESTAMP - INTERVAL 1 HOUR AND ?::TIMESTAMP + INTERVAL 1 DAY"
"""The spans of traces that started between two times; the store skips the other days."""
_Rows = list[dict[str, Any]]


def newest_answers(
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

    Without `queries` and `trace_ids` only answered questions count; with them failed ones count as well. `without`
    names traces to leave out. Raises Failure where the condition is refused.
    """
    bound: list[tuple[str, Any]] = [
        ("start_time >= ?::TIMESTAMP", since.isoformat(sep=" ")),
        ("NOT list_contains(?::VARCHAR[], trace_id)", list(without)),
    ]
    conditions = ["query IS NOT NULL", *([f"({where}\n)"] if where else [])]
    if trace_ids:
        bound.append(("list_contains(?::VARCHAR[], trace_id)", list(trace_ids)))
    elif queries is None:
        conditions.append("response IS NOT NULL AND NOT coalesce(error, false)")
    else:
        bound.append(("query IN (SELECT unnest(?::VARCHAR[]))", list(queries)))
    conditions += [condition for condition, _ in bound]
    rows = _rows(
        ask,
        "SELECT trace_id, start_time, query, CASE WHEN error THEN NULL ELSE response END AS response, latency_ms,"
        f" cost_usd, unit_span_id FROM traces WHERE {' AND '.join(conditions)}"
        " QUALIFY row_number() OVER (PARTITION BY query ORDER BY start_time DESC, trace_id) = 1"
        f" ORDER BY start_time DESC, trace_id{f' LIMIT {limit}' if limit else ''}",
        [value for _, value in bound],
    )
    return [answer for start in range(0, len(rows), _BATCH) for answer in _complete(ask, rows[start : start + _BATCH])]


def pending_scores(ask: Ask, answers: Sequence[Answered], evaluators: Iterable[str]) -> int:
    """Count the scores of these traces that may still come: undecided traces, and sampled units without a score."""
    ids, names = [answer.trace_id for answer in answers], sorted(set(evaluators))
    if not (ids and names):
        return 0
    first = min(answer.at for answer in answers)
    (row,) = _rows(
        ask,
        "SELECT (SELECT count(*) FROM traces WHERE start_time >= ?::TIMESTAMP AND NOT decided"
        " AND list_contains(?::VARCHAR[], trace_id)) AS undecided,"
        " (SELECT count(*) FROM (SELECT trace_id, span_id, evaluator FROM decisions WHERE latest AND sampled"
        "   AND request_time >= ?::TIMESTAMP AND list_contains(?::VARCHAR[], trace_id)"
        "   AND list_contains(?::VARCHAR[], evaluator)) d"
        "  ANTI JOIN (SELECT trace_id, span_id, evaluator FROM scores WHERE request_time >= ?::TIMESTAMP) s"
        "  USING (trace_id, span_id, evaluator)) AS pending",
        [first, ids, first, ids, names, first],
    )
    return int(row["undecided"] + row["pending"])


def write_baseline(path: Path, answers: Iterable[Answered]) -> None:
    """Write one JSON object a line."""
    lines = (json.dumps(asdict(answer), ensure_ascii=False) for answer in answers)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_dataset(ask: Ask, name: str) -> list[Answered]:
    """Read a dataset of the collector; its stored traces add contexts and scores.

    Raises Failure where there is no dataset of this name.
    """
    answers = [_answered(fields) for fields in ask(f"GET datasets/{quote(name, safe='')}", {})["items"]]
    incomplete = [answer for answer in answers if answer.trace_id and answer.at and answer.retrieved is None]
    complete: dict[str, Answered] = {}
    for start in range(0, len(incomplete), _BATCH):
        batch = incomplete[start : start + _BATCH]
        since = min(datetime.fromisoformat(answer.at).replace(tzinfo=None) for answer in batch)
        stored = newest_answers(ask, since=since, trace_ids=[answer.trace_id for answer in batch])
        complete |= {answer.trace_id: answer for answer in stored}
    return [complete.get(answer.trace_id, answer) for answer in answers]


def _answered(fields: Mapping[str, Any]) -> Answered:
    fields = {name: value for name, value in fields.items() if name != "frozen"}
    return Answered(**{**fields, "scores": tuple(Score(**score) for score in fields.get("scores") or ())})


def read_baseline(path: Path) -> list[Answered]:
    """Read a file of `ragpulse freeze`; raises Failure naming the first wrong line."""
    answers = []
    for number, line in lines_of(path):
        try:
            answers.append(_answered(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            why = str(error).removeprefix("Answered.__init__() ")
            raise Failure(f"{path}:{number}: not a line of `ragpulse freeze`: {why}") from error
    if not answers:
        raise Failure(f"{path} holds no question: `ragpulse freeze` writes such a file")
    return answers


def _rows(ask: Ask, query: str, params: Sequence[Any]) -> _Rows:
    answer = ask("POST sql", {"query": query, "params": list(params)})
    if answer["truncated"]:
        raise Failure("more rows than one answer may have ([collector] sql_max_rows): lower --limit")
    return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]


def _complete(ask: Ask, rows: _Rows) -> list[Answered]:
    """Add the retrieved documents and the scores."""
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
    """Return the documents behind each answer, in rank order, of the spans that evaluators take contexts from."""
    spans: dict[str, list[Node]] = defaultdict(list)
    for row in _rows(
        ask,
        "SELECT trace_id, span_id, parent_span_id, start_time, kind, contexts_state IS NOT NULL AS has_contexts"
        f" FROM spans WHERE list_contains(?::VARCHAR[], trace_id) AND {_NEAR}",
        scope,
    ):
        node = Node(row["span_id"], row["parent_span_id"], str(row["start_time"]), row["kind"])
        spans[row["trace_id"]].append(node._replace(has_contexts=row["has_contexts"]))
    documents: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in _rows(
        ask,
        "SELECT trace_id, span_id, coalesce(id, hash) AS name FROM contexts"
        f" WHERE list_contains(?::VARCHAR[], trace_id) AND {_NEAR} ORDER BY trace_id, span_id, rank",
        scope,
    ):
        documents[row["trace_id"], row["span_id"]].append(str(row["name"]))
    retrieved = {}
    for row in rows:
        trace_id = row["trace_id"]
        if sources := context_spans(within(row["unit_span_id"], spans[trace_id])):
            names = (name for span in sources for name in documents[trace_id, span])
            retrieved[trace_id] = list(dict.fromkeys(names))
    return retrieved


def _scores(ask: Ask, scope: Sequence[Any], rows: _Rows) -> Mapping[str, list[Score]]:
    """Return the newest score of each evaluator, version and judge of the units, and what has no verdict.

    That is an evaluation that failed, and a selected unit that a budget left out.
    """
    units = {(row["trace_id"], row["unit_span_id"]) for row in rows}
    scores: dict[str, dict[tuple[str, str, str], Score]] = defaultdict(dict)
    near = _NEAR.replace("start_time", "request_time")
    for row in _rows(
        ask,
        "SELECT trace_id, span_id, evaluator, version, judge, normalized, pi, created_at FROM scores"
        " WHERE NOT exploratory AND (status = 'ok' AND normalized IS NOT NULL OR status IN ('invalid', 'error'))"
        f" AND list_contains(?::VARCHAR[], trace_id) AND {near}"
        " UNION ALL SELECT d.trace_id, span_id, evaluator, NULL, NULL, NULL, pi, decided_at FROM decisions d"
        f" JOIN (SELECT trace_id, upstream_pi FROM traces WHERE {_NEAR}) t ON t.trace_id = d.trace_id"
        " WHERE latest AND NOT sampled AND reason = 'budget' AND u * coalesce(upstream_pi, 1) < pi"
        f" AND list_contains(?::VARCHAR[], d.trace_id) AND {near} ORDER BY normalized IS NOT NULL, created_at",
        [*scope, *scope[1:], *scope],
    ):
        if (row["trace_id"], row["span_id"]) in units:
            score = Score(row["evaluator"], row["version"], row["judge"], row["normalized"], row["pi"] or 1.0)
            scores[row["trace_id"]][score.series] = score
    return {trace_id: list(by_series.values()) for trace_id, by_series in scores.items()}
