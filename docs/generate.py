"""Writes the reference pages from the code: `python docs/generate.py`, or `--check` to fail when one is stale.

A page is a function that returns Markdown; add it to `PAGES`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ragpulse_evaluators import Entry, Scale, default_registry

DOCS = Path(__file__).parent
FAMILIES = {
    "judged": "Asking a judge",
    "grounding": "Without judge or reference",
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


PAGES: Mapping[str, Callable[[], str]] = {"reference/evaluators.md": evaluators}


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
