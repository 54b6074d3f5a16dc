"""`ragpulse generate-questions`: a test set that a judge writes from stored contexts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragpulse_collector.cli.options import (
    EXISTING_FOLDER,
    FILE,
    Ask,
    Failure,
    asking,
    config_path,
    failing,
    option,
    since_option,
    where_option,
)
from ragpulse_collector.cli.tables import agree_to, cost

if TYPE_CHECKING:
    from ragpulse_collector.evaluation.judge import JudgePrices
    from ragpulse_evaluators import Case, Context, Judge
    from ragpulse_evaluators.judged.questions import GeneratedQuestions
    from ragpulse_evaluators.result import Estimate

_REPLY = 120
"""Tokens that a question with its reference is expected to take."""
_SAMPLED = """
    SELECT any_value(id), any_value(text) FROM contexts
    WHERE length(trim(text)) > 0 AND trace_id IN (SELECT trace_id FROM traces WHERE start_time >= ?{condition})
    GROUP BY hash ORDER BY md5(hash || ?) LIMIT {count}"""


@click.command("generate-questions")
@option("--judge", env="RAGPULSE_JUDGE", help="Judge model  [default: [judge] model of ./ragpulse.toml]")
@since_option
@where_option
@option("--count", type=click.IntRange(1, 10_000), default=50, help="Contexts to ask about.")
@option("--per-context", type=click.IntRange(1, 20), default=1, help="Questions for each context.")
@option("--language", default="en", help="Language of the instructions.")
@option("--prompts", type=EXISTING_FOLDER, help="Folder whose prompts replace the built-in.")
@option("--seed", default=0, help="Chooses the sample of contexts.")
@option("--concurrency", type=click.IntRange(1, 512), default=8)
@option("--max-usd", type=click.FloatRange(min=0), help="Stop before spending more than this.")
@option("--dry-run", is_flag=True, help="Only print count, tokens and cost.")
@option("--yes", is_flag=True, help="Do not ask before spending.")
@option("--out", type=FILE, default="questions.jsonl")
@asking
def generate_questions(
    ask: Ask,
    judge: str | None,
    since: str,
    condition: str | None,
    count: int,
    seed: int,
    max_usd: float | None,
    dry_run: bool,
    yes: bool,
    out: str,
    **options: Any,
) -> int:
    """Questions with references from stored contexts, as JSON lines; the bill first. Exit 3: stopped by its cap."""
    asked, price = _judge(judge)
    contexts = _contexts(ask, since, condition, count, seed)
    bill = _bill(contexts, asked, price, options, max_usd)
    click.echo(f"{len(contexts)} contexts; {cost(bill)}")
    if dry_run:
        return 0
    agree_to(bill, "command", yes=yes)
    with _watching(_capped(asked, price, max_usd), len(contexts)) as watched:
        found = _written(contexts, watched, options)
    _write(Path(out), found.cases)
    return _report(found, watched, out)


def _judge(model: str | None) -> tuple[Judge, JudgePrices]:
    """The judge of this folder's configuration, priced."""
    from ragpulse_collector.catalog import Catalog
    from ragpulse_collector.configuration import load_settings
    from ragpulse_collector.evaluation.judge import JudgePrices, PricedJudge
    from ragpulse_collector.store import Prices

    with failing(ValueError):
        settings = load_settings(config_path(None)).with_options("judge", {"model": model})
    price = JudgePrices(settings, Prices(settings.prices, settings.collector.price_table))
    judge = Catalog(settings, priced=partial(PricedJudge, prices=price)).judge
    if judge is None:
        raise Failure("generate-questions needs a judge: name one with --judge or [judge] model in ragpulse.toml")
    return judge, price


def _contexts(ask: Ask, since: str, condition: str | None, count: int, seed: int) -> list[Context]:
    """A random sample of the distinct contexts of the matching traces."""
    from ragpulse_collector.analysis.selection import duration_s
    from ragpulse_evaluators import Context

    try:
        first = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=duration_s(since))
    except ValueError as error:
        raise Failure(f"--since: {error}") from error
    query = _SAMPLED.format(condition=f" AND ({condition})" if condition else "", count=count)
    rows = ask("POST sql", {"query": query, "params": [first.isoformat(sep=" "), str(seed)]})["rows"]
    if not rows:
        raise Failure(f"no context with text is stored since {since}: choose a longer --since or another --where")
    return [Context(text=text, id=name) for name, text in rows]


