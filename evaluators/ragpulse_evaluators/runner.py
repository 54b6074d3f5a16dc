"""The one engine that runs evaluators, and `evaluate` on top of it.

    source of work ─▶ purse ─▶ slot or gate ─▶ evaluator, within its time ─▶ sink ─▶ the next attempt, or the end

The engine knows no store and no HTTP: `evaluate` gives it cases, the collector pending jobs and a batched commit,
`ragpulse replay --here` fetched cases and a report.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from typing import Any, Generic, Protocol, TypeVar, cast

from pydantic import ValidationError

from ragpulse_evaluators.adapters import adapt
from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import BudgetExceeded, ConfigurationError, nearest
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.evaluator import evaluator as function_evaluator
from ragpulse_evaluators.isolated import Isolated
from ragpulse_evaluators.judges.protocol import Judge, close_judge
from ragpulse_evaluators.judges.providers import LLMJudge, as_judge, prices
from ragpulse_evaluators.judges.wrappers import Budget, BudgetedJudge, CachedJudge, Gate, GatedJudge, JudgeCache
from ragpulse_evaluators.registry import Registry, default_registry
from ragpulse_evaluators.result import EvaluationResult, JudgeCall
from ragpulse_evaluators.shown import table

Progress = bool | Callable[[int, int], None]
"""True prints a bar to stderr, where that is a terminal; a function receives (done, total)."""
Value = TypeVar("Value")
Cases = Case | Mapping[str, Any] | Iterable[Case | Mapping[str, Any]] | Any
"""One case, several, or a data frame of pandas or polars with a row for each."""
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


CASE_S = 120.0
"""Time limit of one case; a judge behind a gate and a process of its own have limits of their own."""
LAST_S = 2.0
"""How long a stop waits for what runs: Docker kills a process after ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One evaluator to be run on one case."""

    evaluator: Evaluator
    case: Case | None
    attempts: range = range(1)
    """The numbers of the attempts that are left."""

    async def result(self) -> EvaluationResult:
        """Score the case once."""
        assert self.case is not None, "work without a case says itself what its result is"
        return await self.evaluator(self.case)


Some = TypeVar("Some", bound=Work)
Some_contra = TypeVar("Some_contra", bound=Work, contravariant=True)


@dataclass(frozen=True, slots=True)
class Attempt(Generic[Some]):
    """One attempt and its result."""

    work: Some
    number: int
    result: EvaluationResult
    elapsed_ms: float
    held: Any = None
    """What the purse set aside for it."""

    @property
    def is_last(self) -> bool:
        """Whether no other follows: there is a result, or an error that another attempt would repeat."""
        return not self.result.retriable or self.number + 1 >= self.work.attempts.stop


class Purse(Protocol[Some_contra]):
    """Money for judges: set aside before a case, settled after it."""

    async def take(self, work: Some_contra) -> Any:
        """Set aside the most that the case may cost; raises `BudgetExceeded`."""

    def release(self, held: Any, result: EvaluationResult | None) -> None:
        """Give back what was not spent; without a result the call is lost, and may be billed all the same."""


Hold = TypeVar("Hold")


class Line(Generic[Hold]):
    """Those who wait for money, in order.

    What does not fit waits for what runs, which may cost less than was set aside, and nothing of its line overtakes it.
    It is refused only when nothing else of its account runs. Where the line is one run, that ends the run: it has
    scored its first cases.
    """

    def __init__(self, reserve: Callable[[Hold], Awaitable[BudgetExceeded | None]]) -> None:
        """`reserve` returns the refusal, with its account, where something does not fit."""
        self._reserve = reserve
        self._waiting: dict[Hashable, deque[Hold]] = defaultdict(deque)
        self._open: Counter[Hashable] = Counter()
        self._over: dict[Hashable, BudgetExceeded] = {}
        self._moved = asyncio.Event()

    async def enter(
        self, hold: Hold, line: Hashable = None, accounts: Iterable[Hashable] = (None,), *, is_run: bool = True
    ) -> None:
        """Reserve, now or in turn; raises the refusal."""
        if line in self._over or not self.is_first(hold, line) or await self._reserve(hold):
            waiting = self._waiting[line]
            waiting.append(hold)
            try:
                await self._wait(hold, line)
            except BudgetExceeded as refusal:
                if is_run:
                    self._over[line] = refusal
                raise
            finally:
                waiting.remove(hold)
                self._move()
        self._open.update(accounts)

    def leave(self, accounts: Iterable[Hashable] = (None,)) -> None:
        """Note that what was reserved is settled: those who wait try again."""
        self._open.subtract(accounts)
        self._move()

    def is_first(self, hold: Hold, line: Hashable = None) -> bool:
        """Whether nobody waits before it."""
        waiting = self._waiting[line]
        return not waiting or waiting[0] is hold

    async def _wait(self, hold: Hold, line: Hashable) -> None:
        while True:
            moved = self._moved
            if line in self._over:
                raise self._over[line]
            if self.is_first(hold, line):
                refusal = await self._reserve(hold)
                if refusal is None:
                    return
                if not self._open[refusal.account] and not moved.is_set():
                    raise refusal
            await moved.wait()

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()


@dataclass(eq=False)
class Engine(Generic[Some]):
    """Runs evaluators; used within one event loop."""

    sink: Callable[[Attempt[Some]], Awaitable[None]]
    """Receives every attempt, and returns when it is kept."""
    _: KW_ONLY
    retry: Retry = field(default_factory=Retry)
    """The waits between attempts; the work says how many there are."""
    timeout_s: float = CASE_S
    purse: Purse[Some] | None = None
    """Asked before each attempt of an evaluator with a judge."""
    refused: Callable[[Some, BudgetExceeded], Awaitable[None]] | None = None
    """Receives work that the purse refused."""
    gate: Gate | None = None
    """Held for a whole case where a judge passes no gate of its own."""
    each: int | None = None
    """How many cases of one evaluator without a judge run at once."""
    noted: Callable[[Some], AbstractContextManager[None]] = lambda _: nullcontext()
    """Held while an evaluator runs: whoever counts crashes notes it."""
    last_s: float = LAST_S

    def __post_init__(self) -> None:
        self.stopping = asyncio.Event()
        self._slots: dict[Evaluator, asyncio.Semaphore] = {}

    async def run(
        self,
        source: Iterable[Value] | AsyncIterable[Value],
        at_once: int,
        do: Callable[[Value], Awaitable[object]] | None = None,
    ) -> None:
        """Take work, or batches of it, from the source as soon as there is room; ends with the source.

        `do` brings what was taken to its end (default: `finish`). After a stop no more is taken, what runs has
        `last_s` to end, and then it is cancelled.
        """
        works, turn, do = _each(source), asyncio.Lock(), do or cast("Callable[[Value], Awaitable[object]]", self.finish)

        async def take_and_do() -> None:
            while not self.stopping.is_set():
                async with turn:  # a generator is asked by one at a time
                    work = await anext(works, None)
                if work is None:
                    return
                await do(work)

        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(take_and_do()) for _ in range(at_once)]
            stop, ended = group.create_task(self.stopping.wait()), group.create_task(asyncio.wait(workers))
            await asyncio.wait((stop, ended), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((ended,), timeout=self.last_s)
            for task in (stop, *workers):
                task.cancel()

    async def finish(self, work: Some) -> Attempt[Some] | None:
        """Attempt until nothing follows; None where the purse or a stop ended it before."""
        for number in work.attempts:
            purse = None if work.evaluator.judge is None else self.purse
            try:
                held = await purse.take(work) if purse else None
            except BudgetExceeded as refusal:
                if self.refused is not None:
                    await self.refused(work, refusal)
                return None
            attempt = None
            try:
                attempt = await self._attempt(work, number, held)
                await self.sink(attempt)
            finally:
                if purse:
                    purse.release(held, attempt.result if attempt else None)
            if attempt.is_last:
                return attempt
            if await self.pause(self.retry.wait(number)):
                break
        return None

    async def pause(self, seconds: float) -> bool:
        """Sleep; returns True at once when the engine stops."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return False
        return True

    async def _attempt(self, work: Some, number: int, held: Any) -> Attempt[Some]:
        evaluator = work.evaluator
        own_limit = gate_of(evaluator) or isinstance(evaluator, Isolated) or work.case is None
        limit_s = None if own_limit else self.timeout_s
        started = time.perf_counter()
        async with self._slot(evaluator):
            with self.noted(work):
                try:
                    async with asyncio.timeout(limit_s):
                        result = await work.result()
                except TimeoutError:
                    lost = () if evaluator.judge is None else (JudgeCall(finish_reason="lost"),)
                    reason = f"no result within {limit_s:g} s"
                    result = EvaluationResult.of(
                        evaluator, status="error", explanation=reason, retriable=True, calls=lost
                    )
        return Attempt(work, number, result, (time.perf_counter() - started) * 1000.0, held)

    def _slot(self, evaluator: Evaluator) -> AbstractAsyncContextManager[Any]:
        """What limits concurrency; a slow evaluator never blocks another."""
        if gate_of(evaluator):
            return nullcontext()
        if isinstance(evaluator, Isolated):
            return self._slots.setdefault(evaluator, asyncio.Semaphore(evaluator.limits.processes))
        if evaluator.judge is not None:
            return self.gate or nullcontext()
        return nullcontext() if self.each is None else self._slots.setdefault(evaluator, asyncio.Semaphore(self.each))


