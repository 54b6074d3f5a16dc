"""The figures over the made-up day: series, overview, comparison, documents, blame."""

import math
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ragpulse_collector.refusals import NotFound

from .fake_day import EVALUATORS, NOW, TOPICS, UNITS, hexid, iso, moment_of
from .fake_traces import FakeTraces

RATES = {"words": "as measured", "fail_rate": 0.1, "unclear_rate": None, "missing": 0, "missing_share": 0.0}
"""What a side of a comparison has beside its estimate."""


class FakeFigures(FakeTraces):
    """Quality falls after the prompt change; a gap at night; thin buckets."""

    def get_metrics(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A day with a drop after a prompt change, a gap at night and thin buckets."""
        if isinstance(params["name"], list):
            return {"metrics": [self.get_metrics({**params, "name": name}) for name in params["name"]]}
        start, end = moment_of(params.get("from"), NOW - timedelta(days=1)), moment_of(params.get("to"), NOW)
        step = max(60, int((end - start).total_seconds() / 96 // 60 * 60))
        name = str(params["name"])
        quality = name.split(":")[0] in ("quality", "pass_rate", "score")
        groups: list[dict[str, Any]] = [
            {field: value} for field in params.get("group_by") or [] for value in ("v6", "v7", None)
        ] or [{}]
        versions: list[str | None] = (
            ["a1b2c3d4e5f6", "0f9e8d7c6b5a"]
            if name in ("quality:groundedness", "quality:faithfulness") and not params.get("group_by")
            else [None]
        )
        judge = "openai/gpt-5-mini" if name == "quality:faithfulness" else None
        of_evaluator: dict[str, Any] = {"replayed_where": [], "online_since": None} if quality else {}
        of_evaluator |= {"labels": 104, "corrected": True} if quality and params.get("corrected") else {}
        series = []
        for number, group in enumerate(groups):
            for at, version in enumerate(versions):
                points = [] if self.empty else self._points(name, start, end, step, number)
                half = len(points) * 2 // 3
                part = points if len(versions) == 1 else points[:half] if at == 0 else points[half:]
                series.append({"group": group, "version": version, "judge": judge, "points": part, **of_evaluator})
        markers = (
            [{"t": iso(start + (end - start) * 2 / 3), "kind": "prompt_version", "text": "prompt qa v7", "label": "v7"}]
            if quality
            else []
        )
        return {
            "name": name,
            "unit": "ratio" if quality else "share" if name.startswith("coverage:") else UNITS.get(name, "count"),
            "step": step,
            "from": iso(start),
            "to": iso(end),
            "until": iso(end),
            "series": series,
            "markers": markers,
            "other_groups": 0,
            "left_out": None,
        }

    def _points(self, name: str, start: datetime, end: datetime, step: int, shift: int) -> list[dict[str, Any]]:
        draw = random.Random(len(name) * 31 + shift)
        quality = name.split(":")[0] in ("quality", "pass_rate", "score")
        total = int((end - start).total_seconds() // step)
        points = []
        for number in range(total):
            at = start + timedelta(seconds=step * number)
            if 0.25 < number / total < 0.33 or (self.young and at < NOW - timedelta(minutes=30)):
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
                        "thin": n < 10,
                        "counts": counts,
                        "dropped": 0,
                    }
                )
            else:
                scale = {
                    "latency_p50": 620,
                    "latency_p95": 1450,
                    "latency_p99": 2600,
                    "errors": 0.7,
                    "error_rate": 0.02,
                    **{f"coverage:{one}": 0.8 - 0.1 * at for at, one in enumerate(EVALUATORS)},
                    "cost_usd": 0.011,
                    "input_tokens": 21000,
                    "output_tokens": 2900,
                }.get(name, n)
                value = scale * (1 + 0.2 * math.sin(number / 9) + draw.uniform(-0.1, 0.1)) * (1 - 0.2 * shift)
                points.append(
                    {
                        "t": iso(start + timedelta(seconds=step * number)),
                        "value": value,
                        "lo": value / 2 if name == "error_rate" else None,
                        "hi": value * 2 if name == "error_rate" else None,
                        "n": n,
                        **({"counts": {}, "dropped": 0} if name.startswith("coverage:") else {}),
                    }
                )
        return points

    def get_overview(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The headline strip."""
        moment_of(params.get("from"), NOW)
        as_of = iso(self.as_of or datetime.now(UTC))
        if self.empty:
            nothing = dict.fromkeys((
                "newest_span", "lag_s", "error_rate", "error_interval", "latency_p95", "cost_usd", "cost_unknown_share",
                "cost_unknown_reason", "cost_per_good_answer",
            ))  # fmt: skip
            none = dict.fromkeys(("n_traces", "n_answers", "n_empty", "n_refused", "tokens", "dropped", "queued"), 0)
            no = {"demo": False, "estimated": False, "as_of": as_of}
            return {**nothing, **none, "quality": [], "coverage": [], "changes": [], **no}
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
                "always": None,
                "clear_share": 1.0,
                "wording": None,
                "passing_rate": 0.912 - 0.05 * number,
                "previous": {"value": 0.903, "lo": 0.89, "hi": 0.915} if number < 3 else None,
                "verdict": "undecided" if self.young else ("worse", "undecided", "better", None)[number],
                "difference": self._difference(number),
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
            "estimated": False,
            "lag_s": 2.1,
            "n_traces": 12904,
            "n_answers": 12904,
            "n_empty": 0,
            "n_refused": 0,
            "error_rate": 0.0131,
            "error_interval": [0.0113, 0.0152],
            "latency_p95": 1450.0,
            "quality": quality,
            "cost_usd": 4.2817,
            "cost_unknown_share": 0.021,
            "cost_unknown_reason": "no price for in-house",
            "tokens": 18_400_000,
            "dropped": 0,
            "queued": 3,
            "coverage": coverage,
            "demo": self.young,
            "cost_per_good_answer": {"value": 0.000412, "lo": 0.00039, "hi": 0.00044, "evaluators": ["groundedness"]},
            "as_of": as_of,
            "changes": [] if self.young else self._changes(),
            "lead": self.lead,
            "error_change": {"value": 0.001, "lo": -0.002, "hi": 0.004},
        }

    def _difference(self, number: int) -> dict[str, float] | None:
        """From the range before to this one; on a young day nothing moved."""
        move = 0.01 if self.young else (-0.042, 0.01, 0.05, None)[number]
        return None if move is None else {"value": move, "lo": move - 0.025, "hi": move + 0.025}

    def _changes(self) -> list[dict[str, Any]]:
        """Quality fell with a prompt, and what an answer costs rose a little."""

        def level(value: float) -> dict[str, float]:
            return {"value": value, "lo": value - 0.02, "hi": value + 0.02, "n": 412}

        at = iso(NOW - timedelta(hours=8))
        return [
            {"metric": "quality:groundedness", "unit": "share", "t": at, "before": level(0.93), "after": level(0.71),
             "sureness": 9.4, "worse": True, "cause": "prompt qa v7"},
            {"metric": "cost_usd", "unit": "USD", "t": at, "before": level(0.0096), "after": level(0.012),
             "sureness": 3.4, "worse": True, "cause": None},
        ]  # fmt: skip

    def get_targets(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """One target of each state."""
        base = {"min": None, "max": None, "where": None, "lo": None, "hi": None, "n": 1204, "refused": None}
        targets = [
            {**base, "metric": "quality:groundedness", "min": 0.9, "unit": "share", "value": 0.861, "lo": 0.842,
             "hi": 0.879, "state": "met" if self.young else "missed"},
            {**base, "metric": "latency_p95", "max": 2000, "unit": "ms", "value": 1450.0, "state": "met"},
            {**base, "metric": "quality:refusal", "min": 0.6, "where": "model = 'gpt-5-mini'", "unit": "share",
             "value": None, "n": 0, "state": "undecided"},
        ]  # fmt: skip
        return {"targets": [] if self.empty else targets}

    def get_drift(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """One watched judge, which moved."""

        def move(value: float) -> dict[str, float]:
            return {"value": value, "lo": value - 0.04, "hi": value + 0.04}

        check = {
            "at": iso(NOW), "run_id": "0a1b2c3d4e5f", "version": hexid("faith", 12),
            "judge": "openai/gpt-5-mini", "same_version_and_judge": True,
            "judge_move": {**move(-0.11), "n": 48, "changed": 9}, "failed": 2, "cost_usd": 0.01,
        }  # fmt: skip
        watched = {
            "evaluator": "faithfulness", "version": hexid("faith", 12), "judge": "openai/gpt-5-mini", "n": 50,
            "frozen_at": iso(NOW - timedelta(days=20)), "checks": [check],
            "dataset": "frozen faithfulness 2026-11-01T12:00:00Z", "running": None, "live": None, "application": None,
            "judge_share": None, "verdict": "judge moved", "state": "firing",
            "next_check": iso(NOW + timedelta(days=6)),
        }  # fmt: skip
        return {"watched": [] if self.empty else [watched], "every": "7d"}

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
                "explained_by": by,
            }
            for name, value, share, base, p, by in (
                ("document", "operations/backups.md", 0.5, 0.05, 1e-9, None),
                (
                    "contexts retrieved",
                    "4",
                    0.6,
                    0.2,
                    1e-6,
                    {"attribute": "document", "value": "operations/backups.md"},
                ),
                ("prompt_version", "v7", 0.96, 0.34, 1e-12, None),
                ("model", "claude-haiku-5", 0.41, 0.22, 0.3, None),
            )
        ]
        selected = not self.empty and bool(params.get("sel_from") or "sel_lo" in params or params.get("bad"))
        return {
            "metric": params["metric"],
            "n_selected": 83 if selected else 0,
            "n_baseline": 1207,
            "sampled": False,
            "dip": {"from": x[32], "to": x[47]} if selected else None,
            "bars": [
                {"t": t, "n": sum(column), "bad": sum(column) // (3 if number > 31 else 9)}
                for number, (t, column) in enumerate(zip(x, cells, strict=True))
            ],
            "heatmap": {"x": x, "y": [150.0 * number for number in range(16)], "cells": cells},
            "attributes": attributes if selected else [],
            "n_unclear": 12 if selected else 0,
            "n_refused": 1 if selected else 0,
            "change": self._since(params) if params.get("at") and not self.empty else None,
        }

    def _since(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """What moved since a moment: cost by tokens and another model, latency by a step, quality by two causes."""
        at, metric = moment_of(params["at"], NOW), str(params["metric"])

        def part(attribute: str, value: str, before: float, after: float, amount: float, **more: Any) -> dict[str, Any]:
            return {"attribute": attribute, "value": value, "before": before, "after": after, "amount": amount, **more}

        if metric == "cost_usd":
            before, after, parts = 4.0, 10.0, [
                part("requests", "", 400, 404, 0.1), part("known cost", "", 1.0, 0.9, -0.4),
                part("tokens per answer", "", 1000, 2600, 5.0), part("models", "", 2.0, 2.4, 1.2),
                part("prices", "", 2.0, 2.4, 0.1),
            ]  # fmt: skip
        elif "latency" in metric:
            before, after, parts = 900.0, 1900.0, [part("step", "search (retriever)", 100.0, 1000.0, 900.0)]
        else:
            also = [{"attribute": "model", "value": "claude-haiku-5"}]
            before, after, parts = 0.9, 0.82, [
                part("prompt_version", "v7", 0.0, 0.3, -0.06, lo=-0.08, hi=-0.04, also=also),
                part("document", "operations/backups.md", 0.02, 0.1, -0.01, lo=-0.015, hi=-0.005),
            ]  # fmt: skip
        move, half = after - before, abs(after - before) / 4

        def spent(share: float, output: float) -> dict[str, float]:
            return {
                "requests": 400,
                "known": 400,
                "tokens": 1000 * share,
                "output": 1000 * output * share,
                "usd": 4 * share,
            }

        models = [
            {"model": name, "before": spent(was, 0.2), "after": spent(now, 0.1)}
            for name, was, now in (("claude-sonnet-5", 0.15, 0.35), ("claude-haiku-5", 0.85, 0.65))
        ]
        return {
            "from": iso(at - (NOW - at)), "at": iso(at), "to": iso(NOW), "before": before, "after": after,
            "change": {"value": move, "lo": move - half, "hi": move + half}, "parts": parts,
            **({"models": models, "total_before": spent(1, 0.2), "total_after": spent(1, 0.1)}
               if metric == "cost_usd" else {}),
            **self.since,
        }  # fmt: skip

    def get_compare(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """v7 is worse than v6; variants do not differ enough."""
        if "none" in str(params["b"]):
            raise NotFound(f"{params['b']}: no scores of groundedness in this window")
        small = str(params["a"]).startswith("variant")
        evaluators = "@" in str(params["a"]) or str(params["a"]).startswith("judge:")
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
            "evaluator": "groundedness",
            "effect_size": -0.1 if small else -0.56,
            "a": {"name": params["a"], "value": 0.891, "lo": 0.874, "hi": 0.906, "n": 612, **RATES},
            "b": {"name": params["b"], "value": 0.742, "lo": 0.716, "hi": 0.767, "n": 598, **RATES},
            "difference": {"value": -0.012, "lo": -0.05, "hi": 0.026}
            if small
            else {"value": -0.149, "lo": -0.18, "hi": -0.119},
            "wording": None if small else "wording changed: it decides 30 % instead of 90 %",
            "paired": not small,
            "test": {"name": "sequential, by user", "p": 0.31 if small else 2e-9},
            "verdict": "not enough data" if small else "stricter" if evaluators else "worse",
            "need_more": 27 if small else None,
            "need_more_of": "users" if small else "answers",
            "shared": 32,
            "flips": [] if small else flips,
            "strata": [self._stratum(value, verdict) for value, verdict in (("a", "worse"), (None, "not enough data"))]
            if params.get("by")
            else [],
            "by": params.get("by"),
            "mix": None,
            "at_equal_mix": None,
            "also": [
                {
                    "metric": "latency",
                    "unit": "ms",
                    "p": 0.002,
                    "a": 612.0,
                    "b": 655.0,
                    "difference": {"value": 43.0, "lo": 12.0, "hi": 74.0},
                    "verdict": "worse",
                },
                {
                    "metric": "cost",
                    "unit": "USD",
                    "p": 0.001,
                    "a": 0.00061,
                    "b": 0.00048,
                    "difference": {"value": -0.00013, "lo": -0.0002, "hi": -0.00006},
                    "verdict": "better",
                },
            ],
        }

    def _stratum(self, value: str | None, verdict: str) -> dict[str, Any]:
        decided = verdict == "worse"
        side = {"value": 0.88, "lo": 0.86, "hi": 0.9, "n": 301, **RATES}
        return {
            "value": value, "a": side, "b": {**side, "value": 0.71 if decided else None}, "paired": True,
            "difference": {"value": -0.17, "lo": -0.21, "hi": -0.13} if decided else None,
            "test": {"name": "McNemar", "p": 1e-9, "p_adjusted": 2e-9} if decided else None,
            "verdict": verdict, "need_more": None if decided else 210,
        }  # fmt: skip

    def get_documents(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The five topics' documents."""
        documents = [
            {
                "id": path,
                "hash": hexid(path, 64),
                "text": text,
                "source": None,
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
                "updated_at": None,
                "damage": None,
                "rewritten": None,
            }
            for number, (_, text, path) in enumerate(TOPICS)
        ]
        listed = [] if self.empty else documents
        return {
            "evaluator": "groundedness", "documents": listed, "never_used": 12 if listed else 0, "total": len(listed)
        }  # fmt: skip

    def get_failures(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Contexts are missing more often than before."""
        shares = (("no_context", "had no context", 0.08, 0.02), ("unsupported", "are not supported", 0.05, 0.05))
        common = {"n": 1204, "n_eff": 1204.0, "users": 80, "users_are": "users", "thin": False, "reason": None}
        rows = [
            {"kind": kind, "words": words, "value": value, "lo": value - 0.01, "hi": value + 0.01, **common,
             "previous": {"value": before, "lo": before - 0.01, "hi": before + 0.01}, "group": {}}
            for kind, words, value, before in shares
        ]  # fmt: skip
        return {"lead": "groundedness", "failures": [] if self.empty else rows, "other_groups": 0}

    def get_blame(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Retrieval fails more after the change."""
        cells = [
            {
                "t": iso(NOW - timedelta(hours=24 - number)),
                "group": {},
                "n": 50,
                "good": 40 - (number > 15) * 9,
                "retrieval": 3 + (number > 15) * 8,
                "generation": 4,
                "refusal_right": 2,
                "refusal_wrong": 1,
                "unknown": 1,
            }
            for number in range(24)
        ]
        roles = {"faithful": "groundedness", "sufficient": None, "used": None, "answered": "refusal"}
        return {"evaluators": roles, "cells": [] if self.empty else cells, "other_groups": 0}

    def get_labels_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Suggestions with their probability."""
        return {"traces": [{**row, "label_pi": 0.21} for row in self.rows[:6]]}
