"""An OpenAI-compatible judge in a process of its own, for benchmarks: answers YES after a delay.

python benchmarks/_judge.py SECONDS     (prints its port)
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from _served import cpu_s

from ragpulse_evaluators import HTTPJudge

BODY = b'{"choices":[{"message":{"content":"YES"}}],"usage":{"prompt_tokens":300,"completion_tokens":1}}'
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


class JudgeServer:
    """The process; `base` is the base URL of the judge."""

    def __init__(self, think_s: float = 0.0) -> None:
        self.think_s = think_s
        command = [sys.executable, str(Path(__file__)), str(think_s)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.base = f"http://127.0.0.1:{int(self._process.stdout.readline())}/v1"

    def cpu_s(self) -> float:
        """CPU seconds used so far."""
        return cpu_s(self._process.pid)

    def __enter__(self) -> JudgeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


async def bare_questions(base: str, prompts: Sequence[str], concurrency: int) -> None:
    """Send the prompts and nothing else: the floor of every evaluation with a judge."""
    pending = iter(prompts)

    async def client(judge: HTTPJudge) -> None:
        for prompt in pending:
            await judge.ask([{"role": "user", "content": prompt}])

    async with HTTPJudge(base, "tiny") as judge:
        await asyncio.gather(*(client(judge) for _ in range(concurrency)))


class _Reply(asyncio.Protocol):
    """Reads a whole request, waits, replies; the requests of a connection do not overlap."""

    def __init__(self, think_s: float) -> None:
        self._think_s, self._received, self._length = think_s, bytearray(), 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Reply once the body is complete."""
        self._received += data
        if not self._length:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            length = bytes(self._received[:end]).lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self._length = end + 4 + int(length)
        if len(self._received) >= self._length:
            self._received.clear()
            self._length = 0
            asyncio.get_running_loop().call_later(self._think_s, self._transport.write, REPLY)


async def _serve(think_s: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Reply(think_s), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
