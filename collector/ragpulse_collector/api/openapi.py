"""`/openapi.json`, made from the operations with their parameter models and answers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, get_args

from ragpulse_collector.api.answers import Problem
from ragpulse_collector.api.http import MEDIA_TYPE
from ragpulse_collector.api.operations import Operation
from ragpulse_collector.api.params import Params

_REF = "#/components/schemas/{model}"
_REFUSALS = {
    "400": "A parameter is wrong or unknown.",
    "401": "A key is needed.",
    "403": "The key lacks the scope, or the request comes from another site.",
    "404": "It does not exist.",
    "409": "The state does not allow it.",
    "413": "The body is too large.",
    "503": "The store is busy; try again after the seconds of `Retry-After`.",
}


def document(operations: Iterable[Operation], version: str, *, root: str = "") -> dict[str, Any]:
    """Return an OpenAPI 3.1 document of the JSON API, hosted below `root`."""
    definitions: dict[str, Any] = {}
    _answer(Problem, definitions)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(f"/api/v1/{operation.path}", {})[operation.method.lower()] = _operation(operation, definitions)
    return {
        "openapi": "3.1.0",
        "info": {"title": "ragpulse collector", "version": version},
        "servers": [{"url": root or "/"}],
        "components": {
            "schemas": definitions,
            "responses": {code: _refusal(text) for code, text in _REFUSALS.items()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
        "paths": paths,
    }


def _refusal(description: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model=Problem.__name__)}
    return {"description": description, "content": {MEDIA_TYPE: {"schema": schema}}}


def _operation(operation: Operation, definitions: dict[str, Any]) -> dict[str, Any]:
    schemas = properties(operation.params, definitions)
    required = operation.params.model_json_schema().get("required", [])
    in_query = operation.method in ("GET", "DELETE")
    rest = {name: schema for name, schema in schemas.items() if name not in operation.in_path}
    parameters = [_parameter(name, "path", schemas[name], required=True) for name in operation.in_path]
    if in_query:
        parameters += [_parameter(name, "query", schema, required=name in required) for name, schema in rest.items()]
    entry: dict[str, Any] = {
        "operationId": _identifier(operation),
        "summary": operation.summary,
        "description": f"Needs the scope `{operation.scope}`.",
        "tags": [operation.path.partition("/")[0]],
        "parameters": parameters,
        "responses": {"200": {"description": "The answer.", "content": _content(operation, definitions)}}
        | {code: {"$ref": f"#/components/responses/{code}"} for code in _REFUSALS},
    }
    if rest and not in_query:
        in_body = [name for name in rest if name in required]
        schema = {"type": "object", "properties": rest, "additionalProperties": False}
        schema |= {"required": in_body} if in_body else {}
        entry["requestBody"] = {"required": bool(in_body), "content": {"application/json": {"schema": schema}}}
    return entry


def _identifier(operation: Operation) -> str:
    """Return a unique name that is valid in any programming language."""
    words = re.findall(r"\w+", operation.path)
    return "_".join((operation.method.lower(), *words))


def properties(params: type[Params], definitions: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """Return the schema of each parameter, and add their references to the definitions."""
    schema = params.model_json_schema(ref_template=_REF)
    if definitions is not None:
        definitions |= schema.get("$defs", {})
    return {name: _not_null(value) for name, value in schema.get("properties", {}).items()}


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without null: a parameter without a value is absent."""
    rest = {key: value for key, value in schema.items() if key != "title" and (key, value) != ("default", None)}
    choices = [choice for choice in rest.pop("anyOf", []) if choice != {"type": "null"}]
    return (choices[0] | rest) if len(choices) == 1 else rest | ({"anyOf": choices} if choices else {})


def _parameter(name: str, location: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    description = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": location, "required": required, **description, "schema": schema}


def _content(operation: Operation, definitions: dict[str, Any]) -> dict[str, Any]:
    content = {media: {"schema": {"type": "string", "format": "binary"}} for media in operation.files}
    if operation.answer is None:
        return content
    return {"application/json": {"schema": _answer(operation.answer, definitions)}, **content}


def _answer(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a reference to the schema of an answer, and add the schema to the definitions."""
    choices = get_args(kind)
    if choices:
        return {"anyOf": [_answer(choice, definitions) for choice in choices]}
    schema = kind.model_json_schema(ref_template=_REF)
    definitions |= schema.pop("$defs", {})
    definitions[kind.__name__] = schema
    return {"$ref": _REF.format(model=kind.__name__)}
