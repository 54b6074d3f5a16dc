"""Builds what an evaluator sees of a stored unit: rows in, `Case` out."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.conventions.dedupe import Node, context_spans, subtrees, token_spans
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries import documents, traces
from ragpulse_evaluators import Case, Context, Evaluator, Turn
from ragpulse_evaluators.digest import sha256_hex

__all__ = ["ScoreKeys", "Unit", "case_of", "cases_of", "score_key"]

_Window = tuple[timedelta, timedelta]
_NEAR: _Window = (timedelta(seconds=5), timedelta(seconds=30))
"""Most traces' spans start within this window around their unit; what it costs to read them grows with the window."""
_FAR: _Window = (timedelta(hours=1), timedelta(days=1))
"""All traces' spans do unless a clock is wrong; it lets the store skip the other days."""
_EVER: _Window = (timedelta(days=36_500), timedelta(days=36_500))


@dataclass(frozen=True, slots=True)
class Unit:
    """The address of one evaluated thing: ids as hex text, and when its request started (UTC, naive)."""

    trace_id: str
    span_id: str
    request_time: datetime | None = None


@dataclass(slots=True)
class _Span:
    """One stored span: what de-duplication needs to know, and the figures it states."""

    node: Node
    duration_us: int | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    metadata: str | None


_Family = dict[str, _Span]
"""The spans of one trace by id."""
_Families = dict[str, _Family]
_Texts = dict[tuple[str, int], tuple[str | None, str | None]]
_Found = dict[str, list[Context | None]]
"""Contexts by span id in rank order; None stands for one whose text the client did not send."""


def case_of(store: Store, trace_id: str, span_id: str, *, request_time: datetime | None = None) -> Case | None:
    """Build the case of one unit; None where the store no longer has its span."""
    unit = Unit(trace_id, span_id, request_time)
    return cases_of(store, [unit]).get(unit)


def cases_of(store: Store, units: Sequence[Unit]) -> dict[Unit, Case]:
    """Build the cases of many units with few reads; units whose span is gone are absent from the answer."""
    families = _families(store, units)
    starts = [span.node.start for family in families.values() for span in family.values()]
    if not starts:
        return {}
    # Texts carry the time of their span.
    scope = {"ids": list(families), "first": min(starts), "last": max(starts)}
    texts, contexts, turns = _texts(store, scope), _contexts(store, scope), _turns(store, scope)
    nodes = _nodes(units, families, contexts)
    built: dict[Unit, Case] = {}
    for unit in units:
        family = families.get(unit.trace_id, {})
        if unit.span_id in family:
            text = texts.get((unit.trace_id, int(unit.span_id, 16)), (None, None))
            of_trace = contexts.get(unit.trace_id, {})
            built[unit] = _case(unit, family, nodes[unit], text, of_trace, turns.get(unit.trace_id))
    return built


def _nodes(units: Sequence[Unit], families: _Families, contexts: Mapping[str, _Found]) -> dict[Unit, list[Node]]:
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
    """Find the spans near their units first, and look far only for traces of which some are elsewhere."""
    if not units:
        return {}
    near = _scope(units, _NEAR)
    if near is None:
        return _spans(store, {"ids": _ids(units), "first": datetime.min, "last": datetime.max})
    families, sizes = _spans(store, near), _sizes(store, near)
    rest = [u for u in units if not sizes.get(u.trace_id) or len(families.get(u.trace_id, ())) < sizes[u.trace_id]]
    for window in (_FAR, _EVER):
        scope = _scope(rest, window) if rest else None
        families |= _spans(store, scope) if scope else {}
        rest = [u for u in rest if len(families.get(u.trace_id, ())) < sizes.get(u.trace_id, 0)]
    return families


def _sizes(store: Store, scope: dict[str, Any]) -> dict[str, int]:
    """How many spans each trace had when it was decided, where that is known."""
    return {scope["ids"][number]: size for number, size in traces.span_counts(store, scope).rows if size is not None}


def score_key(unit: Unit, case: Case, evaluator: Evaluator) -> str:
    """Name one verdict: the same unit, case, evaluator, version and judge always give the same key.

    Figures of the run (latency, tokens, cost) enter only where the evaluator needs them, so that a late span does not
    ask a judge again about unchanged texts.
    """
    return ScoreKeys()(unit, case, evaluator)


