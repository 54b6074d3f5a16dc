"""Labels, scores (feedback), evaluations by hand, and datasets."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragpulse_collector.analysis.selection import iso
from ragpulse_collector.api.drafts import DatasetDraft, Evaluate, Label, Score
from ragpulse_collector.api.handlers.trace import unit_of
from ragpulse_collector.api.handlers.traces import trace_list
from ragpulse_collector.api.models import ById
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries import datasets as stored
from ragpulse_collector.store.queries.traces import is_bound, trace_rows
from ragpulse_collector.store.rows import binding_text

_LABEL_COLUMNS = (
    "trace_id", "span_id", "request_time", "evaluator", "score", "passing", "comment", "annotator", "label_pi",
    "created_at",
)  # fmt: skip
_FEEDBACK_COLUMNS = (
    "feedback_id", "trace_id", "span_id", "time", "received_at", "name", "score", "label", "explanation", "source",
    "binding",
)  # fmt: skip
Mask = Callable[[str], str]
"""Masks a text that a person typed."""


def label(store: Store, params: Label, *, mask: Mask) -> dict[str, Any]:
    """Answer `POST labels`: a person's verdict on an evaluator's question; raises LookupError."""
    unit, request_time = unit_of(store, params.trace_id)
    span = unit if params.span_id is None else params.span_id
    score = float(bool(params.passing)) if params.score is None else params.score
    passing = score >= 0.5 if params.passing is None else params.passing
    comment, annotator = _masked(params.comment, mask), _masked(params.annotator, mask) or "page"
    key = (params.trace_id.hex, f"{span:016x}", request_time)
    verdict = (params.evaluator, score, passing, comment, annotator, params.label_pi)
    store.write(lambda tx: tx.append("labels", _LABEL_COLUMNS, [(*key, *verdict, tx.at)])).result()
    return {"ok": True}


def score(store: Store, params: Score, *, mask: Mask) -> dict[str, Any]:
    """Answer `POST scores`: feedback on a trace, the same as `ragpulse.feedback` sends."""
    if not is_bound(store, params.trace_id, params.caller.binding):
        raise LookupError(f"trace {params.trace_id.hex} is not of a service that the key is bound to")
    span = None if params.span_id is None else f"{params.span_id:016x}"
    name, text = mask(params.name), _masked(params.label, mask)
    comment = _masked(params.comment or params.explanation, mask)
    key = (uuid.uuid4().hex, params.trace_id.hex, span)
    value = (name, params.score, text, comment, "human", binding_text(params.caller.binding))
    store.write(lambda tx: tx.append("feedback", _FEEDBACK_COLUMNS, [(*key, tx.at, tx.at, *value)])).result()
    return {"ok": True}


def force(
    params: Evaluate,
    *,
    queue: Callable[[str, str | None, Sequence[str]], int],
    check_evaluator: Callable[[str], object],
    wake: Callable[[], None],
) -> dict[str, Any]:
    """Answer `POST evaluate`: run evaluators on one trace now. The stored pi stays, so estimates stay unbiased.

    `queue` is the sampler's `force`. Raises ValueError or LookupError for an unknown evaluator or trace.
    """
    for name in params.evaluators:
        check_evaluator(name)
    span = None if params.span_id is None else f"{params.span_id:016x}"
    queued = queue(params.trace_id.hex, span, params.evaluators)
    wake()
    return {"ok": True, "queued": queued}


def _masked(text: str | None, mask: Mask) -> str | None:
    return None if text is None else mask(text)


_ITEM_FIELDS = ("query", "response", "trace_id", "latency_ms", "cost_usd")


def dataset_list(store: Store) -> dict[str, Any]:
    """Answer `GET datasets`."""
    times = ("created_at", "changed_at")
    return {"datasets": [row | {key: iso(row[key]) for key in times} for row in stored.datasets(store)]}


def dataset(store: Store, params: ById) -> dict[str, Any]:
    """Answer `GET datasets/{id}`; raises LookupError."""
    items = stored.dataset_items(store, params.id)
    if not items:
        raise LookupError(f"there is no dataset {params.id!r}")
    return {"name": params.id, "items": items}


def fill_dataset(store: Store, params: DatasetDraft) -> dict[str, Any]:
    """Answer `POST datasets/{id}`: add items, named traces, or the first `limit` that match the filters.

    Raises ValueError where none of them has a question.
    """
    items, more = [item.model_dump() for item in params.items], False
    if not items:
        rows, more = _chosen(store, params)
        items = [_item(row) for row in rows if row["query"]]
    if not items:
        raise ValueError("no trace with a question matches: choose others, or send `items`")
    store.write(lambda tx: stored.add_items(tx, params.id, items)).result()
    return {"name": params.id, "added": len(items), "more": more}


def delete_dataset(store: Store, params: ById) -> dict[str, Any]:
    """Answer `DELETE datasets/{id}`; raises LookupError."""
    dataset(store, params)
    store.write(lambda tx: stored.delete_dataset(tx, params.id)).result()
    return {"ok": True}


def _chosen(store: Store, params: DatasetDraft) -> tuple[list[dict[str, Any]], bool]:
    if params.trace_ids:
        return trace_rows(store, [trace_id.hex for trace_id in params.trace_ids]), False
    answer = trace_list(store, params)
    return answer["traces"], answer["next"] is not None


def _item(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item in the form of `ragpulse freeze`; readers take its documents from the stored trace."""
    response = None if row.get("error") else row["response"]
    return {
        **{key: row[key] for key in _ITEM_FIELDS},
        "response": response,
        "at": str(row["start_time"]),
        "retrieved": None,
    }
