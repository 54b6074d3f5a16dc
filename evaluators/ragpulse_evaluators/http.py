"""A judge behind any OpenAI-compatible server, with the standard library only, over kept-alive connections.

For local models (llama.cpp, vLLM, Ollama) this needs neither litellm nor a key, and costs under a millisecond a call.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from ragpulse_evaluators.errors import ConfigurationError, JudgeError
from ragpulse_evaluators.http_connection import Connection, connect
from ragpulse_evaluators.judge import Message, transcript
from ragpulse_evaluators.result import JudgeCall

__all__ = ("HTTPJudge", "first_token_logprobs", "judge_id")


def judge_id(model: str, params: Mapping[str, Any]) -> str:
    """Model and sampling parameters on one line, e.g. `openai/gpt-5-mini temperature=0.0`."""
    return " ".join((model, *(f"{key}={value}" for key, value in sorted(params.items()) if value is not None)))


def first_token_logprobs(choice: Mapping[str, Any]) -> dict[str, float] | None:
    """Candidates of the first completion token with their log-probabilities, from an OpenAI-shaped choice."""
    content = (choice.get("logprobs") or {}).get("content") or []
    if not content:
        return None
    candidates = content[0].get("top_logprobs") or [content[0]]
    return {candidate["token"]: candidate["logprob"] for candidate in candidates}


class HTTPJudge:
    """Asks `POST <base>/chat/completions`; `base` is e.g. `http://127.0.0.1:8080/v1`.

    Prices are unknown here, so `cost_usd` stays None. Raises `JudgeError` for refused connections, status codes other
    than 200 and bodies that are no chat completion. Close it (`async with`, or `aclose`) to drop idle connections.
    """

    def __init__(
        self,
        base: str,
        model: str,
        *,
        api_key: str | None = None,
        temperature: float | None = 0.0,
        max_tokens: int | None = None,
        timeout_s: float = 120.0,
        **params: Any,
    ) -> None:
        url = urlsplit(base)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ConfigurationError(f"{base!r} is no http(s) address of an OpenAI-compatible server")
        sampling = {"temperature": temperature, "max_tokens": max_tokens, **params}
        self.id = judge_id(model, sampling)
        self.model = model
        self.temperature = temperature
        self._sampling = {key: value for key, value in sampling.items() if value is not None}
        self._host, self._tls = url.hostname, url.scheme == "https"
        self._port = url.port or (443 if self._tls else 80)
        self._path = url.path.rstrip("/") + "/chat/completions"
        self._key = api_key
        self._timeout = timeout_s
        self._idle: list[Connection] = []

    asks_singly = True
    """One request a sample."""

    def with_temperature(self, temperature: float) -> HTTPJudge:
        """The same model sampled at another temperature, over the same connections."""
        warmed = copy.copy(self)
        warmed.temperature = temperature
        warmed._sampling = self._sampling | {"temperature": temperature}
        warmed.id = judge_id(self.model, warmed._sampling)
        return warmed

    async def __aenter__(self) -> HTTPJudge:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the idle connections of this event loop."""
        here = asyncio.get_running_loop()
        for connection in self._idle:
            if connection.loop is here:
                connection.close()
        self._idle.clear()

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        """Ask `n` times side by side."""
        body: dict[str, Any] = {"model": self.model, "messages": [dict(m) for m in messages], **self._sampling}
        if schema is not None:
            body["response_format"] = {"type": "json_object"}
        if logprobs:
            body |= {"logprobs": True, "top_logprobs": 20}
        prompt, payload = transcript(messages), to_json(body)
        if n == 1:
            return [await self._once(prompt, payload)]
        return list(await asyncio.gather(*(self._once(prompt, payload) for _ in range(n))))

    async def _once(self, prompt: str, payload: bytes) -> JudgeCall:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout):
                answer = from_json(await self._post(payload))
            choice = answer["choices"][0]
            usage = answer.get("usage") or {}
            return JudgeCall(
                prompt=prompt,
                completion=choice["message"]["content"] or "",
                model=answer.get("model") or self.model,
                elapsed_s=time.perf_counter() - began,
                input_tokens=usage.get("prompt_tokens"),
                output_tokens=usage.get("completion_tokens"),
                logprobs=first_token_logprobs(choice),
            )
        except (OSError, ValueError, KeyError, IndexError, TypeError) as broken:
            raise JudgeError(
                f"{self.model} at {self._host}:{self._port}: {type(broken).__name__}: {broken}"
            ) from broken

    async def _post(self, payload: bytes) -> bytes:
        request = self._head(len(payload)) + payload
        while True:
            connection = self._idle_one() or await connect(self._host, self._port, tls=self._tls)
            try:
                reply = await connection.ask(request)
            except OSError:
                if connection.used:  # the server closed a kept-alive connection: ask again on a fresh one
                    continue
                raise
            if reply.keeps_alive:
                self._idle.append(connection)
            else:
                connection.close()
            if reply.status != 200:
                told = reply.body[:200].decode(errors="replace")
                raise JudgeError(f"{self.model}: status {reply.status}: {told}")
            return bytes(reply.body)

    def _head(self, size: int) -> bytes:
        lines = [
            f"POST {self._path} HTTP/1.1",
            f"Host: {self._host}:{self._port}",
            "Content-Type: application/json",
            f"Content-Length: {size}",
        ]
        if self._key:
            lines.append(f"Authorization: Bearer {self._key}")
        return "\r\n".join((*lines, "", "")).encode("latin-1")

    def _idle_one(self) -> Connection | None:
        here = asyncio.get_running_loop()
        while self._idle:
            connection = self._idle.pop()
            if connection.loop is here and not connection.closed:
                return connection
        return None
