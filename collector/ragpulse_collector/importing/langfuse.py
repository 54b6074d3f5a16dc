"""Langfuse, from the files of its blob storage export: `observations_v2/*.jsonl` and `scores/*.jsonl` of a folder.

Written after Langfuse's documentation of these files; not tried against a server.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragpulse_collector.importing import Feedback, Page, annotate, attribute
from ragpulse_collector.instants import unix_ns

PAGE = 200
OBSERVATION = "langfuse.observation."
ATTRIBUTES = {
    "input": OBSERVATION + "input", "output": OBSERVATION + "output", "level": OBSERVATION + "level",
    "provided_model_name": OBSERVATION + "model.name", "usage_details": OBSERVATION + "usage_details",
    "cost_details": OBSERVATION + "cost_details", "session_id": "session.id", "user_id": "user.id",
    "prompt_name": OBSERVATION + "prompt.name", "prompt_version": OBSERVATION + "prompt.version",
}  # fmt: skip
FeedbackById = Mapping[tuple[str | None, str | None], list[Feedback]]


def pages(folder: Path, since: datetime) -> Iterator[Page]:
    """Yield the observations that began since then; raises ValueError that names the file and the line."""
    feedback = _feedback(folder)
    spans: list[Span] = []
    for location, row in _rows(folder, "observations_v2"):
        try:
            if _nanoseconds(row["start_time"]) >= unix_ns(since):
                spans.append(_span(row, feedback))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{location}: no observation of Langfuse: {error}") from error
        if len(spans) >= PAGE:
            yield Page("langfuse", spans)
            spans = []
    if spans:
        yield Page("langfuse", spans)


def _rows(folder: Path, table: str) -> Iterator[tuple[str, dict[str, Any]]]:
    files = sorted((folder / table).rglob("*.jsonl"))
    if not files and table == "observations_v2":
        raise ValueError(f"{folder}/{table} holds no .jsonl file: choose enriched observations and JSONL in the export")
    for file in files:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield f"{file}:{number}", json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{file}:{number}: not JSON: {error}") from error


def _feedback(folder: Path) -> FeedbackById:
    feedback = defaultdict(list)
    for location, row in _rows(folder, "scores"):
        if "name" not in row:
            raise ValueError(f"{location}: no score of Langfuse: it has no name")
        is_text = row.get("data_type") in ("CATEGORICAL", "TEXT")
        score = None if is_text or row.get("value") is None else float(row["value"])
        label = row.get("string_value") if is_text else None
        record = Feedback(row["name"], score, label, row.get("comment"), row.get("source") == "ANNOTATION")
        feedback[row.get("trace_id"), row.get("observation_id")].append(record)
    return feedback


def _span(row: Mapping[str, Any], feedback: FeedbackById) -> Span:
    parent = row.get("parent_observation_id")
    start = row["start_time"]
    span = Span(
        trace_id=_id(row["trace_id"], 16),
        span_id=_id(row["id"], 8),
        parent_span_id=_id(parent, 8) if parent else b"",
        name=row.get("name") or "observation",
        start_time_unix_nano=_nanoseconds(start),
        end_time_unix_nano=_nanoseconds(row.get("end_time") or start),
    )
    span.attributes.append(attribute(OBSERVATION + "type", str(row.get("type", "span")).lower()))
    for name, key in ATTRIBUTES.items():
        if (value := row.get(name)) not in (None, "", {}):
            span.attributes.append(attribute(key, value if isinstance(value, str) else json.dumps(value)))
    annotate(span, feedback.get((row["trace_id"], row["id"]), ()))
    if not parent:
        annotate(span, feedback.get((row["trace_id"], None), ()), of_trace=True)
    return span


def _id(text: str, size: int) -> bytes:
    """Return an id of OpenTelemetry; ids of older versions are UUIDs or words, which are hashed."""
    try:
        plain = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        plain = b""
    return plain if len(plain) == size else hashlib.sha256(text.encode()).digest()[:size]


def _nanoseconds(text: str) -> int:
    return unix_ns(datetime.fromisoformat(text))
