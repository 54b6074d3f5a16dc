"""`/`: is the pipe alive, how good are the answers, what do they cost, over time."""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.charts import Chart, build_chart
from ragpulse_dashboards.formats import parse_time
from ragpulse_dashboards.site import Site
from ragpulse_dashboards.view import View, read_view

__all__ = ["routes"]

BUCKETS: Final = 120
"""Points a chart asks for: a card is about 500 px wide, and a point with an interval needs 4."""
MAX_QUALITY: Final = 8
SHORT: Final = tuple((f"-{hours}h", timedelta(hours=hours)) for hours in (1, 6, 12))
"""Ranges that a young store is shown by."""
MAX_AGE_S: Final = 3600.0
SLOW_S: Final = 0.02
"""Where the traffic alone takes so long to read, the rest takes six times that: the page comes without."""

EFFICIENCY: Final = (
    ("latency", "Latency", ("latency_p50", "latency_p95", "latency_p99"), False),
    ("requests", "Requests", ("requests",), True),
    ("error-rate", "Error rate", ("error_rate",), False),
    ("cost", "Cost", ("cost_usd",), True),
    ("tokens", "Tokens", ("input_tokens", "output_tokens"), True),
)
"""Key, title, metrics and whether bars are drawn."""
MIDDLE: Final = {"latency": "latency_p95"}
"""What stands for a chart of several metrics."""
LABELS: Final = {
    "latency_p50": "p50", "latency_p95": "p95", "latency_p99": "p99", "requests": "", "error_rate": "",
    "cost_usd": "", "input_tokens": "input", "output_tokens": "output",
}  # fmt: skip


def routes(site: Site) -> list[BaseRoute]:
    """The overview, any chart of it alone with its whole table, and the fragment that waits for the first span."""
    return [
        site.page("/", overview),
        site.page("/figures", figures),
        site.page("/figures/rows", rows),
        site.page("/waiting", waiting),
    ]


@dataclass(frozen=True, kw_only=True)
class _Figures:
    """Everything the overview shows, read at one time."""

    view: View
    strip: Mapping[str, Any]
    targets: Sequence[Mapping[str, Any]]
    quality: Sequence[Chart]
    efficiency: Sequence[Chart]
    coverage: Chart | None
    long_s: float
    """The length of the range."""
    whole: bool = True
    """False: the traffic only, the scores are still to be read."""

    @property
    def max_age_s(self) -> float:
        """Up to this age they are shown while newer ones are read: a few points of a chart."""
        return min(MAX_AGE_S, self.long_s / 24)


async def overview(site: Site, request: Request) -> Response:
    """Headline strip, targets, quality charts, coverage, efficiency charts; or the three lines to paste."""
    asked, query = read_view(request), request.query_params
    corrected = query.get("corrected") == "true"

    def read() -> Awaitable[_Figures]:
        return _read(site, asked, pinned=query.getlist("quality"), corrected=corrected)

    reload = "no-cache" in request.headers.get("cache-control", "")
    known = None if reload else site.cache.cached(str(query), read, max_age_s=_max_age)
    first = await _first(site, asked) if known is None and _asks_again(request) else None
    figures, age_s = (
        (first, 0.0) if first else await site.cache.get(str(query), read, max_age_s=_max_age, reload=reload)
    )
    if figures.strip.get("newest_span") is None and not figures.strip.get("n_traces"):
        return site.render(request, "welcome.html", {"view": figures.view, "origin": _origin(request)})
    context = {
        "view": figures.view,
        "keep": {"corrected": "true"} if corrected else {},
        "strip": figures.strip,
        "age_s": age_s,
        "targets": figures.targets,
        "quality": figures.quality,
        "efficiency": figures.efficiency,
        "coverage": figures.coverage,
        "whole": figures.whole,
        "whole_url": "/?" + request.url.include_query_params(whole="true").query,
    }
    return site.render(request, "overview.html", context)


def _max_age(figures: _Figures) -> float:
    return figures.max_age_s


def _asks_again(request: Request) -> bool:
    """Whether it is a browser's visit, which can ask for the rest: by script, or sent on to `whole` without one."""
    return request.headers.get("sec-fetch-mode") == "navigate" and "whole" not in request.query_params


async def _first(site: Site, asked: View) -> _Figures | None:
    """The traffic alone, one pass over the requests; None where that is so quick that the rest is worth waiting for."""
    begun = time.monotonic()
    requests = (await _metrics(site, asked, ["requests"], ()))["requests"]
    if time.monotonic() - begun < SLOW_S or not any(one["points"] for one in requests.get("series") or []):
        return None
    view = _fitting(asked, requests)
    strip = await site.api("GET overview", {**view.params(), "only": "traffic"})
    charts = _efficiency(view, await _metrics(site, view, _traffic_names(view), view.group_by), ())
    return _Figures(
        view=view, strip=strip, targets=(), quality=(), efficiency=charts, coverage=None, long_s=0.0, whole=False
    )


