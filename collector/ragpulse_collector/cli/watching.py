"""Progress of a replay on the terminal: a bar where there is one, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from ragpulse_collector.cli.options import Ask, in_ci
from ragpulse_collector.cli.tables import console

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
    """Give a function that shows how far a run is, and say at the end where it stopped."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[cost]}"),
    )
    plain = in_ci() or not sys.stderr.isatty()
    latest, told_at = run, 0.0
    with Progress(*columns, disable=plain or quiet, console=console()) as bars:
        bar = bars.add_task(run["evaluator"], total=run["total"], cost="")

        def show(now: dict[str, Any]) -> None:
            nonlocal latest, told_at
            latest = now
            bars.update(bar, completed=now["done"], cost=f"{now['cost_usd'] or 0:.4f} USD")
            if plain and not quiet and time.monotonic() - told_at > LINE_EVERY_S:
                told_at = time.monotonic()
                click.echo(_line(now), err=True)

        yield show
    if not quiet:
        click.echo(_line(latest))


def _line(run: dict[str, Any]) -> str:
    return (
        f"{run['evaluator']} {run['status']}: {run['done']}/{run['total']} "
        f"ok={run['ok']} skipped={run['skipped']} invalid={run['invalid']} error={run['error']} "
        f"cost={run['cost_usd'] or 0:.4f} USD  run:{run['run_id']}"
    )