class ScoreKeys:
    """`score_key` for many evaluators of the same cases: what they see alike is digested once."""

    def __init__(self) -> None:
        self._digests: dict[tuple[Unit, frozenset[str]], str] = {}

    def __call__(self, unit: Unit, case: Case, evaluator: Evaluator) -> str:
        """Name the evaluator's verdict on the case of this unit."""
        one = evaluator
        unseen = _FIGURES - one.needs
        if not case.history or (one.judge_id is None and "history" not in one.needs):
            unseen |= {"history"}  # only judges and those that ask for it look at it
        seen = self._seen(unit, case, unseen)
        return sha256_hex(f"{unit.trace_id}\n{unit.span_id}\n{seen}\n{one.name}\n{one.version}\n{one.judge_id or ''}")

    def _seen(self, unit: Unit, case: Case, unseen: frozenset[str]) -> str:
        at = (unit, unseen)
        if at not in self._digests:
            content = case.model_dump(mode="json", exclude=set(unseen))
            self._digests[at] = sha256_hex(json.dumps(content, sort_keys=True, separators=(",", ":")))
        return self._digests[at]


_FIGURES = frozenset({"latency_s", "input_tokens", "output_tokens", "cost_usd", "metadata"})


def _scope(units: Sequence[Unit], window: _Window) -> dict[str, Any] | None:
    """The traces to read and the time to look in; None where a unit does not say its time."""
    times = [unit.request_time for unit in units if unit.request_time is not None]
    if len(times) < len(units):
        return None
    early, late = window
    return {"ids": _ids(units), "first": min(times) - early, "last": max(times) + late}


def _ids(units: Sequence[Unit]) -> list[str]:
    return sorted({unit.trace_id for unit in units})


def _spans(store: Store, scope: dict[str, Any]) -> _Families:
    ids, families = scope["ids"], defaultdict[str, _Family](dict)
    for (
        number,
        span,
        parent,
        start,
        kind,
        response,
        has_contexts,
        duration,
        given,
        produced,
        cost,
        extra,
    ) in traces.spans(store, scope).rows:
        has_usage = not (given is None and produced is None and cost is None)
        node = Node(_hex(span) or "", _hex(parent), start, kind, response, has_usage, has_contexts)
        families[ids[number]][node.span_id] = _Span(node, duration, given, produced, cost, extra)
    return families


def _hex(span_id: int | None) -> str | None:
    return None if span_id is None else f"{span_id:016x}"


def _texts(store: Store, scope: dict[str, Any]) -> _Texts:
    rows = traces.texts(store, scope).rows
    return {(scope["ids"][number], span): (query, response) for number, span, query, response in rows}


def _contexts(store: Store, scope: dict[str, Any]) -> dict[str, _Found]:
    found: dict[str, _Found] = defaultdict(lambda: defaultdict(list))
    for number, span, identity, score, text, metadata in documents.contexts(store, scope).rows:
        context = None if text is None else Context(text=text, id=identity, score=score, metadata=_object(metadata))
        found[scope["ids"][number]][f"{span:016x}"].append(context)
    return found


def _object(text: str | None) -> dict[str, Any]:
    value = json.loads(text) if text else {}
    return value if isinstance(value, dict) else {"value": value}


def _turns(store: Store, scope: dict[str, Any]) -> dict[str, tuple[Turn, ...]]:
    found: dict[str, tuple[Turn, ...]] = {}
    for number, query, response in traces.turns_before(store, scope).rows:
        trace = scope["ids"][number]
        found[trace] = (*found.get(trace, ()), Turn(query=query, response=response))
    return found


def _case(
    unit: Unit,
    family: _Family,
    nodes: Sequence[Node],
    texts: tuple[str | None, str | None],
    contexts: _Found,
    history: tuple[Turn, ...] | None,
) -> Case:
    root = family[unit.span_id]
    bearing = context_spans(nodes)
    found = [context for span_id in bearing for context in contexts.get(span_id, [])]
    with_text = [context for context in found if context is not None]
    paid = [family[span_id] for span_id in token_spans(nodes)]
    metadata = _object(root.metadata)
    if len(with_text) < len(found):
        metadata["contexts_without_text"] = len(found) - len(with_text)
    return Case(
        query=texts[0],
        response=texts[1],
        history=history,
        contexts=tuple(with_text) if bearing and (with_text or not found) else None,
        retrieved_ids=tuple(context.id for context in with_text if context.id is not None) or None,
        latency_s=None if root.duration_us is None else root.duration_us / 1e6,
        input_tokens=_sum(span.input_tokens for span in paid),
        output_tokens=_sum(span.output_tokens for span in paid),
        cost_usd=_sum(span.cost_usd for span in paid) if all(span.cost_usd is not None for span in paid) else None,
        trace_id=unit.trace_id,
        metadata=metadata,
    )


def _sum(figures: Iterable[Any]) -> Any:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None
