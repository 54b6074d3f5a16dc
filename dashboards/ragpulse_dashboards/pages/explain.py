"""`/explain`: what is more common among bad, slow or expensive answers than among the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_collector.analysis.explain import Bar, Distinction, Explanation, HeatCounts
from ragpulse_collector.words.figures import unit_of
from ragpulse_collector.words.times import iso
from ragpulse_dashboards.charts import fit_range, read_metrics
from ragpulse_dashboards.site import FILTERS, SELECTORS, Site, View, link, read_view

SELECTION: Final = ("sel_from", "sel_to", "sel_lo", "sel_hi")
SHADES: Final = 4
METRICS: Final = ("latency_p95", "ttft_p95", "cost_usd", "input_tokens", "output_tokens", "error_rate")
MAX_ROWS: Final = 8
SIGNIFICANT: Final = 0.05
_LEAST_SHARE: Final = 0.001
"""Stands for a share of 0, whose lift is infinite."""
_LISTED: Final[Mapping[str, Mapping[str, str]]] = {
    "ms": {"sort": "slow"}, "usd": {"sort": "expensive"}, "tokens": {"sort": "long"}, "share": {"error": "true"},
}  # fmt: skip
"""The list of the marked requests, by the unit of the metric."""
VERBS: Final = {
    "document": "retrieved", "prompt_version": "used prompt", "model": "used model", "service": "came from",
    "retriever": "searched with", "contexts retrieved": "had",
    "query script": "were asked in", "query length": "asked with",
}  # fmt: skip


NOUNS: Final = {"contexts retrieved": "contexts", "query length": "characters"}
"""What the value of an attribute counts."""


class Column(NamedTuple):
    """One column of the heatmap as a row of its table twin."""

    start: str
    end: str
    """Empty for the last column, which ends now."""
    traces: int
    most: tuple[float, float]
    """The range of values of most traces ..."""
    highest: tuple[float, float]
    """... and that of the highest values."""


class Heatmap(NamedTuple):
    """Counts over time and value, with the edges that name a marked region."""

    cells: Sequence[tuple[int, int, int, int]]
    """Column, row from the bottom, shade 1..4, count; empty cells are left out."""
    x: Sequence[str]
    """Start of each column, as the browser reads it."""
    y: Sequence[float]
    """Lower edge of each row."""
    table: Sequence[Column]
    """Newest first, without empty columns."""
    end: str
    """The end of the last column."""


class Bars(NamedTuple):
    """Stacked bars of good and bad requests."""

    stacks: Sequence[tuple[int, float, float, Bar]]
    """Place, heights of all and of the bad as percent of the highest one, and the counts."""
    bad: Mapping[str, int]
    """The number of bad ones by the start of each bucket."""
    top: int


class Cause(NamedTuple):
    """A row of the table: an attribute with its verb, its links, and the attributes that it explains."""

    found: Distinction
    verb: str
    noun: str
    folded: Sequence[Distinction]
    traces_url: str
    document_url: str
    compare_url: str


def routes(site: Site) -> list[BaseRoute]:
    """Return the page."""
    return [site.page("/explain", explain, reads=("metric", "at", *SELECTION))]


async def explain(site: Site, request: Request) -> Response:
    """Show bars or a heatmap with the marked stretch, the largest causes as sentences, and attributes by lift."""
    view, query = read_view(request), request.query_params
    if not view.explicit:
        view = fit_range(view, (await read_metrics(site, view, ["requests"]))["requests"])
    scores = [f"quality:{name}" for name in await site.evaluators_in_use()]
    metric = query.get("metric") or (*scores, *METRICS)[0]
    selection = {name: query[name] for name in SELECTION if query.get(name)}
    bounded = bool(selection.keys() & {"sel_lo", "sel_hi"})
    moment: dict[str, str | bool] = {"at": query["at"]} if query.get("at") else {}
    params = {**view.params(), "metric": metric, **selection, **(moment or ({} if bounded else {"bad": True}))}
    answer: Explanation = await site.api("GET explain", params)
    dip, since, errors = answer.dip, answer.change, metric.startswith("error")
    marked = selection or ({"sel_from": iso(dip.from_), "sel_to": iso(dip.to)} if dip else {})
    if since:
        marked = {"sel_from": iso(since.at), "sel_to": iso(since.to)}
    lifted = [found for found in answer.attributes if _is_lifted(found)]
    causes = [_cause(view, metric, marked, found, lifted) for found in lifted if not found.explained_by][:MAX_ROWS]
    by_weight = sorted(causes, key=_weight, reverse=True)
    context = {
        "view": view,
        "metric": metric,
        "metrics": list(dict.fromkeys([*scores, *METRICS, metric])),
        "selection": marked,
        "detected": not selection and bool(dip),
        "answer": answer,
        "at": query.get("at", ""),
        "since": since,
        "bad": f"{'failed ' * errors}requests since" if moment else _bad_words(metric, bounded=bounded),
        "others": "others" if errors or not since else "before",
        "bad_since": _bad_words(metric, bounded=False),
        "bars": _bars(answer.bars) if ":" in metric or errors else None,
        "heatmap": _heatmap(answer.heatmap),
        "causes": causes,
        "first": by_weight,
        "alert_url": _alert_url(metric, by_weight),
        "unit": unit_of(metric),
    }
    return site.render(request, "explain.html", context)


def _is_lifted(found: Distinction) -> bool:
    """Whether an attribute is significantly more common among the marked requests."""
    return found.p_adjusted <= SIGNIFICANT and (found.lift is None or found.lift > 1)


def _weight(cause: Cause) -> float:
    """Return how much a cause explains: a lift of ten in a tenth of the requests is less than one of five in all."""
    share = cause.found.selected.share
    return share * math.log(share / (cause.found.baseline.share or _LEAST_SHARE))


def _bad_words(metric: str, *, bounded: bool) -> str:
    """Return the name of the marked requests."""
    if bounded:
        return "marked requests"
    if ":" in metric:
        return "bad answers"
    if metric.startswith("error"):
        return "failed requests"
    return {"ms": "slow requests", "usd": "expensive requests"}.get(unit_of(metric), "largest requests")


def _bars(bars: Sequence[Bar]) -> Bars:
    top = max((bar.n for bar in bars), default=0) or 1
    stacks = [(x, bar.n / top * 100, bar.bad / top * 100, bar) for x, bar in enumerate(bars) if bar.n]
    return Bars(stacks, {iso(bar.t): bar.bad for bar in bars}, top)


def _cause(
    view: View, metric: str, marked: Mapping[str, str], found: Distinction, lifted: Sequence[Distinction]
) -> Cause:
    name, value = found.attribute, found.value
    stretch = {"from_": marked["sel_from"], "to": marked.get("sel_to")} if marked.get("sel_from") else {}
    own = {name: value} if name in FILTERS or name == "document" else {}
    evaluator = metric.partition(":")[2]
    bad = (
        {"evaluator": evaluator, "failing": "true", "sort": "worst"} if evaluator else _LISTED.get(unit_of(metric), {})
    )
    kind = SELECTORS.get(name)
    return Cause(
        found=found,
        verb=_verb(name, value),
        noun=NOUNS.get(name, ""),
        folded=[other for other in lifted if (by := other.explained_by) and (by.attribute, by.value) == (name, value)],
        traces_url=view.url("/traces", group_by=None, **stretch, **bad, **own),
        document_url=view.url("/documents", sort="worst") if name == "document" else "",
        compare_url=view.url("/compare", b=f"{kind}:{value}", evaluator=evaluator) if kind else "",
    )


def _verb(name: str, value: str) -> str:
    """Return `retrieved` before a document; of an error the whole predicate."""
    if name == "error":
        return "failed" if value == "true" else "did not fail"
    return VERBS.get(name, f"have the {name.replace('_', ' ')}")


def _alert_url(metric: str, causes: Sequence[Cause]) -> str:
    """Return the form of an alert on this metric, limited to the first cause that a condition can name."""
    presets = (("latency", "latency"), ("cost", "cost"), ("error", "errors"), (":", "quality"))
    draft = {"metric": metric, "preset": next((preset for word, preset in presets if word in metric), "")}
    nameable = (cause.found for cause in causes if cause.found.attribute in FILTERS)
    found = next((found for found in nameable if found.attribute != "error"), None)
    if found:
        value = found.value.replace("'", "''")
        draft["where"] = f"{found.attribute} = '{value}'"
    return link("/alerts/new", draft)


def _heatmap(counts: HeatCounts) -> Heatmap:
    """Return shaded cells; the shade is logarithmic, so that small counts stay visible."""
    x, y = [iso(start) for start in counts.x], counts.y
    top = max((number for column in counts.cells for number in column), default=0)
    cells = [
        (left, up, math.ceil(math.log1p(number) / math.log1p(top) * SHADES), number)
        for left, column in enumerate(counts.cells)
        for up, number in enumerate(column)
        if number
    ]
    table = [_table_row(x, y, left, column) for left, column in enumerate(counts.cells) if any(column)]
    # All columns have the same length.
    end = iso(counts.x[-1] + (counts.x[-1] - counts.x[-2])) if len(x) > 1 else ""
    return Heatmap(cells=cells, x=x, y=y, table=table[::-1], end=end)


def _table_row(x: Sequence[str], y: Sequence[float], left: int, column: Sequence[int]) -> Column:
    edges = [*y, 2 * y[-1] - y[-2]] if len(y) > 1 else [*y, *y]
    filled = [up for up, number in enumerate(column) if number]
    most, highest = max(filled, key=lambda up: column[up]), filled[-1]
    return Column(
        start=x[left],
        end=x[left + 1] if left + 1 < len(x) else "",
        traces=sum(column),
        most=(edges[most], edges[most + 1]),
        highest=(edges[highest], edges[highest + 1]),
    )
