"""`/alerts`: monitors with state and history; forms to make, change, mute, delete and test one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from itertools import chain, count
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards import ApiError
from ragpulse_dashboards.formats import by_unit, iso, parse_time, unit_of
from ragpulse_dashboards.site import Site, link, read_form, see_other, segment

if TYPE_CHECKING:
    from ragpulse_collector.analysis.overview import RangeSummary
    from ragpulse_collector.analysis.series import MetricSeries

__all__ = ["routes"]

PRESETS: Final = (
    ("quality", "Quality below", "quality:", "<", 0.9, 0.8),
    ("errors", "Errors above", "error_rate", ">", 2.0, 0.05),
    ("cost", "Cost above", "cost_usd", ">", 2.0, 1.0),
    ("latency", "Latency above", "latency_p95", ">", 1.5, 3000.0),
    ("no-data", "No data", "requests", "no data", 0.0, 0.0),
)
"""Key, words, metric, condition, the limit as a multiple of the usual value, and the limit without data.

The usual value is that before a change for the worse, else the last week's median hour.
"""
LEAST_LIMITS: Final = {"error_rate": 0.05}
ENOUGH: Final = 100
"""Answers in the window of a preset: with fewer a fall by a tenth is not sure."""
TRAFFIC: Final = ("error_rate", "latency_p95", "latency_p50", "cost_usd", "requests", "input_tokens", "output_tokens")
CONDITIONS: Final = (("<", "falls below"), (">", "rises above"), ("change", "changes either way"), ("no data", "stops"))
WINDOWS: Final = ("10m", "30m", "1h", "6h", "1d")
MUTES: Final = (("1h", "1 hour"), ("8h", "8 hours"), ("1d", "1 day"), ("7d", "7 days"))
STATES: Final = {"firing": 0, "no data": 1, "broken": 1, "undecided": 2, "ok": 3}
"""The order of the list."""
FIELDS: Final = ("name", "metric", "where", "window", "false_alarms_per_year", "min_n")
UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def routes(site: Site) -> list[BaseRoute]:
    """Return the list, the editor with its preview, and the forms."""
    return [
        site.page("/alerts", alerts),
        site.page("/alerts", save, post=True),
        site.page("/alerts/new", edit),
        site.page("/alerts/preview", preview),
        site.page("/alerts/{name}/edit", edit),
        site.page("/alerts/{name}/test", act, post=True),
        site.page("/alerts/{name}/{action}", act, post=True),
    ]


async def alerts(site: Site, request: Request) -> Response:
    """List the monitors, firing ones first."""
    answer = await site.api("GET monitors", {})
    monitors = sorted(
        answer["monitors"], key=lambda monitor: (STATES.get(monitor["state"], len(STATES)), monitor["name"])
    )
    context = {
        "monitors": [_row(monitor) for monitor in monitors],
        "presets": PRESETS,
        "mutes": MUTES,
        "done": request.query_params.get("done", ""),
        "name": request.query_params.get("name", ""),
    }
    return site.render(request, "alerts.html", context)


def _row(monitor: Mapping[str, Any]) -> dict[str, Any]:
    """Return a monitor with its condition in words, its chart, and the links of each event."""
    history = [{**event, **_links(monitor, event)} for event in monitor["history"]]
    href = link("/figures", {"metric": monitor["metric"]})
    return {**monitor, "words": _words(monitor), "href": href, "history": history}


def _words(monitor: Mapping[str, Any]) -> str:
    """Return the condition with the unit of its metric: `> 3000` of a latency is above 3.00 s."""
    condition = str(monitor["condition"]).strip()
    side = {"<": "below", ">": "above"}.get(condition[:1])
    if side:
        return f"{side} {by_unit(condition[1:], unit_of(monitor['metric']))}"
    return {"change": "it changes either way", "no data": "nothing arrives"}.get(condition, condition)


def _links(monitor: Mapping[str, Any], event: Mapping[str, Any]) -> dict[str, str]:
    """Return the chart around a firing and the worst traces of its window; nothing for other states."""
    end, seconds = parse_time(event["t"]), _seconds(monitor.get("window") or "")
    if end is None or not seconds or event["state"] != "firing" or monitor["condition"] == "no data":
        return {}
    length = timedelta(seconds=seconds)
    shared = {"metric": monitor["metric"], "where": monitor.get("where"), **(event.get("group") or {})}
    return {
        "range_url": link("/figures", {**shared, "from": iso(end - 12 * length), "to": iso(end)}),
        "worst_url": link("/exemplars", {**shared, "t": iso(end - length), "step": seconds}),
    }


def _seconds(window: str) -> int:
    """`1h` → 3600; 0 for any other text."""
    return int(window[:-1]) * UNIT_SECONDS.get(window[-1], 0) if window[:-1].isdecimal() else 0


async def edit(site: Site, request: Request) -> Response:
    """Show the form of one monitor: empty, from a preset, filled by a link, or of an existing one."""
    name, query = request.path_params.get("name"), request.query_params
    answer = await site.api("GET monitors", {})
    if name:
        draft = _named(answer["monitors"], name)
    else:
        draft = {field: query[field] for field in (*FIELDS, "condition") if query.get(field)}
        draft |= {"group_by": query.getlist("group_by"), "notify": answer["destinations"]}
        draft |= await _preset(site, query)
        draft["name"] = _unused(draft.get("name") or "monitor", answer["monitors"])
    return await _form(site, request, draft, answer, existing=name or "")


def _named(monitors: list[dict[str, Any]], name: str) -> dict[str, Any]:
    monitor = next((monitor for monitor in monitors if monitor["name"] == name), None)
    if monitor is None or monitor["source"] != "api":
        raise ApiError(404, "There is no monitor of this name that can be changed here.")
    return monitor


def _unused(name: str, monitors: list[dict[str, Any]]) -> str:
    """Return the name, with a number where it is taken."""
    taken = {monitor["name"] for monitor in monitors}
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(candidate for candidate in names if candidate not in taken)


async def _preset(site: Site, query: QueryParams) -> dict[str, Any]:
    """Return the fields of a preset, with a limit from the usual value."""
    preset = next((preset for preset in PRESETS if preset[0] == query.get("preset")), None)
    if preset is None:
        return {}
    key, _, metric, sign, factor, limit = preset
    metric = query.get("metric") or metric
    if metric.endswith(":"):
        metric += next(iter(await site.evaluators_in_use()), "groundedness")
    window = "1h"
    if factor:
        answer: MetricSeries = await site.api("GET metrics", {"name": metric, "from": "-7d", "step": "1h"})
        points = [(point.value, point.n) for line in answer.series for point in line.points if point.value is not None]
        usual = await _level_before(site, metric) or median([value for value, _ in points] or [0.0])
        if usual:
            limit = max(usual * factor, LEAST_LIMITS.get(metric, 0.0))
        if points and ":" in metric:  # the limit of a sum is one of an hour
            answers_an_hour = median(n for _, n in points)
            window = next((name for name, hours in (("1h", 1), ("6h", 6)) if answers_an_hour * hours >= ENOUGH), "1d")
    rounded = Decimal(f"{limit:.2g}")  # a condition has no exponent
    condition = sign if sign == "no data" else f"{sign} {rounded:f}"
    return {"name": key, "metric": metric, "condition": condition, "window": window}


async def _level_before(site: Site, metric: str) -> float:
    """Return the level before the last day's change for the worse: what came since is not usual. 0: no such change."""
    if metric == "cost_usd":  # its change is that of a request, its limit one of an hour
        return 0.0
    overview: RangeSummary = await site.api("GET overview", {"from": "-24h", "max_age": 300.0})
    return next((shift.before.value for shift in overview.changes if shift.metric == metric and shift.worse), 0.0)


