"""What `ragpulse doctor` checks: each finding states a fact, and the fix where something is wrong."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from ragpulse_collector.cli.options import Ask, Failure, Source, config_path
from ragpulse_collector.client import DEFAULT_URL, ClientError
from ragpulse_collector.configuration import load_settings
from ragpulse_collector.settings import SettingsError
from ragpulse_evaluators.judges.protocol import is_loopback

LOW_DISK_BYTES = 1024**3
SKEW_S = 60
OLD_UNDECIDED_S = 300
"""Far more than `settle_s` and `quiet_s` by default, after which every trace is decided."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    ok: bool
    text: str
    fix: str | None = None


def diagnose(source: Source) -> list[Finding]:
    """Check configuration, environment, port, collector and data; a fault is a finding, never an exception."""
    address = source.url or os.environ.get("RAGPULSE_URL") or DEFAULT_URL
    findings = [_configuration(), *_environment(address), _judge_library(), _disk()]
    try:
        ask = source.asker()
        status = ask("GET status", {})
    except Failure as failure:
        return [*findings, _port(address, failure)]
    return [
        *findings,
        Finding(True, f"{source.db} can be read" if source.db else f"collector {status['version']} answers"),
        *_data(status),
        *_roundtrip(ask, source.db),
    ]


def _configuration() -> Finding:
    path = config_path(None)
    try:
        load_settings(path).check()
    except SettingsError as error:
        return Finding(False, str(error), "correct the line, then start again")
    return Finding(True, f"configuration: {path or 'defaults (no ragpulse.toml here)'}")


def _environment(address: str) -> Iterator[Finding]:
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield Finding(False, "OTEL_SDK_DISABLED is true: nothing is recorded", "unset OTEL_SDK_DISABLED")
    endpoint = (
        os.environ.get("RAGPULSE_URL")
        or os.environ.get("RAGPULSE_ENDPOINT")
        or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    )
    if endpoint and urlsplit(endpoint).port != urlsplit(address).port:
        fix = f"set RAGPULSE_URL={address}"
        yield Finding(False, f"applications here send to {endpoint}, the collector is {address}", fix)
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if protocol == "grpc" and importlib.util.find_spec("grpc") is None:
        yield Finding(False, "exporters here use gRPC; this installation lacks it", "pip install 'ragpulse[grpc]'")
    if os.environ.get("HTTP_PROXY") and is_loopback(address) and "127.0.0.1" not in os.environ.get("NO_PROXY", ""):
        yield Finding(False, "HTTP_PROXY is set and NO_PROXY lacks 127.0.0.1", "export NO_PROXY=127.0.0.1,localhost")
    content = os.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "")
    if content.upper() == "NO_CONTENT":
        yield Finding(
            False,
            "content capture is off: evaluators have no text to read",
            "unset OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
        )


def _judge_library() -> Finding:
    settings = load_settings(None)
    with suppress(SettingsError):  # reported by _configuration
        settings = load_settings(config_path(None))
    if settings.judge.model and importlib.util.find_spec("litellm") is None:
        return Finding(False, f"the judge {settings.judge.model} needs litellm", "pip install 'ragpulse[judge]'")
    return Finding(True, f"judge: {settings.judge.model or 'none configured'}")


def _disk() -> Finding:
    free = shutil.disk_usage(".").free
    fix = "free some space, or lower retention_gb" if free < LOW_DISK_BYTES else None
    return Finding(free >= LOW_DISK_BYTES, f"{free / 1024**3:.1f} GB free in this folder", fix)


def _port(address: str, failure: Failure) -> Finding:
    if isinstance(failure.__cause__, ClientError) and failure.__cause__.status in (401, 403):
        fix = "name a key with the scope read: --api-key or RAGPULSE_API_KEY"
        return Finding(False, f"the collector at {address} refuses to answer: {failure.__cause__}", fix)
    parts = urlsplit(address)
    try:
        with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 80), timeout=2):
            fix = "stop the other program (often an OpenTelemetry Collector) or use --port"
            return Finding(False, f"something answers at {address}, but not a ragpulse collector: {failure}", fix)
    except OSError:
        return Finding(False, str(failure), "ragpulse serve")


def _data(status: Mapping[str, Any]) -> Iterator[Finding]:
    for problem in status["problems"]:
        yield Finding(False, problem["text"], problem["fix"])
    if status["db"]["problem"]:
        yield Finding(False, status["db"]["problem"], "see Recovery in docs/operations.md")
    for log in status["db"]["damaged_logs"]:
        yield Finding(False, f"a damaged log is kept as {log}", "see Recovery in docs/operations.md, then remove it")
    newest = status["newest_span"]
    if newest is None:
        yield Finding(False, "no span has arrived yet", "call ragpulse.configure() and one decorated function")
    else:
        age = (datetime.now(UTC) - datetime.fromisoformat(str(newest)).replace(tzinfo=UTC)).total_seconds()
        skew = age < -SKEW_S
        fix = "set the clock of the sending machine" if skew else None
        yield Finding(not skew, f"newest span {age:.0f} s ago" + (" (in the future)" if skew else ""), fix)
    for code, count in status["rejected"]["requests_by_code"].items():
        yield Finding(False, f"{count} requests were refused with {code}", "the log of the sender names the reason")
    yield _undecided(status["undecided"])
    errors = status["evaluations"]["by_status"].get("error", 0)
    if errors:
        yield Finding(False, f"{errors} evaluation attempts failed", 'ragpulse sql "select explanation from scores"')
    if status["truncated"]:
        fix = "raise the sender's attribute limit, or use ragpulse's retriever decorator"
        yield Finding(False, f"{status['truncated']} spans lost contexts to an attribute limit", fix)


def _undecided(undecided: Mapping[str, Any]) -> Finding:
    traces, oldest_s = undecided["traces"], undecided["oldest_s"]
    if oldest_s <= OLD_UNDECIDED_S:
        return Finding(True, f"{traces} traces are undecided")
    fix = "restart the collector with the role evaluate, and look at its log and its clock"
    return Finding(
        False, f"{traces} traces are undecided, the oldest for {oldest_s:.0f} s: nothing evaluates them", fix
    )


def _roundtrip(ask: Ask, db: str | None) -> Iterator[Finding]:
    if db:
        return
    started = time.perf_counter()
    ask("POST sql", {"query": "select count(*) from traces", "params": []})
    yield Finding(True, f"a query takes {(time.perf_counter() - started) * 1000:.0f} ms")
