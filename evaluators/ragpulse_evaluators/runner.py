"""Many cases through many evaluators: bounded concurrency, retries per item, ordered results, a budget."""

from __future__ import annotations

import asyncio
import inspect
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from ragpulse_evaluators.adapters import adapt
from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, nearest
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.evaluator import evaluator as function_evaluator
from ragpulse_evaluators.judges.protocol import Judge, close_judge
from ragpulse_evaluators.judges.providers import LLMJudge, as_judge, prices
from ragpulse_evaluators.judges.wrappers import Budget, BudgetedJudge, CachedJudge, Gate, GatedJudge, JudgeCache
from ragpulse_evaluators.registry import Registry, default_registry
from ragpulse_evaluators.result import EvaluationResult

Progress = bool | Callable[[int, int], None]
"""True prints a bar to stderr, where that is a terminal; a function receives (done, total)."""
Value = TypeVar("Value")
Cases = Case | Mapping[str, Any] | Iterable[Case | Mapping[str, Any]]
"""One case, or several."""
Named = str | Evaluator | Callable[..., Any] | Any
"""A name, an evaluator, a plain function of case fields, or an evaluator of another package."""


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Retries of what is unreachable (a judge, a webhook): their number and the waits between them."""

    times: int = 3
    """Attempts beyond the first; only results marked `retriable` are attempted again."""
    first_s: float = 0.5
    """Wait before the first retry; it doubles each time."""
    longest_s: float = 10.0
    jitter: float = 0.0
    """The part of a wait that is left to chance, so that those who wait do not all come back at once."""

    def wait(self, attempt: int) -> float:
        """Seconds before retry number `attempt` (from 0)."""
        doubled = self.first_s * 2.0 ** min(attempt, 64)
        return min(self.longest_s, doubled) * (1.0 - self.jitter * random.random())


async def evaluate(
    cases: Cases,
    evaluators: Named | Sequence[Named],
    *,
    judge: str | Judge | None = None,
    embedder: Any = None,
    params: Mapping[str, Mapping[str, Any]] | None = None,
    concurrency: int = 8,
    progress: Progress = False,
    retry: Retry | None = None,
    max_usd: float | None = None,
    prices_usd: tuple[float, float] | None = None,
    cache: JudgeCache | None = None,
    registry: Registry | None = None,
    **shared: Any,
) -> dict[str, list[EvaluationResult]]:
    """Score every case with every evaluator; name → results in the order of the cases.

    `params` are per name. `shared` are for all: `api_base` and `api_key` for the judge, `language` and `prompts` for
    the evaluators that take them; each must know any other parameter. `concurrency` bounds the cases in flight
    over all evaluators, and the requests to `judge`. `max_usd` is a hard limit: a question that might exceed it is not
    asked and becomes an `error` result. `prices_usd` are USD per input and output token, where the model's price is
    not known. Metrics over a set (accuracy, pass_rate, ...) return a list of one result. Raises `ConfigurationError`
    before the first question: for unknown names, wrong parameters and a missing judge.
    """
    if concurrency < 1:
        raise ConfigurationError(f"concurrency is at least 1, not {concurrency}")
    sequence = [cases] if isinstance(cases, (Case, Mapping)) else cases
    checked = [case if isinstance(case, Case) else Case.model_validate(case) for case in sequence]
    limited = _limited(judge, shared, cache, max_usd, prices_usd, concurrency)
    items = list(evaluators) if isinstance(evaluators, Sequence) and not isinstance(evaluators, str) else [evaluators]
    shared |= {"judge": limited, "embedder": embedder}
    used = registry or default_registry()
    named = [item.partition("@")[0] for item in items if isinstance(item, str)]
    if embedder is not None and named and not any("embedder" in used.accepts(name) for name in named):
        raise ConfigurationError(f"{', '.join(named)}: no parameter 'embedder'; it would be ignored")
    by_name = _by_name(items, used, params or {}, shared)
    tasks: list[tuple[str, Task]] = []
    for name, evaluator in by_name.items():
        whole = [partial(evaluator.over, checked)] if evaluator.takes_all else None
        tasks += [(name, task) for task in whole or [partial(evaluator, case) for case in checked]]
    try:
        bar = progress is True and sys.stderr.isatty()
        report = progress if callable(progress) else _print_bar if bar else lambda done, total: None
        results = await _run([task for _, task in tasks], concurrency, report, retry or Retry())
    finally:
        for evaluator in by_name.values():
            await close_judge(evaluator.judge)
    grouped: dict[str, list[EvaluationResult]] = {name: [] for name in by_name}
    for (name, _), result in zip(tasks, results, strict=True):
        grouped[name].append(result)
    return grouped


def evaluate_sync(
    cases: Cases, evaluators: Named | Sequence[Named], **options: Any
) -> dict[str, list[EvaluationResult]]:
    """`evaluate` for code without an event loop; raises `ConfigurationError` inside one (a notebook)."""
    if _loop_runs():
        raise ConfigurationError("an event loop runs here: use `await evaluate(...)`")
    return asyncio.run(evaluate(cases, evaluators, **options))


def evaluate_response(
    response: Any,
    evaluator: Named,
    *,
    query: str | None = None,
    reference: str | Sequence[str] | None = None,
    **options: Any,
) -> Any:
    """Score one answer of an engine (`.response`, `.source_nodes`) with one evaluator: an `EvaluationResult`.

    Inside a running event loop the result is awaited.
    """

    async def score() -> EvaluationResult:
        case = Case.from_response(response, query=query, reference=reference)
        ((result,),) = (await evaluate([case], [evaluator], **options)).values()
        return result

    return run_or_await(score())


def run_or_await(work: Coroutine[Any, Any, Value]) -> Value:
    """The result of a coroutine where no event loop runs, else the coroutine itself, to be awaited."""
    return cast(Value, work) if _loop_runs() else asyncio.run(work)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def evaluate_queries(
    engine: Any,
    queries: Sequence[str],
    evaluators: Named | Sequence[Named],
    *,
    references: Sequence[str | Sequence[str]] | None = None,
    workers: int = 8,
    progress: Progress = False,
    **options: Any,
) -> dict[str, list[EvaluationResult]]:
    """Ask an engine every query (`aquery`, `query` or a callable), then score its answers in the same order.

    Raises `ConfigurationError` when queries and references differ in number, and whatever the engine raises.
    """
    expected = [None] * len(queries) if references is None else list(references)
    if len(expected) != len(queries):
        raise ConfigurationError(f"{len(queries)} queries but {len(expected)} references")
    gate = Gate(workers)

    async def case_of(query: str, reference: str | Sequence[str] | None) -> Case:
        async with gate:
            return Case.from_response(await _ask_engine(engine, query), query=query, reference=reference)

    cases = await asyncio.gather(*(case_of(q, r) for q, r in zip(queries, expected, strict=True)))
    return await evaluate(cases, evaluators, concurrency=workers, progress=progress, **options)


async def _ask_engine(engine: Any, query: str) -> Any:
    if hasattr(engine, "aquery"):
        return await engine.aquery(query)
    ask = getattr(engine, "query", engine)
    answer = ask(query) if inspect.iscoroutinefunction(ask) else await asyncio.to_thread(ask, query)
    return await answer if inspect.isawaitable(answer) else answer


Task = Callable[[], Awaitable[EvaluationResult]]


def _limited(
    judge: str | Judge | None,
    shared: dict[str, Any],
    cache: JudgeCache | None,
    max_usd: float | None,
    prices_usd: tuple[float, float] | None,
    concurrency: int,
) -> Judge | None:
    """The judge behind cache, gate and budget; takes `api_base` and `api_key` out of `shared`."""
    access = {key: shared.pop(key) for key in ("api_base", "api_key") if key in shared}
    limited = as_judge(judge, **access)
    if limited is None:
        return None
    if max_usd is not None:
        price = prices_usd or (prices(limited.model) if isinstance(limited, LLMJudge) else None)
        if price is None:
            raise ConfigurationError(
                f"no price is known for {limited.id}: pass prices_usd=(per input token, per output token)"
            )
        limited = BudgetedJudge(limited, Budget(max_usd), price)
    limited = GatedJudge(limited, Gate(concurrency))
    return limited if cache is None else CachedJudge(limited, cache)


def _by_name(
    items: Sequence[Named], registry: Registry, params: Mapping[str, Mapping[str, Any]], shared: Mapping[str, Any]
) -> dict[str, Evaluator]:
    """The evaluators by the name under which their results are returned."""
    if unknown := [name for name in params if name not in items]:
        hint = nearest(unknown[0], [name for name in items if isinstance(name, str)])
        raise ConfigurationError(f"params are given for {unknown[0]!r}, which is not asked for{hint}")
    by_name: dict[str, Evaluator] = {}
    for item in items:
        if isinstance(item, str):
            name, evaluator = item, registry.get(item, **{**shared, **params.get(item, {})})
        else:
            evaluator = item if isinstance(item, Evaluator) else _as_evaluator(item)
            name = evaluator.name
        if evaluator.wants_judge and evaluator.judge is None:
            raise ConfigurationError(f"{evaluator.name} needs a judge: pass judge='provider/model'")
        key = f"{evaluator.name}@{evaluator.version}" if name in by_name else name
        if key in by_name:
            raise ConfigurationError(f"{key} is asked for twice")
        by_name[key] = evaluator
    return by_name


def _as_evaluator(item: Any) -> Evaluator:
    return function_evaluator(item) if inspect.isroutine(item) else adapt(item)


def _print_bar(done: int, total: int) -> None:
    step = max(1, total // 100)
    if done % step and done != total:
        return
    filled = 30 * done // max(total, 1)
    end = "\n" if done == total else ""
    sys.stderr.write(f"\r[{'#' * filled}{'.' * (30 - filled)}] {done}/{total}{end}")
    sys.stderr.flush()


async def _run(
    tasks: Sequence[Task], concurrency: int, report: Callable[[int, int], None], retry: Retry
) -> list[EvaluationResult]:
    """A fixed number of workers takes the tasks in order."""
    results: dict[int, EvaluationResult] = {}
    pending = iter(enumerate(tasks))

    async def work() -> None:
        for position, task in pending:
            results[position] = await _with_retry(task, retry)
            report(len(results), len(tasks))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(tasks))):
            group.create_task(work())
    return [results[position] for position in range(len(tasks))]


async def _with_retry(task: Task, retry: Retry) -> EvaluationResult:
    result = await task()
    for attempt in range(retry.times):
        if not result.retriable:
            break
        await asyncio.sleep(retry.wait(attempt))
        result = await task()
    return result
