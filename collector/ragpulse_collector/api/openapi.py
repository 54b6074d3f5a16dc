"""`/openapi.json`, made from the table of operations so that it cannot lie about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ragpulse_collector.api.operations import Operation

_PROBLEM = {
    "description": "Refused; `error` says why.",
    "content": {"application/json": {"schema": {"type": "object"}}},
}


def document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """Return an OpenAPI 3.1 document of the JSON API."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(f"/api/v1/{operation.path}", {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "ragpulse collector", "version": version},
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
        "paths": paths,
    }


def _described(operation: Operation) -> dict[str, Any]:
    in_path = [name.partition("}")[0] for name in operation.path.split("{")[1:]]
    parameters = [_parameter(name, "path") for name in in_path]
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": f"{operation.method} {operation.path}",
        "tags": [operation.path.partition("/")[0]],
        "responses": {
            "200": {"description": "The answer.", "content": {"application/json": {"schema": {"type": "object"}}}},
            "400": _PROBLEM,
            "401": _PROBLEM,
            "403": _PROBLEM,
            "404": _PROBLEM,
        },
    }
    if operation.method in ("GET", "DELETE"):
        parameters += [_parameter(name, "query", many=name in operation.repeatable) for name in operation.parameters]
    else:
        properties: dict[str, Any] = {name: {} for name in operation.parameters}
        schema = {"type": "object", "properties": properties}
        described["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return described | {"parameters": parameters}


def _parameter(name: str, where: str, *, many: bool = False) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", "items": {"type": "string"}} if many else {"type": "string"}
    return {"name": name, "in": where, "required": where == "path", "schema": schema}
