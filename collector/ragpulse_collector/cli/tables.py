"""Tables, numbers and progress for the terminal; piped output is plain text without colour."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ragpulse_collector import zones
from ragpulse_collector.cli.options import COLUMNS, WIDE, Ask, Failure, Json, in_ci
from ragpulse_collector.refusals import nearest
from ragpulse_collector.words import called, level
from ragpulse_collector.words.figures import NBSP, ms, seconds, size, usd

ALIGNED = 60
"""Longer values do not widen their column: the next value follows after two blanks."""
LONGEST_ID = 36
LEAST = 20
"""A column of texts is at least so wide, on a terminal too."""
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)(?:\.\d+)?(?:Z|\+00:00)?")
_NUMBER = re.compile(r"-|[-<$]*\d[\d,.]*( (%|ms|s|[kMGT]?B))?")
_FAILED = re.compile(r"(\S+ )?(error|failed|fails|firing|worse)")
"""What is red on a terminal."""
QUESTION = 60
"""The beginning of a question that a table shows."""
GAP = "  "


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, stored: bool = False) -> None:
    """Print rows: numbers to the right, unknown values as a dash; with `stored`, texts and times as they are stored.

    On a terminal failures are red, texts are cut, and the last columns are left out where they do not fit and the
    command has --wide.
    """
    format_cell = _as_stored if stored else cell
    lines = [list(columns), *([format_cell(value) for value in row] for row in rows)]
    right = [all(map(_NUMBER.fullmatch, column[1:])) for column in zip(*lines, strict=True)]
    context = click.get_current_context(silent=True)
    wide = context.meta.get(WIDE) if context else None
    fits = sys.stdout.isatty() and not wide
    widths = _fitted(lines, shutil.get_terminal_size().columns, omit=wide is False) if fits else _aligned(lines)
    heads, *cells = [[_padded(*one, cut=fits) for one in zip(line, widths, right, strict=False)] for line in lines]
    printed = [click.style(_joined(heads), bold=True), *(_joined(map(_coloured, row)) for row in cells)]
    click.echo("\n".join([*filter(None, [title]), *printed]))
    if omitted := [*filter(None, columns[len(widths) :])]:
        click.echo(f"--wide also shows {', '.join(omitted)}", err=True)


def _aligned(lines: Sequence[Sequence[str]]) -> list[int]:
    """Return the widths of columns up to `ALIGNED` characters."""
    return [
        max(len(text) for text in column if len(text) <= ALIGNED or column[0] == text)
        for column in zip(*lines, strict=True)
    ]


def _fitted(lines: Sequence[Sequence[str]], limit: int, *, omit: bool) -> list[int]:
    """Return the widths of the columns that fit: with `omit` the first ones. Texts shrink, ids do not."""
    from rich.cells import cell_len

    texts = [*zip(*lines, strict=True)]
    full = [max(map(cell_len, column)) for column in texts]
    widths = [min(width, LEAST) if width > LONGEST_ID or any(" " in text for text in column[1:]) else width
              for width, column in zip(full, texts, strict=True)]  # fmt: skip
    while omit and len(widths) > 1 and sum(widths) + len(GAP) * (len(widths) - 1) > limit:
        widths.pop()
    spare = limit - sum(widths) - len(GAP) * (len(widths) - 1)
    for index, width in enumerate(widths):
        widths[index] = max(1, min(full[index], width + max(0, spare), limit))
        spare -= widths[index] - width
    return widths


def _padded(text: str, width: int, right: bool, *, cut: bool) -> str:
    from rich.cells import cell_len, set_cell_size

    if cut and cell_len(text) > width:
        return set_cell_size(text, width - 1) + "…"
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks


def _coloured(text: str) -> str:
    stripped = text.strip()
    return text.replace(stripped, click.style(stripped, fg="red")) if _FAILED.fullmatch(stripped) else text


def _joined(texts: Iterable[str]) -> str:
    return GAP.join(texts).rstrip()


def cell(value: Any) -> str:
    """Format one value on one line: four significant digits, intervals, times to the second, unknown as a dash."""
    if isinstance(value, Mapping):
        return _fields(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value)) or "-"
    if isinstance(value, str) and (time := _TIME.fullmatch(value)):
        return f"{time[1]} {time[2]}{'' if time[3] == ':00' else time[3]} UTC"
    return _as_stored(value)


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
    if score["normalized"] is None:
        return str(score["status"])
    return f"{score['normalized']:.2f}{' fails' if score.get('passing') is False else ''}"


def measured(name: str, value: Any) -> tuple[str, str]:
    """Return the name and the value of a figure whose name ends in its unit: `uptime_s` is a duration."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return name, cell(value)
    if name.endswith("_s") and not name.endswith("_per_s"):
        return name.removesuffix("_s"), duration(value)
    if "bytes" in name:
        return name, size(value).replace(NBSP, " ")
    return name, f"{value:,}" if isinstance(value, int) else cell(value)


