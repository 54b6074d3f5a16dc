"""`ragpulse freeze`, `regress`: the same questions before and after a change, without an answer key."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from ragpulse_collector.cli.options import (
    FILE,
    Ask,
    Failure,
    Source,
    asking,
    option,
    since_option,
    source,
    where_option,
)
from ragpulse_collector.cli.tables import cell, interval, print_json, table

if TYPE_CHECKING:
    from ragpulse_collector.analysis.regression import Answered

_MINIMA = ("jaccard", "rbo", "identical", "similarity")
_EXIT = {None: 0, "above": 0, "below": 1, "undecided": 3}
_ENVIRONMENT = "deployment.environment.name=regress"
_POLL_S = 0.5
_ENDS = ("value", "lo", "hi")


@click.command()
@since_option
@where_option
@option("--limit", default=200, help="At most so many questions, the newest.")
@option("-o", "--out", type=FILE, default="queries.jsonl")
@option("--dataset", help="Keep them as a dataset of the collector instead of in a file.")
@asking
def freeze(ask: Ask, since: str, condition: str | None, limit: int, out: str, dataset: str | None) -> None:
    """Keep distinct questions with what was retrieved, answered and scored then: the baseline of `regress`."""
    from ragpulse_collector.cli.baseline import answered, write_frozen

    found = answered(ask, since=_instant(since), where=condition, limit=limit)
    if not found:
        raise Failure("no answered question here: look further back with --since")
    if dataset:
        ask(f"POST datasets/{quote(dataset, safe='')}", {"items": [asdict(one) for one in found]})
    n = len(found) if dataset else write_frozen(Path(out), found)
    click.echo(f"{n} questions in {dataset or out}")
    click.echo(f"next: ragpulse regress {dataset or out} --app module:function")


@click.command()
@click.argument("file", metavar="FILE_OR_DATASET")
@option("--app", help="MODULE:FUNCTION that takes a question; called here with each. Without: stored traces.")
@option("--since", default="1d", help="Without --app: the newest trace of each question since then.")
@where_option
@option("--similarity", default="token_f1", help="Evaluator of the new answer against the old one.")
@option("--p", default=0.9, help="Rank-biased overlap: how far down ranks count.")
@option("--min-jaccard", type=float, help="Required overlap of the retrieved sets.")
@option("--min-rbo", type=float, help="Required overlap of the retrieved rankings.")
@option("--min-identical", type=float, help="Required share of identical answers.")
@option("--min-similarity", type=float, help="Required likeness of the answers.")
@option("--max-drop", type=float, help="What every score may fall by, e.g. 0.05.")
@option("--wait", default=60.0, help="With --app: seconds for its traces and scores to arrive.")
@option("--format", "kind", type=click.Choice(["table", "markdown", "json"]), default="table")
@source
def regress(where: Source, file: str, kind: str, max_drop: float | None, **options: Any) -> int:
    """Same questions again: what changed? Exit 0 above every limit, 3 undecided, 2 could not run; 1 below a limit,
    or where the application failed or left no trace."""
    from ragpulse_collector.analysis.regression import gates

    limits = {name: options[f"min_{name}"] for name in _MINIMA if options[f"min_{name}"] is not None}
    try:
        report = _report(Path(file), where, options)
        report |= gates(report, limits, max_drop=max_drop)
    except (Failure, LookupError, ValueError) as error:
        click.echo(f"ragpulse: {error}", err=True)
        return 2
    {"table": _print, "markdown": _markdown, "json": print_json}[kind](report)
    return _EXIT[report["verdict"]]


def _report(path: Path, where: Source, options: Mapping[str, Any]) -> dict[str, Any]:
    from ragpulse_collector.analysis.regression import regression
    from ragpulse_collector.cli.baseline import answered, read_dataset, read_frozen

    ask = where.asker()
    frozen = read_frozen(path) if path.is_file() else _of_collector(path, ask, read_dataset)
    if options["app"]:
        found = _replayed(frozen, ask, where, options)
    else:
        asked, known = [one.query for one in frozen], [one.trace_id for one in frozen]
        since = _instant(options["since"])
        found = answered(ask, since=since, where=options["condition"], queries=asked, without=known)
    if not found:
        raise Failure("none of these questions has a new trace: name --app, or look further back with --since")
    pairs = _pairs(frozen, found, options["similarity"])
    missing = len(frozen) - len(pairs)
    return regression(pairs, missing=missing, silent=missing if options["app"] else 0, p=options["p"])


def _of_collector(path: Path, ask: Ask, read: Callable[[Ask, str], list[Answered]]) -> list[Answered]:
    try:
        return read(ask, str(path))
    except (Failure, LookupError, ValueError) as error:
        raise Failure(f"{path} is neither a file nor a dataset: {error}") from error


def _pairs(frozen: Sequence[Answered], found: Sequence[Answered], similarity: str) -> list[Any]:
    """Join both sides by question; a failed answer is like nothing."""
    from ragpulse_collector.analysis.regression import Pair
    from ragpulse_evaluators import Case, evaluate_sync, get_evaluator

    after = {one.query: one for one in found}
    both = [(one, after[one.query]) for one in frozen if one.query in after]
    cases = [Case(query=a.query, response=b.response or "", reference=a.response) for a, b in both]
    results = next(iter(evaluate_sync(cases, [get_evaluator(similarity)]).values()))
    alike = [result.normalized if b.response else 0.0 for result, (_, b) in zip(results, both, strict=True)]
    return [Pair(a, b, value) for (a, b), value in zip(both, alike, strict=True)]


def _replayed(frozen: Sequence[Answered], ask: Ask, where: Source, options: Mapping[str, Any]) -> list[Answered]:
    """Call the application with each question, and wait for its traces and the scores they were drawn for."""
    from ragpulse_collector.cli.baseline import answered, unscored
    from ragpulse_collector.store.rows import utc_now

    if where.file:
        raise Failure("--app sends spans: it needs a running collector, not --db")
    call = _function(options["app"], where.url)
    since = utc_now()
    with asyncio.Runner() as runner:  # one event loop for all: clients that the application keeps belong to it
        failed = sum(not _called(call, one.query, runner) for one in frozen)
    asked, evaluators = [one.query for one in frozen], {score.evaluator for one in frozen for score in one.scores}
    deadline = time.monotonic() + options["wait"]
    while True:
        found = answered(ask, since=since, where=options["condition"], queries=asked)
        if len(found) == len(frozen) and not unscored(ask, found, evaluators):
            return found
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    if not found:
        raise Failure(
            f"{options['app']} answered {len(frozen) - failed} of {len(frozen)} questions, but no trace of them came:"
            " decorate it with @ragpulse.rag and call ragpulse.configure() in its module"
        )
    return found


def _called(call: Callable[[str], Any], query: str, runner: asyncio.Runner) -> bool:
    """Ask one question to the end of its answer; a failure is a result, which its trace tells of."""
    try:
        answer = call(query)
        if inspect.isawaitable(answer) or inspect.isasyncgen(answer):
            runner.run(_finished(answer))
        elif inspect.isgenerator(answer):
            for _ in answer:
                pass
    except Exception as error:  # noqa: BLE001  # the application is not ours: whatever it raises, the others are asked
        click.echo(f"ragpulse: {query[:60]!r}: {type(error).__name__}: {error}", err=True)
        return False
    return True


async def _finished(answer: Any) -> None:
    if inspect.isawaitable(answer):
        answer = await answer
    if inspect.isasyncgen(answer):
        async for _ in answer:
            pass


def _function(name: str, url: str | None) -> Callable[[str], Any]:
    """Import the application; its spans go to the same collector and say `environment` regress unless it decides."""
    from ragpulse_collector.client import DEFAULT_URL

    os.environ.setdefault("RAGPULSE_URL", url or os.environ.get("RAGPULSE_ENDPOINT") or DEFAULT_URL)
    os.environ.setdefault("OTEL_RESOURCE_ATTRIBUTES", _ENVIRONMENT)
    module, colon, path = name.partition(":")
    if not (colon and module and path):
        raise Failure(f"--app {name!r}: write MODULE:FUNCTION")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Callable[[str], Any] = attrgetter(path)(import_module(module))
    except Exception as error:  # a module of the user's may raise anything while it is imported
        raise Failure(f"--app {name}: {type(error).__name__}: {error}") from error
    return found


def _instant(since: str) -> datetime:
    from ragpulse_collector.analysis.selection import instant
    from ragpulse_collector.store.rows import utc_now

    at = instant(f"-{since}", now=utc_now())
    if at is None:
        raise Failure("--since says how far back: 6h, 7d, 2w")
    return at


def _lines(report: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """What, estimate with interval, before, after."""
    labels = {"jaccard": "retrieved, Jaccard", "rbo": "retrieved, rank-biased overlap",
            "identical": "answers identical", "similarity": "answers alike"}  # fmt: skip
    lines = [(words, interval(report[name]), "", "") for name, words in labels.items()]
    figures = [(one["evaluator"], one) for one in report["scores"]]
    figures += [("latency, ms", report["latency_ms"]), ("cost, USD per 1,000", _thousand(report["cost_usd"]))]
    return lines + [
        (f"{name}, b - a", interval(one["difference"]), cell(one["a"]), cell(one["b"])) for name, one in figures if one
    ]


def _thousand(cost: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """One answer costs too little to read."""
    if cost is None:
        return None
    ends = {name: value and value * 1000.0 for name, value in cost["difference"].items() if name in _ENDS}
    return {"a": cost["a"] * 1000.0, "b": cost["b"] * 1000.0, "difference": {**cost["difference"], **ends}}


def _verdicts(report: Mapping[str, Any]) -> list[str]:
    return [f"{one['metric']} >= {one['min']:g}: {one['verdict']}{_need(one)}" for one in report["gates"]]


def _need(gate: Mapping[str, Any]) -> str:
    if gate["verdict"] != "undecided":
        return ""
    if gate["need"] is None:
        return " (it lies on the limit: no number of questions decides that)"
    return f" ({gate['n']} questions; about {gate['need']} would decide it)"


def _counted(report: Mapping[str, Any]) -> str:
    lost = report["missing"] - report["silent"]
    parts = [f"{report['n']} questions compared"]
    parts += [f"the application failed on {report['failed']}"] if report["failed"] else []
    parts += [f"{report['silent']} left no trace"] if report["silent"] else []
    parts += [f"{lost} not asked since"] if lost else []
    return ", ".join(parts)


def _changed(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (one["query"][:60], cell(one["change"]), cell(one["jaccard"]), cell(one["similarity"]),
         ", ".join(f"{name} {fall:+.2f}" for name, fall in one["scores"].items()), one["trace_b"])
        for one in report["worst"][:10]
    ]  # fmt: skip


_COLUMNS = ("what", "estimate", "before (a)", "after (b)")
_WORST = ("query", "change", "jaccard", "alike", "scores", "trace")


def _blocks(report: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    yield "", _COLUMNS, _lines(report)
    if report["worst"]:
        yield "most changed", _WORST, _changed(report)


def _print(report: Mapping[str, Any]) -> None:
    click.echo(_counted(report))
    for block in _blocks(report):
        table(*block)
    click.echo("\n".join(_verdicts(report)))


def _markdown(report: Mapping[str, Any]) -> None:
    click.echo(f"{_counted(report)}\n")
    for _, columns, rows in _blocks(report):
        escaped = [[cell(value).replace("|", "\\|") for value in row] for row in rows]
        lines = [columns, ["---"] * len(columns), *escaped]
        click.echo("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
    click.echo("\n".join(f"- {line}" for line in _verdicts(report)))
