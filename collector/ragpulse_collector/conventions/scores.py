"""OpenInference's feedback on spans: `evaluations.N.evaluation.*`, `annotations.N.annotation.*` → score records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ragpulse_collector.conventions.rules import Alone
from ragpulse_collector.conventions.values import number, unquoted
from ragpulse_collector.records import ScoreRecord

_NAME = re.compile(
    r"(?:(trace|session)\.)?(annotations|evaluations)\.([0-9]{1,6})\.(?:annotation|evaluation)\."
    r"(name|score|label|explanation|annotator_kind)"
)


def is_score(name: str) -> bool:
    """Tell whether an attribute is part of a score."""
    return _NAME.fullmatch(name) is not None


def scores_on(trace_id: str, span_id: str, time_ns: int, said: Mapping[str, Any]) -> list[ScoreRecord]:
    """Return the scores written on a span; those of scope trace or session belong to the trace's first unit."""
    rows: dict[tuple[str | None, str, str], dict[str, Any]] = {}
    for name, value in said.items():
        match = _NAME.fullmatch(name)
        if match:
            rows.setdefault((match[1], match[2], match[3]), {})[match[4]] = value
    return [
        _score(trace_id, span_id, time_ns, row, of_span=scope is None)
        for (scope, _, _), row in rows.items()
        if row.get("name")
    ]


def _score(trace_id: str, span_id: str, time_ns: int, row: Mapping[str, Any], *, of_span: bool) -> ScoreRecord:
    span = Alone()
    return ScoreRecord(
        trace_id=trace_id,
        span_id=span_id if of_span else None,
        written_on=span_id,
        time_ns=time_ns,
        name=str(row["name"]),
        score=number(row.get("score"), span),
        label=unquoted(row.get("label"), span),
        explanation=unquoted(row.get("explanation"), span),
        source="human" if row.get("annotator_kind") == "HUMAN" else "code",
    )
