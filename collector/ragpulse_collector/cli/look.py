"""`ragpulse metrics`, `traces`, `show`, `tail`: look from the terminal."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import click

from ragpulse_collector.cli.options import COUNT, FILE, Ask, asking, json_option, option, since_option, where_option
from ragpulse_collector.cli.tables import cell, interval, print_json, safe, table


@click.command()
@click.argument("names", nargs=-1)
@since_option("1d")
@option("--step", default="auto", help="Bucket width: 1m, 1h, 1d, auto, or all.")
@option("--group-by", multiple=True, help="service, release, tag, metadata.KEY, ...; repeatable.")
@option("--assisted-by", help="Narrow quality:NAME by this evaluator, which scored every answer.")
@json_option
@asking
def metrics(
    ask: Ask, names: tuple[str, ...], since: str, step: str, group_by: tuple[str, ...], assisted_by: str | None,
    as_json: bool
) -> None:  # fmt: skip
    """Show metrics over time: requests errors latency_p95 cost_usd quality:groundedness ..."""
    params = {"from": since, "step": step, "group_by": list(group_by), "assisted_by": assisted_by}
    answers = [
        ask("GET metrics", params | {"name": name})
        for name in names or ("requests", "latency_p95", "quality:groundedness")
    ]
    if as_json:
        print_json(answers)
        return
    for answer in answers:
        for series in answer["series"]:
            labels = [*(f"{key}={value}" for key, value in series["group"].items()), series.get("version") or ""]
            by = [f"assisted by {series['assisted_by']}"] if "assisted_by" in series else []
            rows = [
                (point["t"], interval(point), *([_assisted(point["assisted"])] if by else []))
                for point in series["points"]
                if point["value"] is not None or point.get("missing")
            ]
            table(f"{answer['name']} {' '.join(filter(None, labels))}", ("time", "value", *by), rows)


def _assisted(estimate: dict[str, Any]) -> str:
    """Return how much a check of all answers narrowed a point, or why it did not."""
    return (
        estimate["note"]
        or f"x {estimate['narrowing']:.2f} as wide: {estimate['n_all']} answers, {estimate['unchecked']} unchecked"
    )


@click.command()
@since_option("1d")
@where_option
@option("--tag", multiple=True, help="Only traces with this tag; repeatable: with one of them.")
@option("--release", multiple=True, help="Only traces of this release (service.version); repeatable.")
@option("--limit", type=COUNT, default=20, help="The most traces.")
@json_option
@asking
def traces(
    ask: Ask, since: str, condition: str | None, tag: tuple[str, ...], release: tuple[str, ...], limit: int,
    as_json: bool
) -> None:  # fmt: skip
    """Show the newest traces with their scores."""
    params = {"from": since, "where": condition, "tag": list(tag), "release": list(release), "limit": limit}
    answer = ask("GET traces", params)
    if as_json:
        print_json(answer)
        return
    table("traces", ("time", "trace", "query", "latency ms", "tokens", "cost", "scores"), map(_row, answer["traces"]))


def _row(trace: dict[str, Any]) -> tuple[Any, ...]:
    scores = " ".join(
        f"{name}={score['normalized']:.2f}" if score["normalized"] is not None else f"{name}={score['status']}"
        for name, score in sorted(trace["scores"].items())
    )
    tokens = [count for count in (trace["input_tokens"], trace["output_tokens"]) if count is not None]
    return (
        trace["start_time"],
        trace["trace_id"],
        (trace["query"] or "")[:50],
        trace["latency_ms"],
        sum(tokens) if tokens else None,
        trace["cost_usd"],
        scores,
    )


@click.command()
@click.argument("trace_id")
@option("--html", type=FILE, help="Write a self-contained, redacted page to this file.")
@json_option
@asking
def show(ask: Ask, trace_id: str, html: str | None, as_json: bool) -> None:
    """Show one trace: question, contexts, answer, spans and scores."""
    from ragpulse_collector.client import TRACE_TABLES

    if html:
        Path(html).write_text(ask(f"GET traces/{trace_id}/html", {})["text"], encoding="utf-8")
        click.echo(f"wrote {html}")
        return
    answer = ask(f"GET traces/{trace_id}", {})
    if as_json:
        print_json(answer)
        return
    trace = answer["trace"]
    click.echo(safe(f"{trace['start_time']}  {trace['service'] or ''}  {trace['name']}  {trace['latency_ms']:.1f} ms"))
    click.echo(safe(f"\nquery     {trace['query'] or '-'}\nresponse  {trace['response'] or '-'}\n"))
    for name, columns in TRACE_TABLES.items():
        table(name, columns, ([_short(row[column]) for column in columns] for row in answer[name]))


def _short(value: Any) -> Any:
    return value[:90] if isinstance(value, str) else value


@click.command()
@option("--count", type=int, help="Stop after this many traces.")
@option("--interval", "pause_s", type=click.FloatRange(min=0), default=1.0, help="Seconds between two requests.")
@asking
def tail(ask: Ask, count: int | None, pause_s: float) -> None:
    """Print new traces as they are stored."""
    cursor = ask("GET traces", {"limit": 1}).get("newest")
    seen = 0
    for turn in itertools.count():
        answer = ask("GET traces", {"limit": 50, "after": cursor})
        for trace in reversed(answer["traces"]):
            click.echo(
                "  ".join(
                    map(cell, (trace["start_time"], trace["trace_id"], f"{trace['latency_ms']:.0f} ms", trace["query"]))
                )
            )
            seen += 1
        cursor = answer.get("newest") or cursor
        if count is not None and seen >= count:
            return
        time.sleep(pause_s if turn else 0)
