"""docs/architecture.md names modules that exist, and every part of the collector."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from ragpulse_collector.store.views import UNCLEAR

ROOT = Path(__file__).parents[1]
COLLECTOR = ROOT / "collector" / "ragpulse_collector"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_named_module_exists() -> None:
    """A renamed module is renamed here too."""
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|/))`", PAGE)
    assert len(named) > 50
    assert [name for name in named if not (COLLECTOR / name).exists()] == []


def test_every_package_is_named() -> None:
    """No part of the collector is left out, but the command line and the demo, which the picture shows."""
    parts = {path.name for path in COLLECTOR.iterdir() if (path / "__init__.py").exists()} - {"cli", "demo"}
    assert {part for part in parts if f"{part}/" not in PAGE} == set()


BUILT_IN = {"KeyError", "LookupError", "PermissionError", "TimeoutError", "ValueError"}


def test_a_refusal_is_a_type() -> None:
    """Where requests are answered nothing raises a built-in exception on purpose: those are bugs, status 500.

    `api/guard.py` refuses before there is an operation.
    """
    answering = ("analysis", "api", "evaluation", "monitoring", "sampling", "store/sql")
    modules = [path for part in answering for path in (COLLECTOR / part).rglob("*.py") if path.name != "guard.py"]
    raised = [
        f"{path.relative_to(COLLECTOR)}:{node.lineno}"
        for path in modules
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and ast.unparse(node.exc.func) in BUILT_IN
    ]
    assert raised == []


ONE_HOME = {
    r"datetime\(1970": "instants.py",
    r"\.timestamp\(\) \* 1(?:e6|_000_000)": None,
    r'"ragpulse\.binding"': "settings/tables.py",
    r"'llm', 'embedding', 'reranker'|frozenset\(\{.llm., .embedding.": None,
    r"AKIA": None,
}
"""A fact as it would stand in code, and the module that states it; None: only the SDK does, or no module."""


@pytest.mark.parametrize("fact", ONE_HOME)
def test_a_fact_has_one_home(fact: str) -> None:
    """The epoch, the key of a request's binding, the kinds that pay for tokens, the patterns of secrets."""
    packages = (COLLECTOR, ROOT / "dashboards" / "ragpulse_dashboards")
    modules = [path for package in packages for path in package.rglob("*.py")]
    stating = {str(path.relative_to(path.parents[len(path.relative_to(ROOT).parts) - 3])) for path in modules
               if re.search(fact, path.read_text(encoding="utf-8"))}  # fmt: skip
    assert stating == ({ONE_HOME[fact]} if ONE_HOME[fact] else set())


def test_a_count_of_nothing_is_zero() -> None:
    """`count_if` of no row, or of nulls alone, is null in DuckDB; `count(*) FILTER (...)` is 0."""
    found = [path.name for path in (ROOT / "collector").rglob("*.py") if "count_if(" in path.read_text("utf-8")]
    assert found == []


NEVER_NULL = {
    "decided", "evaluator", "id", "joined", "kind", "name", "reason", "sampled", "score_key", "snapshot_id", "source",
    "span_id", "status", "trace_id", "UUID",  # columns that every row has
    "alone", "clocked", "due", "exploratory", "facet", "fits", "graded", "has_usage", "hour", "in_call",
    "last_trace", "late", "local_root", "list_contains", "coalesce", "UNCLEAR", "_COUNTS", "allowed", "served",
}  # fmt: skip
UNKNOWN_EITHER_WAY = {
    "answer", "passing", "failing", "a_passes", "b_passes", "a", "in_use", "version", "label_version", "run_id",
    "session_id", "identifier", "bool_or", "path_is_relative",
}  # fmt: skip
"""Where it is null, neither the condition nor its negation shall hold."""
_NEGATED = re.compile(r"(?<!IS )\bNOT (?!IN\b|NULL\b|EXISTS\b)(?:\(?{)?(?:\w+\.)?(\w+|\()|(\w+)[)}]* (?:<>|!=|NOT IN) ")


def test_what_sql_negates_is_never_null() -> None:
    """`NOT (a AND b)` and `a <> b` are null, hence false, where a column is: compare with IS [NOT] DISTINCT FROM."""
    found = {
        name
        for module in COLLECTOR.rglob("*.py")
        for text in _texts(module)
        for names in _NEGATED.findall(text)
        for name in names
        if name
    }
    both = "FROM (SELECT unnest([true, false, NULL]) AS passing), (SELECT unnest(['unclear', 'good', NULL]) AS label)"
    assert duckdb.sql(f"SELECT bool_and({UNCLEAR} IS NOT NULL) {both}").fetchall() == [(True,)]
    assert found - NEVER_NULL - UNKNOWN_EITHER_WAY == set()
    assert (NEVER_NULL | UNKNOWN_EITHER_WAY) - found == set()  # else a name that nothing needs hides the next fault


def _texts(module: Path) -> Iterator[str]:
    """The texts of a module but for docstrings; what an f-string inserts stands in braces."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    within = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    within |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (
                part.value if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
                for part in node.values
            )
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in within:
            yield node.value


def test_a_missing_id_is_no_user() -> None:
    """`hash(NULL)` is a number: as a cluster, all requests without a session would be one."""
    hashed = re.compile(r"(?<!THEN )hash\((?:user_id|session_id|query)\)")
    found = [path.name for path in COLLECTOR.rglob("*.py") for text in _texts(path)
             if hashed.search(text) and "query IS NOT NULL" not in text]  # fmt: skip
    assert found == []


def test_no_field_is_lost_where_answers_are_written() -> None:
    """pydantic writes the slots of a dataclass or its `__dict__`, never both: who inherits slots has slots."""
    declared = {
        node.name: (ast.unparse(decorator), {ast.unparse(base) for base in node.bases})
        for package in ("collector", "evaluators", "dashboards")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
        if ast.unparse(decorator).startswith("dataclass")
    }
    slotted = {name for name, (decorator, _) in declared.items() if "slots=True" in decorator}
    assert "Uncertain" in slotted
    assert {name for name, (_, bases) in declared.items() if bases & slotted and name not in slotted} == set()
