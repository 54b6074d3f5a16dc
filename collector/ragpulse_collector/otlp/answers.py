"""The answers OTLP asks for, in the encoding of the request: success, partial success, google.rpc.Status."""

from __future__ import annotations

from typing import Any, Literal

import orjson
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragpulse_collector.records import Receipt

Signal = Literal["traces", "logs", "metrics"]
ContentType = Literal["application/x-protobuf", "application/json"]
PROTOBUF: ContentType = "application/x-protobuf"
JSON: ContentType = "application/json"

_RESPONSES: dict[Signal, Any] = {
    "traces": ExportTraceServiceResponse,
    "logs": ExportLogsServiceResponse,
    "metrics": ExportMetricsServiceResponse,
}
_REJECTED: dict[Signal, tuple[str, str]] = {
    "traces": ("rejected_spans", "rejectedSpans"),
    "logs": ("rejected_log_records", "rejectedLogRecords"),
    "metrics": ("rejected_data_points", "rejectedDataPoints"),
}
_CODES = {400: 3, 405: 12, 408: 4, 413: 8, 415: 3, 503: 14}
"""HTTP code → google.rpc.Code."""


def success(signal: Signal, content_type: ContentType, receipt: Receipt) -> bytes:
    """Return an Export…ServiceResponse; partial success is set only where there is something to say."""
    partial = bool(receipt.rejected or receipt.message)
    if content_type == JSON:
        members = {_REJECTED[signal][1]: str(receipt.rejected), "errorMessage": receipt.message or ""}
        return orjson.dumps({"partialSuccess": members} if partial else {})
    response = _RESPONSES[signal]()
    if partial:
        setattr(response.partial_success, _REJECTED[signal][0], receipt.rejected)
        response.partial_success.error_message = receipt.message or ""
    return bytes(response.SerializeToString())


def failure(status: int, message: str, content_type: ContentType) -> bytes:
    """Return a google.rpc.Status for an HTTP code; 400 says in its details that the body is at fault."""
    code = _CODES.get(status, 2)
    if content_type == JSON:
        violation = {"field": "body", "description": message}
        bad_request = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}
        answer = {"code": code, "message": message}
        return orjson.dumps({**answer, "details": [bad_request]} if status == 400 else answer)
    details = []
    if status == 400:
        packed = AnyMessage()
        packed.Pack(BadRequest(field_violations=[BadRequest.FieldViolation(field="body", description=message)]))
        details.append(packed)
    return bytes(Status(code=code, message=message, details=details).SerializeToString())
