"""`/alerts`: monitors with state and history; forms to make, change, mute, delete and test one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from itertools import chain, count
from statistics import median
from typing import Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_collector.analysis.overview import RangeSummary
from ragpulse_collector.analysis.selection import duration_s
from ragpulse_collector.analysis.series import MetricSeries
from ragpulse_collector.monitoring.listing import (
    AlertSent,
    MonitorEvent,
    MonitorList,
    MonitorPreview,
    ShownMonitor,
)
from ragpulse_collector.refusals import NotFound, Refusal
from ragpulse_collector.words.figures import by_unit, unit_of
from ragpulse_collector.words.times import iso
from ragpulse_dashboards.site import Site, link, read_form, see_other, segment

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
FAMILIES: Final = ("quality", "fail_rate", "unclear_rate")
"""Metrics of each evaluator in use."""
TRAFFIC: Final = (
    "error_rate", "latency_p95", "latency_p50", "cost_usd", "requests", "input_tokens", "output_tokens",
    "unanswered_rate", "other_share", "question_drift",
)  # fmt: skip
CONDITIONS: Final = (("<", "falls below"), (">", "rises above"), ("change", "changes either way"), ("no data", "stops"))
WINDOWS: Final = ("10m", "30m", "1h", "6h", "1d")
MUTES: Final = (("1h", "1 hour"), ("8h", "8 hours"), ("1d", "1 day"), ("7d", "7 days"))
STATES: Final = {"firing": 0, "no data": 1, "broken": 1, "undecided": 2, "ok": 3}
"""The order of the list."""
FIELDS: Final = ("name", "metric", "where", "window", "false_alarms_per_year", "min_n")
"""The fields of the form that are one text."""


def routes(site: Site) -> list[BaseRoute]:
    """Return the list, the editor with its preview, and the forms."""
    return [
        site.page("/alerts", alerts, reads=("done", "name")),
        site.page("/alerts", save, post=True),
        site.page("/alerts/new", edit, reads=(*FIELDS, "condition", "limit", "notify", "preset", "sign")),
        site.page("/alerts/preview", preview, reads=None),
        site.page("/alerts/{name}/edit", edit, reads=("window",)),
        site.page("/alerts/{name}/test", act, post=True),
        site.page("/alerts/{name}/{action}", act, post=True),
    ]


async def alerts(site: Site, request: Request) -> Response:
    """List the monitors, firing ones first."""
    answer: MonitorList = await site.api("GET monitors", {})
    request.state.monitors = answer.monitors  # one reading for cards and navigation
    monitors = sorted(answer.monitors, key=lambda monitor: (STATES.get(monitor.state, len(STATES)), monitor.name))
    context = {
        "monitors": [replace(card, around=await _around(site, card)) for card in map(Card.of, monitors)],
        "expected": answer.expected,
        "presets": PRESETS,
        "mutes": MUTES,
        "done": request.query_params.get("done", ""),
        "name": request.query_params.get("name", ""),
    }
    return site.render(request, "alerts.html", context)


@dataclass(frozen=True)
class Links:
    """The chart around a firing, the worst traces of its window, and what moved the metric since that began."""

    chart: str
    worst: str
    why: str


@dataclass(frozen=True)
class Card:
    """A monitor with its condition in words, its chart, and the links of each event that fired."""

    monitor: ShownMonitor
    words: str
    href: str
    history: Sequence[tuple[MonitorEvent, Links | None]]
    around: MetricSeries | None = None
    """The metric around the latest firing, of a monitor that is firing."""

    @property
    def firing(self) -> MonitorEvent | None:
        """The latest firing with links, where it still fires."""
        return next((event for event, links in self.history if links and self.monitor.state == "firing"), None)

    @classmethod
    def of(cls, monitor: ShownMonitor) -> Card:
        """Add words and links to a monitor."""
        history = [(event, _links(monitor, event)) for event in monitor.history]
        return cls(monitor, _words(monitor), link("/figures", {"metric": monitor.metric}), history)


async def _around(site: Site, card: Card) -> MetricSeries | None:
    """Return the metric of a firing monitor, from twelve windows before it fired; None where it is refused."""
    if card.firing is None:
        return None
    monitor, event, length = card.monitor, card.firing, timedelta(seconds=duration_s(card.monitor.window))
    span = {"from": iso(event.t - 12 * length), "to": iso(event.t + 3 * length), "step": length.total_seconds()}
    named = {"name": monitor.metric, "where": monitor.where, **event.group}
    try:
        around: MetricSeries = await site.api("GET metrics", {k: v for k, v in (named | span).items() if v is not None})
    except Refusal:  # its `where` may take too long: the other monitors are shown all the same
        return None
    return around


def _words(monitor: ShownMonitor) -> str:
    """Return the condition with the unit of its metric: `> 3000` of a latency is above 3.00 s."""
    condition = monitor.condition.strip()
    side = {"<": "below", ">": "above"}.get(condition[:1])
    if side:
        return f"{side} {by_unit(condition[1:], unit_of(monitor.metric))}"
    return {"change": "it changes either way", "no data": "nothing arrives"}.get(condition, condition)


def _links(monitor: ShownMonitor, event: MonitorEvent) -> Links | None:
    if not monitor.window or event.state != "firing" or monitor.condition == "no data":
        return None
    end, length = event.t, timedelta(seconds=duration_s(monitor.window))
    shared = {"metric": monitor.metric, "where": monitor.where, **event.group}
    return Links(
        link("/figures", {**shared, "from": iso(end - 12 * length), "to": iso(end)}),
        link("/exemplars", {**shared, "t": iso(end - length), "step": length // timedelta(seconds=1)}),
        link("/explain", {**shared, "at": iso((end - length).replace(microsecond=0)), "from": iso(end - 12 * length)}),
    )


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The fields of the form as texts; an empty text is a field that is not filled."""

    name: str = ""
    metric: str = ""
    condition: str = ""
    where: str = ""
    window: str = ""
    false_alarms_per_year: str = ""
    min_n: str = ""
    group_by: Sequence[str] = ()
    notify: Sequence[str] = ()

    @classmethod
    def of(cls, fields: QueryParams) -> Draft:
        """Read a query or a form; the collector validates it."""
        sign, limit = fields.get("sign", ""), fields.get("limit", "").strip()
        return cls(
            **{name: fields.get(name, "").strip() for name in FIELDS},
            condition=(f"{sign} {limit}" if sign in ("<", ">") else sign) or fields.get("condition", ""),
            group_by=[name for name in fields.getlist("group_by") if name],
            notify=fields.getlist("notify"),
        )

    @property
    def params(self) -> dict[str, str | Sequence[str]]:
        """The parameters of an operation."""
        filled = {name: text for name in (*FIELDS, "condition") if (text := getattr(self, name))}
        return {**filled, "group_by": self.group_by, "notify": self.notify}

    @property
    def sign(self) -> str:
        """The kind of the condition: `<`, `>`, `change` or `no data`."""
        return self.condition if self.condition in ("change", "no data") else self.condition[:1]

    @property
    def limit(self) -> str:
        """The number after the sign."""
        return self.condition[1:].strip() if self.sign in "<>" else ""


