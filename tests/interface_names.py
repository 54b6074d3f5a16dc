"""The public names, read from the running product; run this file to add new names to the list.

`interface.json` only grows: a name leaves it by a decision that CHANGELOG states, never by this script.
"""

from __future__ import annotations

import importlib
import json
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from starlette.routing import Route

import ragpulse_collector.cli as command_line
from ragpulse_collector.client import Client, connect
from ragpulse_collector.settings import Settings
from ragpulse_dashboards.mount import routes

LIST = Path(__file__).with_name("interface.json")
PACKAGES = ("ragpulse", "ragpulse_evaluators", "ragpulse_evaluators.statistics")
VIEWS = ("traces", "spans", "contexts", "scores", "decisions", "quality_daily", "judge_spans")
CALLS = {
    "quality": "quality('groundedness', timestamp '2026-01-01', timestamp '2027-01-01')",
    "trace": f"trace('{1:032x}')",
}
OTLP = ("/v1/traces", "/v1/logs", "/v1/metrics", "/api/public/otel/v1/traces")
OPEN = ("/healthz", "/readyz", "/metrics", "/openapi.json")


def names(url: str) -> dict[str, list[str]]:
    """Return every public name by kind; `url` is a running collector."""
    client = connect(url)
    result = {
        "python": python(),
        "command line": commands(),
        "settings": sorted(settings(Settings)),
        "sql": sorted(columns(client)),
        "http api": sorted(operations(json.loads(client.request("GET", "/openapi.json")))),
        "http": sorted(addresses(url)),
        "pages": pages(),
    }
    return {kind: list(dict.fromkeys(values)) for kind, values in result.items()}


def python() -> list[str]:
    """The exports of the packages."""
    return [f"{package}.{name}" for package in PACKAGES for name in sorted(importlib.import_module(package).__all__)]


def commands() -> list[str]:
    """Commands, their arguments and options."""
    result = []
    for name, command in sorted(command_line.cli.commands.items()):
        options = sorted(name for parameter in command.params for name in parameter.opts if name.startswith("-"))
        result += [name, *(f"{name} {option}" for option in options)]
    return result


def settings(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Keys of ragpulse.toml, sections before their keys."""
    for name, field in model.model_fields.items():
        yield prefix + name
        for inner in _models(field.annotation):
            yield from settings(inner, f"{prefix}{name}.")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _models(part)


def columns(client: Client) -> Iterator[str]:
    """Columns of the views and of the table macros."""
    for name, relation in {**{view: view for view in VIEWS}, **CALLS}.items():
        answer = client.call("POST sql", {"query": f"select * from {relation} limit 0"})
        yield from (f"{name}.{column}" for column in answer["columns"])


def operations(document: Mapping[str, Any]) -> Iterator[str]:
    """Operations of the API and their parameters, from `/openapi.json`."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            yield name
            yield from (f"{name} {parameter['name']}" for parameter in operation.get("parameters", ()))
            for content in operation.get("requestBody", {}).get("content", {}).values():
                yield from (f"{name} {key}" for key in _properties(document, content["schema"]))


def _properties(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """Keys of an object, through references and alternatives."""
    if "$ref" in schema:
        target: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        yield from _properties(document, target)
    for alternative in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _properties(document, alternative)
    yield from schema.get("properties", {})


def addresses(url: str) -> Iterator[str]:
    """Addresses beside the API that answer 200."""
    for path in OTLP:
        request = urllib.request.Request(url + path, b"", {"Content-Type": "application/x-protobuf"})
        if _status(request) == 200:
            yield f"POST {path}"
    for path in OPEN:
        if _status(urllib.request.Request(url + path)) == 200:
            yield f"GET {path}"


def _status(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def pages() -> list[str]:
    """Addresses of the pages."""
    paths = [route for route in routes(_unused) if isinstance(route, Route)]
    return sorted(f"{method} {route.path}" for route in paths for method in (route.methods or ()) if method != "HEAD")


async def _unused(name: str, params: Mapping[str, Any]) -> Any:
    """Replace the API, which no route needs here."""
    raise AssertionError((name, params))


def main() -> None:
    """Add new names to the list."""
    from ragpulse_collector.app import Collector

    with tempfile.TemporaryDirectory() as folder:
        collector = Collector(Settings().with_options("collector", {"db": f"{folder}/names.duckdb", "port": 0}))
        collector.start()
        current = names(collector.url)
        collector.stop()
    known = json.loads(LIST.read_text(encoding="utf-8")) if LIST.exists() else {}
    merged = {kind: sorted({*known.get(kind, ()), *values}) for kind, values in current.items()}
    LIST.write_text(json.dumps(merged, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
