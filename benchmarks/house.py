"""`make house`: the size and shape of the product code, beside a commit before (`python benchmarks/house.py COMMIT`).

Without the git history the figures of version 0.1 (commit 702d3575) are the constants below, which this script printed.
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
BEFORE = "702d3575"
TREES = ("sdk", "collector", "evaluators", "dashboards")
OURS = ("ragpulse", "ragpulse_collector", "ragpulse_evaluators", "ragpulse_dashboards")
PATHS = {
    "body": "modules that a span's body passes, from socket to a row of the trace list",
    "rule": "modules that a rule passes beyond those of a body, from TOML to a stored score",
    "parameter": "modules that a query parameter passes, from URL to SQL",
    "question": "modules that a question passes: quality by model over a day",
}
LABELS = {
    "tokens": "tokens of product code",
    "sql": "words of SQL in it",
    "modules": "modules",
    "takes": "parameters behind the edge that are mappings of anything, Any or object",
    "gives": "answers behind the edge that are mappings of anything, Any or object",
    "untyping": "calls that make a typed value a mapping again (values, model_dump, asdict)",
    "two meanings": "class names with two meanings",
    "intervals": "classes that declare lo and hi",
    "largest folder": "modules in the largest folder",
    "raw": "modules outside store/ that name raw.* tables",
    "private": "imports of private names of other packages",
    "longest function": "lines of the longest function",
    "helpers": "private functions that are named once, per cent of all functions",
    "repeated": "arguments that repeat a name: name=name",
    "comments": "comments in 10,000 lines",
    **PATHS,
}
GOALS = {"tokens": "<= before", "intervals": "<= 9",
         "takes": "<= 25", "gives": "<= 15", "untyping": "0", "two meanings": "<= 25",
         "largest folder": "<= 14", "raw": "0", "private": "0", "longest function": "<= 60",
         "helpers": "<= 22"}  # fmt: skip
KNOWN_BEFORE = {"tokens": 401_311, "sql": 11_239, "modules": 290, "takes": 298, "gives": 245, "untyping": 34,
                "two meanings": 61, "largest folder": 14, "raw": 0, "private": 0, "longest function": 58,
                "helpers": 28, "repeated": 698, "comments": 18, "body": 32, "rule": 18, "parameter": 13,
                "question": 14, "intervals": 10}  # fmt: skip
_COUNTED = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}
_RAW = re.compile(r"(?<!/)\braw\.[a-z_{]")
_SQL = re.compile(r"\b(?:SELECT|FROM|WHERE|INSERT INTO|UPDATE|CREATE|JOIN|GROUP BY)\b")
_UNTYPED = re.compile(r"\b(?:Mapping|dict|MutableMapping)\[str, (?:Any|object)\]|^(?:Any|object)(?: \| None)?$")
_BEHIND = ("analysis", "monitoring", "api", "evaluation", "app", "sampling")
"""Parts of the collector behind the edge, beside all of the dashboards."""


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


def texts(module: Module) -> list[str]:
    """Return the strings of a module, without its docstrings."""
    docstrings = documentation(module.tree)
    return [
        node.value
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (node.lineno, node.col_offset) not in docstrings
    ]


def declares_an_interval(node: ast.AST) -> bool:
    """Whether a class has fields `lo` and `hi` of its own."""
    if not isinstance(node, ast.ClassDef):
        return False
    fields = (one.target for one in node.body if isinstance(one, ast.AnnAssign))
    return {"lo", "hi"} <= {field.id for field in fields if isinstance(field, ast.Name)}


def names_raw_tables(module: Module) -> bool:
    """Whether a string of the module names a table `raw.*`."""
    return any(_RAW.search(text) for text in texts(module))


def words_of_sql(module: Module) -> int:
    """Count the words of strings that look like SQL; of a string with values in it, those of all its parts."""
    docstrings = documentation(module.tree)
    whole = [
        (
            node.lineno,
            node.col_offset,
            " ".join(str(part.value) for part in node.values if isinstance(part, ast.Constant)),
        )
        for node in ast.walk(module.tree)
        if isinstance(node, ast.JoinedStr)
    ]
    parts = {id(part) for node in ast.walk(module.tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    whole += [
        (node.lineno, node.col_offset, node.value)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts
    ]
    return sum(len(text.split()) for *place, text in whole if tuple(place) not in docstrings and _SQL.search(text))


def annotated(module: Module) -> tuple[list[str], list[str]]:
    """Return the types of all parameters, and of all answers of functions."""
    takes, gives = [], []
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            takes += [ast.unparse(each.annotation) for each in parameters if each.annotation is not None]
            gives += [ast.unparse(node.returns)] if node.returns is not None else []
    return takes, gives


def untyping_calls(module: Module) -> int:
    """Count calls of `params.values()`, `model_dump` and `asdict`."""
    calls = (ast.unparse(node.func) for node in ast.walk(module.tree) if isinstance(node, ast.Call))
    return sum(call == "asdict" or call.endswith((".model_dump", "params.values", "super().values")) for call in calls)


def classes(module: Module) -> list[str]:
    """Return the names of the classes of a module."""
    return [node.name for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]


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


def helpers(module: Module) -> int:
    """Count private functions that the module names once beside their definition."""
    names = Counter(re.findall(r"\w+", module.text))
    private = (name.rpartition(":")[2] for _, name in functions(module))
    return sum(name.startswith("_") and not name.endswith("__") and names[name] == 2 for name in private)


def repeated(module: Module) -> int:
    """Count arguments whose value is a variable of the same name."""
    given = (node for node in ast.walk(module.tree) if isinstance(node, ast.keyword))
    return sum(isinstance(one.value, ast.Name) and one.value.id == one.arg for one in given)


def modules_passed(root: Path) -> dict[str, list[str]] | None:
    """Return the modules that the three paths pass (`_modules.py`); None if the checkout does not run here."""
    path = os.pathsep.join([*(str(root / tree) for tree in TREES), str(Path(__file__).parent)])
    command = [sys.executable, "-c", "import _modules; _modules.main()"]
    run = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    return None if run.returncode else json.loads(run.stdout)


def is_behind_the_edge(module: Module) -> bool:
    """Whether a module gets values that the edge has typed."""
    top, *rest = module.path.parts
    return top == "ragpulse_dashboards" or (top == "ragpulse_collector" and rest[0] in _BEHIND)


def measured(root: Path) -> dict[str, Any]:
    """Return every measure of a checkout."""
    product = modules(root)
    folders = Counter(str(module.path.parent) for module in product)
    outside = [
        module
        for module in product
        if "ragpulse_collector/store" not in module.path.as_posix() and names_raw_tables(module)
    ]
    behind = list(filter(is_behind_the_edge, product))
    takes, gives = (
        sum(bool(_UNTYPED.search(each)) for module in behind for each in annotated(module)[way]) for way in (0, 1)
    )
    named = Counter(name for module in product for name in classes(module))
    lengths = sorted((each for module in product for each in functions(module)), reverse=True)
    lines = [line for module in product for line in module.text.splitlines()]
    paths = modules_passed(root)
    return {
        "tokens": sum(map(tokens, product)),
        "sql": sum(map(words_of_sql, product)),
        "modules": len(product),
        "takes": takes,
        "gives": gives,
        "untyping": sum(map(untyping_calls, behind)),
        "two meanings": sum(count > 1 for count in named.values()),
        "names with two meanings": sorted(name for name, count in named.items() if count > 1),
        "intervals": sum(declares_an_interval(node) for module in product for node in ast.walk(module.tree)),
        "largest folder": max(folders.values()),
        "largest folders": folders.most_common(5),
        "raw": len(outside),
        "raw modules": [str(module.path) for module in outside],
        "private": sum(len(private_imports(module)) for module in product),
        "private names": sorted({name for module in product for name in private_imports(module)}),
        "longest function": lengths[0][0],
        "helpers": 100 * sum(map(helpers, product)) // len(lengths),
        "repeated": sum(map(repeated, product)),
        "longest functions": lengths[:5],
        "longest modules": sorted(((len(each.text.splitlines()), str(each.path)) for each in product), reverse=True)[
            :5
        ],
        "comments": 10_000 * sum(line.lstrip().startswith("#") for line in lines) // len(lines),
        **{name: len(paths[name]) if paths else None for name in PATHS},
        "paths": paths,
    }


def measured_at(commit: str) -> dict[str, Any]:
    """Measure a commit; without it, return the known figures of version 0.1."""
    archive = subprocess.run(["git", "archive", commit, *TREES], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        return KNOWN_BEFORE
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
        return measured(Path(folder))


def main(commit: str = BEFORE) -> None:
    """Print the table, then the details of its figures."""
    now, before = measured(ROOT), measured_at(commit)
    print(f"{'measure':82} {'before':>9} {'now':>9}  {'ratio':>6}  goal")
    for name, label in LABELS.items():
        was, is_now = before.get(name), now[name]
        ratio = f"{is_now / was:.2f}" if was and is_now is not None else ""
        print(f"{label:82} {_shown(was):>9} {_shown(is_now):>9}  {ratio:>6}  {GOALS.get(name, '')}")
    for title in ("largest folders", "longest functions", "longest modules"):
        print(f"\n{title}: " + ", ".join(f"{key} {value}" for key, value in now[title]))
    for title in ("raw modules", "private names", "names with two meanings"):
        print(f"\n{title}: {', '.join(now[title]) or 'none'}")
    for name, label in PATHS.items():
        print(f"\n{label}:\n  {', '.join(now['paths'][name]) if now['paths'] else 'this checkout does not run here'}")


def _shown(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


if __name__ == "__main__":
    main(*sys.argv[1:])
