"""The operations over HTTP: `/api/v1/<path>`, parameters in the query string or a JSON body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from ragpulse_collector.api.data import Download
from ragpulse_collector.api.encoding import dump
from ragpulse_collector.api.guard import ACTOR, GRANTED, Refusal, require
from ragpulse_collector.api.operations import ApiError, Operation, Operations, perform

MAX_JSON_BYTES = 8 * 1024 * 1024


def routes(operations: Operations, *, prefix: str = "/api/v1/") -> list[BaseRoute]:
    """Make one Starlette route per operation."""
    return [
        Route(prefix + operation.path, _endpoint(operation), methods=[operation.method], name=_name(operation))
        for operation in operations
    ]


def json_response(content: Any, status: int = 200) -> Response:
    """Answer JSON."""
    return Response(dump(content), status, media_type="application/json")


def refusal(error: ApiError) -> Response:
    """Answer why not, as JSON."""
    answer = json_response({"error": error.message}, error.status)
    answer.headers.update(error.headers)
    return answer


def _endpoint(operation: Operation) -> Any:
    async def endpoint(request: Request) -> Response:
        try:
            require(operation.scope, request.scope.get(GRANTED, frozenset()), name=request.scope.get(ACTOR))
            params = await _params(request, operation)
            answer = await perform(operation, {**params, **request.path_params})
        except ApiError as error:
            return refusal(error)
        except Refusal as error:
            return json_response({"error": error.message}, error.status)
        if isinstance(answer, Download):
            discard = BackgroundTask(answer.discard)
            return FileResponse(
                answer.path, media_type=answer.media_type, filename=answer.path.name, background=discard
            )
        return answer if isinstance(answer, Response) else json_response(answer)

    return endpoint


async def _params(request: Request, operation: Operation) -> Mapping[str, Any]:
    params: dict[str, Any] = {}
    for key in request.query_params:
        values = request.query_params.getlist(key)
        params[key] = values if key in operation.repeatable else values[-1]
    if operation.method in ("POST", "PUT"):
        params |= _checked(await _json_body(request), operation)
    params["_accept"] = request.headers.get("accept", "")
    params["_actor"] = request.scope.get(ACTOR) or "api"
    return params


def _checked(body: Mapping[str, Any], operation: Operation) -> Mapping[str, Any]:
    """Refuse a list where one value is meant, and the reverse: operations need not expect them."""
    for key, value in body.items():
        if key in operation.repeatable:
            if not isinstance(value, list | str | None):
                raise ApiError(400, f"{key!r} takes a list")
        elif isinstance(value, list | dict):
            raise ApiError(400, f"{key[:80]!r} takes one value, not a list or an object")
    return body


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


def _name(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"
