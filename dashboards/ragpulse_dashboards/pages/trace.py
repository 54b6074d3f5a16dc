"""`/traces/{id}`: one question, its answer, contexts, verdicts and spans; `/label`: the queue of answers to label."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards import SECURITY_HEADERS, ApiError
from ragpulse_dashboards.answer import context_views, find_sentences, render_answer
from ragpulse_dashboards.formats import as_judged, parse_time, readable
from ragpulse_dashboards.site import Site, link, read_form, see_other

__all__ = ["routes", "waterfall"]

VERDICTS: Final = {"good": 1.0, "bad": 0.0}
MAX_SUGGESTIONS: Final = 200
"""The API's limit."""
_ORDER: Final[Mapping[bool | None, int]] = {False: 0, True: 1, None: 2}
"""Failing scores first, then passing ones, then those without a threshold."""
FIRST_ROWS: Final = 200
"""Rows of a trace's page at first; a thousand rows make it half as slow again."""
MAX_ROWS: Final = 2000
MAX_DEPTH: Final = 12


def routes(site: Site) -> list[BaseRoute]:
    """Return the page, a span, the trace as a file and as a pytest case, the queue, and the forms."""
    return [
        site.page("/traces/{trace_id}", trace),
        site.page("/traces/{trace_id}/spans/{span_id}", span),
        site.page("/traces/{trace_id}/pytest", as_pytest),
        site.page("/traces/{trace_id}/html", as_html),
        site.page("/traces/{trace_id}/label", label, post=True),
        site.page("/label", queue),
        site.page("/traces/{trace_id}/evaluate", evaluate, post=True),
    ]


async def _fetch(site: Site, request: Request, **params: str) -> Mapping[str, Any]:
    start = request.query_params.get("at")
    path = f"GET traces/{_id(request)}"
    answer: Mapping[str, Any] = await site.api(path, {**params, **({"at": start} if start else {})})
    return answer


def _id(request: Request) -> str:
    trace_id: str = request.path_params["trace_id"]
    if len(trace_id) != 32 or not set(trace_id) <= set("0123456789abcdef"):
        raise ApiError(404, "A trace id is 32 hexadecimal digits. Pick the trace from the list instead.")
    return trace_id


async def trace(site: Site, request: Request) -> Response:
    """Show the answer beside its contexts, spans, verdicts and session."""
    head = await _fetch(site, request, only="trace")

    async def read() -> Mapping[str, Any]:
        context = _context(request, {**head, **await _fetch(site, request, only="rest", spans="brief")})
        failed = context["failed"]
        return {**context, "exception": _exception(await _span(site, request, failed["span_id"])) if failed else None}

    return await site.begin(request, "trace.html", read)


