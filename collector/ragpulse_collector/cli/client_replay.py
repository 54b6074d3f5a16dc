"""Client-side replay: the collector sends cases, this process evaluates them and sends results.

Files and prompts stay here; the collector gets a name, a version and a judge, never a path.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from ragpulse_collector.cli.options import Ask, Json, priced_settings
from ragpulse_collector.cli.tables import Show, progress

if TYPE_CHECKING:
    from ragpulse_collector.evaluation.budget import EvaluatorBill, Price
    from ragpulse_evaluators import Case, EvaluationResult, Evaluator

_CASES = 64
_TIMEOUT_S = 120.0
_LONGEST_WAIT_S = 30.0


class LocalReplay:
    """The evaluators of one command, with the prices of their judges."""

    def __init__(self, request: Json) -> None:
        """Make the evaluators named in the request; raises Refusal naming the mistake."""
        from ragpulse_collector.catalog import Catalog
        from ragpulse_evaluators.judges.wrappers import Gate, GatedJudge

        settings, price = priced_settings(request["judge"])
        gate = Gate(settings.judge.concurrency, requests_per_minute=settings.judge.requests_per_minute)
        gated = partial(GatedJudge, gate=gate)
        catalog = Catalog(settings, loads=request["loads"], priced=price.priced, wrap=gated)
        evaluators = [catalog.online(name, prompts=request["prompts"]) for name in request["evaluators"]]
        self._evaluators = {evaluator.name: evaluator for evaluator in evaluators}
        self._price: Price = price
        self._concurrency = settings.judge.concurrency

    def request(self, request: Json) -> dict[str, Any]:
        """Return the request for the collector: the evaluators by name and version, no files."""
        local = ("evaluators", "judge", "prompts", "loads")
        params = {key: value for key, value in request.items() if key not in local}
        return params | {"external": [_declaration(evaluator) for evaluator in self._evaluators.values()]}

    def bill(self, bill: Json, cap: float | None) -> dict[str, Any]:
        """Return the collector's bill with tokens and cost of each judge, computed here from its sample of cases."""
        from pydantic import TypeAdapter

        from ragpulse_collector.evaluation.budget import EvaluatorBill, total

        parts = TypeAdapter(list[EvaluatorBill]).validate_python(bill["evaluators"])
        return asdict(total([self._priced(part) for part in parts], cap))

    def follow(self, ask: Ask, run: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
        """Evaluate a run to its end; an interrupt cancels it, and the same command continues with the rest."""
        evaluator = self._evaluators[run["evaluator"]]
        loop = _Loop(ask, run, evaluator, price=self._price, concurrency=self._concurrency)
        try:
            with progress(run, quiet=quiet) as show:
                return asyncio.run(loop.run(show))
        except KeyboardInterrupt:
            ask(f"POST replays/{run['run_id']}/cancel", {})
            raise

    def _priced(self, part: EvaluatorBill) -> EvaluatorBill:
        from ragpulse_collector.evaluation.budget import bill

        evaluator = self._evaluators[part.evaluator]
        estimates, pending = [evaluator.estimate(case) for case in part.sample], max(0, part.count - part.already)
        return part.at(bill(estimates, evaluator.judge, pending, self._price, part.replies))


class _Loop:
    """Fetches cases, evaluates several at the same time, and sends results as they come."""

    def __init__(
        self,
        ask: Ask,
        run: dict[str, Any],
        evaluator: Evaluator,
        *,
        price: Price,
        concurrency: int,
    ) -> None:
        from ragpulse_evaluators.judges.wrappers import Budget

        self._ask, self._run, self._evaluator, self._price = ask, run, evaluator, price
        self._path = f"replays/{run['run_id']}"
        self._slots = asyncio.Semaphore(concurrency)
        self._budget = Budget(math.inf if run["max_usd"] is None else run["max_usd"])
        self._capped = ""

    async def run(self, show: Show) -> dict[str, Any]:
        """Evaluate until no case is pending or the collector reports the end of the run."""
        from ragpulse_evaluators.judges.protocol import close_judge

        try:
            return await self._rounds(show)
        finally:
            await close_judge(self._evaluator.judge)

    async def _rounds(self, show: Show) -> dict[str, Any]:
        from ragpulse_evaluators.runner import Retry

        retry, failures = Retry(longest_s=_LONGEST_WAIT_S), 0
        while True:
            answer = await self._call(f"GET {self._path}/cases", {"limit": _CASES})
            jobs = answer.pop("cases")
            show(answer)
            if not jobs:
                return dict(answer)
            if await self._round(jobs, show):
                failures = 0
            else:  # only failures: the judge may need a pause
                await asyncio.sleep(retry.wait(failures))
                failures += 1

    async def _round(self, jobs: Sequence[dict[str, Any]], show: Show) -> bool:
        """Evaluate some cases; returns whether there is a result other than a failure that may pass."""
        pending = {asyncio.create_task(self._evaluate(job)) for job in jobs}
        progressed = False
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            results = [result for task in done if (result := task.result()) is not None]
            progressed = progressed or any(not result["result"]["retriable"] for result in results)
            body = {"results": results} | ({"capped": self._capped} if self._capped and not pending else {})
            answer = await self._call(f"POST {self._path}/results", body)
            show(answer)
            if answer["status"] != "running":
                await _cancel(pending)
                return True
        return progressed

    async def _evaluate(self, job: Json) -> dict[str, Any] | None:
        """Return a result in the form of the API; None where its call might exceed the cap."""
        from ragpulse_evaluators import Case

        case = Case.model_validate(job["case"])
        async with self._slots:
            reserved = self._reserve(case)
            if reserved is None:
                return None
            started = time.perf_counter()
            try:
                result = await asyncio.wait_for(self._evaluator(case), _TIMEOUT_S)
                spent = result.cost_usd
            except TimeoutError:
                result, spent = _timeout(self._evaluator), None  # its calls may cost money nevertheless
            self._budget.settle(reserved, spent)
        elapsed_ms = (time.perf_counter() - started) * 1000.0
        return {"job_id": job["job_id"], "result": result.model_dump(mode="json"), "elapsed_ms": elapsed_ms}

    def _reserve(self, case: Case) -> float | None:
        """Reserve the most that a case may cost (USD); None from the first case on that would exceed the cap."""
        from ragpulse_collector.evaluation.budget import max_usd_of
        from ragpulse_evaluators.errors import BudgetExceeded

        if self._run["max_usd"] is None:
            return 0.0
        try:
            if not self._capped:
                usd = max_usd_of(self._evaluator, case, self._price)
                self._budget.reserve(usd)
                return usd
        except BudgetExceeded as error:
            self._capped = str(error)
        return None

    async def _call(self, operation: str, params: Json) -> Any:
        return await asyncio.to_thread(self._ask, operation, params)


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _declaration(evaluator: Evaluator) -> dict[str, Any]:
    key = {"evaluator": evaluator.name, "version": evaluator.version, "judge": evaluator.judge_id}
    return {**key, "label": evaluator.version.beside, "needs": sorted(evaluator.needs)}


def _timeout(evaluator: Evaluator) -> EvaluationResult:
    from ragpulse_evaluators import EvaluationResult

    explanation = f"no result within {_TIMEOUT_S:g} s"
    return EvaluationResult.of(evaluator, status="error", explanation=explanation, retriable=True)
