"""Many cases through many evaluators: bounded concurrency, retries per item, ordered results, a budget."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ragpulse_evaluators.adapters import adapt
from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, nearest
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.evaluator import evaluator as as_evaluator
from ragpulse_evaluators.judges.cache import CachedJudge, JudgeCache
from ragpulse_evaluators.judges.limits import Budget, BudgetedJudge, Gate, GatedJudge
from ragpulse_evaluators.judges.litellm import LLMJudge, as_judge, prices
from ragpulse_evaluators.judges.protocol import Judge, close_judge
from ragpulse_evaluators.registry import Registry, default_registry
from ragpulse_evaluators.result import EvaluationResult

__all__ = ("Progress", "Retry", "evaluate", "evaluate_queries", "evaluate_response", "evaluate_sync", "run_or_await")

Progress = bool | Callable[[int, int], None]
"""True prints a bar to stderr; a function receives (done, total)."""
Found = TypeVar("Found")
Cases = Case | Mapping[str, Any] | Iterable[Case | Mapping[str, Any]]
"""One case, or several."""
Named = str | Evaluator | Callable[..., Any] | Any
"""A name, an evaluator, a plain function of case fields, or an evaluator of another package."""


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How often an unreachable judge is asked again, and after which waits."""

    times: int = 3
    """Attempts beyond the first; only results marked `retriable` are attempted again."""
    first_s: float = 0.5
    """Wait before the first retry; it doubles each time."""
    longest_s: float = 10.0

    def wait(self, attempt: int) -> float:
        """Seconds before retry number `attempt` (from 0)."""
        return float(min(self.longest_s, self.first_s * 2**attempt))


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

    `params` are per name, `shared` (language, api_base, ...) go to every evaluator that knows them. `concurrency`
    bounds cases in flight over all evaluators, and the requests to `judge`. `max_usd` is a hard limit: a question that
    might exceed it is not asked and becomes an `error` result (`prices_usd`: per input and output token, where the
    model's price is not known). Metrics over a set (accuracy, pass_rate, ...) return a one-item list. Raises
    `ConfigurationError` before the first question for unknown names and parameters, and where a judge is needed but
    none given.
    """
    if concurrency < 1:
        raise ConfigurationError(f"concurrency is at least 1, not {concurrency}")
    given = [cases] if isinstance(cases, (Case, Mapping)) else cases
    seen = [case if isinstance(case, Case) else Case.model_validate(case) for case in given]
    asked = _judge(judge, shared, cache, max_usd, prices_usd, concurrency)
    wanted = list(evaluators) if isinstance(evaluators, Sequence) and not isinstance(evaluators, str) else [evaluators]
    made = _made(wanted, registry or default_registry(), params or {}, {"judge": asked, "embedder": embedder, **shared})
    tasks = [_Task(evaluator, index) for evaluator in made.values() for index in _indices(evaluator, seen)]
    try:
        results = await _run(tasks, seen, concurrency, _bar(progress), retry or Retry())
    finally:
        for each in made.values():
            await close_judge(each.judge)
    found: dict[str, list[EvaluationResult]] = {name: [] for name in made}
    names = {id(evaluator): name for name, evaluator in made.items()}
    for task, result in zip(tasks, results, strict=True):
        found[names[id(task.evaluator)]].append(result)
    return found


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
        found = await evaluate([case], [evaluator], **options)
        return next(iter(found.values()))[0]

    return run_or_await(score())


def run_or_await(work: Coroutine[Any, Any, Found]) -> Found:
    """The result of a coroutine where no event loop runs, else the coroutine itself, to be awaited."""
    return cast(Found, work) if _loop_runs() else asyncio.run(work)


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

    async def answer(query: str, reference: str | Sequence[str] | None) -> Case:
        async with gate:
            return Case.from_response(await _ask_engine(engine, query), query=query, reference=reference)

    cases = await asyncio.gather(*(answer(q, r) for q, r in zip(queries, expected, strict=True)))
    return await evaluate(cases, evaluators, concurrency=workers, progress=progress, **options)


async def _ask_engine(engine: Any, query: str) -> Any:
    ask = getattr(engine, "aquery", None)
    if ask is not None:
        return await ask(query)
    plain = getattr(engine, "query", engine)
    answer = plain(query) if inspect.iscoroutinefunction(plain) else await asyncio.to_thread(plain, query)
    return await answer if inspect.isawaitable(answer) else answer


@dataclass(frozen=True)
class _Task:
    evaluator: Evaluator
    index: int | None
    """None: the whole set."""

    def start(self, cases: Sequence[Case]) -> Awaitable[EvaluationResult]:
        return self.evaluator.over(cases) if self.index is None else self.evaluator(cases[self.index])


def _indices(evaluator: Evaluator, cases: Sequence[Case]) -> Sequence[int | None]:
    return [None] if evaluator.takes_all else range(len(cases))


def _judge(
    judge: str | Judge | None,
    shared: dict[str, Any],
    cache: JudgeCache | None,
    max_usd: float | None,
    prices_usd: tuple[float, float] | None,
    concurrency: int,
) -> Judge | None:
    access = {key: shared.pop(key) for key in ("api_base", "api_key") if key in shared}
    asked = as_judge(judge, **access)
    if asked is None:
        return None
    if max_usd is not None:
        known = prices_usd or (prices(asked.model) if isinstance(asked, LLMJudge) else None)
        if known is None:
            raise ConfigurationError(
                f"no price is known for {asked.id}: pass prices_usd=(per input token, per output token)"
            )
        asked = BudgetedJudge(asked, Budget(max_usd), known)
    asked = GatedJudge(asked, Gate(concurrency))
    return asked if cache is None else CachedJudge(asked, cache)


def _made(
    wanted: Sequence[Named], registry: Registry, params: Mapping[str, Mapping[str, Any]], shared: Mapping[str, Any]
) -> dict[str, Evaluator]:
    made: dict[str, Evaluator] = {}
    if unknown := [name for name in params if name not in wanted]:
        names = [name for name in wanted if isinstance(name, str)]
        raise ConfigurationError(
            f"params are given for {unknown[0]!r}, which is not asked for{nearest(unknown[0], names)}"
        )
    for item in wanted:
        one = registry.get(item, **{**shared, **params.get(item, {})}) if isinstance(item, str) else _ready(item)
        key = item if isinstance(item, str) else one.name
        if key in made:
            key = f"{one.name}@{one.version}"
        if one.wants_judge and one.judge is None:
            raise ConfigurationError(f"{one.name} needs a judge: pass judge='provider/model'")
        made[key] = one
    return made


def _ready(item: Any) -> Evaluator:
    if isinstance(item, Evaluator):
        return item
    return as_evaluator(item) if inspect.isroutine(item) else adapt(item)


def _bar(progress: Progress) -> Callable[[int, int], None]:
    if callable(progress):
        return progress
    return _print_bar if progress else lambda done, total: None


def _print_bar(done: int, total: int) -> None:
    step = max(1, total // 100)
    if done % step and done != total:
        return
    filled = 30 * done // max(total, 1)
    end = "\n" if done == total else ""
    sys.stderr.write(f"\r[{'#' * filled}{'.' * (30 - filled)}] {done}/{total}{end}")
    sys.stderr.flush()


async def _run(
    tasks: Sequence[_Task],
    cases: Sequence[Case],
    concurrency: int,
    report: Callable[[int, int], None],
    retry: Retry,
) -> list[EvaluationResult]:
    """A fixed number of workers takes the tasks in order."""
    results: dict[int, EvaluationResult] = {}
    pending = iter(enumerate(tasks))

    async def work() -> None:
        for position, task in pending:
            results[position] = await _with_retry(task, cases, retry)
            report(len(results), len(tasks))

    async with asyncio.TaskGroup() as group:
        for _ in range(max(1, min(concurrency, len(tasks)))):
            group.create_task(work())
    return [results[position] for position in range(len(tasks))]


async def _with_retry(task: _Task, cases: Sequence[Case], retry: Retry) -> EvaluationResult:
    result = await task.start(cases)
    for attempt in range(retry.times):
        if not result.retriable:
            break
        await asyncio.sleep(retry.wait(attempt))
        result = await task.start(cases)
    return result
