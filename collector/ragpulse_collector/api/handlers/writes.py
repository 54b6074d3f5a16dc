"""What people add to a trace: labels, scores (feedback), and evaluations asked for by hand."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from ragpulse_collector.api.handlers.trace import unit_of
from ragpulse_collector.api.models import Evaluate, Label, Score
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.queries.traces import is_bound

_LABEL_COLUMNS = (
    "trace_id", "span_id", "request_time", "evaluator", "score", "passing", "comment", "annotator", "label_pi",
    "created_at",
)  # fmt: skip
_FEEDBACK_COLUMNS = (
    "feedback_id", "trace_id", "span_id", "time", "received_at", "name", "score", "label", "explanation", "source",
)  # fmt: skip
Mask = Callable[[str], str]
"""Masks what must not be stored in a text that a person typed."""


def label(store: Store, params: Label, *, mask: Mask) -> dict[str, Any]:
    """Answer `POST labels`: a person's verdict on an evaluator's question; raises LookupError."""
    unit, request_time = unit_of(store, params.trace_id)
    span = unit if params.span_id is None else params.span_id
    score = float(bool(params.passing)) if params.score is None else params.score
    passing = score >= 0.5 if params.passing is None else params.passing
    comment, annotator = _masked(params.comment, mask), _masked(params.annotator, mask) or "page"
    place = (params.trace_id.hex, f"{span:016x}", request_time)
    verdict = (params.evaluator, score, passing, comment, annotator, params.label_pi)

    def work(transaction: Transaction) -> None:
        transaction.append("labels", _LABEL_COLUMNS, [(*place, *verdict, transaction.at)])

    store.write(work).result()
    return {"ok": True}


def score(store: Store, params: Score, *, mask: Mask) -> dict[str, Any]:
    """Answer `POST scores`: feedback on a trace, the same as `ragpulse.feedback` sends."""
    if not is_bound(store, params.trace_id, params.caller.binding):
        raise LookupError(f"trace {params.trace_id.hex} is not of a service that the key is bound to")
    place = (params.trace_id.hex, None if params.span_id is None else f"{params.span_id:016x}")
    name, text = mask(params.name), _masked(params.label, mask)
    comment = _masked(params.comment or params.explanation, mask)

    def work(transaction: Transaction) -> None:
        value = (name, params.score, text, comment, "human")
        row = (uuid.uuid4().hex, *place, transaction.at, transaction.at, *value)
        transaction.append("feedback", _FEEDBACK_COLUMNS, [row])

    store.write(work).result()
    return {"ok": True}


def force(
    params: Evaluate,
    *,
    queue: Callable[[str, str | None, Sequence[str]], int],
    known: Callable[[str], object],
    wake: Callable[[], None],
) -> dict[str, Any]:
    """Answer `POST evaluate`: run evaluators on one trace now; the designed pi stays, so estimates stay honest.

    `queue` is the sampler's `force`. Raises ValueError or LookupError for an unknown evaluator or trace.
    """
    for name in params.evaluators:
        known(name)
    span = None if params.span_id is None else f"{params.span_id:016x}"
    queued = queue(params.trace_id.hex, span, params.evaluators)
    wake()
    return {"ok": True, "queued": queued}


def _masked(text: str | None, mask: Mask) -> str | None:
    return None if text is None else mask(text)
