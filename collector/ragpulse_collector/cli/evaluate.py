"""`ragpulse evaluators`, `evaluate`, `calibrate`, `meta-evaluate`, `align`, `perturb`: evaluators and their judges."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from ragpulse_collector.cli.case_files import Row, read_rows
from ragpulse_collector.cli.options import (
    COUNT,
    EXISTING_FILE,
    FILE,
    Ask,
    Failure,
    asking,
    budget_of,
    capped,
    config_option,
    config_path,
    evaluator_option,
    gate,
    json_option,
    judge_option,
    load_option,
    max_usd_option,
    option,
    priced_settings,
    prompts_option,
    range_option,
    table_options,
)
from ragpulse_collector.cli.tables import print_json, report, safe, show, show_decision
from ragpulse_collector.refusals import nearest
from ragpulse_collector.words import called
from ragpulse_evaluators.errors import first_problem

if TYPE_CHECKING:
    from ragpulse_collector.analysis.limits import Limit, Measure
    from ragpulse_evaluators import EvaluationResult, Evaluator, Judge

Split = Literal["train", "test"]
_labels_option = option(
    "--labels", required=True, type=EXISTING_FILE, help="JSON lines: a case with `human` (and optionally `group`)."
)
_seed_option = option("--seed", default=0, help="Of the random choice.")


@click.command("evaluators")
@config_option
@load_option
@table_options
def evaluators_(config: str | None, loads: tuple[str, ...], as_json: bool) -> None:
    """List the evaluators, those of ragpulse.toml too, with version, needs, scale and cost class."""
    from ragpulse_collector.catalog import Catalog
    from ragpulse_collector.configuration import load_settings

    entries = [asdict(entry) for entry in Catalog(load_settings(config_path(config)), loads=loads).describe()]
    if as_json:
        print_json(entries)
        return
    for entry in entries:
        entry["needs"] += ("a judge",) * (entry["cost_class"] not in ("free", "embedding", None))
        entry["scale"] = _span(entry["scale"])
    columns = {"name": "name", "description": "description", "needs": "needs", "scale": "scale", "cost": "cost_class",
               "version": "version"}  # fmt: skip
    show("evaluators", {"evaluators": entries}, {"evaluators": columns})


def _span(scale: Any) -> Any:
    return scale and f"{scale['lo']:g}..{'' if scale['hi'] is None else format(scale['hi'], 'g')}"


@click.command()
@click.argument("file", type=EXISTING_FILE)
@option("-e", "--evaluator", "evaluators", multiple=True, help="Evaluator NAME or NAME@VERSION; repeatable.")
@option(
    "--min", "least", multiple=True, metavar="NAME=X", help="The least mean score, from 0 to 1; or pass_rate:NAME=X."
)
@option("--max", "most", multiple=True, metavar="NAME=X", help="The most that is allowed, as in fail_rate:NAME=0.1.")
@option("--params", metavar="JSON", help='Parameters by evaluator: {"regex": {"pattern": "[0-9]+"}}.')
@option("--language", help="Language of a judge's instructions.")
@judge_option
@config_option
@load_option
@option("--out", type=FILE, help="Write the results to this file, as JSON lines.")
@option("--summary", type=FILE, help="Append the decisions on the limits to this file, in Markdown.")
@option("--concurrency", type=COUNT, default=8, help="Cases at the same time.")
@option("--cache", type=FILE, help="Record judge calls in this file; a repeat is free and needs no network.")
@max_usd_option
@json_option
@gate
def evaluate(
    file: str,
    evaluators: tuple[str, ...],
    least: tuple[str, ...],
    most: tuple[str, ...],
    out: str | None,
    summary: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Evaluate the cases of a file (JSON lines, JSON, CSV, YAML or Parquet); with limits it is a gate.

    Exit 0: every limit is kept; 1: one is not; 3: undecided (too few answers, or the missing ones could turn it), or
    nothing was scored; 2: could not run.
    """
    from ragpulse_collector.analysis.limits import of_results
    from ragpulse_evaluators import evaluate_sync, summarize

    limits = [*(_limit(text, low=True) for text in least), *(_limit(text, low=False) for text in most)]
    names = list(dict.fromkeys((*evaluators, *(name for _, name, _ in limits))))
    if not names:
        raise click.UsageError("name an evaluator (-e groundedness) or a limit (--min groundedness=0.8)")
    cases, made = _cases(Path(file), read_rows(Path(file))), _made(names, **options)
    results = evaluate_sync(cases, made, concurrency=options["concurrency"], progress=not as_json)
    if out:
        lines = (result.model_dump_json() for column in results.values() for result in column)
        Path(out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    scored = dict(zip(names, zip(made, results.values(), strict=True), strict=True))
    decisions = [asdict(of_results(*scored[name], measure, limit)) for measure, name, limit in limits]
    summaries = {
        name: {**asdict(summarize(column)), "limits": [each for each in decisions if each["evaluator"] == name]}
        for name, column in results.items()
    }
    if as_json:
        print_json(summaries)
    for content in () if as_json else summaries.values():
        report("report", {**content, "limits": ()}, as_json=False)
    statuses = [0 if _any_scored(column) else 3 for column in results.values()]
    statuses += [show_decision(each, summary, quiet=as_json) for each in decisions]
    return max(statuses, key=(0, 3, 1).index)


def _limit(text: str, *, low: bool) -> tuple[Measure, str, Limit]:
    """Read `NAME=X` or `fail_rate:NAME=X`."""
    from ragpulse_collector.analysis.limits import Limit, Measure

    metric, _, number = text.rpartition("=")
    family, _, name = metric.partition(":")
    measure: Measure | None = next((each for each in get_args(Measure) if each == family and name), None)
    try:
        value = float(number)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: write NAME=X or fail_rate:NAME=X, as in groundedness=0.8") from error
    return measure or "quality", name if measure else metric, Limit.of(*((value, None) if low else (None, value)))


def _any_scored(results: Sequence[EvaluationResult]) -> bool:
    """Return whether a case was scored; say how many were not, and why the first was not."""
    unscored = [result for result in results if result.status != "ok"]
    if unscored:
        counts = ", ".join(f"{n} {status}" for status, n in Counter(each.status for each in unscored).items())
        first = next((each for each in unscored if each.missing), unscored[0])
        reason = " ".join((first.explanation or "no reason").split())
        click.echo(safe(f"ragpulse: {called(first.evaluator)}: {counts} of {len(results)}: {reason}"), err=True)
    return len(unscored) < len(results)


def _made(
    names: Sequence[str], *, judge: str | None, config: str | None = None, loads: tuple[str, ...] = (),
    concurrency: int = 8, cache: str | None = None, max_usd: float | None = None, params: str | None = None,
    language: str | None = None,
) -> list[Evaluator]:  # fmt: skip
    """Make the evaluators, those of ragpulse.toml too; their judges share the cap, the requests and the record."""
    from ragpulse_collector.catalog import Catalog
    from ragpulse_evaluators.judges.wrappers import CachedJudge, FileCache, Gate, GatedJudge

    settings, price = priced_settings(judge, config)
    budget, record = budget_of(max_usd), FileCache(cache) if cache else None
    requests = Gate(concurrency, requests_per_minute=settings.judge.requests_per_minute)

    def wrap(judge: Judge) -> Judge:
        limited = GatedJudge(capped(judge, price, budget), requests)
        return CachedJudge(limited, record) if record else limited

    catalog = Catalog(settings, loads=loads, priced=price.priced, wrap=wrap)
    try:
        given: dict[str, dict[str, Any]] = {name: {**some} for name, some in json.loads(params or "{}").items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise Failure(f'--params {params}: write JSON, as in {{"regex": {{"pattern": "[0-9]+"}}}}') from error
    if unknown := sorted(given.keys() - set(names)):
        raise Failure(f"--params: {unknown[0]!r} is not asked for{nearest(unknown[0], names)}")
    if language and not any("language" in catalog.registry.accepts(name.partition("@")[0]) for name in names):
        raise Failure(f"--language: none of {', '.join(names)} takes a language")
    return [catalog.online(name, params={**given.get(name, {}), "language": language}) for name in names]


def _cases(path: Path, rows: Iterable[Row]) -> list[Any]:
    from pydantic import ValidationError

    from ragpulse_evaluators import Case

    cases = []
    for row in rows:
        try:
            cases.append(
                Case.model_validate({key: value for key, value in row.fields.items() if key not in _EXTRA_COLUMNS})
            )
        except ValidationError as error:
            raise Failure(f"{row.place}: {first_problem(error)}") from error
    if not cases:
        raise Failure(f"{path} holds no case: objects with query, response, contexts, reference, ...")
    return cases


def _labelled(path: Path) -> tuple[list[Any], list[float], list[dict[str, Any]]]:
    """Return the cases, a person's score of each, and their rows."""
    rows = read_rows(path)
    fields = [dict(row.fields) for row in rows]
    if any("human" not in row for row in fields):
        raise Failure(f"{path}: every line needs `human`: the person's score")
    cases = _cases(path, rows)
    try:
        return cases, [float(row["human"]) for row in fields], fields
    except (TypeError, ValueError) as error:
        raise Failure(f"{path}: human is a number in every line: {error}") from error


_EXTRA_COLUMNS = ("human", "group", "kind")
"""Columns that are no fields of a case: a person's score, its group, how `perturb` changed the case."""


@click.command()
@evaluator_option
@_labels_option
@judge_option
@load_option
@json_option
def calibrate(evaluator: str, labels: str, judge: str | None, loads: tuple[str, ...], as_json: bool) -> int:
    """Compare an evaluator with people: correlations, kappa, alpha, bias. It exposes a constant judge."""
    from ragpulse_evaluators import calibrate as compare_with_people
    from ragpulse_evaluators import evaluate_sync

    cases, human, rows = _labelled(Path(labels))
    (results,) = evaluate_sync(cases, _made([evaluator], judge=judge, loads=loads), progress=not as_json).values()
    groups = [row.get("group") for row in rows] if any("group" in row for row in rows) else None
    scores = [result.normalized for result in results]
    report("report", asdict(compare_with_people(scores, human, groups)), as_json=as_json)
    return int(not _any_scored(results))


@click.command("meta-evaluate")
@option("-e", "--evaluator", default="grouse", help="Evaluator NAME or NAME@VERSION.")
@judge_option
@prompts_option
@option("--split", type=click.Choice(["train", "test"]), default="train", help="Which half of the unit tests.")
@json_option
def meta_evaluate_(evaluator: str, judge: str | None, prompts: str | None, split: Split, as_json: bool) -> None:
    """Run a judge against unit tests with known answers: success rate for each metric and in total."""
    from ragpulse_evaluators import meta_evaluate

    (made,) = _made([evaluator], judge=judge, params=json.dumps({evaluator: {"prompts": prompts}} if prompts else {}))
    found = meta_evaluate(made, split=split)
    if not found.parsing_success:
        raise Failure(f"{called(evaluator)}: no verdict of the judge: {found.failures[0].explanation}")
    report("report", asdict(found), as_json=as_json)


@click.command("align")
@evaluator_option
@_labels_option
@judge_option
@_seed_option
@json_option
def align_(evaluator: str, labels: str, judge: str | None, seed: int, as_json: bool) -> None:
    """Choose in-context examples from labelled cases, and report the agreement on the other cases."""
    from ragpulse_evaluators import align

    cases, human, _ = _labelled(Path(labels))
    (made,) = _made([evaluator], judge=judge)
    _, gain = align(made, list(zip(cases, human, strict=True)), seed=seed)
    if not gain.before.n:
        raise Failure(f"no case was scored: ragpulse evaluate {labels} -e {evaluator} says why")
    report("report", asdict(gain), as_json=as_json)


@click.command("perturb")
@range_option("7d")
@option("--limit", type=COUNT, default=200, help="The most traces.")
@_seed_option
@option("--out", type=FILE, default="perturbed.jsonl", help="The file to write.")
@asking
def perturb_(ask: Ask, seed: int, out: str, **params: Any) -> None:
    """Make labelled negatives of stored traces, to test a judge: numbers, names and negations are swapped."""
    from ragpulse_evaluators import Case
    from ragpulse_evaluators.grounding import perturb

    cases = []
    for trace in ask("GET traces", {**params, "evaluator": "groundedness", "sort": "best"})["traces"]:
        detail = ask(f"GET traces/{trace['trace_id']}", {"at": trace["start_time"]})
        contexts = [context["text"] for context in detail["contexts"] if context["text"]]
        if trace["response"] and contexts:
            cases.append(
                Case(query=trace["query"], response=trace["response"], contexts=contexts, trace_id=trace["trace_id"])
            )
    labelled = perturb(cases, seed=seed)
    lines = [
        json.dumps({**case.case.model_dump(exclude_none=True), "human": case.label, "kind": case.kind}, default=str)
        for case in labelled
    ]
    Path(out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    click.echo(f"{len(labelled)} labelled cases from {len(cases)} traces in {out}")
    click.echo(f"next: ragpulse calibrate -e NAME --labels {out}")
