"""`/traces/{id}`: one question, its answer, contexts, verdicts and spans; `/label`: the queue of answers to label."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_collector.analysis.series import MetricSeries, Point
from ragpulse_collector.analysis.suggestions import Suggestion, Suggestions
from ragpulse_collector.api.headers import SECURITY_HEADERS
from ragpulse_collector.operations.data import Queued
from ragpulse_collector.operations.rules import EvaluatorList
from ragpulse_collector.operations.trace import TextFile, TraceParts
from ragpulse_collector.refusals import Invalid, NotFound
from ragpulse_collector.store.queries.trace_answers import BEGINNING, SpanBrief, SpanScore, SpanStep, SpanWhole
from ragpulse_collector.store.queries.traces import TraceRow
from ragpulse_dashboards.answer import context_views, find_sentences, render_answer
from ragpulse_dashboards.formats import as_judged, readable
from ragpulse_dashboards.site import Site, link, read_form, see_other

if TYPE_CHECKING:
    from pydantic import JsonValue


VERDICTS: Final = {"good": 1.0, "bad": 0.0}
ENOUGH_LABELS: Final = 30
"""Labels from which on they correct an estimate."""
MAX_SUGGESTIONS: Final = 200
"""The API's limit."""
_ORDER: Final[Mapping[bool | None, int]] = {False: 0, True: 1, None: 2}
"""Failing scores first, then passing ones, then those without a threshold."""
FIRST_ROWS: Final = 200
"""Rows of a trace's page at first; a thousand rows make it half as slow again."""
MAX_ROWS: Final = 2000
MAX_DEPTH: Final = 12
STEPS: Final = ("agent", "retriever", "reranker", "llm", "tool")
"""Kinds of spans that are a step of the path."""
MAX_PERIOD: Final = 3
"""Steps that the path folds where they repeat."""


def routes(site: Site) -> list[BaseRoute]:
    """Return the page, a span, the trace as a file and as a pytest case, the queue, and the forms."""
    return [
        site.page("/traces/{trace_id}", trace, reads=("at", "done", "rows")),
        site.page("/traces/{trace_id}/spans/{span_id}", span, reads=("at",)),
        site.page("/traces/{trace_id}/pytest", as_pytest),
        site.page("/traces/{trace_id}/html", as_html),
        site.page("/traces/{trace_id}/label", label, post=True),
        site.page("/label", queue, reads=("evaluator", "of", "saved", "skip")),
        site.page("/traces/{trace_id}/evaluate", evaluate, post=True),
    ]


async def _parts(site: Site, request: Request, **params: str) -> "TraceParts":
    start = request.query_params.get("at")
    path = f"GET traces/{_id(request)}"
    parts: TraceParts = await site.api(path, {**params, **({"at": start} if start else {})})
    return parts


def _id(request: Request) -> str:
    trace_id: str = request.path_params["trace_id"]
    if len(trace_id) != 32 or not set(trace_id) <= set("0123456789abcdef"):
        raise NotFound("A trace id is 32 hexadecimal digits. Pick the trace from the list instead.")
    return trace_id


async def trace(site: Site, request: Request) -> Response:
    """Show the answer beside its contexts, spans, verdicts and session."""
    head = await _parts(site, request, only="trace")

    async def read() -> Mapping[str, Any]:
        rest = await _parts(site, request, only="rest", spans="brief")
        failed = _origin_of_error(rest.spans)
        exception = _exception((await _span(site, request, failed.span_id))[0]) if failed else None
        return {**_context(request, head, rest), "failed": failed, "exception": exception}

    return await site.begin(request, "trace.html", read)


def _context(request: Request, head: "TraceParts", rest: "TraceParts") -> dict[str, Any]:
    assert head.trace is not None
    scores = [ShownScore(_shown(score), as_judged(score.evaluator, score)) for score in in_use(rest.scores)]
    scores.sort(key=lambda one: (one.score.evaluator, one.score.created_at))
    sentences = find_sentences((one.score for one in reversed(scores)), rest.lead)
    chips = _chips(scores)
    limit = MAX_ROWS if request.query_params.get("rows") == "all" else FIRST_ROWS
    contexts = context_views(rest.contexts, sentences)
    evaluated = [context.row for context in contexts if context.index is not None]
    return {
        "trace": head.trace,
        "head": head,
        "rest": rest,
        "answer": render_answer(head.trace.response or "", sentences, evaluated),
        "sentences": sentences,
        "contexts": [context for context in contexts if not context.row.superseded],
        "superseded": [context for context in contexts if context.row.superseded],
        "reranked": any(span.kind == "reranker" for span in rest.spans),
        "scores": sorted(scores, key=lambda one: (one.score.status != "ok", _ORDER[one.score.passing])),
        "chips": chips,
        "exploratory": [score for score in rest.scores if score.exploratory and score.run_id],
        "failing": head.trace.error or any(one.score.passing is False for one in chips),
        "rows": waterfall(rest.spans, limit=limit),
        "steps": path(rest.spans),
        "axis": time_axis(rest.spans),
        "n_spans": len(rest.spans),
        "done": request.query_params.get("done", ""),
    }


