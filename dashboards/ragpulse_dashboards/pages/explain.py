"""`/explain`: why are these answers bad, slow or expensive? What is more common among them than elsewhere."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.charts import fitting, read_metrics
from ragpulse_dashboards.formats import iso, parse_time, unit_of
from ragpulse_dashboards.site import Site
from ragpulse_dashboards.view import FILTERS, View, read_view

__all__ = ["Heatmap", "build_heatmap", "routes"]

SELECTION: Final = ("sel_from", "sel_to", "sel_lo", "sel_hi")
SHADES: Final = 4
METRICS: Final = ("latency_ms", "ttft_ms", "cost_usd", "input_tokens", "output_tokens", "error_rate")
MOST: Final = 8
CHANCE: Final = 0.05
_NONE: Final = 0.001
"""The share that stands for none, of which a lift is no number."""
VERSIONS: Final = {"prompt_version": "prompt", "model": "model", "variant": "variant", "service": "service"}
"""Attributes that `/compare` takes, and its word for them."""
VERBS: Final = {
    "document": "retrieved", "prompt_version": "used prompt", "model": "used model", "service": "came from",
    "retriever": "searched with", "contexts retrieved": "retrieved so many contexts:",
    "query script": "were asked in", "query length": "had so many characters in the question:",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the heatmap in words, as a row of its table twin."""

    start: str
    end: str
    """Empty for the last one, which ends now."""
    traces: int
    most: tuple[float, float]
    """The range of values that most of them lie in ..."""
    highest: tuple[float, float]
    """... and that of the highest."""


@dataclass(frozen=True, kw_only=True)
class Heatmap:
    """Counts over time and value, with what the browser needs to name a marked region."""

    columns: int
    rows: int
    cells: Sequence[tuple[int, int, int, int]]
    """Column, row from the bottom, shade 1..4, count; empty cells are left out."""
    x: Sequence[str]
    """Start of each column."""
    y: Sequence[float]
    """Lower edge of each row."""
    table: Sequence[Column]
    """Newest first; a time without traces is left out."""
    end: str
    """Where the last column ends."""


def routes(site: Site) -> list[BaseRoute]:
    """One page."""
    return [site.page("/explain", explain)]


async def explain(site: Site, request: Request) -> Response:
    """Bars or heatmap with the marked stretch, the largest causes in sentences, the attributes in the order of lift."""
    view, query = read_view(request), request.query_params
    if not view.given:
        view = fitting(view, (await read_metrics(site, view, ["requests"]))["requests"])
    scores = [f"quality:{name}" for name in await site.in_use()]
    metric = query.get("metric") or (*scores, *METRICS)[0]
    selection = {name: query[name] for name in SELECTION if query.get(name)}
    bounded = bool(selection.keys() & {"sel_lo", "sel_hi"})
    answer = await site.api(
        "GET explain", {**view.params(), "metric": metric, **selection, **({} if bounded else {"bad": True})}
    )
    box = selection or _edges(answer.get("dip"))
    found = [one for one in answer["attributes"] if _sure(one)]
    causes = [one for one in found if not one.get("explained_by")][:MOST]
    first = sorted(causes, key=lambda one: -_telling(one))
    context = {
        "view": view,
        "metric": metric,
        "metrics": list(dict.fromkeys([*scores, *METRICS, metric])),
        "selection": box,
        "found_here": not selection and bool(box),
        "answer": answer,
        "bad": _bad_words(metric, bounded=bounded),
        "bars": _bars(answer["bars"]) if ":" in metric or metric.startswith("error") else None,
        "heatmap": build_heatmap(answer["heatmap"]),
        "causes": [_cause(view, metric, box, one, found) for one in causes],
        "first": [_cause(view, metric, box, one, found) for one in first],
        "alert_url": _alert_url(metric, first),
        "unit": unit_of(metric),
    }
    return site.render(request, "explain.html", context)


def _edges(dip: Mapping[str, Any] | None) -> dict[str, str]:
    return {"sel_from": str(dip["from"]), "sel_to": str(dip["to"])} if dip else {}


def _sure(one: Mapping[str, Any]) -> bool:
    """More common among the marked, and hardly by chance."""
    lift = one.get("lift")
    return one.get("p_adjusted", 1.0) <= CHANCE and (lift is None or lift > 1)