def _context(request: Request, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    row, spans = answer["trace"], answer["spans"]
    scores = sorted(
        ({"shown": _shown(score), **as_judged(score["evaluator"], score)} for score in answer["scores"]),
        key=lambda score: (score["evaluator"], score.get("created_at") or ""),
    )
    sentences = find_sentences(reversed(scores))
    limit = MAX_ROWS if request.query_params.get("rows") == "all" else FIRST_ROWS
    contexts = context_views(answer["contexts"], sentences)
    evaluated = [context.row for context in contexts if context.index is not None]
    return {
        "trace": row,
        "previous": answer.get("previous"),
        "following": answer.get("next"),
        "answer": render_answer(row["response"] or "", sentences, evaluated),
        "sentences": sentences,
        "contexts": [context for context in contexts if not context.row.get("superseded")],
        "superseded": [context for context in contexts if context.row.get("superseded")],
        "reranked": any(span["kind"] == "reranker" for span in spans),
        "scores": sorted(scores, key=lambda score: (score["status"] != "ok", _ORDER[score["passing"]])),
        "chips": _chips(scores),
        "decisions": answer["decisions"],
        "labels": answer["labels"],
        "unread": answer["unread"],
        "rows": waterfall(spans, limit=limit),
        "axis": time_axis(spans),
        "n_spans": len(spans),
        "failed": _origin_of_error(spans),
        "done": request.query_params.get("done", ""),
    }


def _chips(scores: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the newest score of each evaluator: failing ones, passing ones, then the others."""
    newest = {score["shown"]: score for score in scores if score["status"] == "ok"}
    return sorted(newest.values(), key=lambda score: (_ORDER[score["passing"]], score["shown"]))


def _shown(score: Mapping[str, Any]) -> str:
    """Return the name of a score on the page: people's scores and several judges of one name are told apart."""
    name = f"feedback:{score['evaluator']}" if score.get("source") == "human" else str(score["evaluator"])
    return f"{name} ({score['identifier']})" if score.get("identifier") else name


def _origin_of_error(spans: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the span in which an error began: the earliest failed span without a failed child."""
    failed = [span for span in spans if span["status"] == "error" or span["error_type"]]
    parents = {span["parent_span_id"] for span in failed}
    innermost = [span for span in failed if span["span_id"] not in parents] or failed
    return min(innermost, key=lambda span: str(span["start_time"]), default=None)


async def _span(site: Site, request: Request, span_id: str) -> Mapping[str, Any]:
    answer = await _fetch(site, request, spans=span_id)
    match = next((span for span in answer["spans"] if span["span_id"] == span_id), None)
    if match is None:
        raise ApiError(404, "This trace has no such span. It may have been pruned.")
    return {**match, "trace": answer["trace"]}


def _exception(span: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return type, message and stack trace of a span's error, as far as they are known."""
    attributes: dict[str, Any] = {}
    for event in span.get("events") or []:
        if isinstance(event, Mapping) and isinstance(event.get("attributes"), Mapping):
            attributes |= event["attributes"] if "exception.type" in event["attributes"] else {}
    return {
        "type": attributes.get("exception.type") or span.get("error_type"),
        "message": attributes.get("exception.message") or span.get("status_message"),
        "stacktrace": attributes.get("exception.stacktrace"),
    }


async def span(site: Site, request: Request) -> Response:
    """Show one span: times, usage, texts and its attributes verbatim."""
    row = await _span(site, request, request.path_params["span_id"])
    context = {"span": row, "attributes": _attributes(row), "trace": row["trace"], "exception": _exception(row)}
    return site.render(request, "span.html", context)


def _attributes(span: Mapping[str, Any]) -> list[tuple[str, str]]:
    raw = span.get("attributes")
    if not isinstance(raw, Mapping):
        return [("attributes", readable(raw))] if raw else []
    return [(str(key), readable(value)) for key, value in sorted(raw.items())]


async def as_pytest(site: Site, request: Request) -> Response:
    """Send the trace as a runnable test, for the clipboard or a file."""
    return await _file(site, request, "pytest", "inline")


async def as_html(site: Site, request: Request) -> Response:
    """Send the trace as one page that needs no collector; secrets are masked."""
    return await _file(site, request, "html", "attachment")


async def _file(site: Site, request: Request, form: str, disposition: str) -> Response:
    answer = await site.api(f"GET traces/{_id(request)}/{form}", {})
    filename = quote(answer["filename"], safe="")
    headers = {**SECURITY_HEADERS, "Content-Disposition": f"{disposition}; filename*=UTF-8''{filename}"}
    media_type = "text/html" if disposition == "attachment" else "text/plain"
    return Response(answer["text"].encode("utf-8", "replace"), media_type=media_type, headers=headers)


async def label(site: Site, request: Request) -> Response:
    """Store a person's verdict on one evaluator of this trace."""
    form = await read_form(request)
    if form.get("verdict") not in VERDICTS:
        raise ApiError(400, "Choose good or bad before saving the label.")
    params: dict[str, Any] = {
        "trace_id": _id(request),
        "evaluator": form.get("evaluator") or "groundedness",
        "passing": form["verdict"] == "good",
        "score": VERDICTS[form["verdict"]],
    }
    params |= {name: form[name] for name in ("comment", "span_id") if form.get(name)}
    if form.get("label_pi"):
        params["label_pi"] = _probability(form["label_pi"])
    await site.api("POST labels", params)
    if form.get("return_to") != "label":
        return see_other(_trace_url(request, "label"))
    return see_other(
        link("/label", {"evaluator": params["evaluator"], "saved": form["verdict"], "of": params["trace_id"]})
    )


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise ApiError(400, "label_pi is a probability: above 0, at most 1.")
    return value


async def evaluate(site: Site, request: Request) -> Response:
    """Queue evaluations of this trace outside every sampling rule; existing scores stay."""
    form = await read_form(request)
    names = [name for name in form.get("evaluators", "").split(",") if name] or await site.evaluators_in_use()
    answer = await site.api("POST evaluate", {"trace_id": _id(request), "evaluators": names})
    return see_other(_trace_url(request, "evaluate" if answer["queued"] else "scored"))


def _trace_url(request: Request, done: str) -> str:
    return link(f"/traces/{_id(request)}", {"at": request.query_params.get("at"), "done": done})


async def queue(site: Site, request: Request) -> Response:
    """Show one suggestion in full; `skip` is its index, modulo the length of the queue."""
    names, query = await site.evaluators_in_use(), request.query_params
    evaluator = query.get("evaluator") or next(iter(names), "groundedness")
    suggestions = await _suggestions(site, evaluator)
    skip = query.get("skip", "0")
    index = int(skip) % max(len(suggestions), 1) if skip.isdecimal() else 0
    context = {
        "queue": suggestions,
        "index": index,
        "row": None,
        "evaluator": evaluator,
        "names": list(dict.fromkeys([*names, evaluator])),
        "saved": query.get("saved"),
        "of": query.get("of", ""),
    }
    if suggestions:
        context |= await _suggestion(site, suggestions[index])
    return site.render(request, "label.html", context)


async def _suggestions(site: Site, evaluator: str) -> Sequence[Mapping[str, Any]]:
    """Return the suggestions; when the default number all have a label, up to the API's limit."""
    for limit in ({}, {"limit": MAX_SUGGESTIONS}):
        answer = await site.api("GET labels/suggest", {"evaluator": evaluator, **limit})
        if answer["traces"]:
            break
    traces: list[Mapping[str, Any]] = answer["traces"]
    return traces


async def _suggestion(site: Site, row: Mapping[str, Any]) -> dict[str, Any]:
    answer = await site.api(f"GET traces/{row['trace_id']}", {"at": row["start_time"]})
    contexts = context_views(answer["contexts"], find_sentences(reversed(answer["scores"])))
    return {
        "row": row,
        "trace": answer["trace"],
        "answer": render_answer(answer["trace"]["response"] or ""),
        "contexts": [context for context in contexts if not context.row.get("superseded")],
    }


class SpanRow(NamedTuple):
    """One bar."""

    span: Mapping[str, Any]
    depth: int
    """Capped, so that a deep chain stays on the page."""
    left: float
    """Start, percent of the trace."""
    width: float
    """Duration, percent of the trace; at least a visible sliver."""
    tick: float | None
    """The first token, percent of the trace."""


_Timed = tuple[Mapping[str, Any], datetime]


def waterfall(spans: Sequence[Mapping[str, Any]], *, limit: int = MAX_ROWS) -> list[SpanRow]:
    """Return rows in tree order; spans whose parent never arrived are roots, a loop appears once."""
    timed = _timed(spans)
    if not timed:
        return []
    first, total = _extent(timed)
    rows = []
    for span, start, depth in islice(_tree_order(timed), limit):
        left = min(_offset_ms(first, start) / total * 100, 99.6)
        width = min(max((span.get("latency_ms") or 0) / total * 100, 0.4), 100 - left)
        token = span.get("ttft_ms")
        tick = None if token is None else round(min(left + token / total * 100, 99.8), 2)
        rows.append(SpanRow(span, min(depth, MAX_DEPTH), round(left, 2), round(width, 2), tick))
    return rows


def time_axis(spans: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return milliseconds at the start, the quarters and the end of the trace."""
    timed = _timed(spans)
    return [_extent(timed)[1] * quarter / 4 for quarter in range(5)] if timed else []


def _timed(spans: Sequence[Mapping[str, Any]]) -> list[_Timed]:
    return [(span, start) for span in spans if (start := parse_time(span["start_time"])) is not None]


def _extent(timed: Sequence[_Timed]) -> tuple[datetime, float]:
    """Return the start of the trace and its length in milliseconds."""
    first = min(start for _, start in timed)
    return first, max(_offset_ms(first, start) + (span.get("latency_ms") or 0) for span, start in timed) or 1.0


def _offset_ms(first: datetime, start: datetime) -> float:
    return (start - first).total_seconds() * 1000


def _tree_order(timed: Sequence[_Timed]) -> Iterator[tuple[Mapping[str, Any], datetime, int]]:
    """Yield spans with their depth; a parent comes before its children, siblings by start time."""
    ids = {span.get("span_id") for span, _ in timed}
    children: dict[Any, list[_Timed]] = {}
    for span, start in sorted(timed, key=lambda item: item[1]):
        parent = span.get("parent_span_id")
        known = parent in ids and parent != span.get("span_id")
        children.setdefault(parent if known else None, []).append((span, start))
    seen = set()
    stack = [(span, start, 0) for span, start in reversed(children.get(None, []))]
    while stack:
        span, start, depth = stack.pop()
        if span.get("span_id") not in seen:
            seen.add(span.get("span_id"))
            yield span, start, depth
            stack += [(child, begun, depth + 1) for child, begun in reversed(children.get(span.get("span_id"), []))]
    yield from ((span, start, 0) for span, start in timed if span.get("span_id") not in seen)
