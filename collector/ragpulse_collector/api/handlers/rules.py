"""Rules of online evaluation, and the evaluators that they run.

A rule is from the file (read-only), from the API and pages (in the store), or built in.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from ragpulse_collector.analysis.calibration import Agreement
from ragpulse_collector.api.drafts import Replay, RuleDraft
from ragpulse_collector.api.models import Named
from ragpulse_collector.api.params import Params
from ragpulse_collector.configuration import source_line
from ragpulse_collector.refusals import Conflict, Invalid, NotFound, Refusal
from ragpulse_collector.sampling import OFFLINE, Rule
from ragpulse_collector.settings import Settings, SettingsError
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.decisions import add_rule, stored_rules
from ragpulse_collector.store.queries.jobs import spent_usd
from ragpulse_collector.store.queries.scores import cost_and_spread, labelled_evaluators, results_of_day
from ragpulse_evaluators.statistics import planned_half_width

DEFAULT_JUDGED = Rule(name="faithfulness", evaluators=("faithfulness",), rate=0.05, source="built-in")
"""The second built-in rule where a judge is configured and no rule is."""
PREVIEW_DAYS = 7


class Rules:
    """The rules in force. A rule of the file cannot be changed here; every change is a new policy and audited."""

    def __init__(self, settings: Settings, store: Store, *, check_evaluator: Callable[[str], object]) -> None:
        """`check_evaluator(name)` raises Invalid or NotFound where an evaluator cannot run online here."""
        self._store, self._check_evaluator, self._lock = store, check_evaluator, Lock()
        self._stored, self._deleted = self._load()
        self.reload(settings)()

    def reload(self, settings: Settings) -> Callable[[], None]:
        """Check the rules of the file; returns the function that puts them in force. Raises SettingsError."""
        file = settings.source or "ragpulse.toml"
        fixed = tuple(self._of_file(settings, number) for number in range(len(settings.rule)))
        for name in sorted({rule.name for rule in fixed} & {rule.name for rule in self._stored}):
            raise SettingsError(f"rule {name!r} is in {file} and in the store: rename one, or delete the stored one")
        judged = (DEFAULT_JUDGED,) if settings.judge.model else ()

        def apply() -> None:
            self._file, self._fixed = file, fixed
            self._built_in = () if fixed else (OFFLINE, *judged)

        return apply

    def _of_file(self, settings: Settings, number: int) -> Rule:
        entry, key = settings.rule[number], "where"
        try:
            rule = Rule.from_json(entry.model_dump(), source="file")
            key = "evaluators"
            self._check_evaluators(rule)
        except Refusal as error:
            line = source_line(settings, "rule", number, key) or settings.source or "ragpulse.toml"
            raise SettingsError(f"{line}: rule {entry.name!r}: {error.args[0]}") from error
        return rule

    def _check_evaluators(self, rule: Rule) -> None:
        for name in (*rule.evaluators, *rule.scores):
            self._check_evaluator(name)

    def effective(self) -> Sequence[Rule]:
        """Return the rules in force now; the sampler reads them before every decision."""
        stored = {rule.name for rule in self._stored}
        built_in = (rule for rule in self._built_in if rule.name not in self._deleted | stored)
        return (*built_in, *self._fixed, *self._stored)

    def budgets(self) -> dict[str, float]:
        """Return the daily budgets of the rules that have one, by name."""
        return {rule.name: rule.budget_usd_per_day for rule in self.effective() if rule.budget_usd_per_day is not None}

    def list(self, params: Params) -> dict[str, Any]:
        """Answer `GET rules`."""
        del params
        today = utc_now().date()
        return {
            "rules": [
                _answer(rule) | {"spent_today_usd": spent_usd(self._store.read, day=today, rule=rule.name)}
                for rule in self.effective()
            ]
        }

    def create(self, params: RuleDraft) -> dict[str, Any]:
        """Answer `POST rules`; raises Invalid naming the mistake, Conflict where the name is taken."""
        rule = self._read(params)
        if any(rule.name == other.name for other in self.effective()):
            self._refuse_fixed(rule.name)
            raise Conflict(f"rule {rule.name!r} exists; change it with PUT rules/{rule.name}")
        return self._store_rule(rule, "create", params)

    def replace(self, params: RuleDraft) -> dict[str, Any]:
        """Answer `PUT rules/{name}`; a built-in rule is replaced by a stored one of its name."""
        self._refuse_fixed(params.name)
        return self._store_rule(self._read(params), "change", params)

    def delete(self, params: Named) -> dict[str, Any]:
        """Answer `DELETE rules/{name}`; raises NotFound where there is none."""
        name = params.name
        self._refuse_fixed(name)
        rule = next((rule for rule in self.effective() if rule.name == name), None)
        if rule is None:
            raise NotFound(f"there is no rule {name!r}")
        self._write(rule, "delete", params.caller.actor)
        return {"ok": True}

    def preview(self, params: RuleDraft) -> dict[str, Any]:
        """Answer `GET rules/preview`: the selection of a rule among the last week's traces, and its cost."""
        rule = self._read(params)
        rows = (
            self._store.limited()
            .read(
                f"SELECT count(*) / {PREVIEW_DAYS}.0, coalesce(sum(pi), 0) / {PREVIEW_DAYS}.0, avg((pi = 0)::INTEGER)"
                f" FROM (SELECT {rule.pi_sql()} AS pi FROM traces t"
                f" WHERE start_time > now()::TIMESTAMP - INTERVAL {PREVIEW_DAYS} DAY{_LAST_TURN[rule.unit]})"
            )
            .rows
        )
        traces, selected, uncovered = rows[0]
        figures = cost_and_spread(self._store, PREVIEW_DAYS)
        costs, deviations = zip(*(figures.get(name, (None, None)) for name in rule.evaluators), strict=True)
        return {
            "traces_per_day": traces,
            "selected_per_day": selected,
            "cost_usd_per_day": None if None in costs else selected * sum(filter(None, costs)),
            "budget_usd_per_day": rule.budget_usd_per_day,
            "half_width_per_day": {
                name: None if deviation is None else planned_half_width(float(deviation), float(selected))
                for name, deviation in zip(rule.evaluators, deviations, strict=True)
            },
            "uncovered_share": uncovered,
        }

    def _read(self, params: RuleDraft) -> Rule:
        rule = Rule.from_json(params.values())
        self._check_evaluators(rule)
        return rule

    def _refuse_fixed(self, name: str) -> None:
        if any(rule.name == name for rule in self._fixed):
            raise Conflict(f"rule {name!r} is written in {self._file}: change it there, then restart or send SIGHUP")

    def _store_rule(self, rule: Rule, action: str, params: RuleDraft) -> dict[str, Any]:
        self._write(rule, action, params.caller.actor)
        return _answer(rule)

    def _write(self, rule: Rule, action: str, actor: str) -> None:
        text = json.dumps(rule.as_json(), ensure_ascii=False)
        with self._lock:
            self._store.write(
                lambda tx: add_rule(tx, rule.name, rule.policy, text, action=action, actor=actor)
            ).result()
            self._stored, self._deleted = self._load()

    def _load(self) -> tuple[tuple[Rule, ...], frozenset[str]]:
        rows = stored_rules(self._store.read)
        stored = tuple(Rule.from_json(json.loads(text), source="api") for _, text, deleted in rows if not deleted)
        return stored, frozenset(name for name, _, deleted in rows if deleted)