def _telling(one: Mapping[str, Any]) -> float:
    """How much a cause explains: a lift of ten that a tenth of the marked share tells less than one of five of all."""
    share = float(one["selected"]["share"])
    return share * math.log(share / (one["baseline"]["share"] or _NONE))


def _bad_words(metric: str, *, bounded: bool) -> str:
    """What the marked requests are."""
    if bounded:
        return "marked requests"
    if ":" in metric:
        return "bad answers"
    if metric.startswith("error"):
        return "failed requests"
    return {"ms": "slow requests", "usd": "expensive requests"}.get(unit_of(metric), "largest requests")


def _bars(bars: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Stacked bars of good and bad, as percent of the highest one."""
    most = max((one["n"] for one in bars), default=0) or 1
    stacks = [(at, one["n"] / most * 100, one["bad"] / most * 100, one) for at, one in enumerate(bars) if one["n"]]
    return {"stacks": stacks, "starts": [one["t"] for one in bars], "most": most}


def _cause(
    view: View, metric: str, box: Mapping[str, str], one: Mapping[str, Any], found: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """A row of the list: its sentence's verb, its links, and what it explains."""
    name, value = str(one["attribute"]), str(one["value"])
    key = {"attribute": one["attribute"], "value": one["value"]}
    wanted = {"from_": box["sel_from"], "to": box.get("sel_to")} if box.get("sel_from") else {}
    own = {name: value} if name in FILTERS or name == "document" else {}
    evaluator = metric.partition(":")[2]
    bad = {"evaluator": evaluator, "failing": "true", "sort": "worst"} if evaluator else {"sort": "slow"}
    if metric.startswith("error"):
        bad = {"error": "true"}
    kind = VERSIONS.get(name)
    return {
        **one,
        "verb": _verb(name, value),
        "folded": [other for other in found if other.get("explained_by") == key],
        "traces_url": view.url("/traces", group_by=None, **wanted, **bad, **own),
        "document_url": view.url("/documents", sort="worst") if name == "document" else "",
        "compare_url": view.url("/compare", b=f"{kind}:{value}", evaluator=evaluator) if kind else "",
    }


def _verb(name: str, value: str) -> str:
    """`retrieved`, before a document; of errors the whole of what is said."""
    if name == "error":
        return "failed" if value == "true" else "did not fail"
    return VERBS.get(name, f"have the {name.replace('_', ' ')}")


def _alert_url(metric: str, causes: Sequence[Mapping[str, Any]]) -> str:
    """The form of an alert on this metric, on the first cause where a condition can name it."""
    words = (("latency", "latency"), ("cost", "cost"), ("error", "errors"), (":", "quality"))
    draft = {"metric": metric} | dict([("preset", preset) for word, preset in words if word in metric][:1])
    cause = next((one for one in causes if one["attribute"] in FILTERS and one["attribute"] != "error"), None)
    if cause:
        value = str(cause["value"]).replace("'", "''")
        draft["where"] = f"{cause['attribute']} = '{value}'"
    return "/alerts/new?" + urlencode(draft, errors="replace")


def _by_column(cells: Sequence[Sequence[int]], columns: int) -> Sequence[Sequence[int]]:
    """Cells as one list a column; a list of rows is turned."""
    return cells if len(cells) == columns else list(zip(*cells, strict=False))


def build_heatmap(answer: Mapping[str, Any]) -> Heatmap:
    """Cells as `cells[column][row]`, shaded by the logarithm of their count: beside a full one others stay visible."""
    x, y = answer["x"], answer["y"]
    counts = _by_column(answer["cells"], len(x))
    most = max((number or 0 for column in counts for number in column), default=0)
    cells = [
        (left, up, math.ceil(math.log1p(number) / math.log1p(most) * SHADES), number)
        for left, column in enumerate(counts)
        for up, number in enumerate(column)
        if number
    ]
    table = [_in_words(x, y, left, column) for left, column in enumerate(counts) if any(column)]
    return Heatmap(columns=len(x), rows=len(y), cells=cells, x=x, y=y, table=table[::-1], end=_end(x))


def _end(x: Sequence[str]) -> str:
    """The columns are of one length; of a single one it is not known."""
    before, last = (parse_time(one) for one in x[-2:]) if len(x) > 1 else (None, None)
    return iso(last + (last - before)) if before and last else ""


def _in_words(x: Sequence[str], y: Sequence[float], left: int, column: Sequence[int]) -> Column:
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
