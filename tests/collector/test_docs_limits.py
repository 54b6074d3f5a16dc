"""The limits in docs/limits.md are those of the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from ragpulse_collector import receiver_grpc
from ragpulse_collector.analysis import selection
from ragpulse_collector.api import copies, guard, http, operations
from ragpulse_collector.app import serve, server
from ragpulse_collector.otlp import bounds, intake, json_body, wire
from ragpulse_collector.settings import CollectorSettings
from ragpulse_collector.store.sql import limits as sql_limits
from ragpulse_collector.store.sql import process
from ragpulse_dashboards import answer
from ragpulse_dashboards.pages import sessions

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
TABLE = PAGE.split("# Limits")[1]
ROWS = [line.split(" | ")[:2] for line in TABLE.splitlines() if line.startswith("| ") and " | at most |" not in line]
MIB, RECEIVED, SETTINGS = 2**20, intake.Limits(), CollectorSettings()
LIMITS: dict[str, tuple[float, ...]] = {
    "a body, before": (SETTINGS.max_body_mb,),
    "a gRPC message on the wire": (receiver_grpc._MAX_MESSAGE_BYTES / MIB,),
    "all bodies in flight": (RECEIVED.max_in_flight_bytes / MIB, 503),
    "spans, log records": (bounds.MAX_ROWS,),
    "attributes and nested": (bounds.MAX_PARTS, 200),
    "different names": (bounds.MAX_COLUMNS,),
    "`{`, `[`": (bounds.MAX_ELEMENTS, 200),
    "control characters": (bounds.MAX_CONTROLS,),
    "escaped halves": (json_body._MAX_ESCAPES,),
    "members of a gzip": (intake._MAX_MEMBERS,),
    "nested values": (wire.MAX_DEPTH, bounds._MAX_DEPTH),
    "the time to send": (RECEIVED.body_timeout_s, guard.BODY_WITHIN_S, guard.BODY_SILENCE_S),
    "open connections": (server.RESERVED_FILES, server.RESERVED_CONNECTIONS, 503),
    "the head of a request": (server.MAX_HEAD_BYTES / 1024, server.HEAD_WITHIN_S, 431, 408),
    "a JSON body to the API": (operations.MAX_JSON_BYTES / MIB, 413),
    "an answer that nobody": (server.UNREAD_WITHIN_S, 2 * server.UNREAD_WITHIN_S),
    "gRPC streams of": (32,),
    "gRPC messages that": (RECEIVED.max_in_flight_bytes // receiver_grpc._MAX_MESSAGE_BYTES, receiver_grpc._PATIENCE_S),
    "groups of an answer": (selection.MAX_GROUPS, selection.MAX_GROUPED_POINTS),
    "groups of a monitor": (selection.MAX_GROUPS,),
    "services in `/metrics`": (selection.MAX_GROUPS,),
    "a JSON answer": (http.MAX_ANSWER_BYTES / MIB, 413),
    "rows of SQL": (SETTINGS.sql_max_rows, SETTINGS.sql_timeout_s, sql_limits.MAX_BYTES / MIB),
    "queries at a time": (process.MAX_PROCESSES, process._MAX_WAITING, 503),
    "snapshots and exports": (copies.MAX_COPIES, 503),
    "an answer shown as markdown": (answer.MAX_CHARS, sessions.MAX_CHARS),
    "a login": (SETTINGS.login_days, guard.MAX_SESSIONS),
    "stopping": (serve.STOP_WITHIN_S + 1,),
}
"""The beginning of each row and the numbers in it, in their order."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_has_the_numbers_of_the_code(row: list[str]) -> None:
    """No row is without constants, and no constant differs."""
    (numbers,) = [numbers for start, numbers in LIMITS.items() if row[0].removeprefix("| ").startswith(start)]
    assert [float(text.replace(",", "")) for text in re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", row[1])] == list(
        numbers
    )


def test_no_limit_is_missing() -> None:
    """Each constant has its row; the streams of a connection are an option of grpc."""
    assert len(ROWS) == len(LIMITS)
    assert '"grpc.max_concurrent_streams", 32' in inspect.getsource(receiver_grpc)
