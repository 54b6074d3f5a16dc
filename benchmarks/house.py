"""`make house`: the size and shape of the product code, beside the first build's (commit 838e9e2).

Without the git history the first build's figures are the constants below, which this script printed.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FIRST_BUILD = "838e9e2"
TREES = ("sdk", "collector", "evaluators", "dashboards")
OURS = ("ragpulse", "ragpulse_collector", "ragpulse_evaluators", "ragpulse_dashboards")
PATHS = {
    "body": "modules that a span's body passes, from socket to a row of the trace list",
    "rule": "modules that a rule passes beyond those of a body, from TOML to a stored score",
    "parameter": "modules that a query parameter passes, from URL to SQL",
}
GOALS = {"tokens": "<= 75 %", "statements": "<= 75 %", "modules": "<= 200", "largest folder": "<= 14",
         "body": "<= 16", "rule": "<= 9", "parameter": "<= 5", "raw": "0", "private": "0 or 1"}  # fmt: skip
KNOWN_FIRST = {"tokens": 296_648, "statements": 26_588, "modules": 347, "largest folder": 36, "raw": 36, "private": 15,
               "body": 46, "rule": 22, "parameter": 18}  # fmt: skip
_COUNTED = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}
_RAW = re.compile(r"(?<!/)\braw\.[a-z_{]")


@dataclass(frozen=True, slots=True)
class Module:
    """One source file."""

    path: Path
    """Relative to its tree: `ragpulse_collector/store/ingest/queue.py`."""
    text: str
    tree: ast.Module


def modules(root: Path) -> list[Module]:
    """Read every product module of a checkout."""
    result = []
    for tree in TREES:
        for path in sorted((root / tree).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            result.append(Module(path.relative_to(root / tree), text, ast.parse(text)))
    return result


def documentation(tree: ast.Module) -> set[tuple[int, int]]:
    """Return the positions of docstrings: strings that are statements."""
    return {
        (node.value.lineno, node.value.col_offset)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def tokens(module: Module) -> int:
    """Count names, operators and literals; comments, docstrings, blank lines and indentation do not count."""
    docstrings = documentation(module.tree)
    stream = tokenize.generate_tokens(io.StringIO(module.text).readline)
    return sum(token.type in _COUNTED and token.start not in docstrings for token in stream)


def statements(module: Module) -> int:
    """Count statements."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(module.tree))


def names_raw_tables(module: Module) -> bool:
    """Whether a string of the module, other than a docstring, names a table `raw.*`."""
    docstrings = documentation(module.tree)
    return any(
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (node.lineno, node.col_offset) not in docstrings
        and _RAW.search(node.value)
        for node in ast.walk(module.tree)
    )


def private_imports(module: Module) -> list[str]:
    """List imports of private names from packages that are neither ours nor the standard library's.

    It cannot detect private attributes of objects: for those, read the subclasses of foreign classes.
    """
    private = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        private += [name for name in names if _is_private(name)]
    return private


def _is_private(name: str) -> bool:
    top, *rest = name.split(".")
    foreign = top not in OURS and top.lstrip("_") not in sys.stdlib_module_names and top not in sys.stdlib_module_names
    return foreign and any(part.startswith("_") and not part.startswith("__") for part in (top, *rest))


def functions(module: Module) -> list[tuple[int, str]]:
    """Return the lines of each function, with its name."""
    return [
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{module.path}:{node.name}")
        for node in ast.walk(module.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def modules_passed(root: Path) -> dict[str, list[str]] | None:
    """Return the modules that the three paths pass (`_modules.py`); None if the checkout does not run here."""
    path = os.pathsep.join([*(str(root / tree) for tree in TREES), str(Path(__file__).parent)])
    command = [sys.executable, "-c", "import _modules; _modules.main()"]
    run = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    return None if run.returncode else json.loads(run.stdout)


def measured(root: Path) -> dict[str, Any]:
    """Return every measure of a checkout."""
    product = modules(root)
    folders = Counter(str(module.path.parent) for module in product)
    outside = [
        module
        for module in product
        if "ragpulse_collector/store" not in module.path.as_posix() and names_raw_tables(module)
    ]
    paths = modules_passed(root)
    return {
        "tokens": sum(map(tokens, product)),
        "statements": sum(map(statements, product)),
        "modules": len(product),
        "largest folder": max(folders.values()),
        "largest folders": folders.most_common(5),
        "raw": len(outside),
        "raw modules": [str(module.path) for module in outside],
        "private": sum(len(private_imports(module)) for module in product),
        "private names": sorted({name for module in product for name in private_imports(module)}),
        "longest functions": sorted((each for module in product for each in functions(module)), reverse=True)[:5],
        "longest modules": sorted(((len(each.text.splitlines()), str(each.path)) for each in product), reverse=True)[
            :5
        ],
        **{name: len(paths[name]) if paths else None for name in PATHS},
        "paths": paths,
    }


def first_build() -> dict[str, Any]:
    """Measure the first build's commit; figures that cannot be measured here are the known ones."""
    archive = subprocess.run(["git", "archive", FIRST_BUILD, *TREES], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        return KNOWN_FIRST
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
        return KNOWN_FIRST | {name: value for name, value in measured(Path(folder)).items() if value is not None}


def main() -> None:
    """Print the table, then the details of its figures."""
    now, first = measured(ROOT), first_build()
    labels = {"tokens": "tokens of product code", "statements": "statements", "modules": "modules",
              "largest folder": "modules in the largest folder", "raw": "modules outside store/ that name raw.* tables",
              "private": "imports of private names of other packages", **PATHS}  # fmt: skip
    print(f"{'measure':82} {'first':>9} {'now':>9}  {'ratio':>6}  goal")
    for name, label in labels.items():
        before, after = first.get(name), now[name]
        ratio = f"{after / before:.2f}" if before and after is not None else ""
        print(f"{label:82} {_shown(before):>9} {_shown(after):>9}  {ratio:>6}  {GOALS[name]}")
    for title in ("largest folders", "longest functions", "longest modules"):
        print(f"\n{title}: " + ", ".join(f"{key} {value}" for key, value in now[title]))
    for title in ("raw modules", "private names"):
        print(f"\n{title}: {', '.join(now[title]) or 'none'}")
    for name, label in PATHS.items():
        print(f"\n{label}:\n  {', '.join(now['paths'][name]) if now['paths'] else 'this checkout does not run here'}")


def _shown(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


if __name__ == "__main__":
    main()
