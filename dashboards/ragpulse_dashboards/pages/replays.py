"""`/replays`: stored traces through new evaluators: the bill first, then the progress."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.errors import ApiError
from ragpulse_dashboards.site import Site, read_form, see_other
from ragpulse_dashboards.view import FILTERS

__all__ = ["routes"]

FIELDS: Final = ("evaluators", "since", "where", "limit", "max_usd", "judge")
SELECTION: Final = ("from", "to", *FILTERS)
"""What the trace list was narrowed to when somebody came from there; it takes the place of `since`."""


def routes(site: Site) -> list[BaseRoute]:
    """List and form, one run, and the actions on it."""
    return [
        site.page("/replays", replays),
        site.page("/replays", start, post=True),
        site.page("/replays/bill", bill),
        site.page("/replays/{run_id}", replay),
        site.page("/replays/{run_id}/{action}", act, post=True),
    ]


async def replays(site: Site, request: Request) -> Response:
    """Runs, newest first; running ones refresh themselves."""
    answer, known = await asyncio.gather(site.api("GET replays", {}), site.api("GET evaluators", {}))
    query = request.query_params
    context = {
        "runs": answer["replays"],
        "evaluators": [{**one, "used": bool(one.get("online"))} for one in known["evaluators"]],
        "form": {name: query.get(name, "") for name in FIELDS},
        "selection": {name: query[name] for name in SELECTION if name != "where" and query.get(name)},
    }
    return site.render(request, "replays.html", context)


def _read(form: QueryParams) -> dict[str, Any]:
    names = dict.fromkeys((*FIELDS, *SELECTION))
    params: dict[str, Any] = {name: form[name].strip() for name in names if form.get(name, "").strip()}
    if not params.get("evaluators"):
        raise ApiError(400, "Choose an evaluator to replay.")
    params["evaluators"] = [params["evaluators"]]
    for name, kind in (("limit", int), ("max_usd", float)):
        if name in params:
            params[name] = _number(name, kind, params[name])
    return params


def _number(name: str, kind: type[int] | type[float], text: str) -> float:
    try:
        return kind(text)
    except ValueError:
        raise ApiError(400, f"{name} must be a number.") from None


async def bill(site: Site, request: Request) -> Response:
    """The dry run: how many, how much, before anything is spent."""
    try:
        params = _read(request.query_params)
        answer = await site.api("POST replays", {**params, "dry_run": True})
    except ApiError as error:
        return site.render(request, "bill.html", {"problem": error.message})
    return site.render(request, "bill.html", {"bill": answer})


async def start(site: Site, request: Request) -> Response:
    """Start a run and look at it."""
    answer = await site.api("POST replays", _read(await read_form(request)))
    run = next(iter(answer.get("replays") or [answer]))
    return see_other(f"/replays/{_run_id(str(run.get('run_id', '')))}")


async def replay(site: Site, request: Request) -> Response:
    """One run: progress, rate, time left, spent against the cap."""
    run = await site.api(f"GET replays/{_run_id(request.path_params['run_id'])}", {})
    name, since = str(run.get("evaluator")).partition("@")[0], _since(run)
    params, old, answer = {"b": f"run:{run.get('run_id')}", "from": since}, "", None
    try:
        old = await _old_side(site, name, since, run) if run.get("status") in ("done", "capped") else ""
        params |= {"a": old} if old else {}
        answer = await site.api("GET compare", params) if old else None
    except ApiError:  # the run stands for itself where there is nothing to compare with
        pass
    shared = {"evaluator": name, "from": since}
    context = {
        "run": run,
        "answer": answer,
        "compare_url": "/compare?" + urlencode(params if old else {"b": params["b"], **shared}, errors="replace"),
        "worst_url": "/traces?" + urlencode({"evaluator": name, "sort": "worst", "from": since}, errors="replace"),
        "rule_url": "/rules/new?" + urlencode({"evaluators": run.get("evaluator"), "name": name}, errors="replace"),
    }
    return site.render(request, "replay.html", context)


def _since(run: Mapping[str, Any]) -> str:
    """Where the replayed range starts, as the API takes it."""
    since = str(run.get("since") or "30d")
    return f"-{since}" if since[:1].isdecimal() and since[-1:] in "smhdw" else since


async def _old_side(site: Site, evaluator: str, since: str, run: Mapping[str, Any]) -> str:
    """The version, or the judge, that scored most in the range beside the one that ran; empty where there is none."""
    answer = await site.api("GET metrics", {"name": f"quality:{evaluator}", "from": since, "step": "all"})
    counts = {
        (line["version"], line.get("judge")): sum(point.get("n") or 0 for point in line["points"])
        for line in answer["series"]
        if line.get("version") and (line["version"], line.get("judge")) != (run.get("version"), run.get("judge"))
    }
    version, judge = max(counts, key=lambda line: counts[line], default=("", None))
    return f"judge:{judge}" if judge and version == run.get("version") else version and f"{evaluator}@{version}"


async def act(site: Site, request: Request) -> Response:
    """Cancel or resume."""
    run_id, action = _run_id(request.path_params["run_id"]), request.path_params["action"]
    if action not in ("cancel", "resume"):
        raise ApiError(404, "A run can be cancelled or resumed.")
    given = (await read_form(request)).get("max_usd", "").strip()
    await site.api(f"POST replays/{run_id}/{action}", {"max_usd": _number("max_usd", float, given)} if given else {})
    return see_other(f"/replays/{run_id}")


def _run_id(text: str) -> str:
    if not text or not all(letter.isalnum() or letter in "-_" for letter in text):
        raise ApiError(404, "There is no such run.")
    return text