async def _each(source: Iterable[Value] | AsyncIterable[Value]) -> AsyncIterator[Value]:
    if isinstance(source, AsyncIterable):
        async for work in source:
            yield work
    else:
        for work in source:
            yield work


def gate_of(evaluator: Evaluator) -> Gate | None:
    """The gate that an evaluator's judge passes itself with each request, if it has one."""
    gate = getattr(evaluator.judge, "gate", None)
    return gate if isinstance(gate, Gate) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked(Work):
    """Work of `evaluate`: where its result goes, and the whole set for an evaluator that takes all (no case)."""

    whole: Sequence[Case]
    name: str
    place: int

    async def result(self) -> EvaluationResult:
        if self.case is None:
            return await self.evaluator.over(self.whole)
        return await self.evaluator(self.case)


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
    timeout_s: float = CASE_S,
    max_usd: float | None = None,
    prices_usd: tuple[float, float] | None = None,
    cache: JudgeCache | None = None,
    registry: Registry | None = None,
    **shared: Any,
) -> Results:
    """Score every case with every evaluator; name → results in the order of the cases.

    `params` are per name. `shared` are for all: `api_base` and `api_key` for the judge, `language` and `prompts` for
    the evaluators that take them; each must know any other parameter. `concurrency` bounds the cases in flight
    over all evaluators, and the requests to `judge`. A case that takes longer than `timeout_s` becomes an `error`
    result; requests to `judge` have limits of their own. `max_usd` is a hard limit: a question that might exceed it is
    not asked and becomes an `error` result. `prices_usd` are USD per input and output token, where the model's price is
    not known. Metrics over a set (accuracy, pass_rate, ...) return a list of one result. Raises `ConfigurationError`
    before the first question: for unknown names, wrong parameters and a missing judge.
    """
    if concurrency < 1:
        raise ConfigurationError(f"concurrency is at least 1, not {concurrency}")
    checked = _checked(cases)
    limited = _limited(judge, shared, cache, max_usd, prices_usd, concurrency)
    items = list(evaluators) if isinstance(evaluators, Sequence) and not isinstance(evaluators, str) else [evaluators]
    shared |= {"judge": limited, "embedder": embedder}
    used = registry or default_registry()
    named = [item.partition("@")[0] for item in items if isinstance(item, str)]
    if embedder is not None and named and not any("embedder" in used.accepts(name) for name in named):
        raise ConfigurationError(f"{', '.join(named)}: no parameter 'embedder'; it would be ignored")
    by_name = _by_name(items, used, params or {}, shared)
    retry = retry or Retry()
    asked = [
        _Asked(evaluator=evaluator, case=case, whole=checked, name=name, place=place, attempts=range(1 + retry.times))
        for name, evaluator in by_name.items()
        for place, case in enumerate((None,) if evaluator.takes_all else checked)
    ]
    bar = progress is True and sys.stderr.isatty()
    report = progress if callable(progress) else _print_bar if bar else lambda done, total: None
    results: dict[str, dict[int, EvaluationResult]] = {name: {} for name in by_name}
    done = count(1)

    async def keep(attempt: Attempt[_Asked]) -> None:
        if attempt.is_last:
            results[attempt.work.name][attempt.work.place] = attempt.result
            report(next(done), len(asked))

    try:
        await Engine(keep, retry=retry, timeout_s=timeout_s).run(asked, max(1, min(concurrency, len(asked))))
    finally:
        for evaluator in by_name.values():
            await close_judge(evaluator.judge)
    return Results((name, [column[place] for place in sorted(column)]) for name, column in results.items())


