"""`ragpulse models`, `judge check`, `generate-questions`: local models, and what a judge does for a test."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragpulse_collector.cli.options import (
    COUNT,
    FILE,
    Ask,
    Failure,
    Json,
    Source,
    asker_of,
    asking,
    budget_of,
    capped,
    dry_run_option,
    json_option,
    max_usd_option,
    option,
    priced_settings,
    prompts_option,
    since_option,
    table_options,
    where_option,
    yes_option,
)
from ragpulse_collector.cli.tables import agree_to, cost, print_json, report, show, terminal_json

if TYPE_CHECKING:
    from ragpulse_collector.evaluation.judge import JudgePrices
    from ragpulse_collector.settings import Settings
    from ragpulse_evaluators import Context, Judge
    from ragpulse_evaluators.judged.questions import GeneratedQuestions
    from ragpulse_evaluators.result import Estimate

_REPLY = 120
"""The expected tokens of a question with its reference."""
_SAMPLED = """
    SELECT any_value(id), any_value(text) FROM contexts
    WHERE length(trim(text)) > 0 AND trace_id IN (SELECT trace_id FROM traces WHERE start_time >= ?{condition})
    GROUP BY hash ORDER BY md5(hash || ?) LIMIT {count}"""


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
    found = add_model(model, say=click.echo, revision=revision, **chosen)
    click.echo(f"added, digest {found.digest}. In ragpulse.toml:\n")
    click.echo(f'[[evaluator]]\nname = "grounded"\nuse = "groundedness_model"\nmodel = "{found.name}"\n')
    click.echo(f"next: ragpulse models check {shlex.quote(found.name)}")


@models.command("list")
@table_options
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
        show("models", {"models": rows}, {})


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
    evaluator = get_evaluator("groundedness_model", model=model, threshold=threshold)
    evaluate_sync(cases[0], [evaluator])  # loads the model
    started = time.perf_counter()
    (results,) = evaluate_sync(cases, [evaluator], concurrency=1, progress=not as_json).values()
    seconds = (time.perf_counter() - started) / len(cases)
    if failed := next((r.explanation for r in results if r.status == "error"), None):
        raise Failure(failed)
    found = detection(results, [True, False] * (len(cases) // 2))
    right = sum(bool(r.passing) is (number % 2 == 0) for number, r in enumerate(results))
    measured = {
        "model": model,
        "accuracy": round(right / len(cases), 3),
        **asdict(found),
        "ms_per_answer": round(seconds * 1000, 1),
        "answers_per_minute": round(60 / seconds),
    }
    report("check", measured, as_json=as_json)


@models.command()
@click.argument("model")
def remove(model: str) -> None:
    """Delete an added model."""
    from ragpulse_evaluators.local.adding import remove_model

    remove_model(model)
    click.echo(f"removed: {model}")


@click.group()
def judge() -> None:
    """Check a judge."""


@judge.command("check")
@option("--judge", "model", env="RAGPULSE_JUDGE", help="Judge model (default: [judge] model of ./ragpulse.toml).")
@option("--db", help="Database that keeps the report (default: that of ./ragpulse.toml).")
@max_usd_option
@option("--cache", type=FILE, default="ragpulse.judge-check.jsonl", help="Recorded answers: a second run goes on.")
@option("--concurrency", type=COUNT, help="Questions at the same time (default: [judge] concurrency).")
@json_option
def check_judge_(
    model: str | None, db: str | None, max_usd: float | None, cache: str, concurrency: int | None, as_json: bool
) -> int:
    """Ask a judge about 400 labelled answers: is it better than guessing? Exit 3: stopped at its cap."""
    from ragpulse_evaluators import FileCache
    from ragpulse_evaluators.errors import BudgetExceeded
    from ragpulse_evaluators.meta.judge_check import check_judge

    settings, priced, price = configured_judge(model, "judge check")
    at_once = concurrency or settings.judge.concurrency
    try:
        judge = capped(priced, price, budget_of(max_usd))
        work = check_judge(judge, FileCache(cache), concurrency=at_once, progress=not as_json)
        found = asyncio.run(work)
    except BudgetExceeded as failure:
        click.echo(f"ragpulse: {failure}: a larger --max-usd goes on with the other questions", err=True)
        return 3
    run = {"evaluators": ["faithfulness", "pairwise"], "judge": found.judge, "total": found.questions}
    report("judge check", asdict(found), as_json=as_json)
    _keep(run | {"report": json.loads(terminal_json(asdict(found)))}, settings, db)
    return 0


def _keep(run: Json, settings: Settings, db: str | None) -> None:
    """Keep the report of a check: in the database, or by the collector that has it open."""
    from ragpulse_collector.app import Collector
    from ragpulse_collector.store.protocol import StoreError

    options = {"db": db or settings.collector.db, "roles": ("ingest",), "host": "127.0.0.1", "port": 0}
    try:
        collector = Collector(settings.with_options("collector", options))
    except StoreError:
        try:
            Source(None, None, None).asker()("POST runs", run)
        except Failure as error:
            raise Failure(f"the report is printed, but not kept: {error}") from error
        return
    try:
        collector.start(listen=False)
        asker_of(collector.components.operations)("POST runs", run)
    finally:
        collector.stop()


@click.command("generate-questions")
@option("--judge", env="RAGPULSE_JUDGE", help="Judge model (default: [judge] model of ./ragpulse.toml).")
@since_option("7d")
@where_option
@option("--count", type=click.IntRange(1, 10_000), default=50, help="Contexts to ask about.")
@option("--per-context", type=click.IntRange(1, 20), default=1, help="Questions for each context.")
@option("--language", default="en", help="Language of the instructions.")
@prompts_option
@option("--seed", default=0, help="Chooses the sample of contexts.")
@option("--concurrency", type=click.IntRange(1, 512), default=8, help="Requests at the same time.")
@max_usd_option
@dry_run_option
@yes_option
@option("--out", type=FILE, default="questions.jsonl", help="The file to write.")
@asking
def generate_questions(
    ask: Ask,
    judge: str | None,
    since: datetime,
    where: str | None,
    count: int,
    seed: int,
    max_usd: float | None,
    dry_run: bool,
    yes: bool,
    out: str,
    **options: Any,
) -> int:
    """Write questions with references from stored contexts. The bill comes first. Exit 3: stopped at its cap."""
    from ragpulse_evaluators import generate_questions as write_questions

    _, priced_judge, price = configured_judge(judge, "generate-questions")
    contexts = _contexts(ask, since, where, count, seed)
    bill = _bill(contexts, priced_judge, price, options, max_usd)
    click.echo(f"{len(contexts)} contexts; {cost(bill)}")
    if dry_run:
        return 0
    agree_to(bill, "command", yes=yes)
    with _watching(capped(priced_judge, price, budget_of(max_usd)), len(contexts)) as watched:
        questions = asyncio.run(write_questions(contexts, watched, **options))
    lines = (case.model_dump_json(exclude_defaults=True) for case in questions.cases)
    Path(out).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return _report(questions, watched, out)


def configured_judge(model: str | None, command: str) -> tuple[Settings, Judge, JudgePrices]:
    """Return this folder's configuration, its judge, and its prices; raises Failure where there is no judge."""
    from ragpulse_collector.catalog import Catalog

    settings, price = priced_settings(model)
    judge = Catalog(settings, priced=price.priced).judge
    if judge is None:
        raise Failure(f"{command} needs a judge: name one with --judge or [judge] model in ragpulse.toml")
    return settings, judge, price


