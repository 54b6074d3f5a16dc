"""`/compare`: two of a kind, and a verdict; `/replays`: stored traces through other evaluators, the cost first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_collector.analysis.compare.results import ReplayResult
from ragpulse_collector.analysis.series import MetricSeries
from ragpulse_collector.evaluation.budget import Bill
from ragpulse_collector.evaluation.replay import ReplayList, ReplayProgress
from ragpulse_collector.operations.rules import EvaluatorList
from ragpulse_collector.refusals import Invalid, NotFound, Refusal
from ragpulse_collector.words.figures import judge_name
from ragpulse_dashboards.site import FILTERS, SELECTORS, Site, View, link, read_form, read_view, see_other

FIELDS: Final = ("evaluators", "since", "where", "limit", "max_usd", "judge")
SELECTION: Final = ("from", "to", *FILTERS)
"""Filters of the trace list that a link from there carries; its range replaces `since`."""
ACTIONS: Final = ("cancel", "resume", "use", "set_aside")
LACKS_JUDGE: Final = " needs a judge"
"""Follows the evaluator's name in a refusal."""
JUDGES: Final = ("ollama/llama3.1", "openai/gpt-5-mini")
"""Judges to name where none was used yet: on this machine, and at a provider."""
ENDED: Final = ("done", "capped", "cancelled", "failed")


def routes(site: Site) -> list[BaseRoute]:
    """Return the comparison, the list of runs with its form, one run, and the actions on it."""
    return [
        site.page("/compare", compare, reads=("a", "b", "by", "evaluator")),
        site.page("/replays", replays, reads=FIELDS),
        site.page("/replays", start, post=True),
        site.page("/replays/bill", bill, reads=None),
        site.page("/replays/{run_id}", replay),
        site.page("/replays/{run_id}/{action}", act, post=True),
    ]


async def replays(site: Site, request: Request) -> Response:
    """List the runs, newest first; the list refreshes while one runs."""
    return await _form(site, request, request.query_params)


async def _form(site: Site, request: Request, query: QueryParams, problem: Refusal | None = None) -> Response:
    """Show the form with its fields filled, what is wrong with them, and the runs."""
    answer: ReplayList
    registry: EvaluatorList
    answer, registry = await asyncio.gather(site.api("GET replays", {}), site.api("GET evaluators", {}))
    context = {
        **_judges(answer, problem),
        "problem": problem and problem.message,
        "runs": answer.replays,
        "evaluators": sorted(registry.evaluators, key=lambda item: (not item.online, item.name)),
        "form": {name: query.get(name, "") for name in FIELDS},
        "selection": {name: query[name] for name in SELECTION if name != "where" and query.get(name)},
    }
    return site.render(request, "replays.html", context, status=problem.status if problem else 200)


def _judges(runs: ReplayList, problem: Refusal | None) -> dict[str, str | list[str]]:
    """Return judges to choose from, those of earlier runs first; where none is named, the evaluator that lacks one."""
    asked = [judge_name(run.judge) for run in runs.replays if run.judge and " at " not in run.judge]
    name, lacks, _ = (problem.message if problem else "").partition(LACKS_JUDGE)
    return {"judges": list(dict.fromkeys((*asked, *JUDGES))), "lacks_judge": name if lacks else ""}


def _params(form: QueryParams) -> dict[str, str | list[str]]:
    """Return the fields that are given, as parameters of an operation, which checks them; raises Invalid."""
    texts = {name: text for name in (*FIELDS, *SELECTION) if (text := form.get(name, "").strip())}
    if "evaluators" not in texts:
        raise Invalid("Choose an evaluator to replay.")
    return {**texts, "evaluators": [texts["evaluators"]]}


async def bill(site: Site, request: Request) -> Response:
    """Show the dry run: the number of traces and the cost."""
    try:
        answer: Bill = await site.api("POST replays", {**_params(request.query_params), "dry_run": True})
    except Refusal as error:
        offered = _judges(await site.api("GET replays", {}), error)
        return site.render(request, "bill.html", {**offered, "problem": error.message})
    return site.render(request, "bill.html", {"bill": answer})


async def start(site: Site, request: Request) -> Response:
    """Start a run and show it; a refused form comes back as it was typed, with the reason."""
    form = await read_form(request)
    try:
        answer: ReplayList = await site.api("POST replays", _params(form))
    except Refusal as error:
        if error.status not in (400, 409):
            raise
        return await _form(site, request, form, error)
    return see_other(f"/replays/{answer.replays[0].run_id}")


