"""Writes the reference pages from the code: `python docs/generate.py`, or `--check` to fail when one is stale.

A page is a function that returns Markdown; add it to `PAGES`.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args, get_origin

import click
from pydantic import BaseModel

import ragpulse_collector.settings
from ragpulse_collector.api.models import Filters
from ragpulse_collector.api.operations import Operation, document, properties
from ragpulse_collector.app import Collector
from ragpulse_collector.cli import cli
from ragpulse_collector.cli.asked import OfOperation
from ragpulse_collector.operations import all_operations
from ragpulse_collector.settings import Settings
from ragpulse_evaluators import Entry, Scale, default_registry

DOCS = Path(__file__).parent
FAMILIES = {
    "judged": "Asking a judge",
    "local": "Local models",
    "grounding": "Without judge or reference",
    "agents": "Agents and conversations, by rules",
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
        collector = Collector(Settings().with_options("collector", {"db": f"{folder}/ragpulse.duckdb", "port": 0}))
        collector.start(listen=False)
        try:
            return document(collector.components.operations, "")
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
    default = str(default).lower() if isinstance(default, bool) else default
    shown = "required" if required else "" if default in (None, []) else f"`{default}`"
    return f"| `{name}` | {_type(schema)} | {shown} | {description.replace('|', ' or ')} |"


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"] if one != {"type": "null"})
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "const" in schema:
        return f"`{schema['const']}`"
    return str(schema.get("type", "object" if "$ref" in schema else "any"))


def configuration() -> str:
    """Every table and key of `ragpulse.toml`."""
    lines = [
        "# ragpulse.toml",
        "",
        "`ragpulse serve` reads `ragpulse.toml` of its folder, or the file of `--config`. An unknown key or a wrong",
        "type is refused at start with the line and the nearest valid name. Every key is also an environment variable:",
        "`RAGPULSE_<KEY>` for `[collector]`, `RAGPULSE_<TABLE>_<KEY>` for other tables ([how](../operations.md)).",
        "Written by `docs/generate.py`.",
    ]
    notes = _field_notes()
    single = [name for name, field in Settings.model_fields.items() if not [*_models(field.annotation)]]
    lines += ["", "## Before all tables", "", *_single_keys([name for name in single if name != "source"], notes)]
    for name, field in Settings.model_fields.items():
        for model in _models(field.annotation):
            header = f"[[{name}]]" if get_origin(field.annotation) is tuple else f"[{name}]"
            lines += _settings_section(f"{name}: {header}", model, notes)
            for key, inner in model.model_fields.items():
                for part in _models(inner.annotation):
                    lines += _settings_section(f"{name}: entries of {key}", part, notes)
    return "\n".join(lines) + "\n"


def _single_keys(names: Iterable[str], notes: Mapping[tuple[str, str], str]) -> list[str]:
    schemas = Settings.model_json_schema()["properties"]
    rows = _table([(name, schemas[name] | {"description": _note(Settings, name, notes)}) for name in names], ())
    return [row.replace("| parameter", "| key") for row in rows[1:]]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _settings_section(title: str, model: type[BaseModel], notes: Mapping[tuple[str, str], str]) -> list[str]:
    schema = model.model_json_schema()
    described = {
        name: one | {"description": _note(model, name, notes)} for name, one in schema.get("properties", {}).items()
    }
    rows = _table(described.items(), schema.get("required", ()))
    return [
        "",
        f"## {title}",
        "",
        inspect.cleandoc(model.__doc__ or ""),
        *(row.replace("| parameter", "| key") for row in rows),
    ]


def _note(model: type[BaseModel], name: str, notes: Mapping[tuple[str, str], str]) -> str:
    return next((notes[one.__name__, name] for one in model.__mro__ if (one.__name__, name) in notes), "")


def _field_notes() -> dict[tuple[str, str], str]:
    """The text below each field of the settings, by class and field."""
    modules = Path(ragpulse_collector.settings.__file__).parent.glob("*.py")
    classes = [owner for module in modules for owner in ast.parse(module.read_text(encoding="utf-8")).body]
    return {
        (owner.name, field.target.id): " ".join(text.value.value.split())
        for owner in classes
        if isinstance(owner, ast.ClassDef)
        for field, text in zip(owner.body, owner.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def command_line() -> str:
    """Every command with its options."""
    lines = [
        "# Command line",
        "",
        "Every command asks the running collector (`--url`, `RAGPULSE_URL`, default `http://127.0.0.1:4318`); those",
        "that only read also take a closed file (`--db`). An error is one line with the fix; exit status 2 for wrong",
        "usage, 1 for a failure. Written by `docs/generate.py`.",
        "",
        "Commands that print tables take `--json`, `--wide` and `--columns`. On a terminal a table shows the columns",
        "that fit, the most important first; failures are red, unless `NO_COLOR` is set. Piped tables are whole.",
        "",
        "Completion of commands and options: put one line into the file that your shell reads at its start.",
        "",
        "| shell | file | line |",
        "|---|---|---|",
        '| bash | `~/.bashrc` | `eval "$(_RAGPULSE_COMPLETE=bash_source ragpulse)"` |',
        '| zsh | `~/.zshrc` | `eval "$(_RAGPULSE_COMPLETE=zsh_source ragpulse)"` |',
        "| fish | `~/.config/fish/config.fish` | `_RAGPULSE_COMPLETE=fish_source ragpulse \\| source` |",
    ]
    for name, command in cli.commands.items():
        with click.Context(command, info_name=f"ragpulse {name}") as context:
            usage = " ".join(command.collect_usage_pieces(context))
            shown = [
                one for one in command.params if not (isinstance(command, OfOperation) and command.filters_by(one))
            ]
            options = [record for one in shown if (record := one.get_help_record(context))]
        lines += ["", f"## {name}", "", f"`ragpulse {name} {usage}`", "", inspect.cleandoc(command.help or "")]
        lines += ["", f"`{(command.epilog or '').removeprefix('Example: ')}`"]
        rows = ["| `{}` | {} |".format(*(text.replace("|", r"\|") for text in one)) for one in options]
        lines += ["", "| option | |", "|---|---|", *rows] if rows else []
        lines += ["", "Takes the [filters](http.md#filters) as options."] if shown != command.params else []
    return "\n".join(lines) + "\n"


def interface() -> str:
    """The signatures of the operations that read, for callers that cannot import them."""
    filters = _filters()
    reading = [one for one in all_operations() if one.scope == "read" and one.method == "GET"]
    declared = [one for one in all_operations() if one not in reading and (one.command or one.tools)]
    content = {
        "filters": filters,
        "operations": [_signature(one, filters) for one in (*reading, *declared) if one.answer is not None],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _signature(operation: Operation, filters: Mapping[str, Any]) -> dict[str, Any]:
    schemas = properties(operation.params)
    return {
        "name": operation.name,
        "function": operation.function.__name__,
        "summary": operation.summary,
        "text": operation.text,
        "parameters": {name: one for name, one in schemas.items() if one != filters.get(name)},
        "filtered": schemas.get("where") == filters["where"],
        "required": operation.params.model_json_schema().get("required", []),
        "slashes": operation.slashes,
        "back": getattr(operation.params, "BACK", None),
        "command": asdict(operation.command) if operation.command else None,
        "tools": [asdict(tool) for tool in operation.tools],
    }


PAGES: Mapping[str, Callable[[], str]] = {
    "../collector/ragpulse_collector/interface.json": interface,
    "reference/evaluators.md": evaluators,
    "reference/http.md": http_api,
    "reference/configuration.md": configuration,
    "reference/cli.md": command_line,
}


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