def duration(number: float) -> str:
    """Format seconds: with tenths below ten."""
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
    """Print an answer by its fields: the tables and texts of `columns`, else all figures and then all lists.

    Names of columns and paths of fields may name a field of the answer: `scores.{lead}`. The first columns matter most.
    """
    lists = {
        name: rows for name, rows in answer.items() if isinstance(rows, list) and rows and isinstance(rows[0], Mapping)
    }
    if not columns:
        rest = {name: value for name, value in answer.items() if name not in lists}
        if rest:
            figures = ((name, called(value) if name == "evaluator" else value) for name, value in dotted(rest))
            table(title, ("name", "value"), (measured(name, value) for name, value in figures))
        columns = {name: {key: key for key in rows[0]} for name, rows in lists.items()}
    tables = {
        name: {called(column.format_map(answer)): path for column, path in fields.items()}
        for name, fields in columns.items()
        if fields
    }
    for name, fields in _chosen(tables, lists).items():
        about = f"{name} (times in {tz})" if any(map(_is_time, fields.values())) else name
        table(
            about, list(fields), ([_shown(row, path, answer, tz) for path in fields.values()] for row in answer[name])
        )
    for name in columns.keys() - tables.keys():
        if answer[name]:
            click.echo(safe(str(answer[name])))


def _chosen(tables: Mapping[str, Mapping[str, str]], lists: Json) -> Mapping[str, Mapping[str, str]]:
    """Return the columns that --columns names, in its order; other names are fields of the rows."""
    context = click.get_current_context(silent=True)
    asked = context.meta.get(COLUMNS) if context else None
    if not asked:
        return tables
    names = [name.strip() for name in asked.split(",")]
    known = {table: {key: key for key in lists.get(table, [{}])[0]} | dict(fields) for table, fields in tables.items()}
    possible = {name for fields in known.values() for name in fields}
    if lists and (unknown := [name for name in names if name not in possible]):
        titles = ", ".join({name: None for fields in tables.values() for name in fields if name})
        other = nearest(unknown[0], possible) or f": {titles}, or a field that --json shows"
        raise click.UsageError(f"--columns: {unknown[0]!r} is no column{other}")
    found = {table: {name: fields[name] for name in names if name in fields} for table, fields in known.items()}
    return {table: fields for table, fields in found.items() if fields}


def _is_time(path: str) -> bool:
    return path == "t" or path.endswith(("_time", "_at"))


_FORMATS: Mapping[str, Callable[[Any], str]] = {"_ms": ms, "_usd": usd, "_s": seconds}
"""By the end of a field's name."""


def _shown(row: Json, path: str, answer: Json, tz: str) -> Any:
    """Return what a table shows of a row: a field below others, the row itself for `.`, the sum of known ones `a+b`.

    Of texts `a+b` is the first. A yes is the name of its field, which is as empty without it.
    """
    known = [value for one in path.split("+") if (value := _field(row, one, answer)) is not None]
    name, value = path.rpartition(".")[2], known[0] if known else None
    if isinstance(value, bool):
        return name.replace("_", " ") if value else ""
    if isinstance(value, int | float):
        number = value if len(known) == 1 else sum(known)
        return next((show(number).replace(NBSP, " ") for end, show in _FORMATS.items() if name.endswith(end)), number)
    if isinstance(value, Mapping) and "normalized" in value:
        return _score(value)
    if isinstance(value, Mapping) and "value" in value:
        return interval(value if path == "." else {**value, "n": None, "words": None})
    if not isinstance(value, str):
        return value
    if name in ("metric", "evaluator"):
        return called(value)
    if _is_time(name):
        shown = datetime.fromisoformat(value).astimezone(zones.find(tz))
        return f"{shown:%b %d %H:%M}" if sys.stdout.isatty() else f"{shown:%Y-%m-%d %H:%M}"
    return value[:QUESTION] if path.startswith("query") else value


def _field(row: Json, path: str, answer: Json) -> Any:
    value: Any = row
    for part in filter(None, path.split(".")):
        value = value.get(part.format_map(answer)) if isinstance(value, Mapping) else None
    return value


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
    plain = in_ci() or not sys.stderr.isatty()
    latest, printed_at = run, 0.0
    look: dict[str, Any] = {"label": called(run["evaluator"]), "show_pos": True, "item_show_func": _spent}
    with click.progressbar(length=run["total"], file=sys.stderr, hidden=plain or quiet, **look) as bar:

        def show(state: dict[str, Any]) -> None:
            nonlocal latest, printed_at
            latest = state
            bar.update(state["done"] - bar.pos, state)
            if plain and not quiet and time.monotonic() - printed_at > LINE_EVERY_S:
                printed_at = time.monotonic()
                click.echo(_summary(state), err=True)

        yield show
    if not quiet:
        click.echo(_summary(latest))


def _spent(state: dict[str, Any] | None) -> str:
    return f"{state['cost_usd'] or 0:.4f} USD" if state else ""


def _summary(run: dict[str, Any]) -> str:
    return (
        f"{called(run['evaluator'])} {run['status']}: {run['done']}/{run['total']} "
        f"ok={run['ok']} skipped={run['skipped']} invalid={run['invalid']} error={run['error']} "
        f"cost={run['cost_usd'] or 0:.4f} USD  run:{run['run_id']}"
    )
