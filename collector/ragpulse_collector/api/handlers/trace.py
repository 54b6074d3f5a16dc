"""`GET traces/{trace_id}`: one trace with all its data, also as a page and as a regression test that runs offline."""

from __future__ import annotations

import pprint
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from ragpulse_collector.analysis.cases import case_of
from ragpulse_collector.analysis.selection import instant
from ragpulse_collector.api.http import plain
from ragpulse_collector.api.models import OneTrace, TraceDetail
from ragpulse_collector.conventions.dedupe import Node, context_spans, within
from ragpulse_collector.conventions.lifting import restore_attributes
from ragpulse_collector.records import ContextRecord
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries import trace_answers
from ragpulse_collector.store.queries.traces import is_bound

_JSON = ("mapped_from", "resource", "events", "links", "metadata", "tags", "parts", "calls")
BRIEF = "brief"


def trace_detail(store: Store, params: TraceDetail) -> dict[str, Any]:
    """Answer `GET traces/{trace_id}`; raises NotFound where there is no such trace.

    `only=trace` returns the trace and its neighbours, `only=rest` the rest. `spans=brief` returns the columns of a
    waterfall; `spans=<span id>` returns that span alone, with all columns.
    """
    trace_id, only = params.trace_id, params.only
    answer: dict[str, Any] = {}
    if only != "rest":
        facts = trace_answers.facts(store, trace_id)
        if facts is None:
            raise _unknown(trace_id)
        answer["trace"] = {"trace_id": trace_id.hex, **facts}
        answer |= trace_answers.neighbours(store, facts["start_time"], params.caller.binding)
    if only != "trace":
        answer |= _rest(store, trace_id, instant(params.at, now=utc_now()), params.spans)
    _check_binding(store, params)
    return answer


def _check_binding(store: Store, params: OneTrace) -> None:
    """Raise NotFound where the caller's key is not bound to the trace; after reading, because spans may arrive."""
    if not is_bound(store, params.trace_id, params.caller.binding):
        raise _unknown(params.trace_id)


def _rest(store: Store, trace_id: UUID, start: datetime | None, choice: str | None) -> dict[str, Any]:
    spans = trace_answers.spans(store, trace_id, start, choice)
    if not spans and start is not None:  # the time may be wrong: look everywhere
        return _rest(store, trace_id, None, choice)
    if not spans:
        raise _unknown(trace_id)
    near = spans[0]["start_time"] if start is not None else None
    contexts = trace_answers.part(store, "contexts", trace_id, near)
    _restore(spans, contexts)
    if choice in (None, BRIEF):
        contexts = _in_order(contexts, _context_spans(store, trace_id, spans, contexts))
    return {
        "spans": _parsed(spans),
        "contexts": _parsed(contexts),
        "scores": [_scored(row) for row in _parsed(trace_answers.part(store, "scores", trace_id, near))],
        "decisions": trace_answers.part(store, "decisions", trace_id, near),
        "labels": trace_answers.labels(store, trace_id),
        "unread": [row["reason"] for row in trace_answers.part(store, "unread", trace_id, near)],
    }


