"""`GET settings`: values, their origin, TOML that gives them again, and no secret."""

import asyncio
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, SecretStr
from stored_units import create_empty

from ragpulse_collector.api.shown_settings import (
    ADDRESSES,
    PUBLIC,
    ShownSettings,
    ShownValue,
    shown_db,
    shown_settings,
)
from ragpulse_collector.app import Collector
from ragpulse_collector.configuration import lines_of, load_settings
from ragpulse_collector.settings import EvaluatorSpec, Settings, SettingsError

FILE = """
lead = "groundedness"
collector.retention_days = 14
collector.retention_days_by_service = { "a b" = 3, 'c.d' = 0.5 }
collector.api_keys = []
[judge]
model = "http://127.0.0.1:9/v1#m"
omit = ["temperature"]
budget_usd_per_day = 2
[prices."my.model"]
input = 1
output = 2e-7
tiers = { batch = { input = 0.5, output = 1 } }
[feedback]
acceptance = ["like", "thumb \\"up\\" \\u007f é"]
scale = { stars = [1, 5] }
[[evaluator]]
name = "strict"
use = "groundedness"
threshold = 0.9
[[evaluator]]
name = "tone"
use = "guideline"
judge = { model = "ollama/small", name = "small" }
[[rule]]
name = "live"
evaluators = ["groundedness"]
rate = 0.5
where = '''
service = 'helpdesk'
'''
strata = [
  { where = "error", rate = 1.0 },
]
[[rule]]
name = "second"
evaluators = ["refusal"]
rate = 0
[[monitor]]
name = "errors"
metric = "error_rate"
condition = "> 0.05"
[[target]]
metric = "error_rate"
max = 0.1
"""


def shown(settings: Settings) -> ShownSettings:
    """The answer for these settings."""
    return shown_settings(settings, {})


def values(answer: ShownSettings) -> Mapping[tuple[str, str, str], ShownValue]:
    """The values by table, title and key."""
    return {(table.table, table.title, one.key): one for table in answer.tables for one in table.values}


def planted(kind: Any, path: str, secret: str) -> Any:
    """A value of a type with a text in every place that takes one."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return planted(next(part for part in parts if part is not type(None)), path, secret)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = {name: planted(field.annotation, f"{path}.{name}".strip("."), secret)
                  for name, field in kind.model_fields.items() if name != "source"}  # fmt: skip
        more = {"guidelines": secret, "headers": {"X-Key": secret}, "lines": [secret]} if kind is EvaluatorSpec else {}
        return kind.model_construct(**fields, **more)
    if origin is tuple:
        return tuple(planted(part, path, secret) for part in parts if part is not Ellipsis)
    if origin is dict:
        return {"key": planted(parts[1], path, secret)}
    if origin is Literal:
        return parts[0]
    if origin is not None:  # Annotated
        return planted(parts[0], path, secret)
    if kind is SecretStr:
        return SecretStr(secret)
    return f"{path}:{'public' if path in PUBLIC else secret}" if kind is str else True if kind is bool else 7


@pytest.mark.parametrize("secret", ["s3cret", "another-s3cret" * 9, "x s3cret = 1\n[y]", "s3cret://user:pw@host/?a=b"])
def test_no_secret_is_shown_and_not_even_its_length(secret: str) -> None:
    """A text in every field of the model, and in the parameters of evaluators, is shown only where it is public.

    A new field is a secret until PUBLIC names it.
    """
    answer = shown(planted(Settings, "", secret))
    assert "s3cret" not in repr(answer)
    assert answer == shown(planted(Settings, "", "1"))
    text = repr(answer)
    missing = {path for path in PUBLIC if f"{path}:public" not in text}
    assert {path for path in missing if not path.endswith(("api_key_env", "judge.structured"))} == {
        "collector.retention_days_by_service", "collector.api_keys.scopes", "collector.roles", "collector.log_format",
        "rule.unit", "feedback.scale", "prices.tiers",
    }, "these are no free texts"  # fmt: skip


@pytest.mark.parametrize(
    "address",
    ["https://me:s3cret@host/v1", "https://s3cret@host", "https://host/v1?key=s3cret", "https://host:1/v1?s3cret#m",
     "ducklake:postgres:host=h password=s3cret", "md:db?motherduck_token=s3cret", "me:s3cret@host", "host?k=s3cret",
     "https://[s3cret", "https://host/services/s3cret", "https://host/s3cret/v1", "https://host/v1/s3cret#m"],
)  # fmt: skip
@pytest.mark.parametrize("path", sorted(ADDRESSES))
def test_an_address_is_shown_without_what_it_may_hide(path: str, address: str) -> None:
    """Users, passwords, queries and paths that may be tokens; the path of the pages is no secret."""
    settings = Settings()
    table, *_, key = path.split(".")
    if table == "evaluator":
        judge = Settings().judge.model_copy(update={key: address})
        settings = settings.model_copy(update={"evaluator": (EvaluatorSpec(name="a", use="b", judge=judge),)})
    else:
        value = (address,) if key in ("allowed_hosts", "allowed_origins", "files") else address
        section = getattr(settings, table).model_copy(update={key: value})
        settings = settings.model_copy(update={table: section})
    open_path = path == "collector.public_url" and "?" not in address and "@" not in address
    assert ("s3cret" in repr(shown(settings))) == (open_path and "/s3cret" in address)


def test_the_name_of_a_variable_is_shown_only_where_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may have written the key itself."""
    monkeypatch.setenv("MY_KEY", "s3cret")
    answers = [
        repr(shown(Settings().with_options("judge", {"model": "m", "api_key_env": name})))
        for name in ("MY_KEY", "sk-1")
    ]
    assert ['"MY_KEY"' in answers[0], "s3cret" in answers[0], "sk-1" in answers[1]] == [True, False, False]


