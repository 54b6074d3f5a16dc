"""`ragpulse evaluators`, `evaluate`, `calibrate`, `meta-evaluate`, `align`, `perturb`: evaluators and their judges."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click

from ragpulse_collector.cli.case_files import Row, read_rows
from ragpulse_collector.cli.options import (
    COUNT,
    EXISTING_FILE,
    FILE,
    Ask,
    Failure,
    asking,
    config_option,
    config_path,
    evaluator_option,
    evaluators_option,
    failing,
    json_option,
    judge_option,
    load_option,
    option,
    prompts_option,
    range_option,
)
from ragpulse_collector.cli.tables import print_json, report, table

Split = Literal["train", "test"]
_labels_option = option(
    "--labels", required=True, type=EXISTING_FILE, help="JSON lines: a case with `human` (and optionally `group`)."
)
_seed_option = option("--seed", default=0, help="Of the random choice.")


@click.command("evaluators")
@config_option
@load_option
@json_option
def evaluators_(config: str | None, loads: tuple[str, ...], as_json: bool) -> None:
    """List the evaluators, those of ragpulse.toml too, with version, needs, scale and cost class."""
    from ragpulse_collector.catalog import Catalog
    from ragpulse_collector.configuration import load_settings
    from ragpulse_collector.settings import SettingsError

    with failing(SettingsError):
        entries = [asdict(entry) for entry in Catalog(load_settings(config_path(config)), loads=loads).describe()]
    if as_json:
        print_json(entries)
        return
    columns = ("name", "version", "needs", "scale", "cost_class", "description")
    for entry in entries:
        entry["needs"] += ("a judge",) * (entry["cost_class"] not in ("free", "embedding", None))
    table("evaluators", columns, ([_text(entry[column]) for column in columns] for entry in entries))


def _text(value: Any) -> Any:
    if isinstance(value, dict):
        return f"{value['lo']:g}..{'' if value['hi'] is None else format(value['hi'], 'g')}"
    return ", ".join(value) if isinstance(value, list | tuple) else value


@click.command()
@click.argument("file", type=EXISTING_FILE)
@evaluators_option
@judge_option
@load_option
@option("--out", type=FILE, help="Write the results to this file, as JSON lines.")
@option("--concurrency", type=COUNT, default=8, help="Cases at the same time.")
@option("--cache", type=FILE, help="Record judge calls in this file; a repeat is free and needs no network.")
@json_option
def evaluate(
    file: str,
    evaluators: tuple[str, ...],
    judge: str | None,
    loads: tuple[str, ...],
    out: str | None,
    concurrency: int,
    cache: str | None,
    as_json: bool,
) -> None:
    """Evaluate the cases of a file (JSON lines, JSON, CSV, YAML or Parquet) and print a summary."""
    from ragpulse_collector.catalog import Catalog
    from ragpulse_evaluators import evaluate_sync, summarize

    cases = _cases(Path(file), read_rows(Path(file)))
    catalog = Catalog(judge=judge, loads=loads, wrap=_recorder(cache))
    instances = [catalog.resolve(name) for name in evaluators]
    results = evaluate_sync(cases, instances, concurrency=concurrency, progress=not as_json)
    if out:
        lines = (result.model_dump_json() for column in results.values() for result in column)
        Path(out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    summaries = {name: asdict(summarize(column)) for name, column in results.items()}
    if as_json:
        print_json(summaries)
        return
    for summary in summaries.values():
        report("report", summary, as_json=False)


def _recorder(cache: str | None) -> Any:
    from ragpulse_evaluators.judges.wrappers import CachedJudge, FileCache

    return None if cache is None else lambda judge: CachedJudge(judge, FileCache(cache))


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
            raise Failure(f"{row.place}: {_mistake(error.errors()[0])}") from error
    if not cases:
        raise Failure(f"{path} holds no case: objects with query, response, contexts, reference, ...")
    return cases


def _labelled(path: Path) -> tuple[list[Any], list[float], list[dict[str, Any]]]:
    """Return the cases, a person's score of each, and their rows."""
    rows = read_rows(path)
    fields = [dict(row.fields) for row in rows]
    if any("human" not in row for row in fields):
        raise Failure(f"{path}: every line needs `human`: the person's score")
    return _cases(path, rows), [float(row["human"]) for row in fields], fields


_EXTRA_COLUMNS = ("human", "group", "kind")
"""Columns that are no fields of a case: a person's score, its group, how `perturb` changed the case."""


def _mistake(error: Mapping[str, Any]) -> str:
    """Say what is wrong with a row."""
    field = ".".join(map(str, error["loc"]))
    return f"{field}: {error['msg']}" if field else str(error["msg"]).removeprefix("Value error, ")


@click.command()
@evaluator_option
@_labels_option
@judge_option
@load_option
@json_option
def calibrate(evaluator: str, labels: str, judge: str | None, loads: tuple[str, ...], as_json: bool) -> None:
    """Compare an evaluator with people: correlations, kappa, alpha, bias. It exposes a constant judge."""
    from ragpulse_collector.catalog import Catalog
    from ragpulse_evaluators import calibrate as compare_with_people
    from ragpulse_evaluators import evaluate_sync

    cases, human, rows = _labelled(Path(labels))
    results = evaluate_sync(cases, [Catalog(judge=judge, loads=loads).resolve(evaluator)], progress=not as_json)
    scores = [result.normalized for result in next(iter(results.values()))]
    groups = [row.get("group") for row in rows] if any("group" in row for row in rows) else None
    report("report", asdict(compare_with_people(scores, human, groups)), as_json=as_json)


@click.command("meta-evaluate")
@option("-e", "--evaluator", default="grouse", help="Evaluator NAME or NAME@VERSION.")
@judge_option
@prompts_option
@option("--split", type=click.Choice(["train", "test"]), default="train", help="Which half of the unit tests.")
@json_option
def meta_evaluate_(evaluator: str, judge: str | None, prompts: str | None, split: Split, as_json: bool) -> None:
    """Run a judge against unit tests with known answers: success rate for each metric and in total."""
    from ragpulse_evaluators import meta_evaluate

    found = meta_evaluate(evaluator, judge=judge, prompts=prompts, split=split)
    report("report", asdict(found), as_json=as_json)


@click.command("align")
@evaluator_option
@_labels_option
@judge_option
@_seed_option
@json_option
def align_(evaluator: str, labels: str, judge: str | None, seed: int, as_json: bool) -> None:
    """Choose in-context examples from labelled cases, and report the agreement on the other cases."""
    from ragpulse_collector.catalog import Catalog
    from ragpulse_evaluators import align

    cases, human, _ = _labelled(Path(labels))
    _, gain = align(Catalog(judge=judge).resolve(evaluator), list(zip(cases, human, strict=True)), seed=seed)
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
