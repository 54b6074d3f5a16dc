"""`GET traces/{trace_id}`: one trace with everything known of it, also as a regression test that runs offline."""

from __future__ import annotations

import pprint
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from ragpulse_collector.analysis.cases import case_of
from ragpulse_collector.analysis.selection import instant
from ragpulse_collector.api.models import OneTrace, TraceDetail
from ragpulse_collector.api.replies import plain
from ragpulse_collector.conventions import restore_attributes
from ragpulse_collector.conventions.dedupe import Node, context_spans, within
from ragpulse_collector.records import ContextRecord
from ragpulse_collector.settings import Binding
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import Filter, bound_to, is_bound
from ragpulse_collector.store.rows import utc_now
from ragpulse_collector.store.views import FACT_COLUMNS, VIEWS, hex_span, spans_of

AROUND = timedelta(hours=2)
"""With `?at=` only this much of the time around it is read, so that a look-up stays cheap in a large file."""
_JSON = ("mapped_from", "resource", "events", "links", "metadata", "tags", "parts", "calls")
_FACTS = ", ".join(FACT_COLUMNS)
BRIEF = "brief"
_BRIEF = f"""
    SELECT {hex_span("s.span_id")} AS span_id, {hex_span("s.parent_span_id")} AS parent_span_id, s.start_time,
           s.duration_us / 1000.0 AS latency_ms, s.name, s.kind, s.status, s.error_type,
           s.contexts_state, s.input_tokens, s.output_tokens, s.cost_usd, s.ttft_ms, s.status_message
    FROM raw.spans s"""
_UNREAD_NAME = "ragpulse.result.unread"
_UNREAD = f"""
    SELECT DISTINCT json_extract_string(s.attributes, '$."{_UNREAD_NAME}"') AS reason FROM raw.spans s
    WHERE s.kind IN ('rag', 'retriever', 'reranker', 'llm', 'agent') AND contains(s.attributes, '{_UNREAD_NAME}')
      AND s.trace_id = $id"""
"""Why contexts or a response are absent: results that the SDK did not understand."""
# The id is compared in its own type: a filter on the hex text of the views would read every row.
_CONTEXTS = f"{VIEWS['contexts']} WHERE trace_id = $id"
_SCORES = f"{VIEWS['scores'].replace('s.elapsed_ms', 's.elapsed_ms, s.calls', 1)} WHERE s.trace_id = $id"
_DECISIONS = f"{VIEWS['decisions']} WHERE trace_id = $id"


def trace_detail(store: Store, params: TraceDetail) -> dict[str, Any]:
    """Answer the operation; raises LookupError when there is no such trace.

    `only=trace` returns the trace and its neighbours, `only=rest` the rest. `spans=brief` returns of each span what a
    waterfall shows; `spans=<span id>` returns that span alone, with everything.
    """
    trace_id, only = params.trace_id, params.only
    found: dict[str, Any] = {}
    if only != "rest":
        found["trace"] = _facts(store, trace_id)
        found |= _neighbours(store, found["trace"]["start_time"], params.caller.binding)
    if only != "trace":
        found |= _rest(store, trace_id, instant(params.at, now=utc_now()), params.spans)
    _check_binding(store, params)
    return found


def _check_binding(store: Store, params: OneTrace) -> None:
    """Raise LookupError where the caller's key is not bound to the trace; after reading, as a span may have come."""
    if not is_bound(store, params.trace_id, params.caller.binding):
        raise _unknown(params.trace_id)


def _rest(store: Store, trace_id: UUID, at: datetime | None, which: str | None) -> dict[str, Any]:
    spans = _spans(store, trace_id, at, which)
    if not spans and at is not None:  # the time was off: look everywhere before saying no
        return _rest(store, trace_id, None, which)
    if not spans:
        raise _unknown(trace_id)
    near = spans[0]["start_time"] if at is not None else None
    contexts = _read(store, _CONTEXTS, "start_time", trace_id, near, order="span_id, rank")
    _restore(spans, contexts)
    if which in (None, BRIEF):
        contexts = _placed(contexts, _bearing(store, trace_id, spans, contexts))
    return {
        "spans": _parsed(spans),
        "contexts": _parsed(contexts),
        "scores": [_scored(row) for row in _parsed(_read(store, _SCORES, "s.request_time", trace_id, near))],
        "decisions": _read(store, _DECISIONS, "request_time", trace_id, near, order="decided_at"),
        "labels": _labels(store, trace_id),
        "unread": [row["reason"] for row in _read(store, _UNREAD, "s.start_time", trace_id, near, order="reason")],
    }


