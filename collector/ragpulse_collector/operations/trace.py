"""`GET traces/{trace_id}`: one trace with all its data, also as a page and as a regression test that runs offline."""

from __future__ import annotations

import pprint
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal
from uuid import UUID

from ragpulse_collector.analysis.selection import instant
from ragpulse_collector.api.models import OneTrace, no_trace
from ragpulse_collector.api.operations import operation
from ragpulse_collector.api.pages import pages
from ragpulse_collector.api.params import SpanChoice
from ragpulse_collector.conventions.dedupe import Node, context_spans, within
from ragpulse_collector.conventions.lifting import restore_attributes
from ragpulse_collector.interface import Tool
from ragpulse_collector.records import ContextRecord
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries import trace_answers
from ragpulse_collector.store.queries.trace_answers import (
    BRIEF,
    ContextRow,
    DecisionRow,
    LabelRow,
    Neighbour,
    OfTrace,
    SpanBrief,
    SpanScore,
    SpanStep,
    SpanWhole,
    parsed,
)
from ragpulse_collector.store.queries.traces import TraceRow
from ragpulse_collector.units.cases import case_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceParts:
    """One trace; with `only` a part of it."""

    trace: TraceRow | None = None
    previous: Neighbour | None = None
    next: Neighbour | None = None
    spans: Sequence[SpanWhole | SpanStep] = ()
    contexts: Sequence[ContextRow] = ()
    scores: Sequence[SpanScore] = ()
    decisions: Sequence[DecisionRow] = ()
    labels: Sequence[LabelRow] = ()
    unread: Sequence[str] = ()
    """Why the SDK could not read results."""
    lead: str = ""
    """The evaluator that leads."""


@operation("GET traces/{trace_id}", bound=True, tools=(Tool("trace", ("trace_id",)),))
def trace_detail(
    store: Store,
    lead: Lead,
    /,
    params: OneTrace,
    only: Literal["trace", "rest"] | None = None,
    spans: SpanChoice | None = None,
) -> TraceParts:
    """One trace: question, retrieved documents, answer, spans, and scores with explanations.

    Raises NotFound where there is no such trace. `only=trace` returns the trace and its neighbours, `only=rest` the
    rest. `spans=brief` returns the columns of a waterfall; `spans=<span id>` that span alone, with all columns.
    """
    parts = TraceParts() if only == "rest" else _head(store, params)
    if only != "trace":
        parts = _rest(store, _near(params), spans, parts)
    return replace(parts, lead=lead())


def _near(params: OneTrace) -> OfTrace:
    return OfTrace(params.trace_id, instant(params.at, now=utc_now()))


def _head(store: Store, params: OneTrace) -> TraceParts:
    facts = trace_answers.facts(store, params.trace_id)
    if facts is None:
        raise no_trace(params.trace_id)
    previous, following = trace_answers.neighbours(store, facts.start_time, params.caller.binding)
    return TraceParts(trace=facts, previous=previous, next=following)


def _rest(store: Store, near: OfTrace, choice: str | None, head: TraceParts) -> TraceParts:
    """Return the head with the other parts; raises NotFound without spans."""
    spans = near.spans(store, choice)
    if not spans and near.time is not None:  # the time may be wrong: look everywhere
        return _rest(store, OfTrace(near.id, None), choice, head)
    if not spans:
        raise no_trace(near.id)
    near = OfTrace(near.id, spans[0].start_time if near.time is not None else None)
    contexts = near.contexts(store)
    order = [context.span_id for context in contexts]
    if choice in (None, BRIEF):
        order = _context_spans(store, near.id, spans, contexts)
    return replace(
        head,
        spans=_restored(spans, contexts),
        contexts=_in_order(contexts, order),
        scores=near.scores(store),
        decisions=near.decisions(store),
        labels=trace_answers.labels(store, near.id),
        unread=near.unread(store),
    )