def _bill(
    contexts: Sequence[Context], judge: Judge, price: JudgePrices, options: Mapping[str, Any], cap: float | None
) -> dict[str, Any]:
    from ragpulse_collector.evaluation.budget import bill
    from ragpulse_evaluators.judged.templates import PromptFile

    source = PromptFile("generate_questions", options["language"], options["prompts"]).source
    estimates = [_estimate(one, source, judge, options["per_context"]) for one in contexts]
    made = bill(estimates, judge, len(contexts), price)
    if cap is not None and made["cost_usd"] is None:
        raise Failure(f"{made['cost_unknown_reason']}, so that --max-usd can be kept")
    return made | ({} if cap is None else {"cost_usd_at_most": min(cap, made["cost_usd_at_most"])})


def _estimate(context: Context, instructions: str, judge: Judge, questions: int) -> Estimate:
    """One call, and one more where its reply cannot be read."""
    from ragpulse_evaluators.judges import max_tokens_of
    from ragpulse_evaluators.judges.protocol import count_tokens
    from ragpulse_evaluators.result import Estimate

    tokens, longest = count_tokens(instructions) + count_tokens(context.text), max_tokens_of(judge)
    return Estimate(
        calls=1,
        input_tokens=tokens,
        output_tokens=questions * _REPLY,
        max_input_tokens=2 * tokens + longest,
        max_output_tokens=2 * longest,
    )


def _capped(judge: Judge, price: JudgePrices, cap: float | None) -> Judge:
    """The judge under a hard cap, where there is one."""
    from ragpulse_evaluators.judges import Budget, BudgetedJudge, model_of

    if cap is None:
        return judge
    rates = [price(model_of(judge), *tokens) for tokens in ((10**6, 0), (0, 10**6))]
    return BudgetedJudge(judge, Budget(cap), ((rates[0] or 0.0) / 1e6, (rates[1] or 0.0) / 1e6))


@contextmanager
def _watching(judge: Judge, count: int) -> Iterator[Any]:
    """The judge with a bar that shows finished contexts and what they cost; it remembers cost and last failure."""
    from ragpulse_evaluators.judges.protocol import JudgeWrapper, Question

    class Watched(JudgeWrapper):
        spent_usd: float | None = 0.0
        failure: Exception | None = None

        async def answer(self, question: Question) -> Any:
            calls: Sequence[Any] = ()
            try:
                calls = await question.put_to(self._inner)
            except Exception as error:
                self.failure, calls = error, getattr(error, "calls", ())
                raise
            finally:
                costs = [self.spent_usd, *(call.cost_usd for call in calls)]
                self.spent_usd = None if None in costs else sum(one for one in costs if one is not None)
                bar.update(min(1, count - bar.pos), self)
            return calls

    with click.progressbar(length=count, label="contexts", file=sys.stderr, item_show_func=_spent) as bar:
        yield Watched(judge)


def _spent(watched: Any) -> str:
    if watched is None:
        return ""
    return "cost unknown" if watched.spent_usd is None else f"{watched.spent_usd:.4f} USD"


def _written(contexts: Sequence[Context], judge: Judge, options: Mapping[str, Any]) -> GeneratedQuestions:
    from ragpulse_evaluators import generate_questions as write

    made: Callable[..., Any] = write
    with failing(OSError, ValueError):
        found: GeneratedQuestions = asyncio.run(made(contexts, judge, **options))
    return found


def _write(path: Path, cases: Sequence[Case]) -> None:
    lines = (case.model_dump_json(exclude_defaults=True) for case in cases)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _report(found: GeneratedQuestions, watched: Any, out: str) -> int:
    """Say what was written and what became of the rest; 3 where the cap stopped it, 1 where nothing came of it."""
    from ragpulse_evaluators.errors import BudgetExceeded

    click.echo(f"{len(found.cases)} questions in {out}; {_spent(watched)}")
    for reason, number in sorted(found.skipped.items()):
        click.echo(f"  {number} without: {reason}")
    if isinstance(watched.failure, BudgetExceeded):
        click.echo(f"ragpulse: {watched.failure}: a larger --max-usd asks about all contexts", err=True)
        return 3
    if not found.cases and watched.failure is not None:
        raise Failure(str(watched.failure))
    return 0 if found.cases else 1
