"""`ragpulse serve`: a collector in the foreground, with everything a person should know printed at the start."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence

from ragpulse_collector.app.collector import Collector, More, no_more
from ragpulse_collector.app.logs import log_to_stderr
from ragpulse_collector.app.memory import collect_garbage_rarely, switch_threads_often
from ragpulse_collector.settings import Settings

GRPC_PORT = 4317
Say = Callable[[str], object]


def serve(settings: Settings, *, loads: Sequence[str] = (), more: More = no_more, say: Say) -> None:
    """Serve until SIGINT or SIGTERM; raises SettingsError, StoreError or OSError with the mend.

    `more` are further operations of the caller's.
    """
    collect_garbage_rarely()
    switch_threads_often()
    log_to_stderr(as_json=settings.collector.log_format == "json")
    os.umask(0o077)  # the file holds people's questions: nobody else on this computer reads it
    usual = None if importlib.util.find_spec("grpc") is None else GRPC_PORT
    collector = Collector(settings, loads=loads, more=more, usual_grpc_port=usual)
    collector.run(lambda: say("\n".join(_greeting(collector))))


def _greeting(collector: Collector) -> list[str]:
    settings = collector.settings
    told = settings.collector
    lines = [
        f"ragpulse collector at {collector.url}   (pages, API and OTLP/HTTP on one port)",
        *([f"  OTLP/gRPC on port {collector.grpc_port}"] if collector.grpc_port else []),
        "",
        "  in your application:",
        "    import ragpulse",
        f'    ragpulse.configure(service_name="my-service", endpoint="{collector.url}")',
        "    # then @ragpulse.rag, @ragpulse.retriever, @ragpulse.llm on your functions",
        f"  or, for any OpenTelemetry exporter: OTEL_EXPORTER_OTLP_ENDPOINT={collector.url}",
        "",
        f"  stored in {told.db}; kept {told.retention_days:g} days or {told.retention_gb:g} GB",
        f"  configuration: {_configuration(settings)}",
        f"  evaluators: {_rules_told(collector)}",
        f"  leaves this computer: {_leaving(settings)}",
    ]
    if told.api_keys:
        lines.append(f"  keys needed: {', '.join(key.name for key in told.api_keys)}")
    return lines


def _rules_told(collector: Collector) -> str:
    rules = collector.parts.rules.effective()
    return "; ".join(f"{', '.join(rule.evaluators)} at {rule.rate:g}" for rule in rules) or "none"


def _configuration(settings: Settings) -> str:
    path, code = settings.path(), settings.code()
    runs = f" (it runs Python code: {', '.join(code)})" if code else ""
    return f"{path}{runs}" if path else "defaults (no ragpulse.toml here)"


def _leaving(settings: Settings) -> str:
    judge = settings.judge
    if judge.model is None:
        return "nothing (no judge is configured)"
    if settings.judge.is_local:
        return f"nothing (the judge {judge.model} is on this computer)"
    place = settings.judge.address or "its provider"
    return (
        f"questions, contexts and answers of sampled traces go to {judge.model} at {place}, "
        f"at most {judge.budget_usd_per_day:g} USD a day"
    )
