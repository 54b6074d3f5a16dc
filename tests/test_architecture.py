"""docs/architecture.md names modules that exist, and every part of the collector."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

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
