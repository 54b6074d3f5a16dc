"""`/evaluators`: the evaluators with rate, cost and agreement with people; the rules; judge drift."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_collector.evaluation.drift import Watched
from ragpulse_collector.evaluation.judge_checks import JudgeChecks
from ragpulse_collector.operations.rules import EvaluatorList, RuleInForce, RuleList, RulePreview
from ragpulse_collector.operations.runs import RunList
from ragpulse_collector.refusals import Invalid, NotFound, Refusal
from ragpulse_dashboards.site import Site, read_form, see_other, segment

__all__ = ["routes"]

FREE: Final = ("free", "embedding")
"""Cost classes without a judge: the same answer always gets the same score."""
GROUPS: Final = (
    ("Free, in this process", ("free", None)),
    ("With embeddings", ("embedding",)),
    ("Ask a judge", ("1 call", "k calls")),
)
"""Evaluators by their cost class."""
DRIFT: Final = {"freeze": "POST drift/anchors", "run": "POST drift/run"}
STRATA: Final = 3
"""Rows of the form for a new rule."""


def routes(site: Site) -> list[BaseRoute]:
    """Return registry and rules, the editor, its cost preview, and their forms."""
    return [
        site.page("/evaluators", evaluators, reads=("done", "find")),
        site.page("/drift/{action}", check_drift, post=True),
        site.page("/judge/check", check_judge, post=True),
        site.page("/rules/new", edit, reads=("name", "evaluators")),
        site.page("/rules/preview", preview, reads=None),
        site.page("/rules/{name}/edit", edit),
        site.page("/rules", save, post=True),
        site.page("/rules/{name}/pause", pause, post=True),
        site.page("/rules/{name}/delete", delete, post=True),
    ]


async def evaluators(site: Site, request: Request) -> Response:
    """List the evaluators in use with their figures, then rules, then all others by what they cost."""
    answer: EvaluatorList
    rules: RuleList
    drift: Watched
    judge: JudgeChecks
    runs: RunList
    operations = ("GET evaluators", "GET rules", "GET drift", "GET judge/checks", "GET runs")
    answer, rules, drift, judge, runs = await asyncio.gather(*(site.api(operation, {}) for operation in operations))
    find = request.query_params.get("find", "").strip()
    every = sorted(answer.evaluators, key=lambda evaluator: evaluator.name)
    registry = [one for one in every if find.lower() in f"{one.name} {one.description}".lower()]
    used = [one for one in registry if one.online or one.stats_24h]
    others = [one for one in registry if one not in used]
    watched = {report.evaluator for report in drift.watched}
    context = {
        "find": find,
        "used": used,
        "groups": [(name, [one for one in others if one.cost_class in classes]) for name, classes in GROUPS],
        "runs": Counter(name.partition("@")[0] for run in runs.runs for name in run.evaluators),
        "rules": rules.rules,
        "judge": judge,
        "done": request.query_params.get("done", ""),
        "drift": drift,
        "judged": [
            evaluator.name for evaluator in every if evaluator.cost_class not in FREE and evaluator.name not in watched
        ],
    }
    return site.render(request, "evaluators.html", context)


async def check_drift(site: Site, request: Request) -> Response:
    """Freeze judged answers, or judge the frozen ones again."""
    action = request.path_params["action"]
    if action not in DRIFT:
        raise NotFound("Judged answers can be frozen, or judged again.")
    form = await read_form(request)
    await site.api(DRIFT[action], {"evaluator": form.get("evaluator", "")})
    return see_other("/evaluators#drift-h")


async def check_judge(site: Site, request: Request) -> Response:
    """Start a check of the configured judge."""
    cap = (await read_form(request)).get("max_usd", "").strip()
    await site.api("POST judge/check", {"max_usd": cap} if cap else {})
    return see_other("/evaluators#judge-h")


async def _rule(site: Site, name: str) -> "RuleInForce":
    answer: RuleList = await site.api("GET rules", {})
    rule = next((rule for rule in answer.rules if rule.name == name), None)
    if rule is None:
        raise NotFound("There is no rule of this name; it may have been deleted.")
    return rule


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleForm:
    """The fields of a rule in a form; None: not given."""

    name: str
    evaluators: Sequence[str]
    rate: float = 0.05
    where: str | None = None
    strata: Sequence[dict[str, str | float]] = ()
    unit: str | None = None
    budget_usd_per_day: str | float | None = None

    def params(self) -> dict[str, str | float | Sequence[str] | Sequence[dict[str, str | float]]]:
        """Return the fields that are given, as parameters of an operation."""
        return {name: value for name in RuleForm.__slots__ if (value := getattr(self, name)) is not None}


async def edit(site: Site, request: Request) -> Response:
    """Show the form of one rule, empty or filled, with the predicted cost."""
    name = request.path_params.get("name")
    query = request.query_params
    draft = RuleForm(name=query.get("name", ""), evaluators=query.getlist("evaluators"))
    rule = await _rule(site, name) if name else draft
    answer: EvaluatorList = await site.api("GET evaluators", {})
    context = {
        "rule": rule,
        "new": name is None,
        "evaluators": sorted(answer.evaluators, key=lambda evaluator: (not evaluator.online, evaluator.name)),
        "strata": [*rule.strata, *[None] * (STRATA - len(rule.strata))],
    }
    return site.render(request, "rule.html", context)


def _rule_in(form: QueryParams) -> RuleForm:
    """Return the rule of form fields; raises Invalid."""
    strata = list[dict[str, str | float]]()
    for number in range(STRATA * 4):
        where = form.get(f"stratum_where_{number}", "").strip()
        if where:
            rate = _rate(form.get(f"stratum_rate_{number}", ""), f"the rate of condition {number + 1}")
            strata.append({"where": where, "rate": rate})
    evaluators = form.getlist("evaluators")
    if not evaluators:
        raise Invalid("Choose at least one evaluator.")
    return RuleForm(
        name=form.get("name", "").strip(),
        evaluators=evaluators,
        rate=_rate(form.get("rate", ""), "the rate"),
        where=form.get("where", "").strip() or None,
        strata=strata,
        unit=form.get("unit") or None,
        budget_usd_per_day=form.get("budget_usd_per_day") or None,
    )


def _rate(text: str, field: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise Invalid(f"{field} must be a number from 0 to 1, such as 0.05.")
    return rate


async def preview(site: Site, request: Request) -> Response:
    """Show what the rule in the form would select and cost a day, and the rates that would be better."""
    form = request.query_params
    try:
        rule = _rule_in(form)
        answer: RulePreview = await site.api("GET rules/preview", {**rule.params(), "name": rule.name or "preview"})
    except Refusal as error:
        return site.render(request, "rule_preview.html", {"problem": error.message})
    return site.render(request, "rule_preview.html", {"preview": answer, "rule": rule, "form": form})


async def save(site: Site, request: Request) -> Response:
    """Create or change a rule."""
    form = await read_form(request)
    rule = _rule_in(form).params()
    if form.get("existing"):
        await site.api(f"PUT rules/{segment(form['existing'])}", rule)
    else:
        await site.api("POST rules", rule)
    return see_other("/evaluators?done=saved")


async def pause(site: Site, request: Request) -> Response:
    """Set a rule's rates to 0; its conditions stay."""
    rule = await _rule(site, request.path_params["name"])
    kept = {name: getattr(rule, name) for name in RuleForm.__slots__}
    strata = [{"where": stratum.where, "rate": 0.0} for stratum in rule.strata]
    paused = RuleForm(**kept | {"rate": 0.0, "strata": strata})
    await site.api(f"PUT rules/{segment(rule.name)}", paused.params())
    return see_other("/evaluators?done=saved")


async def delete(site: Site, request: Request) -> Response:
    """Delete a rule; its scores stay."""
    await site.api(f"DELETE rules/{segment(request.path_params['name'])}", {})
    return see_other("/evaluators?done=deleted")