async def edit(site: Site, request: Request) -> Response:
    """Show the form of one monitor: empty, from a preset, filled by a link, or of an existing one."""
    name, query = request.path_params.get("name"), request.query_params
    answer: MonitorList = await site.api("GET monitors", {})
    if name:
        draft = _existing(answer.monitors, name)
        draft = replace(draft, window=query.get("window") or draft.window)
    else:
        draft = await _preset(site, query, replace(Draft.of(query), notify=answer.destinations))
        draft = replace(draft, name=_unused(draft.name or "monitor", answer.monitors))
    return await _form(site, request, draft, answer.destinations, existing=name or "")


def _existing(monitors: Sequence[ShownMonitor], name: str) -> Draft:
    monitor = next((monitor for monitor in monitors if monitor.name == name), None)
    if monitor is None or monitor.source != "api":
        raise NotFound("There is no monitor of this name that can be changed here.")
    return Draft(
        name=monitor.name,
        metric=monitor.metric,
        condition=monitor.condition.strip(),
        where=monitor.where or "",
        window=monitor.window,
        false_alarms_per_year=f"{monitor.false_alarms_per_year:g}",
        min_n=str(monitor.min_n),
        group_by=monitor.group_by,
        notify=monitor.notify,
    )


def _unused(name: str, monitors: Sequence[ShownMonitor]) -> str:
    """Return the name, with a number where it is taken."""
    taken = {monitor.name for monitor in monitors}
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(candidate for candidate in names if candidate not in taken)


