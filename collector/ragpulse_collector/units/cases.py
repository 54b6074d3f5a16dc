"""Builds the cases of stored units: rows in, `Case` out."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.conventions.dedupe import Node, context_spans, subtrees, token_spans
from ragpulse_collector.conventions.lifting import restore_attributes
from ragpulse_collector.conventions.texts import said_before
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries import documents
from ragpulse_collector.store.queries.documents import TraceRange
from ragpulse_evaluators import Case, Context, Turn
from ragpulse_evaluators.case import STORED, Step

_MESSAGES = 2 * documents.MAX_TURNS
_Window = tuple[timedelta, timedelta]
_NEAR: _Window = (timedelta(seconds=5), timedelta(seconds=30))
"""Most traces' spans start within this window around their unit; the cost of reading grows with the window."""
_FAR: _Window = (timedelta(hours=1), timedelta(days=1))
"""All spans of a trace start within this window unless a clock is wrong; the store skips the other days."""
_EVER: _Window = (timedelta(days=36_500), timedelta(days=36_500))


@dataclass(frozen=True, slots=True)
class Unit:
    """The address of an evaluated unit: ids as hex text, and the start of its request (UTC, naive)."""

    trace_id: str
    span_id: str
    request_time: datetime | None = None


@dataclass(slots=True)
class _Span:
    """One stored span: the node for de-duplication, and its figures."""

    node: Node
    duration_us: int | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    metadata: str | None


_Family = dict[str, _Span]
"""The spans of a trace by id."""
_Families = dict[str, _Family]
_Texts = dict[tuple[str, int], tuple[str | None, str | None]]
_Called = dict[tuple[str, int], tuple[str, str | None, str | None]]
"""Kind, name and error of the calls in traces by trace id and span."""
_Contexts = dict[str, list[Context | None]]
"""Contexts by span id in rank order; None stands for a context without text."""


def case_of(store: Store, trace_id: str, span_id: str, *, request_time: datetime | None = None) -> Case | None:
    """Build the case of a unit; None where its span is not stored any more."""
    unit = Unit(trace_id, span_id, request_time)
    return cases_of(store, [unit]).get(unit)


def cases_of(
    store: Store,
    units: Sequence[Unit],
    *,
    judged: Collection[Unit] | None = None,
    turned: bool = True,
    stepped: bool = True,
) -> dict[Unit, Case]:
    """Build the cases of many units with few reads; units without a stored span are left out.

    Where they are `turned`, the earlier turns of their sessions are read, too; the messages of `judged` units (None: of
    all), which are the history where no session has earlier turns; and the steps of the runs where they are `stepped`.
    """
    families = _families(store, units)
    starts = [span.node.start for family in families.values() for span in family.values()]
    if not starts:
        return {}
    # Texts have the time of their span.
    among = TraceRange(list(families), min(starts), max(starts))
    texts, contexts, turns = _texts(store, among), _contexts(store, among), _turns(store, among) if turned else {}
    nodes = _nodes(units, families, contexts)
    alone = [unit for unit in (units if judged is None else judged) if unit.trace_id not in turns]
    said = _said_before(store, among, {unit: nodes[unit] for unit in alone if nodes.get(unit)}, texts)
    called = _called(store, among) if stepped else {}
    built: dict[Unit, Case] = {}
    for unit in units:
        family = families.get(unit.trace_id, {})
        if unit.span_id in family:
            text = texts.get((unit.trace_id, int(unit.span_id, 16)), (None, None))
            of_trace = contexts.get(unit.trace_id, {})
            case = _case(unit, family, nodes[unit], text, of_trace, turns.get(unit.trace_id) or said.get(unit) or None)
            trace = _trace(unit, nodes[unit], called, texts)
            built[unit] = case.model_copy(update={"trace": trace}) if trace else case
    return built


def _nodes(units: Sequence[Unit], families: _Families, contexts: Mapping[str, _Contexts]) -> dict[Unit, list[Node]]:
    """Return the spans at and below each unit; a trace with thousands of units is walked once."""
    span_ids: dict[str, set[str]] = {}
    for unit in units:
        span_ids.setdefault(unit.trace_id, set()).add(unit.span_id)
    nodes: dict[str, dict[str, list[Node]]] = {}
    for trace_id, family in families.items():
        with_contexts = contexts.get(trace_id, {})
        spans = (
            span.node._replace(has_contexts=span.node.has_contexts or span_id in with_contexts)
            for span_id, span in family.items()
        )
        nodes[trace_id] = subtrees(span_ids.get(trace_id, set()), spans)
    return {unit: nodes.get(unit.trace_id, {}).get(unit.span_id, []) for unit in units}


def _families(store: Store, units: Sequence[Unit]) -> _Families:
    """Read the spans near their units first, and farther ones only for incomplete traces."""
    if not units:
        return {}
    near = _range(units, _NEAR)
    if near is None:
        return _spans(store, TraceRange(_ids(units), datetime.min, datetime.max))
    families, sizes = _spans(store, near), _sizes(store, near)
    incomplete = [
        u for u in units if not sizes.get(u.trace_id) or len(families.get(u.trace_id, ())) < sizes[u.trace_id]
    ]
    for window in (_FAR, _EVER):
        among = _range(incomplete, window) if incomplete else None
        families |= _spans(store, among) if among else {}
        incomplete = [u for u in incomplete if len(families.get(u.trace_id, ())) < sizes.get(u.trace_id, 0)]
    return families


def _sizes(store: Store, among: TraceRange) -> dict[str, int]:
    """Return how many spans each trace had when it was decided, where that is known."""
    return {among.ids[number]: size for number, size in documents.span_counts(store, among).rows if size is not None}