def in_use(scores: "Iterable[SpanScore]") -> "list[SpanScore]":
    """Return the scores that count: not those that only replays have that are not in use."""
    return [score for score in scores if not score.exploratory]


class ShownScore(NamedTuple):
    """A score with its name on the page."""

    shown: str
    score: "SpanScore"


def _chips(scores: Sequence[ShownScore]) -> list[ShownScore]:
    """Return the newest score of each evaluator: failing ones, passing ones, then the others."""
    newest = {one.shown: one for one in scores if one.score.status == "ok"}
    return sorted(newest.values(), key=lambda one: (_ORDER[one.score.passing], one.shown))


def _shown(score: "SpanScore") -> str:
    """Return the name of a score on the page: people's scores and several judges of one name are told apart."""
    name = f"feedback:{score.evaluator}" if score.source == "human" else score.evaluator
    return f"{name} ({score.identifier})" if score.identifier else name


def _origin_of_error(spans: Sequence["SpanBrief"]) -> "SpanBrief | None":
    """Return the span in which an error began: the earliest failed span without a failed child."""
    failed = [span for span in spans if span.status == "error" or span.error_type]
    parents = {span.parent_span_id for span in failed}
    innermost = [span for span in failed if span.span_id not in parents] or failed
    return min(innermost, key=lambda span: span.start_time, default=None)


async def _span(site: Site, request: Request, span_id: str) -> "tuple[SpanWhole, TraceRow]":
    """Return a span and its trace."""
    parts = await _parts(site, request, spans=span_id)
    match = next((span for span in parts.spans if span.span_id == span_id), None)
    if match is None:
        raise NotFound("This trace has no such span. It may have been pruned.")
    return cast("SpanWhole", match), cast("TraceRow", parts.trace)


class SpanError(NamedTuple):
    """A span's error, as far as it is known."""

    type: "JsonValue"
    message: "JsonValue"
    stacktrace: "JsonValue"


def _exception(span: "SpanWhole") -> SpanError:
    attributes: dict[str, JsonValue] = {}
    for event in span.events if isinstance(span.events, list) else ():
        found = event.get("attributes") if isinstance(event, dict) else None
        attributes |= found if isinstance(found, dict) and "exception.type" in found else {}
    return SpanError(
        attributes.get("exception.type") or span.error_type,
        attributes.get("exception.message") or span.status_message,
        attributes.get("exception.stacktrace"),
    )


async def span(site: Site, request: Request) -> Response:
    """Show one span: times, usage, texts and its attributes verbatim."""
    row, whole = await _span(site, request, request.path_params["span_id"])
    context = {"span": row, "attributes": _attributes(row), "trace": whole, "exception": _exception(row)}
    return site.render(request, "span.html", context)


def _attributes(span: "SpanWhole") -> list[tuple[str, str]]:
    raw = span.attributes
    if not isinstance(raw, dict):
        return [("attributes", readable(raw))] if raw else []
    return [(key, readable(value)) for key, value in sorted(raw.items())]


async def as_pytest(site: Site, request: Request) -> Response:
    """Send the trace as a runnable test, for the clipboard or a file."""
    return await _file(site, request, "pytest", "inline")


async def as_html(site: Site, request: Request) -> Response:
    """Send the trace as one page that needs no collector; secrets are masked."""
    return await _file(site, request, "html", "attachment")


async def _file(site: Site, request: Request, form: str, disposition: str) -> Response:
    file: TextFile = await site.api(f"GET traces/{_id(request)}/{form}", {})
    filename = quote(file.filename, safe="")
    headers = {**SECURITY_HEADERS, "Content-Disposition": f"{disposition}; filename*=UTF-8''{filename}"}
    media_type = "text/html" if disposition == "attachment" else "text/plain"
    return Response(file.text.encode("utf-8", "replace"), media_type=media_type, headers=headers)


