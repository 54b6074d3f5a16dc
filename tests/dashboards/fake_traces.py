"""The traces of the made-up day."""

import math
import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.refusals import NotFound

from .fake_day import EVALUATORS, NOW, TOPICS, hexid, iso, moment_of

BRIEF = (
    "span_id", "parent_span_id", "start_time", "latency_ms", "name", "kind", "status", "error_type", "input_tokens",
    "output_tokens", "cost_usd", "ttft_ms", "status_message", "contexts_state",
)  # fmt: skip
UNSEEN_OF_TRACE = dict.fromkeys((
    "upstream_pi", "feedback", "retriever", "release", "finish_reason", "agent", "data_source", "top_k",
    "response_missing_reason", "control_flow", "feedbacks", "feedbacks_off_scale", "tags", "metadata", "answer",
    "topic", "question_distance", "index_version",
))  # fmt: skip
"""What the traces of the day have no values for, as the collector answers it."""
UNSEEN_OF_SPAN = dict.fromkeys((
    "contexts_state", "cached_tokens", "reasoning_tokens", "session_id", "user_id", "prompt_name", "prompt_version",
    "environment", "service_version", "variant", "cost_source", "cost_unknown_reason", "cache_write_tokens",
    "response_id", "tags", "metadata", "resource", "links", "upstream_pi", "finish_reason", "agent", "data_source",
    "top_k", "response_missing_reason", "control_flow", "index_version",
))  # fmt: skip
UNSEEN_OF_SCORE = dict.fromkeys((
    "u", "sampled", "label_version", "elapsed_ms", "attempt", "score_key", "scope", "identifier", "session_id",
)) | {"exploratory": False}  # fmt: skip


EXCEPTION = {
    "exception.type": "openai.RateLimitError",
    "exception.message": "too many requests: try again in 20 s",
    "exception.stacktrace": 'Traceback (most recent call last):\n  File "app.py", line 3, in generate',
}


