"""A judge behind any OpenAI-compatible server over HTTP.

Local models (llama.cpp, vLLM, Ollama) need neither litellm nor a key this way. httpx is imported at the first
question: it takes 0.2 s, and most processes ask nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from pydantic_core import from_json, to_json

from ragpulse_evaluators.errors import ConfigurationError, JudgeError
from ragpulse_evaluators.judges.chat import ChatJudge, Rejection
from ragpulse_evaluators.judges.protocol import Question, is_loopback
from ragpulse_evaluators.result import JudgeCall

if TYPE_CHECKING:
    import ssl

    import httpx

__all__ = ("HTTPJudge",)

_MAX_BODY = 32 * 1024 * 1024


class HTTPJudge(ChatJudge):
    """Asks `POST <base>/chat/completions`; `base` is e.g. `http://127.0.0.1:8080/v1`.

    Prices are unknown here, so `cost_usd` stays None. JSON is asked for by schema, then as an object, then in words, as
    far as the server takes it. Raises `JudgeError` for refused connections, status codes other than 200 and bodies that
    are no chat completion. Close it (`async with`, or `aclose`) to drop idle connections.
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
        url = urlsplit(base)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ConfigurationError(f"{base!r} is not the http(s) address of an OpenAI-compatible server")
        where = f"{model} at {url.hostname}:{url.port or (443 if url.scheme == 'https' else 80)}"
        super().__init__(model, where, temperature=temperature, max_tokens=max_tokens, **params)
        self._url = url._replace(path=url.path.rstrip("/") + "/chat/completions", query="", fragment="").geturl()
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

    async def answer(self, question: Question) -> list[JudgeCall]:
        """Send one request per sample, at the same time."""
        if question.n == 1:
            return await self.complete(question)
        samples = await asyncio.gather(*(self.complete(question.once()) for _ in range(question.n)))
        return [calls[0] for calls in samples]

    async def _send(self, body: dict[str, Any]) -> Mapping[str, Any]:
        import httpx

        try:
            async with asyncio.timeout(self._timeout):
                answer = from_json(await self._post(to_json(body)))
        except (httpx.HTTPError, OSError, ValueError) as failure:
            billed = not isinstance(failure, httpx.ConnectError)
            raise JudgeError(f"{self.where}: {type(failure).__name__}: {failure}", maybe_billed=billed) from failure
        if not isinstance(answer, dict):
            raise JudgeError(f"{self.where}: the reply is not a JSON object", maybe_billed=True)
        if "choices" not in answer and isinstance(error := answer.get("error"), dict):  # OpenRouter sends it with 200
            code = error.get("code")
            raise Rejection(code if isinstance(code, int) else 500, str(error.get("message")))
        return answer

    async def _post(self, payload: bytes) -> bytes:
        idle = self._idle.setdefault(asyncio.get_running_loop(), [])
        client = idle.pop() if idle else self._new_client()
        try:
            async with client.stream("POST", self._url, content=payload) as response:
                body = await self._read(response)
        finally:
            idle.append(client)
        if response.status_code != 200:
            wait = response.headers.get("retry-after")
            raise Rejection(response.status_code, body[:4000].decode(errors="replace"), wait)
        return bytes(body)

    async def _read(self, response: httpx.Response) -> bytearray:
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > _MAX_BODY:
                raise JudgeError(f"{self.where}: the reply is larger than 32 MB", maybe_billed=True)
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
            trust_env=not is_loopback(self._url),  # a proxy of the environment cannot reach this machine's servers
        )
