"""`ragpulse models`, `ragpulse judge check`: local models, fetched once; a judge on labelled answers."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from ragpulse_collector.cli.options import COUNT, FILE, Failure, failing, json_option, max_usd_option, option
from ragpulse_collector.cli.questions import capped, configured_judge
from ragpulse_collector.cli.tables import dotted, print_json, table


@click.group()
def models() -> None:
    """Add local models that read groundedness: ONNX and JSON only, nothing is fetched while serving."""


@models.command()
@click.argument("model")
@option("--revision", help="Branch, tag or commit of the hub (default: the newest).")
@option("--file", "graph", help="The graph, where the model has several: onnx/model_quantized.onnx.")
@option("--labels", help="Names of its labels in order, where its configuration has none: supported,hallucinated.")
@option("--template", help="The text that it reads, with {context}, {claim} and {question}.")
def add(model: str, revision: str | None, graph: str | None, labels: str | None, template: str | None) -> None:
    """Fetch a model of the hub, or note options in an exported folder. Run it again to go on after an interruption."""
    from ragpulse_evaluators.local.adding import add_model

    chosen: dict[str, Any] = {"graph": graph, "labels": labels and labels.split(","), "template": template}
    with failing(ValueError, OSError):
        found = add_model(model, say=click.echo, revision=revision, **chosen)
    click.echo(f"added, digest {found.digest}. In ragpulse.toml:\n")
    click.echo(f'[[evaluator]]\nname = "grounded"\nuse = "groundedness_model"\nmodel = "{found.name}"\n')
    click.echo(f"next: ragpulse models check {shlex.quote(found.name)}")


@models.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the added models."""
    from ragpulse_evaluators.local.adding import added_models

    rows = [
        {
            "model": name,
            "state": "ready" if noted else "half a download",
            "mb": round(sum(noted.get("files", {}).values()) / 1e6, 1),
            **{key: noted.get(key) for key in ("licence", "revision", "digest")},
        }
        for name, noted in added_models()
    ]
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("no model was added: ragpulse models add ORGANISATION/MODEL")
    else:
        table("models", list(rows[0]), [list(row.values()) for row in rows])


@models.command()
@click.argument("model")
@option("--threshold", type=click.FloatRange(0, 1), default=0.5, help="A response passes from here on.")
@json_option
def check(model: str, threshold: float, as_json: bool) -> None:
    """Measure a model on 60 pairs of answers that differ in one fact, and its speed on this machine."""
    import time

    from ragpulse_evaluators import evaluate_sync, get_evaluator
    from ragpulse_evaluators.meta.pairs import builtin_pairs, detection

    cases = [case for pair in builtin_pairs() for case in pair.cases]
    with failing(ValueError):
        evaluator = get_evaluator("groundedness_model", model=model, threshold=threshold)
    evaluate_sync(cases[0], [evaluator])  # loads the model
    started = time.perf_counter()
    (results,) = evaluate_sync(cases, [evaluator], concurrency=1, progress=not as_json).values()
    seconds = (time.perf_counter() - started) / len(cases)
    if failed := next((r.explanation for r in results if r.status == "error"), None):
        raise Failure(failed)
    found = detection(results, [True, False] * (len(cases) // 2))
    right = sum(bool(r.passing) is (number % 2 == 0) for number, r in enumerate(results))
    report = {
        "model": model,
        "accuracy": round(right / len(cases), 3),
        **asdict(found),
        "ms_per_answer": round(seconds * 1000, 1),
        "answers_per_minute": round(60 / seconds),
    }
    _print("check", report, as_json)


def _print(title: str, report: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
    else:
        table(title, ("name", "value"), [row for row in dotted(report) if row[1] not in (None, (), [])])


@models.command()
@click.argument("model")
def remove(model: str) -> None:
    """Delete an added model."""
    from ragpulse_evaluators.local.adding import remove_model

    with failing(ValueError):
        remove_model(model)
    click.echo(f"removed: {model}")


@click.group()
def judge() -> None:
    """Check a judge."""


@judge.command("check")
@option("--judge", "model", env="RAGPULSE_JUDGE", help="Judge model (default: [judge] model of ./ragpulse.toml).")
@option("--db", help="Database beside which the report is stored (default: that of ./ragpulse.toml).")
@max_usd_option
@option("--cache", type=FILE, default="ragpulse.judge-check.jsonl", help="Recorded answers: a second run goes on.")
@option("--concurrency", type=COUNT, help="Questions at the same time (default: [judge] concurrency).")
@json_option
def check_judge_(
    model: str | None, db: str | None, max_usd: float | None, cache: str, concurrency: int | None, as_json: bool
) -> int:
    """Ask a judge about 400 labelled answers: is it better than guessing? Exit 3: stopped at its cap."""
    from ragpulse_collector.evaluation.judge_checks import store_check
    from ragpulse_collector.store.protocol import utc_now
    from ragpulse_evaluators import FileCache
    from ragpulse_evaluators.errors import BudgetExceeded, EvaluatorError
    from ragpulse_evaluators.meta.judge_check import check_judge

    settings, priced, price = configured_judge(model, "judge check")
    at_once = concurrency or settings.judge.concurrency
    try:
        with failing(EvaluatorError, OSError):
            work = check_judge(
                capped(priced, price, max_usd), FileCache(cache), concurrency=at_once, progress=not as_json
            )
            found = asyncio.run(work)
    except Failure as failure:
        if isinstance(failure.__cause__, BudgetExceeded):
            click.echo(f"ragpulse: {failure}: a larger --max-usd goes on with the other questions", err=True)
            return 3
        raise
    store_check(db or settings.collector.db, found, utc_now())
    _print("judge check", asdict(found), as_json)
    return 0