class FakeTraces:
    """Sixty traces, a prompt change two fifths of the way back."""

    def __init__(self, *, empty: bool = False, hostile: bool = False, n_traces: int = 60, n_spans: int = 7) -> None:
        self.empty = empty
        self.hostile = hostile
        self.n_spans = n_spans
        self.young = False
        self.lead = "groundedness"
        self.as_of: datetime | None = None
        """Whether all there is came in the last half hour."""
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.runs: dict[str, Any] = {}
        """What differs in replays."""
        self.judge: dict[str, Any] = {}
        """What differs in the checks of judges."""
        self.since: dict[str, Any] = {}
        """What differs in the explanation of a moment."""
        self.rows = [] if empty else [self._row(number) for number in range(n_traces)]

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
                "label": None,
                "score": None,
            }
            for name in EVALUATORS[:3]
        }
        if number % 11 == 3:
            skipped = {"normalized": None, "status": "skipped", "passing": None, "label": None, "score": None}
            scores["citation_check"] = skipped
        return {
            **UNSEEN_OF_TRACE,
            "late_spans": 0,
            "misdated_spans": 0,
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
        alive = self.rows[:2] if self.young else self.rows
        rows = [row for row in alive if start <= datetime.fromisoformat(row["start_time"]) <= end]
        for name in ("service", "model", "prompt_version", "variant", "environment", "user_id", "session_id"):
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
        offset, limit = int(params.get("cursor") or 0), int(params.get("limit") or 50)
        page = rows[offset : offset + limit]
        answer: dict[str, Any] = {
            "traces": page,
            "next": str(offset + limit) if len(rows) > offset + limit else None,
            "newest": "0",
            "judged_by": params.get("evaluator") or ("groundedness" if params.get("failing") else None),
            "lead": params.get("evaluator") or self.lead,
            "total": len(rows) if params.get("total") else None,
            "facets": None,
        }
        if params.get("facets"):
            answer["facets"] = {
                name: self._facet(rows, name)
                for name in ("service", "model", "prompt_version", "variant", "environment")
            }
        return answer

    def get_sessions(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Every session, the newest first; of one user where asked."""
        rows = [row for row in self.rows if params.get("user_id") in (None, row["user_id"])]
        names = list(dict.fromkeys(row["session_id"] for row in rows))
        return {"sessions": [self._session(name) for name in names], "next": None, "judged_by": "groundedness"}

    def get_sessions_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """A session with its turns, the first one first."""
        turns = [row for row in reversed(self.rows) if name.endswith(row["session_id"])]
        if not turns:
            raise NotFound(f"no session {name!r}")
        figures = self._session(name)
        for of_list in ("failing", "worst_score", "query"):
            del figures[of_list]
        return {"session": figures, "turns": turns, "scores": []}

    def _session(self, name: str) -> dict[str, Any]:
        turns = [row for row in self.rows if name.endswith(row["session_id"])]
        return {
            "session_id": name,
            "start_time": turns[-1]["start_time"],
            "end_time": turns[0]["start_time"],
            "n_turns": len(turns),
            "estimated": False,
            "user_id": turns[-1]["user_id"],
            "service": "helpdesk",
            "cost_usd": 0.004,
            "input_tokens": 9000,
            "output_tokens": 900,
            "error": any(row["error"] for row in turns),
            "failing": True,
            "worst_score": 0.31,
            "query": turns[-1]["query"],
        }

    def _facet(self, rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
        values = sorted({row[name] for row in rows})
        return [{"value": value, "n": sum(row[name] == value for row in rows)} for value in values]

    def get_traces_one(self, trace_id: str, params: Mapping[str, Any], *rest: str) -> dict[str, Any]:
        """One trace with everything on its page, or its pytest case."""
        index = next((number for number, row in enumerate(self.rows) if row["trace_id"] == trace_id), None)
        if index is None:
            raise NotFound("No trace has this id; it may have been pruned after 30 days.")
        row = self.rows[index]
        if rest == ("html",):
            return {"filename": f"trace-{trace_id[:12]}.html", "text": "<!doctype html><title>Trace</title>"}
        if rest == ("pytest",):
            return {"filename": f"test_{trace_id[:8]}.py", "text": "def test_trace() -> None:\n    assert True\n"}
        near = [{"trace_id": one["trace_id"], "start_time": one["start_time"]} for one in self.rows]
        told = {
            "trace": {name: value for name, value in row.items() if name != "scores"},
            "previous": near[index + 1] if index + 1 < len(near) else None,
            "next": near[index - 1] if index else None,
        }
        rest = {
            "spans": self._told(row, params.get("spans")),
            "contexts": self._contexts(row, index),
            "scores": self._scores(row, index),
            "unread": [],
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
                    "request_time": row["start_time"],
                    "u": 0.5,
                    "revision": 0,
                    "latest": True,
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
        }
        return {"trace": told, "rest": rest}.get(params.get("only", ""), {**told, **rest})

    def _told(self, row: Mapping[str, Any], which: str | None) -> list[dict[str, Any]]:
        """All spans whole, of all only what a waterfall shows, or one."""
        spans = self._spans(row)
        if which == "brief":
            texts = {"arguments": None, "result": None}
            return [{name: span[name] for name in BRIEF} | texts for span in spans]
        return [span for span in spans if which in (None, span["span_id"])]

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
                **UNSEEN_OF_SPAN,
                "received_at": row["start_time"],
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
                "ttft_ms": row["ttft_ms"] if kind == "llm" else None,
                "status_message": "429 from the provider" if row["error"] and kind == "llm" else None,
                "attributes": {"ragpulse.span.kind": kind, "gen_ai.request.model": row["model"], "tags": ["a", "b"]},
                "mapped_from": "ragpulse",
                "events": [{"name": "cache miss", "time": row["start_time"], "attributes": {"key": "q"}}]
                if number == 1
                else [{"name": "exception", "time": row["start_time"], "attributes": EXCEPTION}]
                if row["error"] and kind == "llm"
                else [],
            }
            for number, (name, kind, parent, offset, share) in enumerate(shape)
        ]

    def _contexts(self, row: Mapping[str, Any], index: int) -> list[dict[str, Any]]:
        """Three after the reranker, and the six that it was given."""
        order = [number % len(TOPICS) for number in range(index, index + 6)]
        return [
            {
                "trace_id": row["trace_id"],
                "span_id": hexid(f"{row['trace_id']}{1 if superseded else 3}", 16),
                "rank": rank,
                "id": TOPICS[topic][2],
                "score": round(0.86 - 0.07 * rank, 3),
                "text": TOPICS[topic][1].rpartition(". ")[0] + ". See the handbook for details.",
                "metadata": {"lang": "en"},
                "hash": hexid(TOPICS[topic][2], 64),
                "start_time": row["start_time"],
                "source": None,
                "superseded": superseded,
            }
            for superseded, topics in ((False, order[:3]), (True, order))
            for rank, topic in enumerate(topics, 1)
        ]

    def _scores(self, row: Mapping[str, Any], index: int) -> list[dict[str, Any]]:
        if row["error"]:
            return []
        base = {
            **UNSEEN_OF_SCORE,
            "exploratory": False,
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
                    "rank": 1 if supported else None,
                    "evidence_start": start if supported else None,
                    "evidence_end": position if supported else None,
                    "reasons": [] if supported else ["no context mentions this"],
                }
            )
        return found
