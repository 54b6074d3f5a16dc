"""Tables, numbers and progress for the terminal; piped output is plain text without colour."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ragpulse_collector import zones
from ragpulse_collector.cli.options import Ask, Failure, Json, in_ci
from ragpulse_collector.words import called, level

if TYPE_CHECKING:
    from rich.console import Console  # imported where it is used: `ragpulse serve` starts without it

PIPED_WIDTH = 2000
"""Nothing is cut where no terminal ends the line."""
ALIGNED = 60
"""Longer values do not widen their column: the next value follows after two blanks."""
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)(?:\.\d+)?(?:Z|\+00:00)?")
TRACE_ID_WIDTH = 32
QUESTION = 60
"""The beginning of a question that a table shows."""


def console() -> Console:
    """Return a console that never breaks lines of piped output."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, stored: bool = False) -> None:
    """Print rows: numbers to the right, unknown values as a dash; with `stored`, texts and times as they are stored."""
    rows = list(rows)
    numeric = [all(isinstance(row[index], int | float | None) for row in rows) for index in range(len(columns))]
    show = _as_stored if stored else cell
    cells = [[show(value) for value in row] for row in rows]
    if not sys.stdout.isatty():
        lines = [title] if title else []
        click.echo("\n".join([*lines, *_aligned([list(columns), *cells], numeric)]))
        return
    from rich.markup import escape
    from rich.table import Table

    output = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column, right in zip(columns, numeric, strict=True):
        width = TRACE_ID_WIDTH if column == "trace" else None
        justify: Literal["right", "left"] = "right" if right else "left"
        output.add_column(column, justify=justify, overflow="ellipsis", no_wrap=not right, min_width=width)
    for row in cells:
        output.add_row(*map(escape, row))  # span texts are hostile: markup is escaped
    console().print(output)


def _aligned(lines: Sequence[Sequence[str]], numeric: Sequence[bool]) -> Iterator[str]:
    """Align columns up to `ALIGNED` characters; nothing is cut, and no line ends in blanks."""
    widths = [
        max(len(text) for text in column if len(text) <= ALIGNED or column[0] == text)
        for column in zip(*lines, strict=True)
    ]
    for line in lines:
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        )
        yield "  ".join(padded).rstrip()


def cell(value: Any) -> str:
    """Format one value on one line: four significant digits, intervals, times to the second, unknown as a dash."""
    if isinstance(value, Mapping):
        return _fields(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value)) or "-"
    if isinstance(value, str) and (time := _TIME.fullmatch(value)):
        return f"{time[1]} {time[2]}{'' if time[3] == ':00' else time[3]} UTC"
    return _as_stored(value)


def shown_at(moment: str, tz: str) -> str:
    """Return a time of an answer as a clock of a zone shows it."""
    shown = datetime.fromisoformat(moment).astimezone(zones.find(tz))
    return cell(moment) if tz == "UTC" else f"{shown:%Y-%m-%d %H:%M %Z}"


