"""`ragpulse freeze`, `regress`: the same questions before and after a change, without an answer key."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from ragpulse_collector.cli.options import (
    COUNT,
    FILE,
    Ask,
    Failure,
    Json,
    Source,
    asking,
    gate,
    option,
    sentence,
    since_option,
    source,
    where_option,
)
from ragpulse_collector.cli.tables import cell, interval, print_json, table
from ragpulse_collector.refusals import Refusal
from ragpulse_collector.words import called

if TYPE_CHECKING:
    from ragpulse_collector.analysis.compare.regression import Answered, Regression

_MINIMA = ("jaccard", "rbo", "identical", "similarity")
_ENVIRONMENT = "deployment.environment.name=regress"
_POLL_S = 0.5
_SCALED = ("value", "lo", "hi")


@click.command()
@since_option("7d")
@where_option
@option("--limit", type=COUNT, default=200, help="The most questions; the newest win.")
@option("-o", "--out", type=FILE, default="queries.jsonl", help="The file to write.")
@option("--dataset", help="Store them as a dataset of the collector instead of in a file.")
@asking
def freeze(ask: Ask, since: datetime, where: str | None, limit: int, out: str, dataset: str | None) -> None:
    """Store the baseline of `regress`: distinct questions with their documents, answers and scores."""
    from ragpulse_collector.cli.baseline import newest_answers, write_baseline

    answers = newest_answers(ask, since=_utc(since), where=where, limit=limit)
    if not answers:
        raise Failure("no answered question in this range: look further back with --since")
    if dataset:
        items = [asdict(answer) for answer in answers]
        stored = ask(f"POST datasets/{quote(dataset, safe='')}", {"items": items})
        click.echo(f"{stored['added']} questions in {dataset}, {stored['new']} of them new")
    else:
        write_baseline(Path(out), answers)
        click.echo(f"{len(answers)} questions in {out}")
    click.echo(f"next: ragpulse regress {dataset or out} --app module:function")


@click.command()
@click.argument("file", metavar="FILE_OR_DATASET")
@option("--app", help="MODULE:FUNCTION that answers a question; it runs here. Without it: stored traces.")
@since_option("1d")
@where_option
@option("--similarity", default="token_f1", help="Evaluator of the new answers; the old ones are the references.")
@option("--p", default=0.9, help="Rank-biased overlap: the weight of lower ranks.")
@option("--min-jaccard", type=float, help="Required overlap of the retrieved sets.")
@option("--min-rbo", type=float, help="Required overlap of the retrieved rankings.")
@option("--min-identical", type=float, help="Required share of identical answers.")
@option("--min-similarity", type=float, help="Required similarity of the answers.")
@option("--max-drop", type=float, help="The largest acceptable fall of a score, e.g. 0.05.")
@option("--wait", default=60.0, help="With --app: seconds to wait for its traces and scores.")
@option("--format", "kind", type=click.Choice(["table", "markdown", "json"]), default="table", help="Of the report.")
@source
@gate
def regress(source: Source, file: str, kind: str, max_drop: float | None, **options: Any) -> int:
    """Ask the same questions again and report the changes.

    Exit 0: above every limit; 1: below a limit, or the application failed or left no trace; 2: could not run;
    3: undecided.
    """
    from ragpulse_collector.analysis.compare.regression import gates
    from ragpulse_collector.analysis.limits import Limit
    from ragpulse_collector.api.http import plain

    limits = {name: options[f"min_{name}"] for name in _MINIMA if options[f"min_{name}"] is not None}
    ask = source.asker()
    found = gates(_compared(Path(file), ask, source, options), limits, max_drop=max_drop)
    report = plain(found)
    {"table": _print, "markdown": _markdown, "json": print_json}[kind](report)
    if not source.file:
        _keep(ask, file, report, options["similarity"])
    return 0 if found.verdict is None else Limit(min=0.0).status(found.verdict)


def _keep(ask: Ask, file: str, report: Json, similarity: str) -> None:
    """Send the report as a run; a key that may only read changes no exit status."""
    evaluators = [*(score["evaluator"] for score in report["scores"]), *report["unscored"]] or [similarity]
    run = {"evaluators": list(dict.fromkeys(evaluators)), "dataset": file, "total": report["n"], "report": report}
    try:
        ask("POST runs", run)
    except Refusal as error:
        click.echo(f"ragpulse: `ragpulse runs` does not list this comparison: {sentence(error)}", err=True)


def _compared(path: Path, ask: Ask, source: Source, options: Mapping[str, Any]) -> Regression:
    from ragpulse_collector.analysis.compare.regression import regression
    from ragpulse_collector.cli.baseline import newest_answers, read_baseline

    before = read_baseline(path) if path.is_file() else _dataset(path, ask)
    if options["app"]:
        after = _answers_of_app(before, ask, source, options)
    else:
        queries, trace_ids = [answer.query for answer in before], [answer.trace_id for answer in before]
        since = _utc(options["since"])
        after = newest_answers(ask, since=since, where=options["where"], queries=queries, without=trace_ids)
    if not after:
        raise Failure("none of these questions has a new trace: name --app, or look further back with --since")
    pairs = _pairs(before, after, options["similarity"])
    missing = len(before) - len(pairs)
    return regression(pairs, missing=missing, silent=missing if options["app"] else 0, p=options["p"])


def _dataset(path: Path, ask: Ask) -> list[Answered]:
    from ragpulse_collector.cli.baseline import read_dataset

    try:
        return read_dataset(ask, str(path))
    except (Failure, Refusal) as error:
        raise Failure(f"{path} is neither a file nor a dataset: {error}") from error


def _pairs(before: Sequence[Answered], after: Sequence[Answered], similarity: str) -> list[Any]:
    """Join both sides by question; a failed answer has the similarity 0."""
    from ragpulse_collector.analysis.compare.regression import Pair
    from ragpulse_evaluators import Case, evaluate_sync, get_evaluator

    new = {answer.query: answer for answer in after}
    pairs = [(old, new[old.query]) for old in before if old.query in new]
    cases = [Case(query=a.query, response=b.response or "", reference=a.response) for a, b in pairs]
    results = next(iter(evaluate_sync(cases, [get_evaluator(similarity)]).values()))
    return [Pair(a, b, result.normalized if b.response else 0.0) for result, (a, b) in zip(results, pairs, strict=True)]


def _answers_of_app(before: Sequence[Answered], ask: Ask, source: Source, options: Mapping[str, Any]) -> list[Answered]:
    """Call the application with each question, and wait for its traces and their scores."""
    from ragpulse_collector.cli.baseline import newest_answers, pending_scores

    if source.file:
        raise Failure("--app sends spans: it needs a running collector, not --db")
    call = _function(options["app"], source.url)
    since = _utc(datetime.now(UTC))
    bar = click.progressbar(before, label="questions", file=sys.stderr)
    with asyncio.Runner() as runner, bar:  # clients that the application keeps belong to one event loop
        answered = sum(_answers(call, answer.query, runner) for answer in bar)
    queries = [answer.query for answer in before]
    evaluators = {score.evaluator for answer in before for score in answer.scores}
    deadline = time.monotonic() + options["wait"]
    read = partial(newest_answers, ask, since=since, where=options["where"], queries=queries)
    while True:
        after = read()
        if len(after) == len(before) and not pending_scores(ask, after, evaluators):
            return read()  # what was pending when they were read is there now
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    if not after:
        raise Failure(
            f"{options['app']} answered {answered} of {len(before)} questions, but none of their traces arrived:"
            " decorate it with @ragpulse.rag and call ragpulse.configure() in its module"
        )
    return after


def _answers(call: Callable[[str], Any], query: str, runner: asyncio.Runner) -> bool:
    """Ask one question to the end of its answer; returns whether it succeeds. Its trace shows a failure as well."""
    try:
        answer = call(query)
        if inspect.isawaitable(answer) or inspect.isasyncgen(answer):
            runner.run(_finished(answer))
        elif inspect.isgenerator(answer):
            for _ in answer:
                pass
    except Exception as error:  # noqa: BLE001  # the application is the user's: whatever it raises, the next question follows
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
    """Import the application; its spans go to the same collector, by default with the environment `regress`."""
    from ragpulse_collector.client import DEFAULT_URL

    os.environ.setdefault("RAGPULSE_URL", url or os.environ.get("RAGPULSE_ENDPOINT") or DEFAULT_URL)
    os.environ.setdefault("OTEL_RESOURCE_ATTRIBUTES", _ENVIRONMENT)
    module, colon, path = name.partition(":")
    if not (colon and module and path):
        raise Failure(f"--app {name!r}: write MODULE:FUNCTION")
    sys.path.insert(0, str(Path.cwd()))
    try:
        function: Callable[[str], Any] = attrgetter(path)(import_module(module))
    except Exception as error:  # the import of a user's module may raise anything
        raise Failure(f"--app {name}: {type(error).__name__}: {error}") from error
    return function


def _utc(since: datetime) -> datetime:
    return since.replace(tzinfo=None)


def _rows(report: Json) -> list[tuple[str, str, str, str]]:
    """Return name, estimate with interval, before, after."""
    labels = {"jaccard": "retrieved, Jaccard", "rbo": "retrieved, rank-biased overlap",
            "identical": "answers identical", "similarity": "answers similar"}  # fmt: skip
    rows = [(label, interval(report[name]), "", "") for name, label in labels.items()]
    figures = [(called(score["evaluator"]), score) for score in report["scores"]]
    figures += [("latency, ms", report["latency_ms"]), ("cost, USD per 1,000", _thousand(report["cost_usd"]))]
    return rows + [
        (f"{name}, b - a", f"{interval(figure['difference'])}{_reach(figure)}", cell(figure["a"]), cell(figure["b"]))
        for name, figure in figures
        if figure
    ]


def _reach(figure: Json) -> str:
    """Return what the missing verdicts leave open."""
    difference, missing = figure["difference"], figure.get("missing")
    if not missing or difference["least"] is None:
        return ""
    return f", {difference['least']:+.2f} to {difference['most']:+.2f} with {missing} missing verdicts"


def _thousand(cost: Json | None) -> dict[str, Any] | None:
    """Return the cost of 1,000 answers: that of one is too small to read."""
    if cost is None:
        return None
    scaled = {name: value and value * 1000.0 for name, value in cost["difference"].items() if name in _SCALED}
    return {"a": cost["a"] * 1000.0, "b": cost["b"] * 1000.0, "difference": {**cost["difference"], **scaled}}


def _verdicts(report: Json) -> list[str]:
    return [f"{called(gate['metric'])} >= {gate['min']:g}: {gate['verdict']}{_need(gate)}" for gate in report["gates"]]


def _need(gate: Json) -> str:
    if gate["verdict"] != "undecided":
        return ""
    if gate["missing"]:
        return f" ({gate['missing']} missing verdicts could turn it)"
    if gate["need"] is None:
        return " (it is on the limit: no number of questions decides that)"
    return f" ({gate['n']} questions; about {gate['need']} would decide it)"


def _counts(report: Json) -> str:
    absent = report["missing"] - report["silent"]
    parts = [f"{report['n']} questions compared"]
    parts += [f"the application failed on {report['failed']}"] if report["failed"] else []
    parts += [f"{report['silent']} left no trace"] if report["silent"] else []
    parts += [f"{absent} not asked since"] if absent else []
    return ", ".join(parts)


def _changed(report: Json) -> list[tuple[str, ...]]:
    return [
        (pair["query"][:60], cell(pair["change"]), cell(pair["jaccard"]), cell(pair["similarity"]),
         ", ".join(f"{called(name)} {fall:+.2f}" for name, fall in pair["scores"].items()), pair["trace_b"])
        for pair in report["worst"][:10]
    ]  # fmt: skip


_COLUMNS = ("name", "estimate", "before (a)", "after (b)")
_WORST = ("query", "change", "jaccard", "similarity", "scores", "trace")


def _blocks(report: Json) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    yield "", _COLUMNS, _rows(report)
    if report["worst"]:
        yield "most changed", _WORST, _changed(report)


def _print(report: Json) -> None:
    click.echo(_counts(report))
    for block in _blocks(report):
        table(*block)
    click.echo("\n".join(_verdicts(report)))


def _markdown(report: Json) -> None:
    click.echo(f"{_counts(report)}\n")
    for _, columns, rows in _blocks(report):
        escaped = [[cell(value).replace("|", "\\|") for value in row] for row in rows]
        lines = [columns, ["---"] * len(columns), *escaped]
        click.echo("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
    click.echo("\n".join(f"- {line}" for line in _verdicts(report)))