def _range(units: Sequence[Unit], window: _Window) -> TraceRange | None:
    """Return the traces and the time range to read; None where the time of a unit is unknown."""
    times = [unit.request_time for unit in units if unit.request_time is not None]
    if len(times) < len(units):
        return None
    early, late = window
    return TraceRange(_ids(units), min(times) - early, max(times) + late)


def _ids(units: Sequence[Unit]) -> list[str]:
    return sorted({unit.trace_id for unit in units})


def _spans(store: Store, among: TraceRange) -> _Families:
    ids, families = among.ids, defaultdict[str, _Family](dict)
    for (
        number,
        span,
        parent,
        start,
        kind,
        response,
        has_contexts,
        duration,
        input_tokens,
        output_tokens,
        cost,
        extra,
    ) in documents.spans(store, among).rows:
        has_usage = not (input_tokens is None and output_tokens is None and cost is None)
        node = Node(_hex(span) or "", _hex(parent), start, kind, response, has_usage, has_contexts)
        families[ids[number]][node.span_id] = _Span(node, duration, input_tokens, output_tokens, cost, extra)
    return families


def _hex(span_id: int | None) -> str | None:
    return None if span_id is None else f"{span_id:016x}"


def _texts(store: Store, among: TraceRange) -> _Texts:
    rows = documents.texts(store, among).rows
    return {(among.ids[number], span): (query, response) for number, span, query, response in rows}


def _contexts(store: Store, among: TraceRange) -> dict[str, _Contexts]:
    contexts: dict[str, _Contexts] = defaultdict(lambda: defaultdict(list))
    for number, span, identity, score, text, metadata in documents.contexts(store, among).rows:
        context = None if text is None else Context(text=text, id=identity, score=score, metadata=_object(metadata))
        contexts[among.ids[number]][f"{span:016x}"].append(context)
    return contexts


def _object(text: str | None) -> dict[str, Any]:
    value = json.loads(text) if text else {}
    return value if isinstance(value, dict) else {"value": value}


def _turns(store: Store, among: TraceRange) -> dict[str, tuple[Turn, ...]]:
    turns: dict[str, tuple[Turn, ...]] = {}
    for number, query, response in documents.turns_before(store, among).rows:
        trace = among.ids[number]
        turns[trace] = (*turns.get(trace, ()), Turn(query=query, response=response))
    return turns


def _called(store: Store, among: TraceRange) -> _Called:
    rows = documents.steps(store, among).rows
    return {(among.ids[number], span): (kind, name, error) for number, span, kind, name, error in rows}


def _trace(unit: Unit, nodes: Sequence[Node], called: _Called, texts: _Texts) -> tuple[Step, ...]:
    """Return the steps below a unit in time order; a call that two libraries report, one below the other, is one."""
    steps: list[Step] = []
    for node in nodes:
        place = (unit.trace_id, int(node.span_id, 16))
        step = called.get(place)
        above = called.get((unit.trace_id, int(node.parent_span_id, 16))) if node.parent_span_id else None
        if step is None or node.span_id == unit.span_id:
            continue
        kind, name, error = step
        if above and above[0] == kind and (kind == "llm" or above[1] == name):
            continue
        arguments, result = texts.get(place, (None, None))
        steps.append(Step(kind=kind, name=name, arguments=arguments, result=result, error=error))
    return tuple(steps)


def _said_before(
    store: Store, among: TraceRange, nodes: Mapping[Unit, Sequence[Node]], texts: _Texts
) -> dict[Unit, list[dict[str, str]]]:
    """Return the messages before the question in a unit's own span, else in the first model call below that has any."""
    asked = {
        (unit.trace_id, int(node.span_id, 16)): unit
        for unit, below in nodes.items()
        for node in below
        if node.span_id == unit.span_id or node.kind == "llm"
    }
    said: dict[Unit, list[dict[str, str]]] = {}
    rows = documents.span_attributes(store, among, [span for _, span in asked]).rows if asked else []
    for number, span, attributes in rows:
        place = (among.ids[number], span)
        if (unit := asked.get(place)) is not None and not said.get(unit):
            said[unit] = said_before(restore_attributes(attributes, *texts.get(place, (None, None)), None))[-_MESSAGES:]
    return said


def _case(
    unit: Unit,
    family: _Family,
    nodes: Sequence[Node],
    texts: tuple[str | None, str | None],
    contexts: _Contexts,
    history: Sequence[Turn | Mapping[str, str]] | None,
) -> Case:
    root = family[unit.span_id]
    bearing = context_spans(nodes)
    all_contexts = [context for span_id in bearing for context in contexts.get(span_id, [])]
    with_text = [context for context in all_contexts if context is not None]
    paid = [family[span_id] for span_id in token_spans(nodes)]
    metadata = _object(root.metadata)
    if len(with_text) < len(all_contexts):
        metadata["contexts_without_text"] = len(all_contexts) - len(with_text)
    fields = {
        "query": texts[0],
        "response": texts[1],
        "history": history,
        "contexts": tuple(with_text) if bearing and (with_text or not all_contexts) else None,
        "retrieved_ids": tuple(context.id for context in with_text if context.id is not None) or None,
        "latency_s": None if root.duration_us is None else root.duration_us / 1e6,
        "input_tokens": _sum(span.input_tokens for span in paid),
        "output_tokens": _sum(span.output_tokens for span in paid),
        "cost_usd": _sum(span.cost_usd for span in paid) if all(span.cost_usd is not None for span in paid) else None,
        "trace_id": unit.trace_id,
        "metadata": metadata,
    }
    return Case.model_validate(fields, context=STORED)


def _sum(figures: Iterable[Any]) -> Any:
    values = [figure for figure in figures if figure is not None]
    return sum(values) if values else None
