"""What running judged evaluators costs beside the judge: overhead a case, a loopback judge, full concurrency.

    python benchmarks/evaluators.py

Every line prints a figure, the floor measured in the same run, their ratio and the goal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from ragpulse_evaluators import Case, HTTPJudge, JudgeCall, evaluate, get_evaluator
from ragpulse_evaluators.http import _response

SERVER = """
import asyncio
BODY = b'{"choices":[{"message":{"content":"YES"}}],"usage":{"prompt_tokens":300,"completion_tokens":1}}'
REPLY = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(BODY) + BODY
async def serve(reader, writer):
    try:
        while head := await reader.readuntil(b"\\r\\n\\r\\n"):
            size = int(head.lower().split(b"content-length:")[1].split(b"\\r\\n")[0])
            await reader.readexactly(size)
            writer.write(REPLY)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


class SleepingJudge:
    """A judge that takes its time and nothing else."""

    def __init__(self, latency_s: float, reply: str = "YES") -> None:
        self.id = "sleeping"
        self._reply = reply
        self._latency = latency_s

    async def ask(
        self, messages: Sequence[Any], *, n: int = 1, schema: Any = None, logprobs: bool = False
    ) -> list[JudgeCall]:
        """The reply, later."""
        if self._latency:
            await asyncio.sleep(self._latency)
        return [JudgeCall(prompt=messages[-1]["content"], completion=self._reply, model=self.id)] * n


def cases(count: int) -> list[Case]:
    passages = [f"Passage {i} of the handbook says that the library opens at nine. " * 6 for i in range(5)]
    return [Case(query=f"q{i}", response=f"It opens at nine, case {i}.", contexts=passages) for i in range(count)]


async def timed(work: Callable[[], Awaitable[Any]], repeats: int = 3) -> float:
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        await work()
        best = min(best, time.perf_counter() - began)
    return best


def line(what: str, value: float, unit: str, floor: float, goal: str, met: bool) -> None:
    verdict = "ok" if met else "MISSED"
    print(f"{what:<46} {value:7.3f} {unit:<3} floor {floor:7.3f} x{value / floor:6.2f}  goal {goal:<8} {verdict}")


async def overhead(count: int) -> None:
    """Floor: the judge's own work, a call object a case."""
    given = [case.model_copy(update={"reference": "At nine.", "second_response": "At eight."}) for case in cases(count)]
    for name, reply in (("faithfulness", "YES"), ("correctness", "4\nFine."), ("pairwise", "1\nBetter.")):
        judge = SleepingJudge(0.0, reply)
        evaluator = get_evaluator(name, judge=judge)
        spent = await timed(partial(evaluate, given, [evaluator], concurrency=1))
        floor = await timed(partial(_bare, judge, count))
        per_case, bare = 1000 * spent / count, 1000 * floor / count
        line(f"overhead a case, {name}", per_case, "ms", bare, "<= 1 ms", per_case <= 1.0)


async def _bare(judge: SleepingJudge, count: int) -> None:
    for _ in range(count):
        await judge.ask([{"role": "user", "content": "x"}])


async def loopback(count: int, concurrency: int) -> None:
    """Floor: the same bytes through the same sockets, without evaluators."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        made = cases(count)
        async with HTTPJudge(f"http://127.0.0.1:{port}/v1", "tiny") as judge:
            evaluator = get_evaluator("faithfulness", judge=judge)
            spent = await timed(lambda: evaluate(made, [evaluator], concurrency=concurrency))
        prompt = (await get_evaluator("faithfulness", judge=SleepingJudge(0))(made[0])).calls[0].prompt
        floor = await timed(lambda: _raw(port, prompt, count, concurrency))
    finally:
        server.kill()
        server.wait()
    line(
        f"{count} cases, loopback judge, concurrency {concurrency}", spent, "s", floor, "<= 1 s", spent <= count / 1000
    )


async def _raw(port: int, prompt: str, count: int, concurrency: int) -> None:
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": prompt}], "temperature": 0.0}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    left = iter(range(count))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in left:
            writer.write(head + body)
            await _response(reader)
        writer.close()

    await asyncio.gather(*(client() for _ in range(concurrency)))


async def waiting(count: int, concurrency: int, latency_s: float) -> None:
    """Floor: latency times cases over concurrency."""
    evaluator = get_evaluator("faithfulness", judge=SleepingJudge(latency_s))
    spent = await timed(lambda: evaluate(cases(count), [evaluator], concurrency=concurrency), repeats=1)
    floor = latency_s * count / concurrency
    what = f"{count} cases, {1000 * latency_s:.0f} ms judge, concurrency {concurrency}"
    line(what, spent, "s", floor, "<= x1.10", spent <= 1.10 * floor)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of the work")
    scale = 10 if parser.parse_args().short else 1
    await overhead(2000 // scale)
    await loopback(1000 // scale, 64)
    await waiting(640 // scale, 16, 0.1)
    await waiting(640 // scale, 64, 0.2)


if __name__ == "__main__":
    asyncio.run(main())