class Results(dict[str, list[EvaluationResult]]):
    """Name → results in the order of the cases, which a notebook shows as a table."""

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping per result."""
        shown = ("status", "score", "normalized", "passing", "label", "explanation")
        return [
            {"case": number, "evaluator": name} | {field: getattr(result, field) for field in shown}
            for name, results in self.items()
            for number, result in enumerate(results)
        ]

    def _repr_html_(self) -> str:
        rows = self.rows()
        return table(tuple(rows[0]) if rows else (), (tuple(row.values()) for row in rows))


def _checked(cases: Cases) -> list[Case]:
    """Return the cases; raises ConfigurationError for a data frame whose columns are not those of a case."""
    frame: Any = cases
    if not hasattr(frame, "to_dict"):
        sequence = [cases] if isinstance(cases, (Case, Mapping)) else cases
        return [case if isinstance(case, Case) else Case.model_validate(case) for case in sequence]
    try:
        rows = frame.to_dicts() if hasattr(frame, "to_dicts") else frame.to_dict("records")  # polars, pandas
        return [Case.model_validate(row) for row in rows]
    except ValidationError as error:
        raise ConfigurationError(f"the data frame: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error


def evaluate_sync(cases: Cases, evaluators: Named | Sequence[Named], **options: Any) -> Results:
    """`evaluate` for code that does not await. In a running loop (a notebook) it works in a thread and waits."""
    work = evaluate(cases, evaluators, **options)
    if not _loop_runs():
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


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
