"""Rules of online evaluation over HTTP, and the evaluators that they run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ragpulse_collector.analysis.answers import Done, extended
from ragpulse_collector.analysis.calibration import Agreement, calibration
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.api.drafts import RuleDraft
from ragpulse_collector.api.models import Last90Days
from ragpulse_collector.api.operations import operation
from ragpulse_collector.api.params import Caller
from ragpulse_collector.catalog import Catalog, Description
from ragpulse_collector.sampling import Rule, Rules
from ragpulse_collector.settings import RuleSettings
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.health import results_of_day
from ragpulse_collector.store.queries.jobs import spent_usd
from ragpulse_collector.store.queries.scores import cost_and_spread, labelled_evaluators
from ragpulse_collector.store.units.row import REQUEST
from ragpulse_evaluators.statistics import planned_half_width

PREVIEW_DAYS = 7


class RuleInForce(RuleSettings):
    """A rule in force."""

    policy: str
    source: str
    enabled: bool = True
    spent_today_usd: float | None = None

    @classmethod
    def of(cls, rule: Rule, spent_today_usd: float | None = None) -> RuleInForce:
        """Return the answer about a rule."""
        keys = {name: getattr(rule, name) for name in RuleSettings.model_fields}
        return cls(**keys, policy=rule.policy, source=rule.source, spent_today_usd=spent_today_usd)


@dataclass(frozen=True, slots=True)
class RuleList:
    """The rules in force."""

    rules: Sequence[RuleInForce]


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePreview:
    """The selection of a rule among the last week's traces, and its cost."""

    traces_per_day: float
    selected_per_day: float
    cost_usd_per_day: float | None
    budget_usd_per_day: float | None
    half_width_per_day: Mapping[str, float | None]
    uncovered_share: float | None
    proposal: None = None
    """Always null."""


@operation("GET rules")
def rule_list(store: Store, rules: Rules, /) -> RuleList:
    """The rules in force."""
    spent = partial(spent_usd, store.read, day=utc_now().date())
    return RuleList([RuleInForce.of(rule, spent(rule=rule.name)) for rule in rules.effective()])


@operation("POST rules", scope="admin")
def add_rule(rules: Rules, /, draft: RuleDraft, caller: Caller) -> RuleInForce:
    """Add a rule."""
    return RuleInForce.of(rules.save(draft, actor=caller.actor, replace=False))


@operation("PUT rules/{name}", scope="admin")
def change_rule(rules: Rules, /, draft: RuleDraft, caller: Caller) -> RuleInForce:
    """Change a rule."""
    return RuleInForce.of(rules.save(draft, actor=caller.actor, replace=True))


@operation("DELETE rules/{name}", scope="admin")
def delete_rule(rules: Rules, /, name: str, caller: Caller) -> Done:
    """Remove a rule."""
    rules.delete(name, actor=caller.actor)
    return Done()


@operation("GET rules/preview")
def rule_preview(store: Store, rules: Rules, /, draft: RuleDraft) -> RulePreview:
    """The selection and the cost of a rule."""
    rule = rules.checked(draft)
    rows = (
        store.limited()
        .read(
            f"SELECT count(*) / {PREVIEW_DAYS}.0, coalesce(sum(pi), 0) / {PREVIEW_DAYS}.0, avg((pi = 0)::INTEGER)"
            f" FROM (SELECT {rule.pi_sql()} AS pi FROM traces t"
            f" WHERE {REQUEST} AND start_time > now()::TIMESTAMP - INTERVAL {PREVIEW_DAYS} DAY{_LAST_TURN[rule.unit]})"
        )
        .rows
    )
    traces, selected, uncovered = rows[0]
    figures = cost_and_spread(store, PREVIEW_DAYS)
    costs, deviations = zip(*(figures.get(name, (None, None)) for name in rule.evaluators), strict=True)
    return RulePreview(
        traces_per_day=traces,
        selected_per_day=selected,
        cost_usd_per_day=None if None in costs else selected * sum(filter(None, costs)),
        budget_usd_per_day=rule.budget_usd_per_day,
        half_width_per_day={
            name: None if deviation is None else planned_half_width(float(deviation), float(selected))
            for name, deviation in zip(rule.evaluators, deviations, strict=True)
        },
        uncovered_share=uncovered,
    )


_LAST_TURN = {
    "trace": "",
    "session": " AND session_id IS NOT NULL"
    " QUALIFY row_number() OVER (PARTITION BY session_id ORDER BY start_time DESC, trace_id DESC) = 1",
}
"""The condition on the traces of a rule, by its unit."""


@dataclass(frozen=True, slots=True)
class OnlineRate:
    """A rule that runs an evaluator."""

    rule: str
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DayFigures:
    """Traces that an evaluator scored in a day, by status, with cost and mean time."""

    ok: int = 0
    skipped: int = 0
    invalid: int = 0
    error: int = 0
    cost_usd: float = 0.0
    mean_latency_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorInUse(Description):
    """An evaluator of this installation, and what it does here."""

    online: Sequence[OnlineRate]
    stats_24h: DayFigures | None
    calibration: Agreement | None


@dataclass(frozen=True, slots=True)
class EvaluatorList:
    """All evaluators."""

    evaluators: Sequence[EvaluatorInUse]
    lead: str
    """The one that pages show first."""


@operation("GET evaluators")
def evaluators(store: Store, catalog: Catalog, rules: Rules, lead: Lead, /) -> EvaluatorList:
    """The evaluators of this installation."""
    query = Last90Days().query(utc_now())
    online: dict[str, list[OnlineRate]] = defaultdict(list)
    for rule in rules.effective():
        for name in rule.evaluators:
            online[name].append(OnlineRate(rule.name, rule.rate))
    figures, labelled = _figures_of_day(store), labelled_evaluators(store)
    found = [
        extended(
            EvaluatorInUse,
            entry,
            online=online.get(entry.name, []),
            stats_24h=figures.get(entry.name),
            calibration=_agreement(store, query, entry.name) if entry.name in labelled else None,
        )
        for entry in catalog.describe()
    ]
    return EvaluatorList(found, lead())


def _agreement(store: Store, query: Query, name: str) -> Agreement | None:
    return next(iter(calibration(store, query, name).versions), None)


def _figures_of_day(store: Store) -> dict[str, DayFigures]:
    by_name: dict[str, DayFigures] = defaultdict(DayFigures)
    for name, status, count, cost, elapsed in results_of_day(store):
        figures = by_name[name]
        mean = elapsed if status == "ok" else figures.mean_latency_ms
        total = figures.cost_usd + (cost or 0.0)
        by_name[name] = replace(figures, cost_usd=total, mean_latency_ms=mean, **{status: count})
    return by_name
