"""`/traces/{id}`: one question, its answer, what it was made from, and its verdicts; `/label`: one after another."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.errors import ApiError
from ragpulse_dashboards.evidence import context_views, find_sentences
from ragpulse_dashboards.formats import as_judged, readable
from ragpulse_dashboards.markdown import render_answer
from ragpulse_dashboards.security import SECURITY_HEADERS
from ragpulse_dashboards.site import Site, read_form, see_other
from ragpulse_dashboards.waterfall import FIRST_ROWS, MAX_ROWS, failed_first, time_axis, waterfall

__all__ = ["routes"]

VERDICTS: Final = {"good": 1.0, "bad": 0.0}
MOST: Final = 200
"""As many as the API suggests at once."""
_FIRST: Final[Mapping[bool | None, int]] = {False: 0, True: 1}


def routes(site: Site) -> list[BaseRoute]:
    """The page, a span, the trace as a file and as a pytest case, the forms that label and re-evaluate, the queue."""
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
    at = request.query_params.get("at")
    answer: Mapping[str, Any] = await site.api(f"GET traces/{_id(request)}", {**params, **({"at": at} if at else {})})
    return answer


def _id(request: Request) -> str:
    trace_id: str = request.path_params["trace_id"]
    if len(trace_id) != 32 or not set(trace_id) <= set("0123456789abcdef"):
        raise ApiError(404, "A trace id is 32 hexadecimal digits. Pick the trace from the list instead.")
    return trace_id


async def trace(site: Site, request: Request) -> Response:
    """The answer beside what it was made from: contexts, spans, verdicts, session."""
    begun = await _fetch(site, request, only="trace")

    async def whole() -> Mapping[str, Any]:
        content = _content(request, {**begun, **await _fetch(site, request, only="rest", spans="brief")})
        failed = content["failed"]
        return {**content, "exception": _exception(await _span(site, request, failed["span_id"])) if failed else None}

    return await site.begin(request, "trace.html", whole)


def _content(request: Request, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    row = answer["trace"]
    judged = (as_judged(str(score.get("evaluator")), score) for score in answer["scores"])
    scores = sorted(judged, key=lambda score: (str(score.get("evaluator")), str(score.get("created_at"))))
    sentences = find_sentences(reversed(scores))
    spans = answer["spans"]
    most = MAX_ROWS if request.query_params.get("rows") == "all" else FIRST_ROWS
    contexts = context_views(answer["contexts"], sentences)
    seen = [one.row for one in contexts if one.index is not None]
    failed = failed_first(spans)
    return {
        "trace": row,
        "previous": answer.get("previous"),
        "following": answer.get("next"),
        "answer": render_answer(str(row.get("response") or ""), sentences, seen),
        "sentences": sentences,
        "contexts": [one for one in contexts if not one.row.get("superseded")],
        "superseded": [one for one in contexts if one.row.get("superseded")],
        "reranked": any(one.get("kind") == "reranker" for one in spans),
        "scores": sorted(scores, key=lambda one: (one.get("status") != "ok", _FIRST.get(one.get("passing"), 2))),
        "chips": _chips(scores),
        "decisions": answer["decisions"],
        "labels": answer["labels"],
        "unread": answer["unread"],
        "rows": waterfall(spans, most=most),
        "axis": time_axis(spans),
        "n_spans": len(spans),
        "failed": failed,
        "done": request.query_params.get("done", ""),
    }


def _chips(scores: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The newest score of each evaluator: those that fail first, then those that pass, then the others."""
    newest = {score.get("evaluator"): score for score in scores if score.get("status") == "ok"}
    return sorted(newest.values(), key=lambda score: (_FIRST.get(score.get("passing"), 2), str(score.get("evaluator"))))


async def _span(site: Site, request: Request, span_id: str) -> Mapping[str, Any]:
    answer = await _fetch(site, request, spans=span_id)
    found = next((one for one in answer["spans"] if one.get("span_id") == span_id), None)
    if found is None:
        raise ApiError(404, "This trace has no such span. It may have been pruned.")
    return {**found, "trace": answer["trace"]}


