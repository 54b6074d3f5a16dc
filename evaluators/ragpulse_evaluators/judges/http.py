"""A judge behind any OpenAI-compatible server over HTTP.

Local models (llama.cpp, vLLM, Ollama) need neither litellm nor a key this way. httpx is imported at the first
question: it takes 0.2 s, and most processes ask nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from ragpulse_evaluators.errors import ConfigurationError, JudgeError
from ragpulse_evaluators.judges.protocol import Message, SampledJudge, first_token_logprobs, is_loopback, transcript
from ragpulse_evaluators.result import JudgeCall

if TYPE_CHECKING:
    import ssl

    import httpx

__all__ = ("HTTPJudge",)

_MAX_BODY = 32 * 1024 * 1024


class HTTPJudge(SampledJudge):
    """Asks `POST <base>/chat/completions`; `base` is e.g. `http://127.0.0.1:8080/v1`.

    Prices are unknown here, so `cost_usd` stays None. Raises `JudgeError` for refused connections, status codes other
    than 200 and bodies that are no chat completion. Close it (`async with`, or `aclose`) to drop idle connections.
    """

    asks_singly = True
    """One request per sample."""

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
        super().__init__(model, temperature=temperature, max_tokens=max_tokens, **params)
        url = urlsplit(base)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ConfigurationError(f"{base!r} is not the http(s) address of an OpenAI-compatible server")
        self._url = url._replace(path=url.path.rstrip("/") + "/chat/completions", query="", fragment="").geturl()
        self._where = f"{model} at {url.hostname}:{url.port or (443 if url.scheme == 'https' else 80)}"
        self._headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {api_key}"} if api_key else {}
        )
        self._timeout = timeout_s
        self._tls: ssl.SSLContext | None = None
        self._idle: WeakKeyDictionary[asyncio.AbstractEventLoop, list[httpx.AsyncClient]] = WeakKeyDictionary()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        for client in self._idle.pop(asyncio.get_running_loop(), []):
            await client.aclose()

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        """Send `n` requests at the same time."""
        body: dict[str, Any] = {"model": self.model, "messages": [dict(m) for m in messages], **self.sampling}
        if schema is not None:
            body["response_format"] = {"type": "json_object"}
        if logprobs:
            body |= {"logprobs": True, "top_logprobs": 20}
        prompt, payload = transcript(messages), to_json(body)
        if n == 1:
            return [await self._once(prompt, payload)]
        return list(await asyncio.gather(*(self._once(prompt, payload) for _ in range(n))))

    async def _once(self, prompt: str, payload: bytes) -> JudgeCall:
        import httpx

        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout):
                answer = from_json(await self._post(payload))
            choice = answer["choices"][0]
            usage = answer.get("usage") or {}
            return JudgeCall(
                prompt=prompt,
                completion=choice["message"]["content"] or "",
                model=answer.get("model") or self.model,
                elapsed_s=time.perf_counter() - started,
                input_tokens=usage.get("prompt_tokens"),
                output_tokens=usage.get("completion_tokens"),
                logprobs=first_token_logprobs(choice),
            )
        except (httpx.HTTPError, OSError, ValueError, KeyError, IndexError, TypeError) as failed:
            raise JudgeError(f"{self._where}: {type(failed).__name__}: {failed}") from failed

    async def _post(self, payload: bytes) -> bytes:
        idle = self._idle.setdefault(asyncio.get_running_loop(), [])
        client = idle.pop() if idle else self._new_client()
        try:
            async with client.stream("POST", self._url, content=payload) as response:
                body = await self._read(response)
        finally:
            idle.append(client)
        if response.status_code != 200:
            raise JudgeError(f"{self._where}: status {response.status_code}: {body[:200].decode(errors='replace')}")
        return bytes(body)

    async def _read(self, response: httpx.Response) -> bytearray:
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > _MAX_BODY:
                raise JudgeError(f"{self._where}: the reply is larger than 32 MB")
        return body

    def _new_client(self) -> httpx.AsyncClient:
        """A client with one connection.

        A pool of httpx compares all its connections with each other at each request: 1,000 questions over 64
        connections take 5 CPU seconds in one client, 0.5 in 64 clients.
        """
        import httpx

        if self._tls is None:
            self._tls = httpx.create_ssl_context()
        return httpx.AsyncClient(
            headers=self._headers,
            verify=self._tls,
            timeout=None,
            limits=httpx.Limits(max_connections=1),
            trust_env=not is_loopback(
                self._url
            ),  # a proxy named in the environment cannot reach this machine's servers
        )
