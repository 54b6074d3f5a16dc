"""Every route of a collector, from its routers, so that tests include new routes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from starlette.routing import Mount, Route

from ragpulse_collector.api.guard import Keys
from ragpulse_collector.app.web import Pages, web
from ragpulse_collector.otlp.intake import Counters, Flight

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

TRACE = f"{1:032x}"
SPAN = f"{1:016x}"
RULE = {"name": "half", "evaluators": ["refusal"], "rate": 0.5, "strata": [{"where": "error", "rate": 1.0}]}
ASKED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("GET", "traces", {"limit": 2, "facets": True}),
    ("GET", "traces", {"sort": "worst", "evaluator": "groundedness"}),
    ("GET", "traces/{trace_id}", {"trace_id": TRACE}),
    ("GET", "traces/{trace_id}", {"trace_id": TRACE, "only": "trace", "at": "-1h"}),
    ("GET", "traces/{trace_id}", {"trace_id": TRACE, "only": "rest", "spans": "brief"}),
    ("GET", "traces/{trace_id}/html", {"trace_id": TRACE}),
    ("GET", "traces/{trace_id}/pytest", {"trace_id": TRACE}),
    ("GET", "sessions", {"sort": "worst", "limit": 1}),
    ("GET", "sessions/{id}", {"id": "session-1"}),
    ("GET", "settings", {}),
    ("GET", "topics", {"limit": 2}),
    ("GET", "gaps", {}),
    ("GET", "digest", {}),
    ("GET", "status", {}),
    ("POST", "sql", {"query": "select trace_id, n_spans from traces where n_spans = ?", "params": [3]}),
    ("GET", "metrics", {"name": "latency_p95", "step": "1h", "from": "-6h", "group_by": ["model", "service"]}),
    ("GET", "metrics", {"name": ["quality:groundedness", "requests"], "step": "auto"}),
    ("GET", "metrics", {"name": "coverage:groundedness", "step": 600}),
    ("GET", "overview", {}),
    ("GET", "overview", {"only": "traffic"}),
    ("GET", "coverage", {"from": "-1d"}),
    ("GET", "exemplars", {"metric": "quality:groundedness"}),
    ("GET", "explain", {"metric": "latency_p95", "sel_lo": 1000}),
    ("GET", "compare", {"a": "prompt:v7", "b": "prompt:v8", "by": "model"}),
    ("GET", "check", {"evaluator": "groundedness", "min": 0.1}),
    ("GET", "plan", {"evaluator": "groundedness", "half_width": 0.05}),
    ("GET", "documents", {"evaluator": "groundedness"}),
    ("GET", "blame", {"group_by": "model"}),
    ("GET", "failures", {"group_by": "model"}),
    ("POST", "labels", {"trace_id": TRACE, "evaluator": "groundedness", "passing": False, "comment": "no"}),
    ("POST", "scores", {"trace_id": TRACE, "span_id": SPAN, "name": "thumbs", "score": 1}),
    ("GET", "calibration", {"evaluator": "groundedness"}),
    ("GET", "labels/suggest", {"evaluator": "groundedness"}),
    ("GET", "evaluators", {}),
    ("POST", "rules", RULE),
    ("PUT", "rules/{name}", RULE | {"rate": 0.25}),
    ("GET", "rules", {}),
    ("GET", "rules/preview", {"name": "x", "evaluators": "refusal", "rate": 0.5}),
    ("DELETE", "rules/{name}", {"name": "half"}),
    ("POST", "evaluate", {"trace_id": TRACE, "span_id": SPAN, "evaluators": ["latency"]}),
    ("POST", "replays", {"evaluators": ["refusal"], "since": "7d", "dry_run": True}),
    ("POST", "replays", {"evaluators": ["refusal"], "since": "7d"}),
    ("GET", "replays", {}),
    ("GET", "replays/{id}", {"id": "RUN"}),
    ("GET", "runs", {}),
    ("GET", "runs/{id}", {"id": "RUN"}),
    ("GET", "replays/{id}/result", {"id": "RUN"}),
    ("POST", "replays/{id}/use", {"id": "RUN"}),
    ("POST", "replays/{id}/set_aside", {"id": "RUN"}),
    ("POST", "replays/{id}/cancel", {"id": "RUN"}),
    ("POST", "replays/{id}/resume", {"id": "RUN", "max_usd": 1}),
    ("POST", "replays/{id}/cancel", {"id": "RUN"}),
    ("DELETE", "replays/{id}", {"id": "RUN"}),
    ("GET", "drift", {}),
    ("GET", "judge/checks", {}),
    ("POST", "monitors", {"name": "silence", "metric": "requests", "condition": "no data"}),
    ("PUT", "monitors/{name}", {"name": "silence", "metric": "requests", "condition": "< 5"}),
    ("GET", "monitors/preview", {"metric": "requests", "condition": "< 5"}),
    ("POST", "monitors/{name}/mute", {"name": "silence", "for": "1h"}),
    ("GET", "monitors", {}),
    ("DELETE", "monitors/{name}", {"name": "silence"}),
    ("POST", "datasets/{id}", {"id": "kept", "items": [{"query": "Why?"}]}),
    ("GET", "datasets", {}),
    ("GET", "datasets/{id}", {"id": "kept"}),
    ("DELETE", "datasets/{id}", {"id": "kept"}),
    ("GET", "targets", {}),
    ("GET", "export/evaluations", {"from": "-1h"}),
    ("POST", "remap", {}),
    ("POST", "prune", {"older_than": "30d", "dry_run": True}),
)
"""Questions to which a small collector has an answer, in an order that gives each one something to answer from."""


def routes_of(collector: Collector) -> Iterator[tuple[str, str]]:
    """Every (method, path) of the routers, with placeholders filled."""
    app = web(
        collector.store,
        collector.settings,
        operations=collector.components.operations,
        keys=Keys(collector.settings.collector),
        flight=Flight(),
        counters=Counters(),
    )
    yield "GET", "/healthz"
    (mount,) = [route for route in app.routes if isinstance(route, Mount)]
    own = [route for route in app.routes if route is not mount]
    for route in (*own, *cast(Pages, mount.app).router.routes):
        assert isinstance(route, Route), route
        path = re.sub(r"\{[^}]+\}", "0" * 32, route.path)
        for method in sorted((route.methods or {"GET", "POST"}) - {"HEAD"}):
            yield method, path
