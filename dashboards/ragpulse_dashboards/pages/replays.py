"""`/replays`: stored traces through other evaluators: the cost first, then the progress."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards import ApiError
from ragpulse_dashboards.site import FILTERS, Site, link, read_form, see_other

if TYPE_CHECKING:
    from ragpulse_collector.analysis.series import MetricSeries
    from ragpulse_collector.api.handlers.rules import EvaluatorList
    from ragpulse_collector.evaluation.budget import Bill
    from ragpulse_collector.evaluation.replay import ReplayList, ReplayProgress

__all__ = ["routes"]

FIELDS: Final = ("evaluators", "since", "where", "limit", "max_usd", "judge")
SELECTION: Final = ("from", "to", *FILTERS)
"""Filters of the trace list that a link from there carries; its range replaces `since`."""


def routes(site: Site) -> list[BaseRoute]:
    """Return the list with its form, one run, and the actions on it."""
    return [
        site.page("/replays", replays, reads=FIELDS),
        site.page("/replays", start, post=True),
        site.page("/replays/bill", bill, reads=None),
        site.page("/replays/{run_id}", replay),
        site.page("/replays/{run_id}/{action}", act, post=True),
    ]


async def replays(site: Site, request: Request) -> Response:
    """List the runs, newest first; the list refreshes while one runs."""
    answer: ReplayList
    registry: EvaluatorList
    answer, registry = await asyncio.gather(site.api("GET replays", {}), site.api("GET evaluators", {}))
    query = request.query_params
    context = {
        "runs": answer.replays,
        "evaluators": sorted(registry.evaluators, key=lambda item: (not item.online, item.name)),
        "form": {name: query.get(name, "") for name in FIELDS},
        "selection": {name: query[name] for name in SELECTION if name != "where" and query.get(name)},
    }
    return site.render(request, "replays.html", context)


def _params(form: QueryParams) -> dict[str, str | float | list[str]]:
    """Return the fields that are given, as parameters of an operation; raises ApiError 400."""
    texts = {name: text for name in (*FIELDS, *SELECTION) if (text := form.get(name, "").strip())}
    if "evaluators" not in texts:
        raise ApiError(400, "Choose an evaluator to replay.")
    kinds = (("limit", int), ("max_usd", float))
    numbers = {name: _number(name, kind, texts[name]) for name, kind in kinds if name in texts}
    return {**texts, "evaluators": [texts["evaluators"]], **numbers}


def _number(name: str, kind: type[int] | type[float], text: str) -> float:
    try:
        return kind(text)
    except ValueError:
        raise ApiError(400, f"{name} must be a number.") from None


async def bill(site: Site, request: Request) -> Response:
    """Show the dry run: the number of traces and the cost."""
    try:
        answer: Bill = await site.api("POST replays", {**_params(request.query_params), "dry_run": True})
    except ApiError as error:
        return site.render(request, "bill.html", {"problem": error.message})
    return site.render(request, "bill.html", {"bill": answer})


async def start(site: Site, request: Request) -> Response:
    """Start a run and show it."""
    answer: ReplayList = await site.api("POST replays", _params(await read_form(request)))
    return see_other(f"/replays/{answer.replays[0].run_id}")


async def replay(site: Site, request: Request) -> Response:
    """Show one run: progress, rate, time left, cost, and the difference to the version in use."""
    run: ReplayProgress = await site.api(f"GET replays/{_run_id(request.path_params['run_id'])}", {})
    name, since = run.evaluator.partition("@")[0], _since(run)
    sides = {"b": f"run:{run.run_id}", "from": since}
    answer = None
    if run.status in ("done", "capped"):
        try:
            if before := await _side_before(site, name, since, run):
                sides["a"] = before
                answer = await site.api("GET compare", sides)
        except ApiError:  # without anything to compare with, the page shows the run alone
            pass
    listed = {"evaluator": name, "from": since}
    context = {
        "run": run,
        "answer": answer,
        "compare_url": link("/compare", sides if "a" in sides else {**sides, **listed}),
        "worst_url": link("/traces", {"evaluator": name, "sort": "worst", "from": since}),
        "rule_url": link("/rules/new", {"evaluators": run.evaluator, "name": name}),
    }
    return site.render(request, "replay.html", context)


def _since(run: ReplayProgress) -> str:
    """Return the start of the replayed range as the API reads it."""
    since = run.since or "30d"
    return f"-{since}" if since[:1].isdecimal() and since[-1:] in "smhdw" else since


async def _side_before(site: Site, evaluator: str, since: str, run: ReplayProgress) -> str:
    """Return the selector of the other version or judge with most scores in the range; empty where there is none."""
    name = f"quality:{evaluator}"
    answer: MetricSeries = await site.api("GET metrics", {"name": name, "from": since, "step": "all"})
    scored: Counter[tuple[str, str | None]] = Counter()
    for line in answer.series:
        if line.version and (line.version, line.judge) != (run.version, run.judge):
            scored[line.version, line.judge] = sum(point.n for point in line.points)
    if not scored:
        return ""
    version, judge = scored.most_common(1)[0][0]
    return f"judge:{judge}" if judge and version == run.version else f"{evaluator}@{version}"


async def act(site: Site, request: Request) -> Response:
    """Cancel or resume a run."""
    run_id, action = _run_id(request.path_params["run_id"]), request.path_params["action"]
    if action not in ("cancel", "resume"):
        raise ApiError(404, "A run can be cancelled or resumed.")
    cap = (await read_form(request)).get("max_usd", "").strip()
    await site.api(f"POST replays/{run_id}/{action}", {"max_usd": _number("max_usd", float, cap)} if cap else {})
    return see_other(f"/replays/{run_id}")


def _run_id(text: str) -> str:
    if not text or not all(letter.isalnum() or letter in "-_" for letter in text):
        raise ApiError(404, "There is no such run.")
    return text
