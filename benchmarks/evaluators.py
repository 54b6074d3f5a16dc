"""Cost of judged evaluators beside the judge itself: overhead a case, a loopback judge, full concurrency.

    python benchmarks/evaluators.py

Every line prints a figure, the floor measured in the same run, their ratio and the goal.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from _judge import JudgeServer, bare_questions

from ragpulse_evaluators import Case, HTTPJudge, JudgeCall, evaluate, get_evaluator


class SleepingJudge:
    """A judge that replies after a delay and uses no CPU."""

    def __init__(self, latency_s: float, reply: str = "YES") -> None:
        self.id = "sleeping"
        self._reply = reply
        self._latency = latency_s

    async def ask(
        self, messages: Sequence[Any], *, n: int = 1, schema: Any = None, logprobs: bool = False
    ) -> list[JudgeCall]:
        """Reply after the delay."""
        if self._latency:
            await asyncio.sleep(self._latency)
        return [JudgeCall(prompt=messages[-1]["content"], completion=self._reply, model=self.id)] * n


def cases(count: int) -> list[Case]:
    passages = [f"Passage {i} of the handbook says that the library opens at nine. " * 6 for i in range(5)]
    return [Case(query=f"q{i}", response=f"It opens at nine, case {i}.", contexts=passages) for i in range(count)]


async def timed(work: Callable[[], Awaitable[Any]], repeats: int = 3) -> float:
    """Wall seconds, the best of the repeats."""
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        await work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def report(label: str, value: float, unit: str, floor: float, goal: str, met: bool) -> None:
    verdict = "ok" if met else "MISSED"
    print(f"{label:<46} {value:7.3f} {unit:<3} floor {floor:7.3f} x{value / floor:6.2f}  goal {goal:<8} {verdict}")


async def overhead(count: int) -> None:
    """Floor: the judge's own work, a call object a case."""
    full = [case.model_copy(update={"reference": "At nine.", "second_response": "At eight."}) for case in cases(count)]
    for name, reply in (("faithfulness", "YES"), ("correctness", "4\nFine."), ("pairwise", "1\nBetter.")):
        judge = SleepingJudge(0.0, reply)
        evaluator = get_evaluator(name, judge=judge)
        seconds = await timed(partial(evaluate, full, [evaluator], concurrency=1))
        floor = await timed(partial(_bare, judge, count))
        per_case, bare = 1000 * seconds / count, 1000 * floor / count
        report(f"overhead a case, {name}", per_case, "ms", bare, "<= 1 ms", per_case <= 1.0)


async def _bare(judge: SleepingJudge, count: int) -> None:
    for _ in range(count):
        await judge.ask([{"role": "user", "content": "x"}])


async def loopback(count: int, concurrency: int) -> None:
    """Floor: bare questions of the same size by the same HTTP client, without evaluators."""
    inputs = cases(count)
    with JudgeServer() as server:
        async with HTTPJudge(server.base, "tiny") as judge:
            evaluator = get_evaluator("faithfulness", judge=judge)
            seconds = await timed(lambda: evaluate(inputs, [evaluator], concurrency=concurrency))
        prompt = (await get_evaluator("faithfulness", judge=SleepingJudge(0))(inputs[0])).calls[0].prompt
        floor = await timed(lambda: bare_questions(server.base, [prompt] * count, concurrency))
    label = f"{count} cases, loopback judge, concurrency {concurrency}"
    report(label, seconds, "s", floor, "<= 1 s", seconds <= count / 1000)


async def full_concurrency(count: int, concurrency: int, latency_s: float) -> None:
    """Floor: latency times cases over concurrency."""
    evaluator = get_evaluator("faithfulness", judge=SleepingJudge(latency_s))
    seconds = await timed(lambda: evaluate(cases(count), [evaluator], concurrency=concurrency), repeats=1)
    floor = latency_s * count / concurrency
    label = f"{count} cases, {1000 * latency_s:.0f} ms judge, concurrency {concurrency}"
    report(label, seconds, "s", floor, "<= x1.10", seconds <= 1.10 * floor)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of the work")
    scale = 10 if parser.parse_args().short else 1
    await overhead(2000 // scale)
    await loopback(1000 // scale, 64)
    await full_concurrency(640 // scale, 16, 0.1)
    await full_concurrency(640 // scale, 64, 0.2)


if __name__ == "__main__":
    asyncio.run(main())