async def label(site: Site, request: Request) -> Response:
    """Store a person's verdict on one evaluator of this trace."""
    form = await read_form(request)
    if form.get("verdict") not in VERDICTS:
        raise Invalid("Choose good or bad before saving the label.")
    params: dict[str, str | float] = {
        "trace_id": _id(request),
        "evaluator": form.get("evaluator") or "groundedness",
        "passing": form["verdict"] == "good",
        "score": VERDICTS[form["verdict"]],
    }
    params |= {name: form[name] for name in ("comment", "span_id", "label_pi") if form.get(name)}
    await site.api("POST labels", params)
    if form.get("return_to") != "label":
        return see_other(_trace_url(request, "label"))
    return see_other(
        link("/label", {"evaluator": params["evaluator"], "saved": form["verdict"], "of": params["trace_id"]})
    )


async def evaluate(site: Site, request: Request) -> Response:
    """Queue evaluations of this trace outside every sampling rule; existing scores stay."""
    form = await read_form(request)
    names = [name for name in form.get("evaluators", "").split(",") if name] or await site.evaluators_in_use()
    started: Queued = await site.api("POST evaluate", {"trace_id": _id(request), "evaluators": names})
    return see_other(_trace_url(request, "evaluate" if started.queued else "scored"))


def _trace_url(request: Request, done: str) -> str:
    return link(f"/traces/{_id(request)}", {"at": request.query_params.get("at"), "done": done})


async def queue(site: Site, request: Request) -> Response:
    """Show one suggestion in full; `skip` is its index, modulo the length of the queue."""
    names, query = await site.evaluators_in_use(), request.query_params
    evaluator = query.get("evaluator") or next(iter(names), "groundedness")
    suggestions, labels = await asyncio.gather(_suggestions(site, evaluator), _labels(site, evaluator))
    corrected = await _corrected(site, evaluator) if labels >= ENOUGH_LABELS else None
    skip = query.get("skip", "0")
    index = int(skip) % max(len(suggestions), 1) if skip.isdecimal() else 0
    context = {
        "queue": suggestions,
        "index": index,
        "labels": labels,
        "enough": ENOUGH_LABELS,
        "corrected": corrected,
        "row": None,
        "evaluator": evaluator,
        "names": list(dict.fromkeys([*names, evaluator])),
        "saved": query.get("saved"),
        "of": query.get("of", ""),
    }
    if suggestions:
        context |= await _suggestion(site, suggestions[index])
    return site.render(request, "label.html", context)


async def _labels(site: Site, evaluator: str) -> int:
    """Return how many labels people gave on the version in force."""
    answer: EvaluatorList = await site.api("GET evaluators", {})
    agreements = (one.calibration for one in answer.evaluators if one.name == evaluator)
    return next((agreement.n for agreement in agreements if agreement), 0)


async def _corrected(site: Site, evaluator: str) -> tuple[Point, Point] | None:
    """Return last week's estimate as judged and as the labels correct it; None where they do not."""
    asked = {"name": f"quality:{evaluator}", "from": "-7d", "step": "all"}
    answers: Sequence[MetricSeries] = await asyncio.gather(
        *(site.api("GET metrics", {**asked, "corrected": corrected}) for corrected in ("false", "true"))
    )
    before, after = ([line for line in answer.series if line.points][-1:] for answer in answers)
    if not before or not after or not getattr(after[0], "corrected", False):
        return None
    return before[0].points[-1], after[0].points[-1]


async def _suggestions(site: Site, evaluator: str) -> "Sequence[Suggestion]":
    """Return the suggestions; when the default number all have a label, up to the API's limit."""
    for limit in ({}, {"limit": MAX_SUGGESTIONS}):
        answer: Suggestions = await site.api("GET labels/suggest", {"evaluator": evaluator, **limit})
        if answer.traces:
            break
    return answer.traces


async def _suggestion(site: Site, row: "Suggestion") -> dict[str, Any]:
    parts: TraceParts = await site.api(f"GET traces/{row.trace_id}", {"at": row.start_time})
    assert parts.trace is not None
    contexts = context_views(parts.contexts, find_sentences(reversed(in_use(parts.scores)), parts.lead))
    return {
        "row": row,
        "trace": parts.trace,
        "answer": render_answer(parts.trace.response or ""),
        "contexts": [context for context in contexts if not context.row.superseded],
    }