def _exception(span: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is known of a span's error: type, message, stack trace."""
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
    """One span: times, usage, texts and its attributes verbatim."""
    found = await _span(site, request, request.path_params["span_id"])
    context = {"span": found, "attributes": _attributes(found), "trace": found["trace"]}
    return site.render(request, "span.html", {**context, "exception": _exception(found)})


def _attributes(span: Mapping[str, Any]) -> list[tuple[str, str]]:
    raw = span.get("attributes")
    if not isinstance(raw, Mapping):
        return [("attributes", readable(raw))] if raw else []
    return [(str(key), readable(value)) for key, value in sorted(raw.items())]


async def as_pytest(site: Site, request: Request) -> Response:
    """The trace as a runnable test, for the clipboard or a file."""
    return await _file(site, request, "pytest", "inline")


async def as_html(site: Site, request: Request) -> Response:
    """The trace as one page that needs no collector, to be kept or sent; secrets are masked."""
    return await _file(site, request, "html", "attachment")


async def _file(site: Site, request: Request, form: str, disposition: str) -> Response:
    answer = await site.api(f"GET traces/{_id(request)}/{form}", {})
    filename = quote(str(answer.get("filename") or f"trace.{form}"), safe="")
    headers = {**SECURITY_HEADERS, "Content-Disposition": f"{disposition}; filename*=UTF-8''{filename}"}
    kind = "text/html" if disposition == "attachment" else "text/plain"
    return Response(str(answer.get("text") or "").encode("utf-8", "replace"), media_type=kind, headers=headers)


async def label(site: Site, request: Request) -> Response:
    """A person's verdict on one evaluator of this trace."""
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
    following = form.get("return_to", "")
    saved = {"evaluator": params["evaluator"], "saved": form["verdict"], "of": params["trace_id"]}
    queue = "/label?" + urlencode(saved, errors="replace")
    return see_other(queue if following == "label" else _back(request, "label"))


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise ApiError(400, "label_pi is a probability: above 0, at most 1.")
    return value


async def evaluate(site: Site, request: Request) -> Response:
    """Have this trace scored outside every sampling rule; what has a score keeps it."""
    form = await read_form(request)
    names = [name for name in form.get("evaluators", "").split(",") if name]
    if not names:
        names = await site.in_use()
    answer = await site.api("POST evaluate", {"trace_id": _id(request), "evaluators": names})
    return see_other(_back(request, "evaluate" if answer["queued"] else "scored"))


def _back(request: Request, done: str) -> str:
    at = request.query_params.get("at")
    return f"/traces/{_id(request)}?" + urlencode({**({"at": at} if at else {}), "done": done})


async def queue(site: Site, request: Request) -> Response:
    """The first suggestion in full, the others as a queue; `skip` moves down it, and from its end to its head."""
    names = await site.in_use()
    evaluator = request.query_params.get("evaluator") or next(iter(names), "groundedness")
    queue = await _suggested(site, evaluator)
    skip = request.query_params.get("skip", "0")
    at = int(skip) % max(len(queue), 1) if skip.isdecimal() else 0
    context = {
        "queue": queue,
        "at": at,
        "row": None,
        "evaluator": evaluator,
        "names": list(dict.fromkeys([*names, evaluator])),
        "saved": request.query_params.get("saved"),
        "of": request.query_params.get("of", ""),
    }
    if queue:
        context |= await _full(site, queue[at])
    return site.render(request, "label.html", context)


async def _suggested(site: Site, evaluator: str) -> Sequence[Mapping[str, Any]]:
    """The suggestions; when all of the usual number have a label, those of the largest."""
    for more in ({}, {"limit": MOST}):
        answer = await site.api("GET labels/suggest", {"evaluator": evaluator, **more})
        if found := answer.get("traces"):
            return list(found)
    return []


async def _full(site: Site, row: Mapping[str, Any]) -> dict[str, Any]:
    full = await site.api(f"GET traces/{row['trace_id']}", {"at": row["start_time"]} if row.get("start_time") else {})
    sentences = find_sentences(reversed(full["scores"]))
    return {
        "row": row,
        "trace": full["trace"],
        "answer": render_answer(str(full["trace"].get("response") or "")),
        "contexts": [one for one in context_views(full["contexts"], sentences) if not one.row.get("superseded")],
    }
