"""Writes the reference pages from the code: `python docs/generate.py`, or `--check` to fail when one is stale.

A page is a function that returns Markdown; add it to `PAGES`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ragpulse_collector.api.models import Filters
from ragpulse_collector.api.openapi import document, properties
from ragpulse_collector.app import Collector
from ragpulse_collector.demo.offer import offered
from ragpulse_collector.settings import Settings
from ragpulse_evaluators import Entry, Scale, default_registry

DOCS = Path(__file__).parent
FAMILIES = {
    "judged": "Asking a judge",
    "grounding": "Without judge or reference",
    "text": "Against a reference text",
    "structure": "Form of the response",
    "ranking": "Retrieval against known documents",
    "aggregate": "Efficiency, sets and composition",
}


def evaluators() -> str:
    """Every registered evaluator by family."""
    registry = default_registry()
    lines = [
        "# Evaluators",
        "",
        f"{len(registry.entries)} evaluators are built in. *Needs* are the case fields without which a result is",
        "`skipped`; *scale* is the range of the native score (→ says how it becomes the normalized 0..1, higher is",
        "better). Parameters are keywords of `get_evaluator`, of `evaluate(params=...)` and of `[[evaluator]]`.",
        "Written by `docs/generate.py`.",
    ]
    for family, title in FAMILIES.items():
        entries = [entry for entry in registry.entries if _family(entry) == family]
        lines += ["", f"## {title}", ""]
        for entry in entries:
            lines += _section(entry, registry.accepts(entry.name))
    return "\n".join(lines) + "\n"


def _family(entry: Entry) -> str:
    owner = getattr(entry.factory, "func", entry.factory)
    return str(owner.__module__.split(".")[1])


def _section(entry: Entry, parameters: list[str]) -> list[str]:
    needs = ", ".join(f"`{field}`" for field in entry.needs) or "nothing"
    named = ", ".join(f"`{name}`" for name in parameters if name != "resolve")
    return [
        f"### {entry.name}",
        "",
        entry.description,
        "",
        f"- Needs {needs}; scale {_scale(entry.scale)}; cost: {entry.cost_class}. Source: {entry.source}.",
        *([f"- Parameters: {named}."] if named else []),
        *([f"- Install: `pip install '{entry.install}'`."] if entry.install else []),
        f"- `{entry.example}`",
        "",
    ]


def _scale(scale: Scale) -> str:
    if scale.kind == "open":
        return "any number → within 0..1 as it is"
    if scale.hi is None:
        return f"{scale.lo:g}.. → none without a target"
    turned = ", reversed" if scale.reverse else ""
    how = {"minmax": "", "ratio": " → score over highest", "clip": " → cut to 0..1"}[scale.kind]
    return f"{scale.lo:g}..{scale.hi:g}{how}{turned}"


def http_api() -> str:
    """Every operation of the JSON API with its parameters."""
    lines = [
        "# HTTP API",
        "",
        "The operations below `/api/v1/`; `/openapi.json` also describes their answers. Parameters stand in the query",
        "of `GET` and `DELETE`, and in the JSON body of `POST` and `PUT`. An unknown name is refused with status 400",
        "and the nearest known name. Errors are `application/problem+json` (RFC 9457): `type`, `title`, `status`,",
        "`detail`, `instance`, and for wrong parameters `errors` with `name` and `detail`. `error` repeats `detail`.",
        "Written by `docs/generate.py`.",
        "",
        "## Filters",
        "",
        "Lists, charts and reports share these parameters. A list keeps what has one of its values.",
        *_table(_filters().items(), ()),
    ]
    for path, methods in _document()["paths"].items():
        for method, operation in methods.items():
            lines += ["", f"## {method.upper()} {path.removeprefix('/api/v1/')}", ""]
            lines += [f"{operation['summary']} {operation['description']}", *_parameters(operation)]
    return "\n".join(lines) + "\n"


def _filters() -> dict[str, Any]:
    return properties(Filters)


def _document() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        collector = Collector(Settings().with_options("collector", {"db": f"{folder}/ragpulse.duckdb"}), more=offered)
        collector.start(listen=False)
        try:
            return document(collector.parts.operations, "")
        finally:
            collector.stop()


def _parameters(operation: Mapping[str, Any]) -> list[str]:
    """The parameters of an operation; filters are only mentioned."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    schemas = {one["name"]: one["schema"] for one in operation["parameters"]} | body.get("properties", {})
    needed = {one["name"] for one in operation["parameters"] if one["required"]} | {*body.get("required", ())}
    own = {name: schema for name, schema in schemas.items() if _filters().get(name) != schema}
    more = ["", "Takes the [filters](#filters)."] if "where" in schemas and "where" not in own else []
    return [*more, *_table(own.items(), needed)]


def _table(schemas: Iterable[tuple[str, Mapping[str, Any]]], needed: Collection[str]) -> list[str]:
    rows = [_row(name, schema, name in needed, schema.get("description", "")) for name, schema in schemas]
    return ["", "| parameter | type | default | |", "|---|---|---|---|", *rows] if rows else []


def _row(name: str, schema: Mapping[str, Any], required: bool, description: str) -> str:
    default = schema.get("default")
    shown = "required" if required else "" if default in (None, []) else f"`{default}`"
    return f"| `{name}` | {_type(schema)} | {shown} | {description.replace('|', ' or ')} |"


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "const" in schema:
        return f"`{schema['const']}`"
    return str(schema.get("type", "object" if "$ref" in schema else "any"))


PAGES: Mapping[str, Callable[[], str]] = {"reference/evaluators.md": evaluators, "reference/http.md": http_api}


def main(arguments: list[str]) -> int:
    """Write every page; with `--check` write none and return 1 when one differs."""
    stale = []
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        print(("stale: " if "--check" in arguments else "written: ") + ", ".join(stale))
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
