"""`/traces/{id}`: one question, what was found, what was answered, and what the evaluators say about it."""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.errors import ApiError
from ragpulse_dashboards.evidence import answer_pieces, context_views, find_sentences
from ragpulse_dashboards.security import SECURITY_HEADERS
from ragpulse_dashboards.site import Site, read_form, see_other
from ragpulse_dashboards.waterfall import FIRST_ROWS, MAX_ROWS, waterfall

__all__ = ["routes"]

VERDICTS: Final = {"good": 1.0, "bad": 0.0}


def routes(site: Site) -> list[BaseRoute]:
    """The page, one span's detail, the pytest case, and the forms that label and re-evaluate."""
    return [
        site.page("/traces/{trace_id}", trace),
        site.page("/traces/{trace_id}/spans/{span_id}", span),
        site.page("/traces/{trace_id}/pytest", as_pytest),
        site.page("/traces/{trace_id}/label", label, post=True),
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
    """Query, contexts and answer side by side, verdicts, waterfall."""
    begun = await _fetch(site, request, only="trace")

    async def whole() -> Mapping[str, Any]:
        return _content(request, {**begun, **await _fetch(site, request, only="rest", spans="brief")})

    return await site.begin(request, "trace.html", whole)


def _content(request: Request, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    row = answer["trace"]
    scores = sorted(
        answer.get("scores") or [], key=lambda score: (str(score.get("evaluator")), str(score.get("created_at")))
    )
    sentences = find_sentences(reversed(scores))
    spans = answer.get("spans") or []
    most = MAX_ROWS if request.query_params.get("rows") == "all" else FIRST_ROWS
    return {
        "trace": row,
        "previous": answer.get("previous"),
        "following": answer.get("next"),
        "answer": answer_pieces(str(row.get("response") or ""), sentences),
        "sentences": sentences,
        "contexts": context_views(answer.get("contexts") or [], sentences),
        "scores": scores,
        "decisions": answer.get("decisions") or [],
        "labels": answer.get("labels") or [],
        "rows": waterfall(spans, most=most),
        "n_spans": len(spans),
        "done": request.query_params.get("done", ""),
    }


async def span(site: Site, request: Request) -> Response:
    """One span: times, usage, texts and its attributes verbatim."""
    span_id = request.path_params["span_id"]
    answer = await _fetch(site, request, spans=span_id)
    found = next((one for one in answer.get("spans") or [] if one.get("span_id") == span_id), None)
    if found is None:
        raise ApiError(404, "This trace has no such span. It may have been pruned.")
    return site.render(
        request, "span.html", {"span": found, "attributes": _attributes(found), "trace": answer["trace"]}
    )


def _attributes(span: Mapping[str, Any]) -> list[tuple[str, str]]:
    raw = span.get("attributes")
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError:
            return [("attributes", str(raw))]
    if not isinstance(raw, Mapping):
        return []
    return [
        (str(key), value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for key, value in sorted(raw.items())
    ]


async def as_pytest(site: Site, request: Request) -> Response:
    """The trace as a runnable test, for the clipboard or a file."""
    answer = await site.api(f"GET traces/{_id(request)}/pytest", {})
    filename = quote(str(answer.get("filename") or "test_trace.py"), safe="")
    headers = {**SECURITY_HEADERS, "Content-Disposition": f"inline; filename*=UTF-8''{filename}"}
    return PlainTextResponse(str(answer.get("text") or ""), headers=headers)


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
    told = {"evaluator": params["evaluator"], "saved": form["verdict"], "of": params["trace_id"]}
    queue = "/label?" + urlencode(told, errors="replace")
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
    """Score this trace again, outside every sampling rule."""
    form = await read_form(request)
    names = [name for name in form.get("evaluators", "").split(",") if name]
    if not names:
        known = await site.api("GET evaluators", {})
        names = [one["name"] for one in known.get("evaluators") or [] if one.get("online")]
    await site.api("POST evaluate", {"trace_id": _id(request), "evaluators": names})
    return see_other(_back(request, "evaluate"))


def _back(request: Request, done: str) -> str:
    at = request.query_params.get("at")
    return f"/traces/{_id(request)}?" + urlencode({**({"at": at} if at else {}), "done": done})
