"""Tables, numbers and progress for the terminal; piped output is plain text without colour."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import click

from ragpulse_collector.cli.options import Ask, Failure, in_ci

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
    """Print rows: numbers to the right, unknown values as a dash. Span texts are hostile: markup is escaped."""
    from rich.markup import escape
    from rich.table import Table

    output = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    rows = list(rows)
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float | None) for row in rows)
        width = TRACE_ID_WIDTH if column == "trace" else None
        justify: Literal["right", "left"] = "right" if numeric else "left"
        output.add_column(column, justify=justify, overflow="ellipsis", no_wrap=not numeric, min_width=width)
    for row in rows:
        output.add_row(*(escape(cell(value)) for value in row))
    console().print(output)


def cell(value: Any) -> str:
    """Format one value: four significant digits, unknown as a dash, on one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return safe(str(value), breaks="")


def dotted(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects under dotted names: `retention.days`; lists as words, empty as unknown."""
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from dotted(value, f"{prefix}{key}.")
        elif isinstance(value, Mapping | list):
            yield f"{prefix}{key}", ", ".join(map(str, value)) or None
        else:
            yield f"{prefix}{key}", value


def safe(text: str, *, breaks: str = "\n\t") -> str:
    """Replace control characters by spaces: span texts are hostile, and a terminal obeys them."""
    return "".join(letter if letter.isprintable() or letter in breaks else " " for letter in text)


def interval(point: dict[str, Any] | None) -> str:
    """Format an estimate with its interval and n: in its own words, or as `0.91 [0.88, 0.93] n=120`."""
    if point and point.get("words"):
        return str(point["words"])
    if not point or point.get("value") is None:
        return "-"
    text = cell(float(point["value"]))
    if point.get("lo") is not None and point.get("hi") is not None:
        text += f" [{point['lo']:.3f}, {point['hi']:.3f}]"
    return text + (f" n={point['n']}" if point.get("n") is not None else "")


def print_json(content: Any) -> None:
    """Print an answer as JSON for other programs."""
    print(terminal_json(content, indent=2))


def terminal_json(content: Any, *, indent: int | None = None) -> str:
    """Return JSON in which signs that a terminal obeys or hides (C1, DEL, bidi) are escaped."""
    text = json.dumps(content, ensure_ascii=False, indent=indent, default=str)
    return "".join(sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1] for sign in text)


def cost(bill: Mapping[str, Any]) -> str:
    """Format tokens and cost of a bill."""
    tokens = f"{bill['input_tokens']:,} tokens in, {bill['output_tokens']:,} out"
    if bill["cost_usd"] is None:
        return f"{tokens}; cost unknown: {bill['cost_unknown_reason']}"
    if bill["cost_usd_at_most"] == 0:
        return f"{tokens}; free"
    likely, low, most = (bill[key] for key in ("cost_usd", "cost_usd_low", "cost_usd_at_most"))
    return f"{tokens}; about {likely:.4f} USD, at least {low:.4f}, at most {most:.4f}"


def agree_to(bill: Mapping[str, Any], work: str, *, yes: bool) -> None:
    """Ask before work that may cost money, unless `yes`; raises Failure where nobody can answer."""
    if yes or bill["cost_usd_at_most"] == 0:
        return
    if not sys.stdin.isatty():
        raise Failure(f"this {work} may cost money: add --yes (and --max-usd X as a cap)")
    click.confirm("start?", abort=True)


POLL_S = 0.2
LINE_EVERY_S = 5.0
Show = Callable[[dict[str, Any]], None]


def watch(ask: Ask, run: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Follow a run to its end with rate, ETA and cost; an interrupt leaves it running in the collector."""
    with progress(run, quiet=quiet) as show:
        while run["status"] == "running":
            time.sleep(POLL_S)
            run = ask(f"GET replays/{run['run_id']}", {})
            show(run)
    return run


@contextmanager
def progress(run: dict[str, Any], *, quiet: bool) -> Iterator[Show]:
    """Provide the function that shows the progress of a run; print its last state at the end."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[cost]}"),
    )
    plain = in_ci() or not sys.stderr.isatty()
    latest, printed_at = run, 0.0
    with Progress(*columns, disable=plain or quiet, console=console()) as bars:
        bar = bars.add_task(run["evaluator"], total=run["total"], cost="")

        def show(state: dict[str, Any]) -> None:
            nonlocal latest, printed_at
            latest = state
            bars.update(bar, completed=state["done"], cost=f"{state['cost_usd'] or 0:.4f} USD")
            if plain and not quiet and time.monotonic() - printed_at > LINE_EVERY_S:
                printed_at = time.monotonic()
                click.echo(_summary(state), err=True)

        yield show
    if not quiet:
        click.echo(_summary(latest))


def _summary(run: dict[str, Any]) -> str:
    return (
        f"{run['evaluator']} {run['status']}: {run['done']}/{run['total']} "
        f"ok={run['ok']} skipped={run['skipped']} invalid={run['invalid']} error={run['error']} "
        f"cost={run['cost_usd'] or 0:.4f} USD  run:{run['run_id']}"
    )
