"""A stand-in for the collector's operations: one made-up day of a help desk, the same on every run.

Only page tests use it; the whole way through the real collector is tests/test_pipeline.py.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from ragpulse_collector.refusals import Conflict, Invalid, NotFound

from .fake_answers import typed
from .fake_day import EVALUATORS, NOW, hexid, iso, poison
from .fake_replays import replay_result
from .fake_topics import FakeTopics


class FakeApi(FakeTopics):
    """`await FakeApi()("GET traces", {})`; `calls` keeps what pages asked for."""

    async def __call__(self, operation: str, params: Mapping[str, Any]) -> Any:
        """Answer one operation; unknown ones are 404 as in the collector."""
        self.calls.append((operation, dict(params)))
        method, _, path = operation.partition(" ")
        parts = path.split("/", 1 if path.startswith("sessions/") else -1)
        name = f"{method.lower()}_{parts[0]}" + ("" if len(parts) == 1 else "_one")
        answer: Callable[..., Any] | None = getattr(self, name, None)
        if answer is None:
            raise NotFound(f"No operation {operation}.")
        found = answer(params) if len(parts) == 1 else answer(parts[1], params, *parts[2:])
        return typed(operation, poison(found) if self.hostile else found)

    def get_evaluators(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A registry of eight, four of them in use; the check of words leads."""
        names = (*EVALUATORS, "faithfulness", "relevancy", "correctness", "exact_match")
        agreement = {
            **dict.fromkeys(("version", "judge", "judged", "corrected", "note")),
            **{f"{share}{end}": None for share in ("sensitivity", "specificity") for end in ("", "_lo", "_hi")},
            "kappa": 0.71, "lo": 0.58, "hi": 0.83, "n": 104, "drawn": 104,
        }  # fmt: skip
        stats = {"ok": 1204, "skipped": 80, "invalid": 2, "error": 1, "cost_usd": 0.31, "mean_latency_ms": 4.2}
        return {
            "lead": self.lead,
            "evaluators": [
                {
                    "name": name,
                    "version": hexid(name, 12),
                    "needs": ["response", "contexts"],
                    "source_digest": None,
                    "scale": {"lo": 0, "hi": 1, "threshold": 0.5, "reverse": False, "kind": "minmax"},
                    "cost_class": "1 call" if number > 3 else "free",
                    "source": "built-in",
                    "description": "Is every statement of the answer covered by what was retrieved?",
                    "online": [{"rule": "offline", "rate": 1.0}] if number < 4 else [],
                    "stats_24h": stats if number < 4 else None,
                    "calibration": agreement if number == 0 else None,
                }
                for number, name in enumerate(names)
            ],
        }

    def get_judge_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The judge of the day was checked yesterday, another one before."""

        def stored(judge: str, days: int, verdict: str) -> dict[str, Any]:
            share = {"value": 0.9, "se": None, "lo": 0.8, "hi": 0.95, "n": 60, "n_eff": 60.0}
            found = {
                "n": 120,
                "unread": 0,
                "sensitivity": share,
                "specificity": share,
                "kappa": 0.8,
                "verdict": verdict,
            }
            steady = {"n": 120, "rounds": 2, "flip_rate": 0.02, "flip_ci": (0.0, 0.05), "spread": 0.0, "alpha": 0.9}
            check = {
                "judge": judge, "server": {"structured": "json_schema", "several_samples": True, "omits": []},
                "questions": 400, "detection": found, "consistency": steady, "position": None,
                "usd_per_1000_answers": 0.2, "latency_s": 0.5, "latency_p95_s": 0.9, "waits": 0, "verdicts": [verdict],
            }  # fmt: skip
            return {"at": iso(NOW - timedelta(days=days)), "check": check}

        own, good = "openai/gpt-5-mini", "good: it tells right answers from wrong ones"
        checks = [stored("other", 0, "no better than guessing"), stored(own, 1, good), stored(own, 2, "strict")]
        return {"judge": own, "command": f"ragpulse judge check --judge {own}", "checks": checks, **self.judge}

    def get_rules(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """One rule of each source."""
        base: dict[str, Any] = {"where": None, "strata": [], "policy": "9f2c", "enabled": True}
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
            raise Invalid("`where` must be one SQL boolean: unexpected 'drop'.")
        return {
            "traces_per_day": 1290,
            "selected_per_day": 1290 * float(params["rate"]),
            "cost_usd_per_day": 0.27 * float(params["rate"]),
            "budget_usd_per_day": None,
            "half_width_per_day": {name: 0.031 for name in params["evaluators"]},
            "uncovered_share": 0.0 if float(params["rate"]) else 1.0,
            "proposal": None,
        }

    def _run(self, number: int, status: str) -> dict[str, Any]:
        return {
            "run_id": hexid(f"run{number}", 16),
            "evaluator": "faithfulness",
            "version": hexid("faith", 12),
            "judge": "openai/gpt-5-mini",
            "where": "prompt_version = 'v7'",
            "since": "7d",
            "limit": None,
            "pi": 0.378,
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
            "reason": "the cap of the replay is 2 USD, 0.0004 left, this needs 0.001" if status == "capped" else None,
            "current": True,
            "in_use": False,
            **self.runs,
        }

    def get_runs(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Two runs of one evaluator."""
        shown = {
            "purpose": "live",
            "population": {"of": "future"},
            "order": "arrival",
            "state": "done",
            "cost_usd": 0.0,
        }
        ids = () if self.empty else ("rule:offline", "20261121")
        return {"runs": [{**shown, "run_id": one, "evaluators": ["groundedness"], "result": None} for one in ids]}

    def get_replays(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """One run of each outcome."""
        return {
            "replays": []
            if self.empty
            else [self._run(number, status) for number, status in enumerate(("running", "done", "capped", "cancelled"))]
        }

    def get_replays_one(self, run_id: str, params: Mapping[str, Any], part: str = "") -> dict[str, Any]:
        """A run by its id, or its result; cancelled once somebody cancelled it."""
        if part == "result":
            return replay_result(self.rows)
        cancelled = any(operation == f"POST replays/{run_id}/cancel" for operation, _ in self.calls)
        for run in self.get_replays({})["replays"]:
            if run["run_id"] == run_id:
                return {**run, "status": "cancelled"} if cancelled else dict(run)
        raise NotFound("There is no such run.")

    def get_monitors(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """One firing, one fine."""
        history = [
            {
                "t": iso(NOW - timedelta(hours=4)),
                "state": "firing",
                "group": {"prompt_version": "v7"},
                "text": "groundedness fell 0.90 to 0.74 since Sat 04:00; prompt v7 started 03:52",
                "delivery": "webhook 200",
            }
        ]
        base = {
            "group_by": ["prompt_version"],
            "condition": "change",
            "since": iso(NOW - timedelta(hours=4)),
            "lo": 0.716,
            "hi": 0.767,
            "false_alarm_rate": "at most 4 a year",
            "window": "1h",
            "text": "",
            "where": None,
            "source": "api",
            "mute_until": None,
            "notify": ["on call"],
            "min_n": 0,
            "baseline": "7d",
            "false_alarms_per_year": 4,
            "other_groups": 0,
        }
        return {
            "destinations": [] if self.empty else ["on call", "team"],
            "expected": "" if self.empty else "2 monitors: about 0.67 false alarms a month expected together",
            "monitors": []
            if self.empty
            else [
                {
                    **base,
                    "name": "latency",
                    "source": "file",
                    "mute_until": iso(NOW + timedelta(hours=8)),
                    "metric": "latency_p95",
                    "condition": "> 3000",
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
                    "state": "ok" if self.young else "firing",
                    "value": 0.742,
                    "text": "quality:groundedness fell from its level of 0.865",
                    "history": history,
                },
            ],
        }

    def get_datasets(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """One dataset."""
        found = {"name": "bad ones", "items": 3, "created_at": iso(NOW), "changed_at": iso(NOW)}
        return {"datasets": [] if self.empty else [found]}

    def get_datasets_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Three questions, one of them a formula, one that failed."""
        if self.empty or name != "bad ones":
            raise NotFound(f"there is no dataset {name!r}")
        rows = [
            dict(row, response=None if number == 2 else row["response"]) for number, row in enumerate(self.rows[:3])
        ]
        kept = ("query", "response", "trace_id", "latency_ms", "cost_usd")
        items = [{**{key: row[key] for key in kept}, "at": row["start_time"], "retrieved": None} for row in rows]
        return {"name": name, "items": [{**items[0], "query": "=1+1"}, *items[1:]]}

    def post_datasets_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Filled."""
        return {"name": name, "added": 3, "new": 3, "more": False, "asked": 5}

    def delete_datasets_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Deleted."""
        return {"ok": True}

    def get_status(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A healthy collector with one drop."""
        return {
            "version": "0.1.0",
            "started_at": iso(NOW),
            "uptime_s": 93784,
            "db": {
                "path": "ragpulse.duckdb",
                "size_bytes": 182_000_000,
                "wal_bytes": 1_200_000,
                "damaged_logs": [],
                "problem": None,
            },
            "retention": {"days": 30, "gb": 10},
            "received": {"requests": 4102, "spans": 90422, "bytes": 180_000_000, "logs": 12},
            "rejected": {"spans": 0, "requests_by_code": {"415": 2}},
            "duplicates": 3,
            "unmapped": 0,
            "not_stored": {},
            "misdated": 0,
            "not_deduplicated": 0,
            "late": 7,
            "truncated": 1,
            "queue": {"bodies": 1, "bytes": 20_000, "oldest_s": 0.1, "refused": None},
            "disk": {"free_bytes": 50_000_000_000, "growth_bytes_per_day": None, "full_in_s": None},
            "undecided": {"traces": 0, "oldest_s": 0.0},
            "problems": [
                {
                    "name": "unknown_price",
                    "n": 9,
                    "per_s": None,
                    "clears_in_s": None,
                    "text": "9 calls have no price",
                    "fix": "add it to [prices]",
                },
            ],
            "unknown_price": {"calls": 9, "per_hour": 0.4, "models": {"in-house": 9}},
            "queries": {"bounds": [0.01, 0.1, 1.0, 10.0], "counts": [9, 3, 1, 0, 0], "seconds": 1.2},
            "prices": {},
            "other_groups": {},
            "newest_span": None if self.empty else iso(NOW),
            "evaluations": {
                "pending": 0 if self.empty else 4,
                "due": 0 if self.empty else 4,
                "oldest_s": 0.0 if self.empty else 7.4,
                "done_per_s": 0.0 if self.empty else 2.5,
                "new_per_s": 0.0,
                "clears_in_s": None if self.empty else 1.6,
                "done": 4816,
                "dropped": {"budget": 3},
                "by_status": {"ok": 4700, "skipped": 110, "invalid": 2, "error": 4},
                "keeps_up": {} if self.empty else {"grounded": 0.45},
            },
            "judge": {
                "model": "openai/gpt-5-mini",
                "spent_today_usd": 0.31,
                "budget_usd": 1.0,
                "spent_this_month_usd": 9.0,
                "budget_usd_per_month": 9.0,
                "rules": [],
                "errors": 0,
                "down_since": None,
                "reason": None,
            },
            "roles": ["ingest", "evaluate", "maintain"],
        }

    def get_settings(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A file, a variable, the API, and a webhook that is not shown; nothing is given in an empty collector."""

        def table(header: str, title: str, *values: tuple[str, str, str]) -> dict[str, Any]:
            rows = [dict(zip(("key", "value", "origin"), value, strict=True)) for value in values]
            return {"table": header, "title": title, "values": rows}

        given = (
            table("[[rule]]", "nightly", ("name", '"nightly"', "ragpulse.toml:9"), ("where", "", "")),
            table("[[rule]]", "judged", ("name", '"judged"', "API"), ("rate", "0.05", "API")),
            table("[[destination]]", "on call", ("webhook", "(not shown)", "ragpulse.toml:20")),
        )
        return {
            "file": None if self.empty else "/srv/ragpulse.toml",
            "tables": [
                table("", "", ("lead", "", "")),
                table("[collector]", "", ("port", "4318", ""), ("retention_days", "14.0", "RAGPULSE_RETENTION_DAYS")),
                table("[judge]", "", ("model", '"openai/gpt-5-mini"', "ragpulse.toml:4")),
                *(() if self.empty else given),
            ],
            "toml": "" if self.empty else '[[rule]]\nname = "nightly"\n\n[[destination]]\n# webhook is not shown\n',
            "versions": {"ragpulse": "0.2.0", "DuckDB": "2.0.0", "Python": "3.11.7"},
            "prices": {"table": "genai-prices 0.2.3", "installed": "2026-11-26", "updated": None, "source": None},
        }

    def post_demo(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A demo is loaded at once; `calls` shows what was asked."""
        return {"service": "demo", "traces": 60, "from": iso(NOW - timedelta(hours=5)), "to": iso(NOW)}

    def delete_demo(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A demo is removed at once."""
        return {"deleted": {"spans": 420}}

    def post_drift_one(self, action: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Frozen, or judged again."""
        report: dict[str, Any] = self.get_drift({})["watched"][0]
        return report

    def post_judge_one(self, action: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """A check begins."""
        return {"judge": "openai/gpt-5-mini", "questions": 440, "cost_usd": 0.1}

    def post_labels(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Accepted; `calls` shows what was asked."""
        return {"ok": True}

    post_scores = post_rules = post_labels

    def post_evaluate(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Groundedness is there already."""
        return {"ok": True, "queued": len(set(params["evaluators"]) - {"groundedness"})}

    def put_rules_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Rules of the file are read-only."""
        if name == "nightly":
            raise Conflict("`nightly` is defined in ragpulse.toml: change it there.")
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
                "cost_usd_low": 0.1102,
                "cost_usd_at_most": 1.2,
                "cost_unknown_reason": None,
                "evaluators": [],
            }
        return {"replays": [self._run(0, "running")]}

    def delete_replays_one(self, run_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Delete a run."""
        return {"ok": True}

    def post_replays_one(self, run_id: str, params: Mapping[str, Any], action: str) -> dict[str, Any]:
        """Cancel or resume."""
        return self.get_replays_one(run_id, params)

    def get_monitors_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """What a draft would have done; a bad metric is refused."""
        self.post_monitors(params)
        text = "groundedness = 0.74 (0.72 to 0.77) over the last hour: is < 0.8"
        firings = [{"t": iso(NOW - timedelta(hours=4)), "group": {}, "text": text}]
        return {"days": 7, "would_have_fired": 1, "firings": firings}

    def post_monitors(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Kept, unless the condition is none."""
        if params["condition"] in ("< ", "<"):
            raise Invalid("condition '<': write '< 0.85', '> 3000', 'change' or 'no data'")
        given = {name: params[name] for name in ("name", "metric", "condition")}
        return {
            **given, "notify": [], "min_n": 0, "group_by": [], "where": None, "window": "1h", "baseline": "7d",
            "false_alarms_per_year": 4,
        }  # fmt: skip

    def put_monitors_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Changed."""
        return self.post_monitors(params)

    def post_monitors_one(self, name: str, params: Mapping[str, Any], action: str) -> dict[str, Any]:
        """A test delivery, or a time without messages."""
        muted = {"name": name, "metric": "requests", "condition": "no data"}
        return {"ok": True, "delivery": "sent"} if action == "test" else self.post_monitors(muted)

    def delete_monitors_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Deleted."""
        return {"ok": True}