class SpanRow(NamedTuple):
    """One bar."""

    span: "SpanBrief"
    depth: int
    """Capped, so that a deep chain stays on the page."""
    left: float
    """Start, percent of the trace."""
    width: float
    """Duration, percent of the trace; at least a visible sliver."""
    tick: float | None
    """The first token, percent of the trace."""
    again: int = 0
    """How often the step was called with the same arguments before."""


def waterfall(spans: Sequence["SpanBrief"], *, limit: int = MAX_ROWS) -> list[SpanRow]:
    """Return rows in tree order; spans whose parent never arrived are roots, a loop appears once."""
    if not spans:
        return []
    first, total = _extent(spans)
    rows, calls = [], Counter[tuple[str | None, str]]()
    for span, depth in islice(_tree_order(spans), limit):
        left = min(_offset_ms(first, span) / total * 100, 99.6)
        width = min(max((span.latency_ms or 0) / total * 100, 0.4), 100 - left)
        token = span.ttft_ms
        tick = None if token is None else round(min(left + token / total * 100, 99.8), 2)
        again, arguments = 0, span.arguments if isinstance(span, SpanStep) else None
        if arguments and len(arguments) < BEGINNING:  # of longer ones only the beginning is known
            again = calls[span.name, arguments]
            calls[span.name, arguments] += 1
        rows.append(SpanRow(span, min(depth, MAX_DEPTH), round(left, 2), round(width, 2), tick, again))
    return rows


class PathStep(NamedTuple):
    """Steps that follow each other, and how often they do so in a row."""

    spans: Sequence["SpanBrief"]
    times: int
    failed: "SpanBrief | None"
    """The first of them that failed."""


def path(spans: Sequence["SpanBrief"]) -> list[PathStep]:
    """Return what the application did, in order: its calls of models, tools and searches; repeats are one step."""
    steps = sorted((span for span in spans if span.kind in STEPS), key=lambda span: span.start_time)
    names, found, at = [span.name for span in steps], [], 0
    while at < len(steps):
        runs = {length: _times(names, at, length) for length in range(1, MAX_PERIOD + 1)}
        length = max(runs, key=lambda length: (runs[length] * length if runs[length] > 1 else 0, -length))
        ran = steps[at : at + length * runs[length]]
        failed = next((span for span in ran if span.status == "error" or span.error_type), None)
        found.append(PathStep(ran[:length], runs[length], failed))
        at += len(ran)
    return found


def _times(names: Sequence[str | None], at: int, length: int) -> int:
    """Return how often the names that begin at a place follow each other."""
    times, first = 1, names[at : at + length]
    while len(first) == length and names[at + times * length : at + (times + 1) * length] == first:
        times += 1
    return times if len(first) == length else 0


def time_axis(spans: Sequence["SpanBrief"]) -> list[float]:
    """Return milliseconds at the start, the quarters and the end of the trace."""
    return [_extent(spans)[1] * quarter / 4 for quarter in range(5)] if spans else []


def _extent(spans: Sequence["SpanBrief"]) -> tuple[datetime, float]:
    """Return the start of the trace and its length in milliseconds."""
    first = min(span.start_time for span in spans)
    return first, max(_offset_ms(first, span) + (span.latency_ms or 0) for span in spans) or 1.0


def _offset_ms(first: datetime, span: "SpanBrief") -> float:
    return (span.start_time - first).total_seconds() * 1000


def _tree_order(spans: Sequence["SpanBrief"]) -> Iterator[tuple["SpanBrief", int]]:
    """Yield spans with their depth; a parent comes before its children, siblings by start time."""
    ids = {span.span_id for span in spans}
    children: dict[str | None, list[SpanBrief]] = {}
    for span in sorted(spans, key=lambda span: span.start_time):
        known = span.parent_span_id in ids and span.parent_span_id != span.span_id
        children.setdefault(span.parent_span_id if known else None, []).append(span)
    seen = set()
    stack = [(span, 0) for span in reversed(children.get(None, []))]
    while stack:
        span, depth = stack.pop()
        if span.span_id not in seen:
            seen.add(span.span_id)
            yield span, depth
            stack += [(child, depth + 1) for child in reversed(children.get(span.span_id, []))]
    yield from ((span, 0) for span in spans if span.span_id not in seen)
