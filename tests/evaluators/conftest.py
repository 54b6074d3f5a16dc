"""Shared by the evaluator tests: an OpenAI-compatible server on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

Answer = Callable[[dict[str, Any]], dict[str, Any] | tuple[int, str] | tuple[int, str, str]]


@dataclass
class ChatServer:
    """Answers `POST */chat/completions`; what it was asked is in `bodies`."""

    answer: Answer
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    connections: int = 0
    base: str = ""
    close_after_each: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept alive."""
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                continue
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = int(head.lower().split("content-length:")[1].split("\r\n")[0])
        body = json.loads(await reader.readexactly(size))
        self.bodies.append(body)
        self.headers.append(head)
        answer = self.answer(body)
        status, text, *headers = answer if isinstance(answer, tuple) else (200, json.dumps(answer))
        data = text.encode()
        head_lines = [
            f"HTTP/1.1 {status} X",
            "Content-Type: application/json",
            f"Content-Length: {len(data)}",
            *headers,
        ]
        writer.write("\r\n".join([*head_lines, "", ""]).encode() + data)
        await writer.drain()
        return not self.close_after_each


def completion(*texts: str, tokens: tuple[int, int] = (11, 3), **choice: Any) -> dict[str, Any]:
    """An OpenAI chat completion with one choice a text."""
    choices = [
        {"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": text}, **choice}
        for i, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}


@pytest.fixture
async def chat_server() -> AsyncIterator[Callable[[Answer], Any]]:
    """Start servers on free loopback ports; they end with the test."""
    started: list[asyncio.Server] = []

    async def start(answer: Answer, **options: Any) -> ChatServer:
        chat = ChatServer(answer, **options)
        server = await asyncio.start_server(chat.serve, "127.0.0.1", 0)
        started.append(server)
        chat.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        return chat

    yield start
    for server in started:
        server.close()


@pytest.fixture
def complete() -> Callable[..., dict[str, Any]]:
    """The maker of chat completions."""
    return completion
