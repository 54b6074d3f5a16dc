"""OpenInference's feedback on spans: `evaluations.N.evaluation.*`, `annotations.N.annotation.*` → score records."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ragpulse_collector.conventions.rules import Carrier
from ragpulse_collector.conventions.values import number, unquoted
from ragpulse_collector.otlp import WireSpan
from ragpulse_collector.records import ScoreRecord

_NAME = re.compile(
    r"(?:(trace|session)\.)?(annotations|evaluations)\.([0-9]{1,6})\.(?:annotation|evaluation)\."
    r"(name|score|label|explanation|annotator_kind)"
)


def is_score(name: str) -> bool:
    """Tell whether an attribute is part of a score."""
    return _NAME.fullmatch(name) is not None


def scores_on(span: WireSpan, score_names: Iterable[str]) -> list[ScoreRecord]:
    """Return the scores written on a span; those of scope trace or session belong to the trace's first unit."""
    rows: dict[tuple[str | None, str, str], dict[str, Any]] = {}
    for name in score_names:
        match = _NAME.fullmatch(name)
        if match:
            rows.setdefault((match[1], match[2], match[3]), {})[match[4]] = span.attributes[name]
    return [_score(span, scope, row) for (scope, _, _), row in rows.items() if row.get("name")]


def _score(span: WireSpan, scope: str | None, row: dict[str, Any]) -> ScoreRecord:
    carrier = Carrier({})
    return ScoreRecord(
        trace_id=span.trace_id,
        span_id=span.span_id if scope is None else None,
        time_ns=span.end_ns or span.start_ns,
        name=str(row["name"]),
        score=number(row.get("score"), carrier),
        label=unquoted(row.get("label"), carrier),
        explanation=unquoted(row.get("explanation"), carrier),
        source="human" if row.get("annotator_kind") == "HUMAN" else "code",
    )