def test_the_toml_gives_the_same_settings(tmp_path: Path) -> None:
    """Put into a file; a second time it is the same text."""
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text(FILE, encoding="utf-8")
    settings = load_settings(first, {"RAGPULSE_RETENTION_GB": "7", "RAGPULSE_FILES": ""})
    second.write_text(shown(settings).toml, encoding="utf-8")
    again = load_settings(second, {})
    assert (
        again.model_copy(update={"source": None}).model_dump()
        == settings.model_copy(update={"source": None}).model_dump()
    )
    assert shown(again).toml == shown(settings).toml
    assert "retention_gb = 7.0" in second.read_text()


def test_what_is_not_shown_is_named_and_its_lack_is_refused(tmp_path: Path) -> None:
    """A copy with a destination without its address does not start."""
    path = tmp_path / "a.toml"
    path.write_text('[[destination]]\nname = "ops"\nwebhook = "https://hooks.example.org/T/s3cret"\n')
    toml = shown(load_settings(path, {})).toml
    assert toml == '[[destination]]\nname = "ops"\n# webhook is not shown: it may hold a secret\n'
    path.write_text(toml)
    with pytest.raises(SettingsError, match="exactly one of webhook"):
        load_settings(path, {})


def test_the_keys_before_all_tables_are_one_table() -> None:
    """The page headed `offline` with "Which figure leads"."""
    names = [table.table for table in shown_settings(Settings(), {}).tables if not table.table.startswith("[[")]
    assert len(names) == len(set(names))


def test_each_value_names_where_it_was_given(tmp_path: Path) -> None:
    """The line of the file, the variable, the option, or nothing for a default."""
    path = tmp_path / "r.toml"
    path.write_text(FILE)
    variables = {
        "RAGPULSE_RETENTION_DAYS": "3",
        "RAGPULSE_DRIFT_EVERY": "1d",
        "RAGPULSE_TARGET": '[{"metric": "requests", "min": 1}]',
    }
    settings = load_settings(path, variables).with_options("collector", {"port": 5000, "host": None})
    found = {key: one.origin.replace(f"{path}:", "line ") for key, one in values(shown(settings)).items()}
    assert {key: found[key] for key in (
        ("", "", "lead"), ("[collector]", "", "retention_days"), ("[collector]", "", "port"),
        ("[collector]", "", "host"), ("[judge]", "", "omit"),
        ('[prices."my.model"]', "my.model", "tiers"), ("[[rule]]", "live", "where"),
        ("[[rule]]", "live", "strata"), ("[[rule]]", "second", "rate"), ("[[rule]]", "second", "where"),
        ("[drift]", "", "every"), ("[[target]]", "requests", "min"), ("[[evaluator]]", "strict", "threshold"),
    )} == {
        ("", "", "lead"): "line 2", ("[collector]", "", "retention_days"): "RAGPULSE_RETENTION_DAYS",
        ("[collector]", "", "port"): "--port", ("[collector]", "", "host"): "", ("[judge]", "", "omit"): "line 8",
        ('[prices."my.model"]', "my.model", "tiers"): "line 13", ("[[rule]]", "live", "where"): "line 29",
        ("[[rule]]", "live", "strata"): "line 32", ("[[rule]]", "second", "rate"): "line 38",
        ("[[rule]]", "second", "where"): "", ("[drift]", "", "every"): "RAGPULSE_DRIFT_EVERY",
        ("[[target]]", "requests", "min"): "RAGPULSE_TARGET", ("[[evaluator]]", "strict", "threshold"): "line 20",
    }  # fmt: skip


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    """A collector with a rule in its file."""
    path = tmp_path / "r.toml"
    path.write_text('[[rule]]\nname = "own"\nevaluators = ["refusal"]\nrate = 0.5\n')
    settings = load_settings(path, {}).with_options("collector", {"db": str(tmp_path / "r.duckdb"), "port": 0})
    create_empty(tmp_path / "r.duckdb")
    started = Collector(settings)
    yield started
    started.stop()


