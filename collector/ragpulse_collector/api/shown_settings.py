"""`GET settings`: the values in force, where each was given, and TOML that gives them again, without any secret.

A text is a secret unless its key is in PUBLIC, and of an address only what is no secret is shown.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from platform import python_version
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, JsonValue

from ragpulse_collector.settings import Location, Settings

_JUDGE = (
    "model",
    "name",
    "api_base",
    "api_key_env",
    "structured",
    "limit_parameter",
    "omit",
    "reasoning_effort",
    "service_tier",
)
PUBLIC: Final = frozenset((
    "lead", "collector.host", "collector.db", "collector.retention_days_by_service", "collector.api_keys.name",
    "collector.api_keys.scopes", "collector.api_keys.services", "collector.api_keys.environments",
    "collector.allowed_hosts", "collector.allowed_origins", "collector.public_url", "collector.root_path",
    "collector.trusted_proxies", "collector.roles", "collector.tls_certificate", "collector.tls_key",
    "collector.price_table", "collector.log_format", *(f"judge.{key}" for key in _JUDGE), "prices.tiers",
    "evaluators.modules", "evaluators.files", "evaluator.name", "evaluator.use",
    *(f"evaluator.judge.{key}" for key in _JUDGE), "rule.name", "rule.evaluators", "rule.where", "rule.strata.where",
    "rule.unit", "monitor.name", "monitor.metric", "monitor.condition", "monitor.notify", "monitor.group_by",
    "monitor.where", "monitor.window", "monitor.baseline", "destination.name", "smtp.host", "smtp.sender",
    "target.metric", "target.where", "drift.every", "feedback.acceptance", "feedback.scale", "digest.when", "digest.to",
))  # fmt: skip
"""Keys whose text is no secret; numbers and switches are none either."""
ADDRESSES: Final = frozenset((
    "collector.host", "collector.db", "collector.allowed_hosts", "collector.allowed_origins", "collector.public_url",
    "collector.tls_certificate", "collector.tls_key", "collector.price_table", "smtp.host", "judge.model",
    "judge.api_base", "evaluator.judge.model", "evaluator.judge.api_base", "evaluators.files",
))  # fmt: skip
"""Those that may hold a user, a password or a token."""
HIDDEN: Final = "(not shown)"
BUILT_IN: Final = "built in"
_PATH = re.compile(r"(/v\d+)?/?")
_PLAIN = re.compile(r"(?!ducklake:|md:)[^@?=;&]*")


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A value as TOML; empty where there is none, with `(not shown)` in the place of a secret."""

    key: str
    value: str
    origin: str
    """File and line, variable, option, `API`; empty for a default."""


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table, or an entry of a list of tables."""

    table: str
    """Its header in TOML; empty before all tables."""
    title: str
    """The name of an entry."""
    values: Sequence[ShownValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSettings:
    """The settings in force for people."""

    file: str | None
    tables: Sequence[ShownTable]
    toml: str
    """Gives the same settings in a file; a secret is a comment there."""
    versions: Mapping[str, str]
    prices: Mapping[str, str | None]
    """The price table and its date."""


def shown_settings(settings: Settings, prices: Mapping[str, str | None]) -> ShownSettings:
    """Return settings as they are shown; `prices` are the price table and its date."""
    tables = list(_tables(settings))
    path = settings.path()
    return ShownSettings(
        file=str(path) if path else None,
        tables=tables,
        toml="\n".join(filter(None, map(_as_toml, tables))),
        versions={"ragpulse": version("ragpulse"), "DuckDB": version("duckdb"), "Python": python_version()},
        prices=prices,
    )


Value = BaseModel | JsonValue


def _tables(settings: Settings) -> Iterator[ShownTable]:
    """Yield the keys before all tables, then the tables in their order."""
    plain = [(name, value) for name, value in _items(settings) if value is None or isinstance(value, str | bool)]
    shown = (_value(settings, of, (name,), name, is_default=_is_default(settings, name, of)) for name, of in plain)
    yield ShownTable("", "", list(shown))
    for name, value in _items(settings):
        if isinstance(value, BaseModel):
            yield ShownTable(f"[{name}]", "", _values(settings, value, (name,), name))
        elif isinstance(value, tuple):
            for number, entry in enumerate(value):
                title: str = getattr(entry, "name", "") or entry.metric
                yield ShownTable(f"[[{name}]]", title, _values(settings, entry, (name, number), name))
        elif isinstance(value, dict):
            for key, entry in value.items():
                yield ShownTable(f"[{name}.{_text(key)}]", key, _values(settings, entry, (name, key), name))


def _items(section: BaseModel) -> Iterator[tuple[str, Any]]:
    """Yield the keys that a file may have with their values."""
    names = (*type(section).model_fields, *(section.model_extra or ()))
    return ((name, getattr(section, name)) for name in names if name != "source")


def _values(settings: Settings, section: BaseModel, at: Location, path: str) -> list[ShownValue]:
    return [
        _value(settings, value, (*at, key), f"{path}.{key}", is_default=_is_default(section, key, value))
        for key, value in _items(section)
    ]


def _is_default(section: BaseModel, key: str, value: Value) -> bool:
    field = type(section).model_fields.get(key)
    return field is not None and not field.is_required() and bool(field.default == value)


def _value(settings: Settings, value: Value, at: Location, path: str, *, is_default: bool) -> ShownValue:
    """Return a value and its origin: where it was given, else, unless it is a default, what it is a part of."""
    around = () if is_default else (at[:size] for size in range(len(at) - 1, 0, -1))
    given = (settings.places[place] for place in (at, *around) if place in settings.places)
    origin = next(given, "" if is_default else "given at start")
    return ShownValue(str(at[-1]), "" if value is None else _toml(path, value), origin)


def _toml(path: str, value: Value) -> str:
    """Return a value as TOML with the secrets left out: of a hidden list or table not even the size is told."""
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        shown = _public(path, value)
        return _text(value) if shown == value else f"{shown} {HIDDEN}".strip()
    if isinstance(value, BaseModel):
        return _inline(path, {key: item for key, item in _items(value) if not _is_default(value, key, item)})
    if isinstance(value, dict):
        return _inline(path, value) if path in PUBLIC else HIDDEN
    items = list(value or ())
    is_hidden = path not in PUBLIC and any(isinstance(item, str | list | dict) for item in items)
    return HIDDEN if is_hidden else f"[{', '.join(_toml(path, item) for item in items)}]"


def _inline(path: str, values: Mapping[str, JsonValue]) -> str:
    pairs = (f"{_key(key)} = {_toml(f'{path}.{key}', value)}" for key, value in values.items())
    return f"{{ {', '.join(pairs)} }}" if values else "{}"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _public(path: str, text: str) -> str:
    """Return what of a text is no secret."""
    if path.endswith(".api_key_env"):  # else it may be the key itself
        return text if text in os.environ else ""
    if path not in PUBLIC:
        return ""
    return _address(path, text) if path in ADDRESSES else text


def shown_db(db: str) -> str:
    """Return the file of the store, or the kind of a lake: its catalog may need a password."""
    return _address("collector.db", db) or f"{db.partition(':')[0]}: {HIDDEN}"


def _address(path: str, text: str) -> str:
    """Return the address without user, password, query, and a path that may be a token."""
    if "://" not in text:
        return text if _PLAIN.fullmatch(text) else ""
    try:
        url = urlsplit(text)
    except ValueError:
        return ""
    is_open = "@" not in url.netloc and not url.query and (_PATH.fullmatch(url.path) or path == "collector.public_url")
    return text if is_open else f"{url.scheme}://{url.netloc.rpartition('@')[2]}"


def _as_toml(table: ShownTable) -> str:
    """Return the lines of a table that give its values; none for one of defaults, and of a built-in rule."""
    given = [value for value in table.values if value.origin]
    if not given or any(value.origin == BUILT_IN for value in given):
        return ""
    lines = (
        f"# {one.key} is not shown: it may hold a secret" if HIDDEN in one.value else f"{_key(one.key)} = {one.value}"
        for one in given
        if one.value
    )
    return "\n".join((*filter(None, (table.table,)), *lines, ""))