_LAST_TURN = {
    "trace": "",
    "session": " AND session_id IS NOT NULL"
    " QUALIFY row_number() OVER (PARTITION BY session_id ORDER BY start_time DESC, trace_id DESC) = 1",
}
"""The condition on the traces of a rule, by its unit."""


def _answer(rule: Rule) -> dict[str, Any]:
    state = {"policy": rule.policy, "source": rule.source, "enabled": True}
    return rule.as_json() | {"budget_usd_per_day": rule.budget_usd_per_day} | state


def evaluators(
    store: Store,
    params: Params,
    *,
    describe: Callable[[], list[dict[str, Any]]],
    rules: Callable[[], Sequence[Rule]],
    calibration: Callable[[str], Agreement | None],
) -> dict[str, Any]:
    """Answer `GET evaluators`."""
    del params
    online: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for rule in rules():
        for name in rule.evaluators:
            online[name].append({"rule": rule.name, "rate": rule.rate})
    stats = _stats(store)
    labelled = labelled_evaluators(store)
    return {
        "evaluators": [
            entry
            | {
                "online": online.get(entry["name"], []),
                "stats_24h": stats.get(entry["name"]),
                "calibration": calibration(entry["name"]) if entry["name"] in labelled else None,
            }
            for entry in describe()
        ]
    }


def _stats(store: Store) -> dict[str, dict[str, Any]]:
    by_name: dict[str, dict[str, Any]] = {}
    for name, status, count, cost, elapsed in results_of_day(store):
        stats = by_name.setdefault(
            name, {"ok": 0, "skipped": 0, "invalid": 0, "error": 0, "cost_usd": 0.0, "mean_latency_ms": None}
        )
        stats[status] = count
        stats["cost_usd"] += cost or 0.0
        if status == "ok":
            stats["mean_latency_ms"] = elapsed
    return by_name


FILES = ("loads", "prompts")
_ADDRESS = re.compile(r"://|\bhttps?:", re.IGNORECASE)


def names_only(params: Replay) -> None:
    """Refuse a replay with files or the address of a judge; raises Invalid with the fix.

    A caller with the right to start a replay must not make the collector read a file, run code or call a host of their
    choice. Evaluators are registered from Python; addresses of judges come from the configuration.
    """
    for name in FILES:
        if getattr(params, name):
            raise Invalid(
                f"{name}: no files over HTTP; `ragpulse replay --load FILE --url ...` runs them in its own"
                " process and sends the results, `ragpulse serve --load FILE` (or [evaluators] files in ragpulse.toml)"
                " makes the collector know them"
            )
    if _ADDRESS.search(params.judge or ""):
        raise Invalid(
            "judge: name a model that litellm knows; an address belongs in ragpulse.toml: [judge] model or api_base"
        )
