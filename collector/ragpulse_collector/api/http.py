"""The operations over HTTP: `/api/v1/<path>`, answers as JSON, errors as RFC 9457 problem details."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from ragpulse_collector.api.guard import ACTOR, BINDING, GRANTED, Refusal, require
from ragpulse_collector.api.handlers.data import Download
from ragpulse_collector.api.operations import ApiError, Operation, Operations, perform
from ragpulse_collector.api.params import Caller
from ragpulse_collector.api.replies import MEDIA_TYPE, dump, problem

MAX_JSON_BYTES = 8 * 1024 * 1024


def routes(operations: Operations, *, prefix: str = "/api/v1/") -> list[BaseRoute]:
    """Make one Starlette route per path, which answers all its methods; others get 405 with `Allow`."""
    by_path: dict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in operations:
        by_path[operation.path][operation.method] = operation
    return [
        Route(prefix + _route(path, found), _endpoint(found), methods=list(found), name=path)
        for path, found in by_path.items()
    ]


def _route(path: str, by_method: Mapping[str, Operation]) -> str:
    slashes = any(operation.slashes for operation in by_method.values())
    return path.replace("}", ":path}") if slashes else path


def json_response(content: Any, status: int = 200) -> Response:
    """Answer JSON."""
    return Response(dump(content), status, media_type="application/json")


def refusal(request: Request, error: ApiError) -> Response:
    """Answer an error of an operation."""
    body = problem(error.status, error.message, instance=request.url.path, errors=error.errors)
    return Response(dump(body), error.status, error.headers, MEDIA_TYPE)


def http_refusal(request: Request, error: HTTPException) -> Response:
    """Answer a path or a method that there is not."""
    headers = dict(error.headers or {})
    detail = error.detail
    if error.status_code == 404:
        detail = f"there is nothing at {request.url.path}"
    elif error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(headers.get("Allow", "").split(", ")))
        detail = f"{request.url.path} does not answer {request.method}; possible: {headers['Allow']}"
    body = problem(error.status_code, detail, instance=request.url.path)
    return Response(dump(body), error.status_code, headers, MEDIA_TYPE)


def _endpoint(by_method: Mapping[str, Operation]) -> Any:
    async def endpoint(request: Request) -> Response:
        operation = by_method["GET" if request.method == "HEAD" else request.method]
        try:
            require(operation.scope, request.scope.get(GRANTED, frozenset()), name=request.scope.get(ACTOR))
            accept, binding = request.headers.get("accept", ""), request.scope.get(BINDING)
            caller = Caller(request.scope.get(ACTOR) or "api", accept, binding)
            answer = await perform(operation, await _given(request), caller)
        except ApiError as error:
            return refusal(request, error)
        except Refusal as error:
            return refusal(request, ApiError(error.status, error.message))
        return _answered(answer)

    return endpoint


def _answered(answer: Any) -> Response:
    if isinstance(answer, Download):
        discard = BackgroundTask(answer.discard)
        return FileResponse(answer.path, media_type=answer.media_type, filename=answer.path.name, background=discard)
    return answer if isinstance(answer, Response) else json_response(answer)


async def _given(request: Request) -> Mapping[str, Any]:
    """Return query, body and path as one mapping; a query parameter given several times is a list."""
    query = {key: request.query_params.getlist(key) for key in request.query_params}
    given: dict[str, Any] = {key: found[0] if len(found) == 1 else found for key, found in query.items()}
    if request.method in ("POST", "PUT"):
        given |= await _json_body(request)
    return given | request.path_params


async def _json_body(request: Request) -> Mapping[str, Any]:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_JSON_BYTES:
            raise ApiError(413, f"the body is larger than {MAX_JSON_BYTES} bytes")
    if not body and content_type in ("", "application/json"):
        return {}
    if content_type != "application/json":
        raise ApiError(415, "send JSON with Content-Type: application/json")
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ApiError(400, "the body must be a JSON object")
    return parsed