def test_a_rule_that_needs_a_new_judge_says_that_a_restart_is_needed(collector: Collector) -> None:
    """The judge of the file is not in force yet: without the word the refusal named a judge that is there."""
    path = collector.settings.path()
    assert path is not None
    path.write_text(
        '[judge]\nmodel = "http://127.0.0.1:1/v1#m"\n[[rule]]\nname = "j"\nevaluators = ["faithfulness"]\nrate = 1\n'
    )
    options = {"db": collector.settings.collector.db, "port": 0}
    with pytest.raises(SettingsError, match=r"needs a judge.*needs a restart: \[judge\] model"):
        collector.reload(load_settings(path, {}).with_options("collector", options))


def test_rules_and_monitors_of_the_api_and_a_reload_are_in_force(collector: Collector) -> None:
    """They are in the TOML, too; built-in rules are shown only."""

    def call(operation: str, **params: Any) -> Any:
        return asyncio.run(collector.components.operations.call(operation, params))

    def origins(kind: str) -> dict[str, str]:
        tables = call("GET settings").tables
        return {one.title: one.values[0].origin.rpartition("/")[2] for one in tables if one.table == f"[[{kind}]]"}

    call("POST rules", name="theirs", evaluators=["groundedness"], rate=0.1)
    call("POST monitors", name="errors", metric="error_rate", condition="> 0.5")
    assert origins("monitor") == {"errors": "API"}
    assert origins("rule") == {"own": "r.toml:2", "theirs": "API", "offline": "built in"}
    parsed = tomllib.loads(call("GET settings").toml)
    assert [rule["name"] for rule in parsed["rule"]] == ["own", "theirs"]
    path = collector.settings.path()
    assert path is not None
    path.write_text('\n\n[[rule]]\nname = "new"\nevaluators = ["refusal"]\nrate = 0.5\n')
    options = {"db": collector.settings.collector.db, "port": 0}
    collector.reload(load_settings(path, {}).with_options("collector", options))
    assert origins("rule") == {"new": "r.toml:4", "theirs": "API", "offline": "built in"}
    path.write_text("")
    collector.reload(load_settings(path, {}).with_options("collector", options))
    assert "built in" in origins("rule").values()
    assert [rule["name"] for rule in tomllib.loads(call("GET settings").toml)["rule"]] == ["theirs"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a.b = 1\n[c]\n'd e' = 2", {("a", "b"): 1, ("c",): 2, ("c", "d e"): 3}),
        ('[a]\nx = """\n[b]\ny = 1\n"""\ny = 2', {("a", "x"): 2, ("a", "y"): 6}),
        ("x = [\n  # [b]\n  1,\n]\ny = '''\nx = [\n'''\nz = 3", {("x",): 1, ("y",): 5, ("z",): 8}),
        ("[[r]]\nn = 1\n[[r.s]]\nm = 1\n[[r.s]]\nm = 2\n[[r]]\nn = 2\n[[r.s]]\nm = 3",
         {("r", 0, "n"): 2, ("r", 0, "s", 1, "m"): 6, ("r", 1): 7, ("r", 1, "s", 0, "m"): 10}),
        ("[[r]]\n[r.t]\nk = 1\n[[r]]\n[r.t]\nk = 2", {("r", 0, "t", "k"): 3, ("r", 1, "t", "k"): 6}),
        ("r = [{a = 1}, {b = {c = 2}}]", {("r", 1, "b", "c"): 1}),
        ("# x = 1\n\n  x = 1 # x\ny = '#'\n", {("x",): 3, ("y",): 4}),
        ('["a.b"."c"]\nd = 1\n[e.f]\ng.h = 2', {("a.b", "c", "d"): 2, ("e",): 3, ("e", "f", "g", "h"): 4}),
    ],
)  # fmt: skip
def test_the_line_of_a_key_is_known_in_any_form_of_toml(text: str, lines: dict[tuple[str | int, ...], int]) -> None:
    """Dotted and quoted keys, inline tables, arrays of tables, texts of several lines that look like TOML."""
    found = lines_of(text)
    assert {location: found[location] for location in lines} == lines
    assert ("b",) not in found


@pytest.mark.parametrize(
    ("db", "told"),
    [
        ("ragpulse.duckdb", "ragpulse.duckdb"),
        ("/var/lib/rag pulse/r.duckdb", "/var/lib/rag pulse/r.duckdb"),
        ("ducklake:postgres:dbname=rag host=db password=s3cret", "ducklake: (not shown)"),
        ("ducklake:metadata.ducklake", "ducklake: (not shown)"),
    ],
)
def test_the_catalog_of_a_lake_is_not_told(db: str, told: str) -> None:
    """As `GET status` and the page of health name the store."""
    assert shown_db(db) == told


def test_a_list_of_many_keys_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line of it would be a start of seconds."""
    parsed, loads = list[int](), tomllib.loads
    monkeypatch.setattr(
        "ragpulse_collector.configuration.tomllib.loads", lambda text: parsed.append(len(text)) or loads(text)
    )
    entry = f'  {{ name = "app", scopes = ["ingest"], sha256 = "{"a" * 64}" }},\n'
    text = f"[collector]\napi_keys = [\n{entry * 500}]\nport = 1\n"
    found = lines_of(text)
    assert (found["collector", "api_keys", 499], found["collector", "port"]) == (2, 504)
    assert sum(parsed) < 2 * len(text)
