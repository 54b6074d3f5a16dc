"""Client-side replay: the collector sends cases, this process evaluates them and sends results.

Files and prompts stay here; the collector gets a name, a version and a judge, never a path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from ragpulse_collector.catalog import Catalog
from ragpulse_collector.cli.options import Ask, Json, priced_settings
from ragpulse_collector.cli.tables import Show, progress
from ragpulse_collector.evaluation.batcher import Batcher
from ragpulse_collector.evaluation.budget import EvaluatorBill, Price, bill, max_usd_of, total
from ragpulse_evaluators import Case, EvaluationResult, Evaluator
from ragpulse_evaluators.errors import BudgetExceeded
from ragpulse_evaluators.judges.protocol import close_judge
from ragpulse_evaluators.judges.wrappers import Budget, Gate, GatedJudge
from ragpulse_evaluators.runner import Attempt, Engine, Line, Retry, Work

_CASES = 64
_LONGEST_WAIT_S = 30.0


class LocalReplay:
    """The evaluators of one command, with the prices of their judges."""

    def __init__(self, request: Json) -> None:
        """Make the evaluators named in the request; raises Refusal naming the mistake."""
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

    def bill(self, shown: Json, cap: float | None) -> dict[str, Any]:
        """Return the collector's bill with tokens and cost of each judge, computed here from its sample of cases."""
        parts = TypeAdapter(list[EvaluatorBill]).validate_python(shown["evaluators"])
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
        evaluator = self._evaluators[part.evaluator]
        estimates, pending = [evaluator.estimate(case) for case in part.sample], max(0, part.count - part.already)
        return part.at(bill(estimates, evaluator.judge, pending, self._price, part.replies))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job(Work):
    """A case of the collector with the id of its job."""

    job_id: str

    @classmethod
    def of(cls, job: Json, evaluator: Evaluator) -> _Job:
        """Read a case from the answer."""
        return cls(evaluator=evaluator, case=Case.model_validate(job["case"]), job_id=job["job_id"])


class _Loop:
    """Fetches cases page by page, gives them to the engine, and sends the results as they come."""

    def __init__(self, ask: Ask, run: dict[str, Any], evaluator: Evaluator, *, price: Price, concurrency: int) -> None:
        self._ask, self._evaluator, self._path = ask, evaluator, f"replays/{run['run_id']}"
        self._outbox = Batcher(self._send, every_s=0.0)
        self._capped, self._progressed = "", False
        purse = None if run["max_usd"] is None else _Cap(run["max_usd"], price)
        self._engine: Engine[_Job] = Engine(self._outbox, purse=purse, refused=self._stop, each=concurrency)

    async def run(self, show: Show) -> dict[str, Any]:
        """Evaluate until no case is pending or the collector reports the end of the run."""
        self._show = show
        try:
            return await self._pages()
        finally:
            await close_judge(self._evaluator.judge)

    async def _pages(self) -> dict[str, Any]:
        retry, failures = Retry(longest_s=_LONGEST_WAIT_S), 0
        while True:
            answer = await self._call(f"GET {self._path}/cases", {"limit": _CASES})
            jobs = answer.pop("cases")
            self._show(answer)
            if not jobs:
                return dict(answer)
            self._progressed = False
            await self._engine.run((_Job.of(job, self._evaluator) for job in jobs), _CASES)
            if self._capped:
                await self._call(f"POST {self._path}/results", {"results": [], "capped": self._capped})
            elif self._progressed:
                failures = 0
            else:  # only failures: the judge may need a pause
                await asyncio.sleep(retry.wait(failures))
                failures += 1

    async def _send(self, attempts: Sequence[Attempt[_Job]]) -> Sequence[None]:
        """Send results in the form of the API; one that is sent twice counts once."""
        self._progressed |= not all(attempt.result.retriable for attempt in attempts)
        results = [
            {
                "job_id": attempt.work.job_id,
                "result": attempt.result.model_dump(mode="json"),
                "elapsed_ms": attempt.elapsed_ms,
            }
            for attempt in attempts
        ]
        answer = await self._call(f"POST {self._path}/results", {"results": results})
        self._show(answer)
        if answer["status"] != "running":
            self._engine.stopping.set()
        return [None] * len(attempts)

    async def _stop(self, _: _Job, refusal: BudgetExceeded) -> None:
        """Stop at the cap: the first case that does not fit is the last that was looked at."""
        self._capped = str(refusal)
        self._engine.stopping.set()

    async def _call(self, operation: str, params: Json) -> Any:
        return await asyncio.to_thread(self._ask, operation, params)


class _Cap:
    """The engine's purse of one run: the collector's cap, kept before a judge is asked."""

    def __init__(self, max_usd: float, price: Price) -> None:
        self._price, self._budget, self._line = price, Budget(max_usd), Line[list[float]](self._reserve)

    async def take(self, work: Work) -> list[float]:
        """Set aside the most that a case may cost; raises BudgetExceeded."""
        assert work.case is not None, "the collector sends cases"
        held = [max_usd_of(work.evaluator, work.case, self._price)]
        await self._line.enter(held)
        return held

    async def _reserve(self, held: list[float]) -> BudgetExceeded | None:
        try:
            self._budget.reserve(held[0])
        except BudgetExceeded as refusal:
            return refusal
        return None

    def release(self, held: list[float], result: EvaluationResult | None) -> None:
        """Settle; a call without a result may cost money nevertheless."""
        self._budget.settle(held[0], None if result is None else result.cost_usd)
        self._line.leave()


def _declaration(evaluator: Evaluator) -> dict[str, Any]:
    key = {"evaluator": evaluator.name, "version": evaluator.version, "judge": evaluator.judge_id}
    return {**key, "label": evaluator.version.beside, "needs": sorted(evaluator.needs)}