async def replay(site: Site, request: Request) -> Response:
    """Show one run: progress and cost, then its result beside the evaluator in use."""
    path = f"GET replays/{_run_id(request.path_params['run_id'])}"
    run: ReplayProgress = await site.api(path, {})
    result: ReplayResult | None = await site.api(f"{path}/result", {}) if run.done and run.status in ENDED else None
    name, since = run.evaluator.partition("@")[0], _since(run)
    sides = {"b": f"run:{run.run_id}", "from": since, "evaluator": name}
    if result and result.against and result.against.evaluator == name:
        against = result.against
        same = against.judge and against.version == run.version
        sides["a"] = f"judge:{against.judge}" if same else f"{name}@{against.version}"
    context = {
        "run": run,
        "result": result,
        "most": max((one.n for one in result.histogram), default=0) if result else 0,
        "compare_url": link("/compare", sides),
        "worst_url": link("/traces", {"evaluator": name, "sort": "worst", "from": since}),
        "rule_url": link("/rules/new", {"evaluators": run.evaluator, "name": name}),
    }
    return site.render(request, "replay.html", context)


def _since(run: ReplayProgress) -> str:
    """Return the start of the replayed range as the API reads it."""
    since = run.since or "30d"
    return f"-{since}" if since[:1].isdecimal() and since[-1:] in "smhdw" else since


async def act(site: Site, request: Request) -> Response:
    """Cancel, resume or delete a run, put it in use, or set it aside."""
    run_id, action = _run_id(request.path_params["run_id"]), request.path_params["action"]
    if action == "delete":
        await site.api(f"DELETE replays/{run_id}", {})
        return see_other("/replays")
    if action not in ACTIONS:
        raise NotFound("A run can be cancelled, resumed, used, set aside or deleted.")
    cap = (await read_form(request)).get("max_usd", "").strip()
    await site.api(f"POST replays/{run_id}/{action}", {"max_usd": cap} if cap else {})
    return see_other(f"/replays/{run_id}")


def _run_id(text: str) -> str:
    if not text or not all(letter.isalnum() or letter in "-_" for letter in text):
        raise NotFound("There is no such run.")
    return text


async def compare(site: Site, request: Request) -> Response:
    """Show the form and, with two sides, the difference with its interval and the answers that changed most."""
    view, query = read_view(request), request.query_params
    a, b, evaluator, by = (query.get(name, "").strip() for name in ("a", "b", "evaluator", "by"))
    registry, replays, in_use = await asyncio.gather(
        site.api("GET evaluators", {}), site.api("GET replays", {}), site.evaluators_in_use()
    )
    judged_by = evaluator or next(iter(in_use), "")
    suggestions = await _suggestions(site, view, judged_by) if judged_by else []
    answer, problem = None, None
    if a and b:
        options = {name: value for name, value in (("evaluator", evaluator), ("by", by)) if value}
        try:
            answer = await site.api("GET compare", {**view.params(), "a": a, "b": b, **options})
        except Refusal as error:  # the form stays, so that another choice is one field away
            problem = error
    context = {
        "view": view,
        "a": a,
        "b": b,
        "evaluator": evaluator,
        "by": by,
        "answer": answer,
        "problem": problem and problem.message,
        "sides": [_side_url(view, side) for side in (a, b)],
        "evaluators": in_use,
        "judged_by": judged_by,
        "suggestions": [*(selector for group in suggestions for selector in group), *_versions(registry, replays)],
        "pairs": [sorted(group[:2]) for group in suggestions if len(group) > 1],
    }
    return site.render(request, "compare.html", context, status=problem.status if problem else 200)


def _side_url(view: View, selector: str) -> str:
    """Return the link to the traces of a selector, or to its replay."""
    kind, _, value = selector.partition(":")
    if kind == "run":
        return f"/replays/{quote(value, safe='')}"
    column = {"prompt": "prompt_version"}.get(kind, kind)
    return view.url("/traces", **({column: value} if value else {"evaluator": selector.partition("@")[0]}))


async def _suggestions(site: Site, view: View, evaluator: str) -> list[list[str]]:
    """Return selectors of scored answers in the range, one list for each dimension, most scored first."""
    params = {**view.params(), "name": f"quality:{evaluator}", "step": "all"}
    answers: Sequence[MetricSeries] = await asyncio.gather(
        *(site.api("GET metrics", {**params, "group_by": [name]}) for name in SELECTORS)
    )
    suggestions = []
    for (name, kind), answer in zip(SELECTORS.items(), answers, strict=True):
        scored: Counter[str] = Counter()
        for line in answer.series:
            scored[str(line.group.get(name) or "")] += sum(point.n for point in line.points)
        values = sorted(
            (value for value, n in scored.items() if value and n), key=lambda value: (-scored[value], value)
        )
        suggestions.append([f"{kind}:{value}" for value in values])
    return suggestions


def _versions(registry: EvaluatorList, replays: ReplayList) -> list[str]:
    """Return the evaluator versions that rules run or replays ran, and the replays themselves."""
    runs = [run for run in replays.replays if run.ok]
    versions = [(item.name, item.version) for item in registry.evaluators if item.online]
    versions += [(run.evaluator, run.version) for run in runs]
    names = dict.fromkeys(f"{name}@{version[:12]}" for name, version in versions if version)
    return [*names, *(f"run:{run.run_id}" for run in runs)]