async def _read(site: Site, asked: View, *, pinned: Sequence[str], corrected: bool) -> _Figures:
    """Traffic first, because it says which range fits; what else is asked shares what the collector read for it."""
    requests = (await _metrics(site, asked, ["requests"], ()))["requests"]
    view = _fitting(asked, requests)
    strip, told = await asyncio.gather(site.api("GET overview", view.params()), site.api("GET targets", view.params()))
    targets = told.get("targets") or []
    measured = dict.fromkeys(one["evaluator"] for one in strip.get("quality") or [] if one.get("n"))
    chosen = [name for name in measured if not pinned or name in pinned][:MAX_QUALITY]
    covered = [one["evaluator"] for one in strip.get("coverage") or []][: 1 if view.group_by else MAX_QUALITY]
    names = [*(f"quality:{name}" for name in chosen), *_traffic_names(view), *(f"coverage:{name}" for name in covered)]
    answers = await _metrics(site, view, names, view.group_by, corrected=corrected)
    start, end = (parse_time(requests.get(edge)) for edge in ("from", "to"))
    return _Figures(
        view=view,
        strip=strip,
        targets=targets,
        quality=_quality(chosen, answers, targets, corrected=corrected),
        efficiency=_efficiency(view, answers, targets),
        coverage=_coverage(covered, answers),
        long_s=(end - start).total_seconds() if start and end and view == asked else 0.0,
    )


async def figures(site: Site, request: Request) -> Response:
    """One chart with every row of its table twin."""
    return site.render(request, "figures.html", await _alone(site, request))


async def rows(site: Site, request: Request) -> Response:
    """The newest rows of a chart's table twin, for the card that the chart is on."""
    return site.render(request, "rows.html", await _alone(site, request))


async def _alone(site: Site, request: Request) -> dict[str, Any]:
    view, query = read_view(request), request.query_params
    names = query.getlist("metric")[:MAX_QUALITY] or ["requests"]
    corrected = query.get("corrected") == "true"
    told, answers = await asyncio.gather(
        site.api("GET targets", view.params()),
        _metrics(site, view, names, view.group_by, corrected=corrected),
    )
    labelled = [
        (LABELS.get(name, name.partition(":")[2]) if len(names) > 1 else "", one) for name, one in answers.items()
    ]
    title = query.get("title") or ", ".join(name.replace("quality:", "") for name in names).replace("_", " ")
    targets = told.get("targets") or []
    chart = build_chart(key="only", title=title, answers=labelled, metric=names[0], targets=targets)
    keep = {"metric": names, "title": title, **({"corrected": "true"} if corrected else {})}
    return {"view": view, "chart": chart, "keep": keep}


async def waiting(site: Site, request: Request) -> Response:
    """Polled by the empty page: reloads it when the first span is on disk."""
    strip = await site.api("GET overview", {"from": "-30d"})
    response = site.render(request, "parts/waiting.html", {})
    if strip.get("newest_span"):
        response.headers["HX-Refresh"] = "true"
    return response


def _origin(request: Request) -> str:
    return f"{request.url.scheme}://{request.headers.get('host', '127.0.0.1:4318')}"


def _fitting(asked: View, requests: Mapping[str, Any]) -> View:
    """The range the URL asks for; where it asks for none, the shortest one that holds all there is of the day."""
    times = [
        parse_time(point.get("t")) for one in requests.get("series") or [] for point in one["points"] if point["n"]
    ]
    oldest, end = min((time for time in times if time), default=None), parse_time(requests.get("to"))
    if asked.given or oldest is None or end is None:
        return asked
    fitting = (start for start, long in SHORT if end - oldest <= long)
    return replace(asked, start=next(fitting, asked.start))


async def _metrics(
    site: Site, view: View, names: Sequence[str], group_by: Sequence[str], *, corrected: bool = False
) -> dict[str, Mapping[str, Any]]:
    """The answers for several metrics by name; all in one question, as each waits for a thread of its own."""
    params = {**view.params(), "name": list(names), "step": "auto", "width": BUCKETS, "group_by": list(group_by)}
    answer = await site.api("GET metrics", params | ({"corrected": "true"} if corrected else {}))
    return {name: {**one, "name": name} for name, one in zip(names, answer["metrics"], strict=True)}


def _quality(
    evaluators: Sequence[str], answers: Mapping[str, Any], targets: Sequence[Mapping[str, Any]], *, corrected: bool
) -> list[Chart]:
    return [
        build_chart(
            key=f"quality-{name}",
            title=name,
            answers=[("", answers[f"quality:{name}"])],
            metric=f"quality:{name}",
            targets=targets,
            note=_correction(answers[f"quality:{name}"].get("series") or []) if corrected else "",
        )
        for name in evaluators
    ]


def _correction(series: Sequence[Mapping[str, Any]]) -> str:
    """Whether people's labels moved the newest line, and how many there are."""
    labels = max((one.get("labels") or 0 for one in series), default=0)
    if any(one.get("corrected") for one in series):
        return f"corrected by {labels} labels"
    return f"not corrected: {labels} labels, 30 are needed"


def _coverage(evaluators: Sequence[str], answers: Mapping[str, Any]) -> Chart | None:
    """The share of the eligible answers that each evaluator scored; grouped, one evaluator stands for the chart."""
    labelled = [(name, answers[f"coverage:{name}"]) for name in evaluators]
    if not labelled:
        return None
    return build_chart(key="coverage", title="Scored share", answers=labelled, metric=f"coverage:{evaluators[0]}")


def _shown(view: View, key: str, names: Sequence[str]) -> Sequence[str]:
    """Grouped, three percentiles of every group are unreadable: one metric stands for the chart."""
    return (MIDDLE.get(key, names[0]),) if view.group_by else names


def _traffic_names(view: View) -> list[str]:
    return [name for key, _, names, _ in EFFICIENCY for name in _shown(view, key, names)]


def _efficiency(view: View, answers: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]) -> list[Chart]:
    return [
        build_chart(
            key=key,
            title=title,
            answers=[(LABELS[name], answers[name]) for name in _shown(view, key, names)],
            metric=MIDDLE.get(key, names[0]),
            targets=targets,
            bars=bars and not view.group_by,
        )
        for key, title, names, bars in EFFICIENCY
    ]