def _context_spans(
    store: Store, trace_id: UUID, spans: Sequence[SpanBrief], contexts: Sequence[ContextRow]
) -> list[str]:
    """Return the ids of the spans whose contexts the evaluators of the first unit see."""
    with_contexts = {context.span_id for context in contexts}
    nodes = [
        Node(
            span.span_id,
            span.parent_span_id,
            span.start_time,
            span.kind or "",
            has_contexts=span.span_id in with_contexts or span.contexts_state is not None,
        )
        for span in spans
    ]
    unit = trace_answers.unit_of(store, trace_id)
    root = f"{unit.span_id:016x}" if unit and unit.span_id is not None else None
    return context_spans(within(root, nodes) if root else nodes)


def _in_order(contexts: Sequence[ContextRow], span_ids: Sequence[str]) -> list[ContextRow]:
    """Return the contexts of these spans first, in their order; the others are marked as superseded."""
    order = {span_id: number for number, span_id in enumerate(dict.fromkeys(span_ids))}
    shown = [replace(context, metadata=parsed(context.metadata), superseded=context.span_id not in order)
             for context in contexts]  # fmt: skip
    return sorted(shown, key=lambda context: order.get(context.span_id, len(order)))


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file as text, with its name."""

    filename: str
    text: str


@operation("GET traces/{trace_id}/html", bound=True)
def trace_page(store: Store, lead: Lead, /, params: OneTrace) -> TextFile:
    """One trace as a self-contained, redacted page."""
    parts = _rest(store, _near(params), None, _head(store, params))
    return TextFile(f"trace-{params.trace_id.hex[:12]}.html", pages().standalone(replace(parts, lead=lead())))


def unit_of(store: Store, trace_id: UUID) -> tuple[int, datetime]:
    """Return the trace's first unit and its request time; raises NotFound where it is undecided, or has none."""
    unit = trace_answers.unit_of(store, trace_id)
    if unit is None or unit.span_id is None:
        raise NotFound(f"trace {trace_id.hex} is unknown or not complete yet; try again in a few seconds")
    return unit.span_id, unit.request_time


def _restored(spans: Sequence[SpanWhole | SpanStep], contexts: Sequence[ContextRow]) -> list[SpanWhole | SpanStep]:
    """Put the texts of columns back into the raw attributes, where the spans have these."""
    documents = _documents(contexts)
    return [_with_attributes(span, documents) if isinstance(span, SpanWhole) else span for span in spans]


def _with_attributes(span: SpanWhole, documents: Mapping[str, Sequence[ContextRecord]]) -> SpanWhole:
    texts = (span.query, span.response, documents.get(span.span_id))
    return replace(span, attributes=restore_attributes(str(span.attributes), *texts))


def _documents(contexts: Sequence[ContextRow]) -> dict[str, list[ContextRecord]]:
    """Return the retrieved documents of each span."""
    documents = defaultdict(list)
    for row in contexts:
        metadata = None if row.metadata is None else str(row.metadata)
        record = ContextRecord(rank=row.rank, id=row.id, score=row.score, text=row.text, metadata=metadata)
        documents[row.span_id].append(record)
    return documents


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


@operation("GET traces/{trace_id}/pytest", bound=True)
def pytest_case(store: Store, /, params: OneTrace) -> TextFile:
    """A trace as a regression test.

    Raises NotFound where the trace is gone or undecided.
    """
    trace_id = params.trace_id
    span, request_time = unit_of(store, trace_id)
    case = case_of(store, trace_id.hex, f"{span:016x}", request_time=request_time)
    if case is None:
        raise NotFound(f"the spans of trace {trace_id.hex} are past the retention")
    scored = trace_answers.scored_by(store, trace_id)
    checks = {name: LEAST for name in scored if name in OFFLINE} or {"groundedness": LEAST}
    fields = case.model_dump(include={"query", "response", "contexts", "reference"}, exclude_none=True)
    fields["contexts"] = [{"id": context["id"], "text": context["text"]} for context in fields.get("contexts") or ()]
    short = trace_id.hex[:8]
    text = _TEXT.format(
        trace_id=trace_id.hex,
        when=request_time.isoformat(timespec="seconds") + "Z",
        case=pprint.pformat(fields, indent=4, width=110, sort_dicts=False),
        checks=checks,
        short=short,
    )
    return TextFile(f"test_trace_{short}.py", text)
