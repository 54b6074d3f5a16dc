"""`GET traces/{trace_id}`: one trace with everything known of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from ragpulse_collector.analysis.window import instant
from ragpulse_collector.api.encoding import plain
from ragpulse_collector.api.models import OneTrace, TraceDetail
from ragpulse_collector.conventions import restore_attributes
from ragpulse_collector.records import ContextRecord
from ragpulse_collector.store import Store
from ragpulse_collector.store.rows import utc_now
from ragpulse_collector.store.views import FACT_COLUMNS, VIEWS, hex_span, spans_of

AROUND = timedelta(hours=2)
"""With `?at=` only this much of the time around it is read, so that a look-up stays cheap in a large file."""
_JSON = ("mapped_from", "resource", "events", "links", "metadata", "tags", "parts", "calls")
_FACTS = ", ".join(FACT_COLUMNS)
BRIEF = "brief"
_BRIEF = f"""
    SELECT {hex_span("s.span_id")} AS span_id, {hex_span("s.parent_span_id")} AS parent_span_id, s.start_time,
           s.duration_us / 1000.0 AS latency_ms, s.name, s.kind, s.status, s.error_type, s.input_tokens, s.output_tokens
    FROM raw.spans s"""
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
        found |= _neighbours(store, found["trace"]["start_time"])
    if only != "trace":
        found |= _rest(store, trace_id, instant(params.at, now=utc_now()), params.spans)
    return found


def _rest(store: Store, trace_id: UUID, at: datetime | None, which: str | None) -> dict[str, Any]:
    spans = _spans(store, trace_id, at, which)
    if not spans and at is not None:  # the time was off: look everywhere before saying no
        return _rest(store, trace_id, None, which)
    if not spans:
        raise _unknown(trace_id)
    near = spans[0]["start_time"] if at is not None else None
    contexts = _read(store, _CONTEXTS, "start_time", trace_id, near, order="span_id, rank")
    _restore(spans, contexts)
    return {
        "spans": _parsed(spans),
        "contexts": _parsed(contexts),
        "scores": [_scored(row) for row in _parsed(_read(store, _SCORES, "s.request_time", trace_id, near))],
        "decisions": _read(store, _DECISIONS, "request_time", trace_id, near, order="decided_at"),
        "labels": _labels(store, trace_id),
    }


def trace_page(store: Store, params: OneTrace) -> dict[str, Any]:
    """Answer `GET traces/{trace_id}/html`; raises like `trace_detail`."""
    from ragpulse_dashboards import standalone  # the templates: not before somebody wants a page

    answer = plain(trace_detail(store, TraceDetail.parse(params.given())))
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


def _neighbours(store: Store, start: datetime) -> dict[str, Any]:
    """The traces that began just before and just after."""
    one = "SELECT {} AS side, trace_id, start_time FROM raw.trace_facts WHERE latest AND start_time {} $start"
    first = " ORDER BY start_time {} LIMIT 1"
    before = one.format("'previous'", "<") + first.format("DESC")
    after = one.format("'next'", ">") + first.format("ASC")
    rows = store.read(f"({before}) UNION ALL ({after})", {"start": start}).rows
    found = {side: {"trace_id": trace_id.hex, "start_time": begun} for side, trace_id, begun in rows}
    return {"previous": found.get("previous"), "next": found.get("next")}