def _context_spans(
    store: Store, trace_id: UUID, spans: Sequence[Mapping[str, Any]], contexts: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the ids of the spans whose contexts the evaluators of the first unit see."""
    with_contexts = {context["span_id"] for context in contexts}
    nodes = [
        Node(
            span["span_id"],
            span["parent_span_id"],
            span["start_time"],
            span["kind"],
            has_contexts=span["span_id"] in with_contexts or span["contexts_state"] is not None,
        )
        for span in spans
    ]
    unit = trace_answers.unit_of(store, trace_id)
    root = f"{unit[0]:016x}" if unit and unit[0] is not None else None
    return context_spans(within(root, nodes) if root else nodes)


def _in_order(contexts: list[dict[str, Any]], span_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the contexts of these spans first, in their order; the others are marked as superseded."""
    order = {span_id: number for number, span_id in enumerate(span_ids)}
    marked = [context | {"superseded": context["span_id"] not in order} for context in contexts]
    return sorted(marked, key=lambda context: order.get(context["span_id"], len(order)))


def trace_page(store: Store, params: OneTrace) -> dict[str, Any]:
    """Answer `GET traces/{trace_id}/html`; raises like `trace_detail`."""
    from ragpulse_dashboards import standalone  # the templates load at the first page

    answer = plain(trace_detail(store, TraceDetail.parse(params.values(), params.caller)))
    return {"filename": f"trace-{answer['trace']['trace_id'][:12]}.html", "text": standalone(answer)}


def unit_of(store: Store, trace_id: UUID) -> tuple[Any, datetime]:
    """Return the trace's first unit and its request time; raises NotFound where it is undecided."""
    unit = trace_answers.unit_of(store, trace_id)
    if unit is None:
        raise NotFound(f"trace {trace_id.hex} is unknown or not complete yet; try again in a few seconds")
    return unit


def _restore(spans: list[dict[str, Any]], contexts: Sequence[Mapping[str, Any]]) -> None:
    """Put the texts of columns back into the raw attributes, where the spans have these."""
    documents = _documents(contexts)
    for span in spans:
        if "attributes" in span:
            span["attributes"] = restore_attributes(
                span["attributes"], span["query"], span["response"], documents.get(span["span_id"])
            )


def _parsed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parse the JSON texts of rows in place; a text that many rows share is parsed once."""
    values: dict[str, Any] = {}
    for column in set(_JSON).intersection(rows[0] if rows else ()):
        for row in rows:
            text = row[column]
            if isinstance(text, str):
                if text not in values:
                    values[text] = _value(text)
                row[column] = values[text]
    return rows


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # a client's own text instead of JSON: shown as it is
        return text


def _documents(contexts: Sequence[Mapping[str, Any]]) -> dict[str, list[ContextRecord]]:
    """Return the retrieved documents of each span."""
    documents = defaultdict(list)
    for context in contexts:
        record = ContextRecord(**{name: context[name] for name in ("rank", "id", "score", "text", "metadata")})
        documents[context["span_id"]].append(record)
    return documents


def _scored(row: dict[str, Any]) -> dict[str, Any]:
    lo, hi = row.pop("ci_lo"), row.pop("ci_hi")
    return row | {"ci95": None if lo is None else [lo, hi]}


def _unknown(trace_id: UUID) -> NotFound:
    return NotFound(f"there is no trace {trace_id.hex}, or no such span in it; it may be past the retention")


_TEXT = '''"""Regression test made from trace {trace_id} ({when}).

It fails as the trace failed. Let `answer` call your application, fix it, and the test passes.
"""

import pytest

from ragpulse_evaluators import Case, evaluate_sync

CASE = Case.model_validate(
{case}
)
CHECKS = {checks}  # evaluator -> the least acceptable normalized score


def answer(query, contexts):
    """Return what your application answers now; the recorded answer stands here until you replace it."""
    return CASE.response


@pytest.mark.parametrize("name", CHECKS)
def test_trace_{short}(name):
    case = CASE.model_copy(update={{"response": answer(CASE.query, CASE.contexts)}})
    (result,) = evaluate_sync([case], [name])[name]
    assert result.status == "ok", result.explanation
    assert result.normalized >= CHECKS[name], result.explanation
'''
OFFLINE = ("groundedness", "citation_check", "context_utilization")
LEAST = 0.5


def pytest_case(store: Store, params: OneTrace) -> dict[str, Any]:
    """Answer `GET traces/{trace_id}/pytest`; raises NotFound where the trace is gone or undecided."""
    trace_id = params.trace_id
    span, request_time = unit_of(store, trace_id)
    case = case_of(store, trace_id.hex, f"{span:016x}", request_time=request_time)
    if case is None:
        raise NotFound(f"the spans of trace {trace_id.hex} are past the retention")
    scored = trace_answers.scored_by(store, trace_id)
    checks = {name: LEAST for name in scored if name in OFFLINE} or {"groundedness": LEAST}
    fields = case.model_dump(include={"query", "response", "contexts", "reference"}, exclude_none=True)
    fields["contexts"] = [{"id": context["id"], "text": context["text"]} for context in fields.get("contexts") or ()]
    _check_binding(store, params)
    short = trace_id.hex[:8]
    text = _TEXT.format(
        trace_id=trace_id.hex,
        when=request_time.isoformat(timespec="seconds") + "Z",
        case=pprint.pformat(fields, indent=4, width=110, sort_dicts=False),
        checks=checks,
        short=short,
    )
    return {"filename": f"test_trace_{short}.py", "text": text}
