"""What people add to a trace: labels, scores (feedback), and evaluations asked for by hand."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragpulse_collector.api.trace import span_number, trace_uuid, unit_of
from ragpulse_collector.store import Store, Transaction

_LABEL_COLUMNS = (
    "trace_id", "span_id", "request_time", "evaluator", "score", "passing", "comment", "annotator", "label_pi",
    "created_at",
)  # fmt: skip
_FEEDBACK_COLUMNS = (
    "feedback_id", "trace_id", "span_id", "time", "received_at", "name", "score", "label", "explanation", "source",
)  # fmt: skip
MAX_TEXT = 10_000


Mask = Callable[[str], str]
"""Masks what must not be stored in a text that a person typed."""


def label(store: Store, params: Mapping[str, Any], *, mask: Mask) -> dict[str, Any]:
    """Answer `POST labels`: a person's verdict on an evaluator's question; raises ValueError, LookupError."""
    trace_id, evaluator = trace_uuid(params.get("trace_id")), _text(params, "evaluator", needed=True)
    score, passing = _number(params, "score"), _truth(params, "passing")
    if score is None and passing is None:
        raise ValueError("a label needs `score` (0..1) or `passing` (true or false)")
    if score is not None and not 0 <= score <= 1:
        raise ValueError("a label's score lies between 0 and 1, as the normalized score it is compared with")
    unit, request_time = unit_of(store, trace_id)
    span = span_number(params["span_id"]) if params.get("span_id") else unit
    score = float(bool(passing)) if score is None else score
    passing = score >= 0.5 if passing is None else passing
    comment, annotator = _masked(params, "comment", mask), _masked(params, "annotator", mask) or "page"
    label_pi = _number(params, "label_pi")

    def work(transaction: Transaction) -> None:
        row = (trace_id.hex, f"{span:016x}", request_time, evaluator, score, passing, comment, annotator, label_pi)
        transaction.append("labels", _LABEL_COLUMNS, [(*row, transaction.at)])

    store.write(work).result()
    return {"ok": True}


def score(store: Store, params: Mapping[str, Any], *, mask: Mask) -> dict[str, Any]:
    """Answer `POST scores`: feedback on a trace, the same as `ragpulse.feedback` sends; raises ValueError."""
    trace_id, name = trace_uuid(params.get("trace_id")), _masked(params, "name", mask) or "feedback"
    value, label_text = _number(params, "score"), _masked(params, "label", mask)
    if value is None and label_text is None:
        raise ValueError("a score needs `score` (a number) or `label` (a text)")
    span = f"{span_number(params['span_id']):016x}" if params.get("span_id") else None
    comment = _masked(params, "comment", mask) or _masked(params, "explanation", mask)

    def work(transaction: Transaction) -> None:
        identity = uuid.uuid4().hex
        row = (identity, trace_id.hex, span, transaction.at, transaction.at, name, value, label_text, comment, "human")
        transaction.append("feedback", _FEEDBACK_COLUMNS, [row])

    store.write(work).result()
    return {"ok": True}


def force(
    params: Mapping[str, Any],
    *,
    queue: Callable[[str, str | None, Sequence[str]], int],
    known: Callable[[str], object],
    wake: Callable[[], None],
) -> dict[str, Any]:
    """Answer `POST evaluate`: run evaluators on one trace now; the designed pi stays, so estimates stay honest.

    `queue` is the sampler's `force`. Raises ValueError for a malformed parameter, LookupError for an unknown trace.
    """
    trace_id = trace_uuid(params.get("trace_id"))
    names = params.get("evaluators") or []
    names = [names] if isinstance(names, str) else list(names)
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError("evaluators is a list of names")
    for name in names:
        known(name)
    span = f"{span_number(params['span_id']):016x}" if params.get("span_id") else None
    queued = queue(trace_id.hex, span, names)
    wake()
    return {"ok": True, "queued": queued}


def _text(params: Mapping[str, Any], name: str, *, needed: bool = False) -> str | None:
    value = params.get(name)
    if value in (None, ""):
        if needed:
            raise ValueError(f"{name} is missing")
        return None
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text")
    return value[:MAX_TEXT]


def _masked(params: Mapping[str, Any], name: str, mask: Mask) -> str | None:
    text = _text(params, name)
    return None if text is None else mask(text)


def _number(params: Mapping[str, Any], name: str) -> float | None:
    value = params.get(name)
    if value in (None, ""):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, not {value!r}") from None
    if number != number or abs(number) == float("inf"):
        raise ValueError(f"{name} must be a finite number")
    return number


def _truth(params: Mapping[str, Any], name: str) -> bool | None:
    value = params.get(name)
    if value in (None, ""):
        return None
    text = str(value).lower()
    if text not in ("true", "false", "1", "0"):
        raise ValueError(f"{name} must be true or false")
    return text in ("true", "1")