def _contexts(ask: Ask, since: datetime, where: str | None, count: int, seed: int) -> list[Context]:
    """Return a random sample of the distinct contexts of the matching traces."""
    from ragpulse_evaluators import Context

    start = since.replace(tzinfo=None).isoformat(sep=" ")
    query = _SAMPLED.format(condition=f" AND ({where})" if where else "", count=count)
    rows = ask("POST sql", {"query": query, "params": [start, str(seed)]})["rows"]
    if not rows:
        raise Failure(f"no context with text is stored since {start} UTC: choose a longer --since or another --where")
    return [Context(text=text, id=name) for name, text in rows]


def _bill(
    contexts: Sequence[Context], judge: Judge, price: JudgePrices, options: Mapping[str, Any], cap: float | None
) -> dict[str, Any]:
    from ragpulse_collector.evaluation.budget import bill
    from ragpulse_evaluators.judged.base import PromptFile

    source = PromptFile("generate_questions", options["language"], options["prompts"]).source
    estimates = [_estimate(context, source, judge, options["per_context"]) for context in contexts]
    total = bill(estimates, judge, len(contexts), price)
    if cap is None:
        return asdict(total)
    if total.cost_usd_at_most is None:
        raise Failure(f"{total.cost_unknown_reason}, so that --max-usd can hold")
    return asdict(replace(total, cost_usd_at_most=min(cap, total.cost_usd_at_most)))


def _estimate(context: Context, instructions: str, judge: Judge, questions: int) -> Estimate:
    """Estimate one call, and one more in case its reply cannot be read."""
    from ragpulse_evaluators.judges.protocol import count_tokens, max_tokens_of
    from ragpulse_evaluators.result import Estimate

    tokens, longest = count_tokens(instructions) + count_tokens(context.text), max_tokens_of(judge)
    return Estimate(
        calls=1,
        input_tokens=tokens,
        output_tokens=questions * _REPLY,
        max_input_tokens=2 * tokens + longest,
        max_output_tokens=2 * longest,
    )


@contextmanager
def _watching(judge: Judge, count: int) -> Iterator[Any]:
    """Provide the judge with a bar of finished contexts and their cost; it holds the cost and the last failure."""
    from ragpulse_evaluators.judges.protocol import JudgeQuestion, JudgeWrapper

    class Watched(JudgeWrapper):
        spent_usd: float | None = 0.0
        failure: Exception | None = None

        async def replies_to(self, question: JudgeQuestion) -> Any:
            calls: Sequence[Any] = ()
            try:
                calls = await question.put_to(self._inner)
            except Exception as error:
                self.failure, calls = error, getattr(error, "calls", ())
                raise
            finally:
                costs = [self.spent_usd, *(call.cost_usd for call in calls)]
                self.spent_usd = None if None in costs else sum(filter(None, costs))
                bar.update(min(1, count - bar.pos), self)
            return calls

    with click.progressbar(length=count, label="contexts", file=sys.stderr, item_show_func=_spent) as bar:
        yield Watched(judge)


def _spent(watched: Any) -> str:
    if watched is None:
        return ""
    return "cost unknown" if watched.spent_usd is None else f"{watched.spent_usd:.4f} USD"


def _report(questions: GeneratedQuestions, watched: Any, out: str) -> int:
    """Print the counts of questions and of skipped contexts; returns 3 after a stop at the cap, 1 without questions."""
    from ragpulse_evaluators.errors import BudgetExceeded

    click.echo(f"{len(questions.cases)} questions in {out}; {_spent(watched)}")
    for reason, number in sorted(questions.skipped.items()):
        click.echo(f"  {number} skipped: {reason}")
    if isinstance(watched.failure, BudgetExceeded):
        click.echo(f"ragpulse: {watched.failure}: a larger --max-usd continues with the other contexts", err=True)
        return 3
    if not questions.cases and watched.failure is not None:
        raise Failure(str(watched.failure))
    return 0 if questions.cases else 1
