"""Verdicts as `gen_ai.evaluation.result` events, for whoever reads OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.selection import instant
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import EVENTS
from ragpulse_collector.store.rows import utc_now

_MOST = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ATTRIBUTES = {
    "gen_ai.evaluation.name": "evaluator",
    "gen_ai.evaluation.score.value": "score",
    "gen_ai.evaluation.score.label": "label",
    "gen_ai.evaluation.explanation": "explanation",
    "ragpulse.evaluation.status": "status",
    "ragpulse.evaluation.version": "version",
    "ragpulse.evaluation.judge": "judge",
    "ragpulse.evaluation.normalized": "normalized",
    "ragpulse.evaluation.passing": "passing",
    "ragpulse.evaluation.run_id": "run_id",
}


def evaluation_events(
    store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now
) -> dict[str, Any]:
    """Answer `GET export/evaluations`: an OTLP/JSON body of log records, to be sent to any `/v1/logs` as it is.

    `from` (default an hour ago) and `to` are times of evaluation, not of the request; at most `limit` (10,000), the
    oldest first: the next question begins at the last `timeUnixNano` (what has this very instant comes again). Each
    record is in the context of the evaluated span; what was skipped is no event. Raises ValueError for a malformed
    parameter.
    """
    now = clock()
    limits = {
        "first": instant(params.get("from"), now=now) or now - timedelta(hours=1),
        "last": instant(params.get("to"), now=now) or now,
        "most": min(_MOST, max(1, int(params.get("limit") or _MOST))),
        "evaluator": params.get("evaluator") or None,
    }
    records = [_record(row) for row in store.read(f"{EVENTS} ORDER BY created_at LIMIT $most", limits).dicts()]
    scope = {"scope": {"name": "ragpulse"}, "logRecords": records}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "ragpulse"}}]}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]}


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    at = (row["created_at"].replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) * 1000
    attributes = {name: row[column] for name, column in _ATTRIBUTES.items() if row[column] is not None}
    if row["status"] != "ok":
        attributes["error.type"] = row["status"]
    return {
        "timeUnixNano": str(at),
        "eventName": "gen_ai.evaluation.result",
        "traceId": row["trace_id"],
        "spanId": row["span_id"],
        "attributes": [{"key": name, "value": _value(value)} for name, value in attributes.items()],
    }


def _value(value: Any) -> dict[str, Any]:
    kind = "boolValue" if isinstance(value, bool) else "doubleValue" if isinstance(value, float) else "stringValue"
    return {kind: value}