async def _form(
    site: Site, request: Request, draft: dict[str, Any], answer: Mapping[str, Any], *, existing: str, problem: str = ""
) -> Response:
    metrics = [*(f"quality:{name}" for name in await site.evaluators_in_use()), *TRAFFIC]
    condition = str(draft.get("condition") or "< 0.8").strip()
    sign = condition if condition in ("change", "no data") else condition[:1]
    metric = draft.get("metric") or metrics[0]
    context = {
        "draft": {"window": "1h", "false_alarms_per_year": 4, "min_n": 0, **draft, "metric": metric},
        "sign": sign,
        "limit": condition[1:].strip() if sign in "<>" else "",
        "metrics": list(dict.fromkeys([*metrics, metric])),
        "conditions": CONDITIONS,
        "windows": list(dict.fromkeys([*WINDOWS, draft.get("window") or "1h"])),
        "destinations": answer["destinations"],
        "existing": existing,
        "problem": problem,
    }
    return site.render(request, "alert.html", context, status=400 if problem else 200)


def _read(form: QueryParams) -> dict[str, Any]:
    """Read a monitor from form fields; the collector validates it."""
    draft: dict[str, Any] = {name: form[name].strip() for name in FIELDS if form.get(name, "").strip()}
    sign, limit = form.get("sign", "<"), form.get("limit", "").strip()
    draft["condition"] = f"{sign} {limit}" if sign in ("<", ">") else sign
    draft["group_by"] = [name for name in form.getlist("group_by") if name]
    return {**draft, "notify": form.getlist("notify")}


async def preview(site: Site, request: Request) -> Response:
    """Show how often the monitor in the form would have fired, and what it can detect."""
    try:
        answer = await site.api("GET monitors/preview", _read(request.query_params))
    except ApiError as error:
        return site.render(request, "alert_preview.html", {"problem": error.message})
    return site.render(request, "alert_preview.html", {"preview": answer})


async def save(site: Site, request: Request) -> Response:
    """Make or change a monitor; a refused form comes back as it was typed, with the reason."""
    form = await read_form(request)
    draft, existing = _read(form), form.get("existing", "")
    operation = f"PUT monitors/{segment(existing)}" if existing else "POST monitors"
    try:
        await site.api(operation, {**draft, "name": existing or draft.get("name", "")})
    except ApiError as error:
        if error.status not in (400, 409):
            raise
        answer = await site.api("GET monitors", {})
        return await _form(site, request, draft, answer, existing=existing, problem=error.message)
    return see_other(link("/alerts", {"done": "saved", "name": existing or draft["name"]}))


async def act(site: Site, request: Request) -> Response:
    """Send a test message, mute for a time, unmute, or delete."""
    name, action = segment(request.path_params["name"]), request.path_params.get("action", "test")
    form = await read_form(request) if action == "mute" else QueryParams()
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "test": (f"POST monitors/{name}/test", {}),
        "mute": (f"POST monitors/{name}/mute", {"for": form.get("for") or "1h"}),
        "unmute": (f"POST monitors/{name}/mute", {}),
        "delete": (f"DELETE monitors/{name}", {}),
    }
    if action not in calls:
        raise ApiError(404, "A monitor can be tested, muted or deleted.")
    answer = await site.api(*calls[action])
    if action == "test" and answer.get("ok") is False:
        raise ApiError(502, f"The test message was not delivered; {answer.get('delivery')}")
    done = "unsent" if action == "test" and "delivery" in answer and not answer["delivery"] else action
    return see_other(link("/alerts", {"done": done, "name": name}))
