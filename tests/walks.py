"""The changes that docs/change-one-thing.md shows: found in the page, applied to the text of the files, executed."""

from __future__ import annotations

import os
import re
import shutil
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "change-one-thing.md"
TREES = ("sdk", "evaluators", "collector", "dashboards")
_BLOCK = re.compile(r'^    ```(\w+) title="([^"]+)"\n(.*?)^    ```$', re.DOTALL | re.MULTILINE)


def changes(*names: str) -> dict[str, str]:
    """Return the files of these walks as they are after their changes, by path; new files are given whole."""
    changed: dict[str, str] = {}
    for walk in names:
        page = PAGE.read_text()
        (section,) = re.findall(rf"^## {re.escape(walk)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
        for kind, path, block in _BLOCK.findall(section):
            before = changed.get(path) or (ROOT / path).read_text() if kind == "diff" else ""
            changed[path] = applied(before, _dedented(block)) if before else _dedented(block)
    return changed


def _dedented(block: str) -> str:
    """Return a block of a list item without its four columns; `textwrap.dedent` would also take those of a diff."""
    return "".join(line[4:] or "\n" for line in block.splitlines(keepends=True))


def applied(text: str, diff: str) -> str:
    """Return the text after a diff; each hunk must fit in exactly one place, so that the page cannot grow stale."""
    for hunk in re.split(r"^@@.*\n", diff, flags=re.MULTILINE):
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] or "\n" for line in lines if line[:1] != "+")
        after = "".join(line[1:] or "\n" for line in lines if line[:1] != "-")
        assert text.count(before) == 1, f"this does not stand once in the file:\n{before}"
        text = text.replace(before, after)
    return text


def copied(folder: Path, changed: dict[str, str]) -> str:
    """Copy the product with these files changed; return the search path of the copy."""
    for tree in TREES:
        shutil.copytree(ROOT / tree, folder / tree, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for path, text in changed.items():
        (folder / path).write_text(text, encoding="utf-8")
    return os.pathsep.join(str(folder / tree) for tree in TREES)


def run(path: str, source: str) -> ModuleType:
    """Execute the changed source of a module beside the real one, which stays as it is."""
    tree, *parts = Path(path).with_suffix("").parts
    assert tree in TREES
    module = ModuleType(".".join(parts))
    module.__file__ = str(ROOT / path)
    exec(compile(source, path, "exec"), vars(module))
    return module


def original(path: str) -> ModuleType:
    """Return the real module of a path."""
    return import_module(".".join(Path(path).with_suffix("").parts[1:]))


def files() -> list[Path]:
    """Return the files of the product, its tests and its documentation."""
    return [path for tree in (*TREES, "tests", "docs") for path in (ROOT / tree).rglob("*.*")]
