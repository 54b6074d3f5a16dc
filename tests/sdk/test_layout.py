"""What the SDK imports, and what it does not read of other packages."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import ragpulse

_MODULES = sorted(Path(ragpulse.__file__).parent.rglob("*.py"))
_ALLOWED = tuple(f"opentelemetry.{part}" for part in ("sdk", "trace", "context", "baggage", "propagate", "propagators"))


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _foreign() -> list[tuple[str, str]]:
    found = [(module.name, name) for module in _MODULES for name in _imports(ast.parse(module.read_text()))]
    return [
        (module, name) for module, name in found if name.partition(".")[0] not in {*sys.stdlib_module_names, "ragpulse"}
    ]


def test_only_opentelemetrys_api_and_sdk_are_imported() -> None:
    """And pytest, in the module for users' tests."""
    for module, name in _foreign():
        if (module, name) == ("testing.py", "pytest"):
            continue
        assert name.startswith(_ALLOWED), f"{module} imports {name}"


def test_no_private_name_of_another_package_is_imported_or_read() -> None:
    """An underscore stands only for our own names (and in LiteLLM's documented `_hidden_params`, which is a text)."""
    for module, name in _foreign():
        assert "._" not in name, f"{module} imports {name}"
    for module in _MODULES:
        text = module.read_text()
        assert not re.search(r"\b(otel|trace|baggage|logging|threading|multiprocessing)\._", text), module
        assert not re.search(r"\bgetattr\(\w+, \"_[a-z]", text), module


def test_a_module_can_be_read_in_one_sitting() -> None:
    """At most 350 lines in each."""
    assert {module.name: lines for module in _MODULES if (lines := len(module.read_text().splitlines())) > 350} == {}


def test_the_name_attributes_is_a_function_and_a_module_and_neither_hides_the_other() -> None:
    """Whichever is imported first; the SDK's own modules, also those that load late, read the module `_names`."""
    code = (
        "import ragpulse, importlib; module = importlib.import_module('ragpulse.attributes');"
        "assert ragpulse.attributes is not module and callable(ragpulse.attributes);"
        "assert ragpulse.attributes.SPAN_KIND == module.SPAN_KIND == 'ragpulse.span.kind';"
        "from ragpulse._record import attach; assert attach.names.__name__ == 'ragpulse._names'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    subprocess.run([sys.executable, "-c", f"from ragpulse.attributes import SPAN_KIND; {code}"], check=True)
