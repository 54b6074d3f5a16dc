"""Tables and numbers for the terminal; piped output is plain text without colour."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console  # imported where it is used: `ragpulse serve` starts without it

PIPED_WIDTH = 2000
"""Nothing is cut where no terminal ends the line."""
TRACE_ID_WIDTH = 32


def console() -> Console:
    """Return a console that never breaks lines of piped output."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows; numbers to the right, unknown as a dash. Texts of spans are hostile: markup is escaped."""
    from rich.markup import escape
    from rich.table import Table

    printed = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    listed = [list(row) for row in rows]
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float | None) for row in listed)
        width = TRACE_ID_WIDTH if column == "trace" else None
        justify: Literal["right", "left"] = "right" if numeric else "left"
        printed.add_column(column, justify=justify, overflow="ellipsis", no_wrap=not numeric, min_width=width)
    for row in listed:
        printed.add_row(*(escape(cell(value)) for value in row))
    console().print(printed)


def cell(value: Any) -> str:
    """Format one value: four significant digits, unknown as a dash, on one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return safe(str(value), keep="")


def dotted(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects under dotted names: `retention.days`; lists as words, empty as unknown."""
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from dotted(value, f"{prefix}{key}.")
        elif isinstance(value, Mapping | list):
            yield f"{prefix}{key}", ", ".join(map(str, value)) or None
        else:
            yield f"{prefix}{key}", value


def safe(text: str, *, keep: str = "\n\t") -> str:
    """Replace control characters by spaces: texts of spans are hostile, and a terminal obeys them."""
    return "".join(letter if letter.isprintable() or letter in keep else " " for letter in text)


def interval(point: dict[str, Any] | None) -> str:
    """Format an estimate with its interval and n: `0.91 [0.88, 0.93] n=120`."""
    if not point or point.get("value") is None:
        return "-"
    text = cell(float(point["value"]))
    if point.get("lo") is not None and point.get("hi") is not None:
        text += f" [{point['lo']:.3f}, {point['hi']:.3f}]"
    return text + (f" n={point['n']}" if point.get("n") is not None else "")


def print_json(content: Any) -> None:
    """Print an answer as JSON for other programs."""
    print(json.dumps(content, ensure_ascii=False, indent=2, default=str))
