"""`ragpulse metrics`, `show`, `tail`, `doctor`: look from the terminal.

Each finding of the doctor states a fact, and the fix where something is wrong.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from ssl import SSLError
from typing import Any
from urllib.parse import urlsplit

import click

from ragpulse_collector.cli.asked import OperationCall, asks
from ragpulse_collector.cli.options import (
    FILE,
    Ask,
    Json,
    Source,
    asking,
    config_path,
    option,
    refusals,
    source,
    table_options,
)
from ragpulse_collector.cli.tables import ago, cell, print_json, safe, show
from ragpulse_collector.client import DEFAULT_URL, Client, ClientError
from ragpulse_collector.configuration import load_settings
from ragpulse_collector.settings import SettingsError
from ragpulse_collector.words import called
from ragpulse_evaluators.judges.protocol import is_loopback


@asks("GET metrics", "name...")
def metrics(asked: OperationCall, as_json: bool) -> None:
    """Show metrics over time: requests errors latency_p95 cost_usd quality:groundedness ..."""
    names = asked.params.get("name", ("requests", "latency_p95", "quality:groundedness"))
    answer = OperationCall(asked.ask, asked.address, {**asked.params, "name": names}).answer()
    answers = answer.get("metrics", [answer])
    if as_json:
        print_json(answers)
        return
    for answer in answers:
        for series in answer["series"]:
            labels = [*(f"{key}={value}" for key, value in series["group"].items()), series.get("version") or ""]
            title = " ".join(filter(None, [called(answer["name"]), *labels]))
            points = [point for point in series["points"] if point["value"] is not None or point.get("missing")]
            show("metrics", {title: points}, {title: {"time": "t", "value": "."}}, tz=asked.tz)


_TRACE = {
    "contexts": {"rank": "rank", "text": "text", "score": "score", "id": "id"},
    "spans": {"kind": "kind", "name": "name", "latency": "latency_ms", "status": "status", "error": "status_message",
              "model": "model", "cost": "cost_usd"},
    "scores": {"evaluator": "evaluator", "score": ".", "explanation": "explanation", "version": "version",
               "judge": "judge"},
}  # fmt: skip


@click.command("show")
@click.argument("trace_id")
@option("--html", type=FILE, help="Write a self-contained, redacted page to this file.")
@table_options
@asking
def show_(ask: Ask, trace_id: str, html: str | None, as_json: bool) -> None:
    """Show one trace: question, answer, errors, contexts, spans and scores."""
    if html:
        Path(html).write_text(ask(f"GET traces/{trace_id}/html", {})["text"], encoding="utf-8")
        click.echo(f"wrote {html}")
        return
    answer = ask(f"GET traces/{trace_id}", {})
    if as_json:
        print_json(answer)
        return
    trace, errors = answer["trace"], dict.fromkeys(span["status_message"] for span in answer["spans"])
    lines = [
        f"{cell(trace['start_time'])}  {trace['service'] or ''}  {trace['name']}  {cell(trace['latency_ms'])} ms\n",
        f"query     {trace['query'] or '-'}",
        *(f"error     {text}" for text in errors if text),
        f"response  {trace['response'] or '-'}\n",
    ]
    for line in lines:
        click.secho(safe(line), fg="red" if line.startswith("error ") else None)
    show("trace", answer, _TRACE)


@click.command()
@option("--count", type=int, help="Stop after this many traces.")
@option("--interval", "pause_s", type=click.FloatRange(min=0), default=1.0, help="Seconds between two requests.")
@asking
def tail(ask: Ask, count: int | None, pause_s: float) -> None:
    """Print new traces as they are stored."""
    cursor = ask("GET traces", {"limit": 1}).get("newest")
    seen = 0
    for turn in itertools.count():
        answer = ask("GET traces", {"limit": 50, "after": cursor})
        for trace in reversed(answer["traces"]):
            click.echo(
                "  ".join(
                    map(
                        cell,
                        (trace["start_time"], trace["trace_id"], f"{cell(trace['latency_ms'])} ms", trace["query"]),
                    )
                )
            )
            seen += 1
        cursor = answer.get("newest") or cursor
        if count is not None and seen >= count:
            return
        time.sleep(pause_s if turn else 0)


LOW_DISK_BYTES = 1024**3
SKEW_S = 60


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    ok: bool
    text: str
    fix: str | None = None


def diagnose(source: Source) -> list[Finding]:
    """Check configuration, environment, port, collector and data; a fault is a finding, never an exception."""
    address = source.url or DEFAULT_URL
    try:
        Client(address)
    except ClientError as error:
        return [_configuration(), Finding(False, str(error), f"--url {DEFAULT_URL}, or RAGPULSE_URL")]
    findings = [_configuration(), *_environment(address), _disk()]
    try:
        ask = source.asker()
        status = ask("GET status", {})
    except refusals() as failure:
        return [*findings, _port(address, failure)]
    return [
        *findings,
        Finding(True, f"{source.db} can be read" if source.db else f"collector {status['version']} answers"),
        *_data(status),
        _topics(ask("GET topics", {"from": "-1h", "limit": 1})),
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


def _disk() -> Finding:
    free = shutil.disk_usage(".").free
    fix = "free some space, or lower retention_gb" if free < LOW_DISK_BYTES else None
    return Finding(free >= LOW_DISK_BYTES, f"{free / 1024**3:.1f} GB free in this folder", fix)


def _port(address: str, failure: Exception) -> Finding:
    if isinstance(failure.__cause__, ClientError) and failure.__cause__.status in (401, 403):
        fix = "name a key with the scope read: --api-key or RAGPULSE_API_KEY"
        return Finding(False, f"the collector at {address} refuses to answer: {failure.__cause__}", fix)
    if isinstance(getattr(getattr(failure.__cause__, "__cause__", None), "reason", None), SSLError):
        return Finding(False, str(failure), "see TLS in docs/troubleshooting.md")
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "127.0.0.1", port), timeout=2):
            fix = "stop the other program (often an OpenTelemetry Collector) or use --port"
            return Finding(False, f"something answers at {address}, but not a ragpulse collector: {failure}", fix)
    except OSError:
        return Finding(False, str(failure), "ragpulse serve")


def _data(status: Mapping[str, Any]) -> Iterator[Finding]:
    if not status["judge"]["down_since"]:  # else it is one of the problems
        yield Finding(True, f"judge: {status['judge']['model'] or 'none configured'}")
    if gone := [name for name, readers in status["retired"].items() if not readers]:
        yield Finding(True, f"not evaluated any more: {', '.join(gone)}")
    for problem in status["problems"]:
        yield Finding(False, problem["text"], problem["fix"])
    if status["db"]["problem"]:
        yield Finding(False, status["db"]["problem"], "see Recovery in docs/recovery.md")
    for log in status["db"]["damaged_logs"]:
        yield Finding(False, f"a damaged log is kept as {log}", "see Recovery in docs/recovery.md, then remove it")
    newest = status["newest_span"]
    if newest is None:
        yield Finding(False, "no span has arrived yet", "call ragpulse.configure() and one decorated function")
    else:
        age = (datetime.now(UTC) - datetime.fromisoformat(str(newest)).replace(tzinfo=UTC)).total_seconds()
        skew = age < -SKEW_S
        fix = "set the clock of the sending machine" if skew else None
        yield Finding(not skew, f"newest span {ago(age)}" + (": it is in the future" if skew else ""), fix)
    for code, count in status["rejected"]["requests_by_code"].items():
        yield Finding(False, f"{count} requests were refused with {code}", "the log of the sender names the reason")
    errors = status["evaluations"]["by_status"].get("error", 0)
    if errors:
        yield Finding(False, f"{errors} evaluation attempts failed", 'ragpulse sql "select explanation from scores"')
    if status["truncated"]:
        fix = "raise the sender's attribute limit, or use ragpulse's retriever decorator"
        yield Finding(False, f"{status['truncated']} spans lost contexts to an attribute limit", fix)


def _topics(answer: Json) -> Finding:
    fit, problem = answer["fit"], answer["problem"]
    if fit is None:
        return Finding(True, f"no topics yet: {problem or 'the first fit is due, or runs'}")
    age = datetime.now(UTC) - datetime.fromisoformat(str(fit["fitted_at"])).replace(tzinfo=UTC)
    found = f"{fit['topics']} topics of {fit['questions']:,} questions, fitted {ago(age.total_seconds())}"
    return Finding(True, f"{found}; {problem}" if problem else found)


def _roundtrip(ask: Ask, db: str | None) -> Iterator[Finding]:
    if db:
        return
    started = time.perf_counter()
    ask("POST sql", {"query": "select count(*) from traces", "params": []})
    yield Finding(True, f"a query takes {(time.perf_counter() - started) * 1000:.0f} ms")


@click.command()
@source
def doctor(source: Source) -> int:
    """Report what is wrong, each with its fix. Exit 1 when something is."""
    findings = diagnose(source)
    for finding in findings:
        fix = f"\n     fix: {finding.fix}" if finding.fix else ""
        click.echo(f"{'ok ' if finding.ok else 'BAD'}  {finding.text}{fix}")
    return int(any(not finding.ok for finding in findings))