async def _preset(site: Site, query: QueryParams, draft: Draft) -> Draft:
    """Fill in the fields of a preset, with a limit from the usual value."""
    preset = next((preset for preset in PRESETS if preset[0] == query.get("preset")), None)
    if preset is None:
        return draft
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
    return replace(draft, name=key, metric=metric, condition=condition, window=window)


async def _level_before(site: Site, metric: str) -> float:
    """Return the level before the last day's change for the worse: what came since is not usual. 0: no such change."""
    if metric == "cost_usd":  # its change is that of a request, its limit one of an hour
        return 0.0
    overview: RangeSummary = await site.api("GET overview", {"from": "-24h", "max_age": 300.0})
    return next((shift.before.value for shift in overview.changes if shift.metric == metric and shift.worse), 0.0)


def worse_below(metric: str) -> bool:
    """Whether lower values of a metric are worse: the side on which its alert fires."""
    return metric.startswith(("quality:", "pass_rate:", "requests"))


async def _form(
    site: Site, request: Request, draft: Draft, destinations: Sequence[str], *, existing: str, problem: str = ""
) -> Response:
    names = await site.evaluators_in_use()
    metrics = [*(f"{family}:{name}" for family in FAMILIES for name in names), *TRAFFIC]
    shown = replace(
        draft,
        metric=draft.metric or metrics[0],
        condition=draft.condition or ("< 0.8" if worse_below(draft.metric or metrics[0]) else "> 0.2"),
        window=draft.window or "1h",
        false_alarms_per_year=draft.false_alarms_per_year or "4",
        min_n=draft.min_n or "0",
    )
    context = {
        "draft": shown,
        "metrics": [(name, "<" if worse_below(name) else ">") for name in dict.fromkeys([*metrics, shown.metric])],
        "conditions": CONDITIONS,
        "windows": list(dict.fromkeys([*WINDOWS, shown.window])),
        "destinations": destinations,
        "existing": existing,
        "problem": problem,
    }
    return site.render(request, "alert.html", context, status=400 if problem else 200)


async def preview(site: Site, request: Request) -> Response:
    """Show the last week of the metric with the limit, and how often it would have fired."""
    draft = Draft.of(request.query_params)
    try:
        answer: MonitorPreview = await site.api("GET monitors/preview", draft.params)
        step = max(600.0, duration_s(draft.window or "1h"))
        asked = {"name": draft.metric, "where": draft.where, "from": "-7d", "step": step}
        week: MetricSeries = await site.api("GET metrics", {name: value for name, value in asked.items() if value})
    except Refusal as error:
        return site.render(request, "alert_preview.html", {"problem": error.message})
    return site.render(request, "alert_preview.html", {"preview": answer, "week": week, "draft": draft})


async def save(site: Site, request: Request) -> Response:
    """Make or change a monitor; a refused form comes back as it was typed, with the reason."""
    form = await read_form(request)
    existing = form.get("existing", "")
    draft = replace(Draft.of(form), **({"name": existing} if existing else {}))
    operation = f"PUT monitors/{segment(existing)}" if existing else "POST monitors"
    try:
        await site.api(operation, draft.params)
    except Refusal as error:
        if error.status not in (400, 409):
            raise
        answer: MonitorList = await site.api("GET monitors", {})
        return await _form(site, request, draft, answer.destinations, existing=existing, problem=error.message)
    return see_other(link("/alerts", {"done": "saved", "name": draft.name}))


async def act(site: Site, request: Request) -> Response:
    """Send a test message, mute for a time, unmute, or delete."""
    name, action = segment(request.path_params["name"]), request.path_params.get("action", "test")
    form = await read_form(request) if action == "mute" else QueryParams()
    calls: Mapping[str, tuple[str, Mapping[str, str]]] = {
        "test": (f"POST monitors/{name}/test", {}),
        "mute": (f"POST monitors/{name}/mute", {"for": form.get("for") or "1h"}),
        "unmute": (f"POST monitors/{name}/mute", {}),
        "delete": (f"DELETE monitors/{name}", {}),
    }
    if action not in calls:
        raise NotFound("A monitor can be tested, muted or deleted.")
    answer = await site.api(*calls[action])
    done = _tested(answer) if action == "test" else action
    return see_other(link("/alerts", {"done": done, "name": name}))


def _tested(sent: AlertSent) -> str:
    if not sent.ok:
        raise Refusal(f"The test message was not delivered; {sent.delivery}", status=502)
    return "test" if sent.delivery else "unsent"