def _bearing(
    store: Store, trace_id: UUID, spans: Sequence[Mapping[str, Any]], contexts: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the ids of the spans whose contexts the first unit's answer was made from, as its evaluators see them."""
    bearing = {one["span_id"] for one in contexts}
    nodes = [
        Node(
            one["span_id"],
            one["parent_span_id"],
            one["start_time"],
            one["kind"],
            has_contexts=one["span_id"] in bearing or one["contexts_state"] is not None,
        )
        for one in spans
    ]
    unit = store.read("SELECT unit_span_id FROM raw.trace_facts WHERE latest AND trace_id = $id", {"id": trace_id}).rows
    root = f"{unit[0][0]:016x}" if unit and unit[0][0] is not None else None
    return context_spans(within(root, nodes) if root else nodes)


def _placed(contexts: list[dict[str, Any]], bearing: Sequence[str]) -> list[dict[str, Any]]:
    """Return the contexts that evaluators see first, in their order; the others are marked as superseded."""
    place = {span_id: number for number, span_id in enumerate(bearing)}
    marked = [one | {"superseded": one["span_id"] not in place} for one in contexts]
    return sorted(marked, key=lambda one: place.get(one["span_id"], len(place)))


def trace_page(store: Store, params: OneTrace) -> dict[str, Any]:
    """Answer `GET traces/{trace_id}/html`; raises like `trace_detail`."""
    from ragpulse_dashboards import standalone  # the templates: not before somebody wants a page

    answer = plain(trace_detail(store, TraceDetail.parse(params.given(), params.caller)))
    return {"filename": f"trace-{answer['trace']['trace_id'][:12]}.html", "text": standalone(answer)}


def unit_of(store: Store, trace_id: UUID) -> tuple[int, datetime]:
    """Return the trace's first unit and its request time; raises LookupError where it is not decided yet."""
    rows = store.read(
        "SELECT unit_span_id, start_time FROM raw.trace_facts WHERE latest AND trace_id = $id", {"id": trace_id}
    ).rows
    if not rows:
        raise LookupError(f"trace {trace_id.hex} is unknown or not complete yet; try again in a few seconds")
    return rows[0][0], rows[0][1]


def _spans(store: Store, trace_id: UUID, at: datetime | None, which: str | None) -> list[dict[str, Any]]:
    select = f"{_BRIEF if which == BRIEF else VIEWS['spans']} WHERE {'s.trace_id = $id' if at else spans_of('$id')}"
    if which and which != BRIEF:
        select += f" AND s.span_id = {int(which, 16)}"
    return _once(_read(store, select, "s.start_time", trace_id, at), "span_id")


def _restore(spans: list[dict[str, Any]], contexts: Sequence[Mapping[str, Any]]) -> None:
    """Put the texts that were lifted into columns back into the raw attributes, where these were read."""
    found = _documents(contexts)
    for span in spans:
        if "attributes" in span:
            span["attributes"] = restore_attributes(
                span["attributes"], span["query"], span["response"], found.get(span["span_id"])
            )


def _read(
    store: Store, select: str, column: str, trace_id: UUID, at: datetime | None, *, order: str | None = None
) -> list[dict[str, Any]]:
    parameters: dict[str, Any] = {"id": trace_id}
    if at is not None:
        select += f" AND {column} BETWEEN $first AND $last"
        parameters |= {"first": at - AROUND, "last": at + AROUND}
    return store.read(f"{select} ORDER BY {order or column}", parameters).dicts()


def _parsed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Read the JSON texts of rows in place; a text that many rows share is read once."""
    known: dict[str, Any] = {}
    for column in set(_JSON).intersection(rows[0] if rows else ()):
        for row in rows:
            text = row[column]
            if isinstance(text, str):
                if text not in known:
                    known[text] = _value(text)
                row[column] = known[text]
    return rows


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # a client's own text in a JSON place: shown as it came
        return text


def _documents(contexts: Sequence[Mapping[str, Any]]) -> dict[str, list[ContextRecord]]:
    """The retrieved documents of each span."""
    found = defaultdict(list)
    for one in contexts:
        record = ContextRecord(**{name: one[name] for name in ("rank", "id", "score", "text", "metadata")})
        found[one["span_id"]].append(record)
    return found


def _once(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Drop rows whose key was seen before (a span re-sent across a restart)."""
    return list({row[key]: row for row in reversed(rows)}.values())[::-1]


def _scored(row: dict[str, Any]) -> dict[str, Any]:
    lo, hi = row.pop("ci_lo"), row.pop("ci_hi")
    return row | {"ci95": None if lo is None else [lo, hi]}


def _unknown(trace_id: UUID) -> LookupError:
    return LookupError(f"there is no trace {trace_id.hex}, or no such span in it; it may be past the retention")


def _facts(store: Store, trace_id: UUID) -> dict[str, Any]:
    for read in (_decided, _waiting, _decided):  # again: it may be decided while what waits is read
        if found := read(store, trace_id):
            return {"trace_id": trace_id.hex, **found[0]}
    raise _unknown(trace_id)


def _decided(store: Store, trace_id: UUID) -> list[dict[str, Any]]:
    asked = f"SELECT {_FACTS} FROM raw.trace_facts WHERE latest AND trace_id = $id"
    return store.read(asked, {"id": trace_id}).dicts()


def _waiting(store: Store, trace_id: UUID) -> list[dict[str, Any]]:
    one = {"id": trace_id}
    begun = store.read("SELECT min(start_time) FROM raw.spans WHERE trace_id = $id", one).rows[0][0]
    asked = f"SELECT {_FACTS} FROM undecided_since($begun) WHERE trace_id = $id"
    return store.read(asked, one | {"begun": begun}).dicts() if begun else []


def _labels(store: Store, trace_id: UUID) -> list[dict[str, Any]]:
    return store.read(
        "SELECT evaluator, score, passing, comment, annotator, created_at FROM raw.labels WHERE trace_id = $id"
        " ORDER BY created_at",
        {"id": trace_id},
    ).dicts()


def _neighbours(store: Store, start: datetime, binding: Binding | None) -> dict[str, Any]:
    """The traces that began just before and just after, of those that the caller may read."""
    keep = bound_to(binding) if binding else Filter()
    one = (
        "SELECT {} AS side, trace_id, start_time FROM raw.trace_facts"
        f" WHERE latest AND start_time {{}} $start AND {keep.sql}"
    )
    first = " ORDER BY start_time {} LIMIT 1"
    before = one.format("'previous'", "<") + first.format("DESC")
    after = one.format("'next'", ">") + first.format("ASC")
    rows = store.read(f"({before}) UNION ALL ({after})", {"start": start, **keep.parameters}).rows
    found = {side: {"trace_id": trace_id.hex, "start_time": begun} for side, trace_id, begun in rows}
    return {"previous": found.get("previous"), "next": found.get("next")}


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
    """Answer the operation; raises LookupError where the trace is gone or not complete."""
    trace_id = params.trace_id
    span, request_time = unit_of(store, trace_id)
    case = case_of(store, trace_id.hex, f"{span:016x}", request_time=request_time)
    if case is None:
        raise LookupError(f"the spans of trace {trace_id.hex} are past the retention")
    scored = store.read(
        "SELECT DISTINCT evaluator FROM raw.scores WHERE trace_id = $id AND status = 'ok' ORDER BY 1", {"id": trace_id}
    ).rows
    checks = {name: LEAST for (name,) in scored if name in OFFLINE} or {"groundedness": LEAST}
    kept = case.model_dump(include={"query", "response", "contexts", "reference"}, exclude_none=True)
    kept["contexts"] = [{"id": one["id"], "text": one["text"]} for one in kept.get("contexts") or ()]
    _check_binding(store, params)
    short = trace_id.hex[:8]
    text = _TEXT.format(
        trace_id=trace_id.hex,
        when=request_time.isoformat(timespec="seconds") + "Z",
        case=pprint.pformat(kept, indent=4, width=110, sort_dicts=False),
        checks=checks,
        short=short,
    )
    return {"filename": f"test_trace_{short}.py", "text": text}