def _as_stored(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return safe(str(value), breaks="")


def _fields(content: Json) -> str:
    """Format an estimate as an interval, and other fields as `ok 3, skipped 0`."""
    if content and all(isinstance(value, Mapping) and "normalized" in value for value in content.values()):
        scores = sorted((called(name), score) for name, score in content.items())
        return " ".join(f"{name}={_score(score)}" for name, score in scores)
    if "lo" in content and "hi" in content:
        return interval({"value": content.get("estimate"), **content})
    return ", ".join(f"{name} {cell(value)}" for name, value in content.items()) or "-"


def _score(score: Json) -> str:
    return str(score["status"]) if score["normalized"] is None else format(score["normalized"], ".2f")


def measured(name: str, value: Any) -> tuple[str, str]:
    """Return the name and the value of a figure whose name ends in its unit: `uptime_s` is a duration."""
    from ragpulse_collector.words.figures import NBSP, size

    if isinstance(value, bool) or not isinstance(value, int | float):
        return name, cell(value)
    if name.endswith("_s") and not name.endswith("_per_s"):
        return name.removesuffix("_s"), duration(value)
    if "bytes" in name:
        return name, size(value).replace(NBSP, " ")
    return name, f"{value:,}" if isinstance(value, int) else cell(value)


def duration(number: float) -> str:
    """Format seconds: with tenths below ten."""
    from ragpulse_collector.words.figures import NBSP, seconds

    return f"{number:.1f} s" if 0 < number < 10 else seconds(number).replace(NBSP, " ")


def p_value(p: float) -> str:
    """Format the p-value of a test: `p=0.032`, or `p < 0.0001`."""
    from ragpulse_collector.words import figures

    text = figures.p_value(p)
    return f"p {text}" if text.startswith("<") else f"p={text}"


def ago(age_s: float) -> str:
    """Format an age as its largest unit: 29 seconds ago, 3 days ago, in 2 hours."""
    sizes = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
    size_s, unit = next((one for one in sizes if abs(age_s) >= one[0]), sizes[-1])
    number = int(abs(age_s) // size_s)
    text = f"{number} {unit}{'' if number == 1 else 's'}"
    return f"in {text}" if age_s <= -1 else f"{text} ago"


def dotted(content: Json, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects under dotted names: `retention.days`; lists as words, empty as unknown."""
    for key, value in content.items():
        if isinstance(value, Mapping) and value and not {"lo", "hi"} <= value.keys():
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def safe(text: str, *, breaks: str = "\n\t") -> str:
    """Replace control characters by spaces: span texts are hostile, and a terminal obeys them."""
    return "".join(letter if letter.isprintable() or letter in breaks else " " for letter in text)


def interval(point: Json | None) -> str:
    """Format an estimate with its interval and n: in its own words, or as `0.91 ± 0.02 n=120`."""
    if point and point.get("words"):
        return str(point["words"])
    if not point or point.get("value") is None:
        return "-"
    value, lo, hi = float(point["value"]), point.get("lo"), point.get("hi")
    text = cell(value) if lo is None or hi is None else level(value, lo, hi)
    return text + (f" n={point['n']:,}" if point.get("n") is not None else "")


def show_decision(decision: Json, summary: str | None, *, quiet: bool = False) -> int:
    """Print whether a limit is kept, append it to the Markdown file `summary`, and return its exit status."""
    from ragpulse_collector.analysis.limits import Limit

    limit, measure, name = Limit(decision["min"], decision["max"]), decision["measure"], called(decision["evaluator"])
    if not quiet:
        told = name if measure == "quality" else f"{measure} of {name}"
        click.echo(f"{told} {limit}: {decision['verdict']}   {interval(decision)}")
    if summary:
        with Path(summary).open("a", encoding="utf-8") as out:
            out.write(decision["markdown"] + "\n\n")
    return limit.status(decision["verdict"])


def show(title: str, answer: Json, columns: Mapping[str, Mapping[str, str]], *, tz: str = "UTC") -> None:
    """Print an answer by its fields: the tables and texts of `columns`, else all figures and then all lists."""
    lists = {
        name: rows for name, rows in answer.items() if isinstance(rows, list) and rows and isinstance(rows[0], Mapping)
    }
    if not columns:
        rest = {name: value for name, value in answer.items() if name not in lists}
        if rest:
            figures = ((name, called(value) if name == "evaluator" else value) for name, value in dotted(rest))
            table(title, ("name", "value"), (measured(name, value) for name, value in figures))
        columns = {name: {key: key for key in rows[0]} for name, rows in lists.items()}
    for name, fields in columns.items():
        if fields:
            table(name, list(fields), ([_field(row, path, tz) for path in fields.values()] for row in answer[name]))
        elif answer[name]:
            click.echo(safe(str(answer[name])))


def _field(row: Json, path: str, tz: str) -> Any:
    """Return what a table shows of a row: a field, or the sum of the known ones of `a+b`, of texts the first."""
    known = [row[name] for name in path.split("+") if row[name] is not None]
    if not known or not isinstance(known[0], str):
        return None if not known else known[0] if len(known) == 1 else sum(known)
    if path in ("metric", "evaluator"):
        return called(known[0])
    text = known[0][:QUESTION] if path.startswith("query") else known[0]
    return shown_at(text, tz) if path.endswith("_time") else text


def report(title: str, content: Json, *, as_json: bool) -> None:
    """Print what is known, intervals as such and nested figures under dotted names; or JSON."""
    if as_json:
        print_json(content)
        return
    rows = [(name, called(value) if name == "evaluator" else value) for name, value in dotted(content)]
    table(title, ("name", "value"), [(name, value) for name, value in rows if value not in (None, {}, [], ())])


def print_json(content: Any) -> None:
    """Print an answer as JSON for other programs."""
    print(terminal_json(content, indent=2))


def terminal_json(content: Any, *, indent: int | None = None) -> str:
    """Return JSON in which signs that a terminal obeys or hides (C1, DEL, bidi) are escaped."""
    text = json.dumps(content, ensure_ascii=False, indent=indent, default=str)
    return "".join(sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1] for sign in text)


def cost(bill: Json) -> str:
    """Format tokens and cost of a bill."""
    tokens = f"{bill['input_tokens']:,} tokens in, {bill['output_tokens']:,} out"
    if bill["cost_usd"] is None:
        return f"{tokens}; cost unknown: {bill['cost_unknown_reason']}"
    if bill["cost_usd_at_most"] == 0:
        return f"{tokens}; free"
    likely, low, most = (bill[key] for key in ("cost_usd", "cost_usd_low", "cost_usd_at_most"))
    return f"{tokens}; about {likely:.4f} USD, at least {low:.4f}, at most {most:.4f}"


def agree_to(bill: Json, work: str, *, yes: bool) -> None:
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
        bar = bars.add_task(called(run["evaluator"]), total=run["total"], cost="")

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
        f"{called(run['evaluator'])} {run['status']}: {run['done']}/{run['total']} "
        f"ok={run['ok']} skipped={run['skipped']} invalid={run['invalid']} error={run['error']} "
        f"cost={run['cost_usd'] or 0:.4f} USD  run:{run['run_id']}"
    )
