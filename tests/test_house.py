"""`make house` counts what it says it counts."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = '''"""Docstring."""
import duckdb._private
from os import _exit
from _duckdb import Error

# A comment, and a blank line:

def f(a):
    """Docstring of f, naming raw.spans."""
    return a + 1
'''


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    path = Path(__file__).parents[1] / "benchmarks" / "house.py"
    spec = importlib.util.spec_from_file_location("house", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "house", module)
    spec.loader.exec_module(module)
    return module


def test_tokens_leave_out_comments_and_docstrings(house: ModuleType) -> None:
    """Names, operators and literals count; nothing else does."""
    module = house.Module(Path("m.py"), SOURCE, ast.parse(SOURCE))
    words = "import duckdb . _private from os import _exit from _duckdb import Error def f ( a ) : return a + 1"
    assert house.tokens(module) == len(words.split())


def test_private_names_of_other_packages_and_raw_tables_are_found(house: ModuleType) -> None:
    """The standard library is no other package, and a docstring names no table."""
    module = house.Module(Path("m.py"), SOURCE, ast.parse(SOURCE))
    assert house.private_imports(module) == ["duckdb._private", "_duckdb.Error"]
    assert not house.names_raw_tables(module)
    query = 'rows = f"SELECT 1 FROM raw.spans"'
    assert house.names_raw_tables(house.Module(Path("m.py"), query, ast.parse(query)))


def test_every_measure_of_the_commit_before_is_known(house: ModuleType) -> None:
    """Without the git history the table has no gap."""
    assert house.KNOWN_BEFORE.keys() == house.LABELS.keys()
    assert house.GOALS.keys() <= house.LABELS.keys()


UNTYPED = """from dataclasses import asdict

class Answer:
    def values(self, a: Mapping[str, Any], b: int, c: list[dict[str, object]], d: Any) -> object:
        return asdict(self) | super().values() | self.model.model_dump() | {}.values()
    def typed(self, a: Mapping[str, float]) -> dict[str, int]: ...
SQL = f"SELECT a FROM {b} WHERE c"
"""


def test_helpers_with_one_caller_and_repeated_names_are_counted(house: ModuleType) -> None:
    """A private function that is named twice beside its definition is no such helper, nor is a public one."""
    source = "def _once(a): ...\ndef _twice(): ...\ndef public(): ...\npublic(_once(a=a, b=1), _twice(), _twice())\n"
    module = house.Module(Path("m.py"), source, ast.parse(source))
    assert (house.helpers(module), house.repeated(module)) == (1, 1)


def test_untyped_values_are_found(house: ModuleType) -> None:
    """Mappings of anything, Any and object, wherever they stand in an annotation; calls that untype; words of SQL."""
    module = house.Module(Path("ragpulse_collector/api/m.py"), UNTYPED, ast.parse(UNTYPED))
    takes, gives = house.annotated(module)
    assert [each for each in takes if house._UNTYPED.search(each)] == [
        "Mapping[str, Any]", "list[dict[str, object]]", "Any",
    ]  # fmt: skip
    assert [each for each in gives if house._UNTYPED.search(each)] == ["object"]
    assert house.untyping_calls(module) == 3
    assert house.words_of_sql(module) == 5
    assert house.classes(module) == ["Answer"]
    assert house.is_behind_the_edge(module)
