"""`/evaluators`: the evaluators with rate, cost and agreement with people; the rules; judge drift."""

import asyncio
from collections import Counter
from collections.abc import Sequence
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
from ragpulse_collector.settings import RuleSettings
from ragpulse_dashboards.site import Site, read_form, see_other, segment

FREE: Final = ("free", "embedding")
"""Cost classes without a judge: the same answer always gets the same score."""
GROUPS: Final = (
    ("Free, in this process", ("free", None)),
    ("With embeddings", ("embedding",)),
    ("Ask a judge", ("1 call", "k calls")),
)
"""Evaluators by their cost class."""
DRIFT: Final = {"freeze": "POST drift/anchors", "run": "POST drift/run"}
FIELDS: Final = ("name", "where", "unit", "budget_usd_per_day")
"""The fields of a rule that are one text, where they are filled."""
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


async def edit(site: Site, request: Request) -> Response:
    """Show the form of one rule, empty or filled, with the predicted cost."""
    name, query = request.path_params.get("name"), request.query_params
    rule = await _rule(site, name) if name else None
    strata = rule.strata if rule else ()
    answer: EvaluatorList = await site.api("GET evaluators", {})
    context = {
        "rule": rule or {"name": query.get("name"), "evaluators": query.getlist("evaluators"), "rate": 0.05},
        "new": rule is None,
        "evaluators": sorted(answer.evaluators, key=lambda evaluator: (not evaluator.online, evaluator.name)),
        "strata": [*strata, *[None] * (STRATA - len(strata))],
    }
    return site.render(request, "rule.html", context)


def _rule_in(form: QueryParams) -> dict[str, str | Sequence[str] | Sequence[dict[str, str]]]:
    """Return the fields of a form that are filled, as parameters of an operation, which checks them; raises Invalid."""
    strata = [
        {"where": where, "rate": form.get(f"stratum_rate_{number}", "")}
        for number in range(STRATA * 4)
        if (where := form.get(f"stratum_where_{number}", "").strip())
    ]
    evaluators = form.getlist("evaluators")
    if not evaluators:
        raise Invalid("Choose at least one evaluator.")
    fields = {name: text for name in FIELDS if (text := form.get(name, "").strip())}
    return {**fields, "rate": form.get("rate", ""), "evaluators": evaluators, "strata": strata}


async def preview(site: Site, request: Request) -> Response:
    """Show what the rule in the form would select and cost a day, and the rates that would be better."""
    form = request.query_params
    try:
        answer: RulePreview = await site.api("GET rules/preview", {"name": "preview", **_rule_in(form)})
    except Refusal as error:
        return site.render(request, "rule_preview.html", {"problem": error.message})
    return site.render(request, "rule_preview.html", {"preview": answer})


async def save(site: Site, request: Request) -> Response:
    """Create or change a rule."""
    form = await read_form(request)
    rule = _rule_in(form)
    if form.get("existing"):
        await site.api(f"PUT rules/{segment(form['existing'])}", rule)
    else:
        await site.api("POST rules", rule)
    return see_other("/evaluators?done=saved")


async def pause(site: Site, request: Request) -> Response:
    """Set a rule's rates to 0; its conditions stay."""
    rule = await _rule(site, request.path_params["name"])
    strata = [{"where": stratum.where, "rate": 0.0} for stratum in rule.strata]
    paused = rule.model_dump(include={*RuleSettings.model_fields}, exclude_none=True) | {"rate": 0.0, "strata": strata}
    await site.api(f"PUT rules/{segment(rule.name)}", paused)
    return see_other("/evaluators?done=saved")


async def delete(site: Site, request: Request) -> Response:
    """Delete a rule; its scores stay."""
    await site.api(f"DELETE rules/{segment(request.path_params['name'])}", {})
    return see_other("/evaluators?done=deleted")
