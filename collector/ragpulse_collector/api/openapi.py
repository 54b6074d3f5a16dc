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
    "403": "The key lacks the scope, or another page asks.",
    "404": "There is no such thing.",
    "409": "The state does not allow it.",
    "413": "The body is too large.",
    "503": "The store is busy; `Retry-After` says when to ask again.",
}


def document(operations: Iterable[Operation], version: str, *, root: str = "") -> dict[str, Any]:
    """Return an OpenAPI 3.1 document of the JSON API, hosted below `root`."""
    definitions: dict[str, Any] = {}
    _answer(Problem, definitions)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _described(operation, definitions)
        paths.setdefault(f"/api/v1/{operation.path}", {})[operation.method.lower()] = described
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


def _described(operation: Operation, definitions: dict[str, Any]) -> dict[str, Any]:
    found = properties(operation.params, definitions)
    required = operation.params.model_json_schema().get("required", [])
    in_query = operation.method in ("GET", "DELETE")
    others = {name: schema for name, schema in found.items() if name not in operation.in_path}
    parameters = [_parameter(name, "path", found[name], required=True) for name in operation.in_path]
    if in_query:
        parameters += [_parameter(name, "query", one, required=name in required) for name, one in others.items()]
    described: dict[str, Any] = {
        "operationId": _identifier(operation),
        "summary": operation.summary,
        "description": f"Needs the scope `{operation.scope}`.",
        "tags": [operation.path.partition("/")[0]],
        "parameters": parameters,
        "responses": {"200": {"description": "The answer.", "content": _content(operation, definitions)}}
        | {code: {"$ref": f"#/components/responses/{code}"} for code in _REFUSALS},
    }
    if others and not in_query:
        needed = [name for name in others if name in required]
        schema = {"type": "object", "properties": others, "additionalProperties": False}
        schema |= {"required": needed} if needed else {}
        described["requestBody"] = {"required": bool(needed), "content": {"application/json": {"schema": schema}}}
    return described


def _identifier(operation: Operation) -> str:
    """Return a name that is unique and a name in any programming language."""
    words = re.findall(r"\w+", operation.path)
    return "_".join((operation.method.lower(), *words))


def properties(params: type[Params], definitions: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """Return the schema of each parameter; what they refer to joins the definitions."""
    schema = params.model_json_schema(ref_template=_REF)
    if definitions is not None:
        definitions |= schema.get("$defs", {})
    return {name: _not_null(one) for name, one in schema.get("properties", {}).items()}


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter that is left out rather than null."""
    whole = {key: value for key, value in schema.items() if key != "title" and (key, value) != ("default", None)}
    choices = [one for one in whole.pop("anyOf", []) if one != {"type": "null"}]
    return (choices[0] | whole) if len(choices) == 1 else whole | ({"anyOf": choices} if choices else {})


def _parameter(name: str, where: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    description = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": where, "required": required, **description, "schema": schema}


def _content(operation: Operation, definitions: dict[str, Any]) -> dict[str, Any]:
    content = {media: {"schema": {"type": "string", "format": "binary"}} for media in operation.files}
    if operation.answer is None:
        return content
    return {"application/json": {"schema": _answer(operation.answer, definitions)}, **content}


def _answer(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a reference to the schema of an answer; the schema itself joins the definitions."""
    choices = get_args(kind)
    if choices:
        return {"anyOf": [_answer(one, definitions) for one in choices]}
    schema = kind.model_json_schema(ref_template=_REF)
    definitions |= schema.pop("$defs", {})
    definitions[kind.__name__] = schema
    return {"$ref": _REF.format(model=kind.__name__)}
