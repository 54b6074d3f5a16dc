"""Judges and embedders by the name of a model: over litellm, or over HTTP alone.

The only module that imports litellm, at the first question: it takes 294 MB and seconds of import. Local models
(llama.cpp, vLLM, Ollama) need neither litellm nor a key. httpx is imported at the first question, too: it takes 0.2 s,
and most processes ask nothing.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from pydantic_core import from_json, to_json

from ragpulse_evaluators.errors import ConfigurationError, JudgeError
from ragpulse_evaluators.judges.chat import ChatJudge, Rejection
from ragpulse_evaluators.judges.protocol import Embedder, Judge, OfflineEmbedder, Question, SyncEmbedder, is_loopback
from ragpulse_evaluators.result import JudgeCall

if TYPE_CHECKING:
    import ssl

    import httpx

__all__ = ("HTTPJudge", "LLMEmbedder", "LLMJudge", "as_embedder", "as_judge", "prices")

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
        self._closers: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncIterator[None]] = WeakKeyDictionary()

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
        idle = await self._connections()
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

    async def _connections(self) -> list[httpx.AsyncClient]:
        """Return the idle connections of this event loop, which are closed with it."""
        loop = asyncio.get_running_loop()
        if loop not in self._closers:
            self._closers[loop] = self._until_loop_ends(loop)
            await anext(self._closers[loop])
        return self._idle.setdefault(loop, [])

    async def _until_loop_ends(self, loop: asyncio.AbstractEventLoop) -> AsyncIterator[None]:
        """Wait until the loop shuts its generators down, as `asyncio.run` does at its end."""
        try:
            yield
        finally:
            self._closers.pop(loop, None)
            await self.aclose()

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


_NOT_SET_UP = re.compile(r"missing (?:credentials|\w+ api key)|no module named", re.IGNORECASE)
"""Failures on this machine that no second attempt mends: a key or a provider's package is missing."""
_INSTALL = "litellm is not installed: pip install 'ragpulse[judge]', or name a server as http://host:port/v1#model"


def _litellm() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else litellm fetches its price list at import
    try:
        import litellm
    except ImportError as missing:
        raise ConfigurationError(_INSTALL) from missing
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    return litellm


class LLMJudge(ChatJudge):
    """Any model litellm can call, fine-tuned judges included.

    `temperature` and other sampling parameters are part of `id`; `api_base`, `api_key` and `timeout_s` are not. A model
    without provider behind an `api_base` is taken as OpenAI-compatible. Raises `JudgeError` when the provider fails.
    """

    def __init__(
        self,
        model: str,
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        temperature: float | None = 0.0,
        max_tokens: int | None = None,
        timeout_s: float = 120.0,
        **params: Any,
    ) -> None:
        name = _litellm_name(model, api_base)
        where = f"{name} at {api_base}" if api_base else name
        super().__init__(name, where, temperature=temperature, max_tokens=max_tokens, **params)
        self._access = _access(api_base, api_key, timeout_s=timeout_s)
        self._own_server = api_base is not None
        self._library: Any = None

    async def answer(self, question: Question) -> list[JudgeCall]:
        """Ask for all samples in one request; samples that the provider leaves out are requested one by one."""
        calls = await self.complete(question)
        more = await asyncio.gather(*(self.complete(question.once()) for _ in range(question.n - len(calls))))
        return [*calls, *(samples[0] for samples in more)][: question.n]

    async def _send(self, body: dict[str, Any]) -> Mapping[str, Any]:
        if self._library is None:
            self._library = await asyncio.to_thread(_litellm)
        litellm = self._library
        if not (self._own_server or litellm.supports_response_schema(self.model)):
            body.pop("response_format", None)
        try:
            answer = await litellm.acompletion(**body, **self._access)
        except Exception as failure:
            message, status = f"{type(failure).__name__}: {failure}", getattr(failure, "status_code", None)
            if _NOT_SET_UP.search(message):
                status = 401  # litellm says 500, which would be asked again
            if not isinstance(status, int):
                raise JudgeError(f"{self.where}: {message}", maybe_billed=True) from failure
            headers = getattr(failure, "litellm_response_headers", None) or {}
            raise Rejection(status, message, headers.get("retry-after")) from failure
        cost = getattr(answer, "_hidden_params", {}).get("response_cost")  # where litellm documents it
        return {**answer.model_dump(), "cost_usd": cost}


class LLMEmbedder:
    """Any embedding model litellm can call; raises `JudgeError` when the provider fails."""

    def __init__(self, model: str, *, api_base: str | None = None, api_key: str | None = None) -> None:
        self.id = self.model = _litellm_name(model, api_base)
        self._access = _access(api_base, api_key, timeout_s=60.0)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in order."""
        litellm = await asyncio.to_thread(_litellm)
        try:
            answer = await litellm.aembedding(
                model=self.model, input=list(texts), encoding_format="float", **self._access
            )
            rows = sorted(answer.data, key=lambda row: row["index"])
        except Exception as failure:
            raise JudgeError(f"{self.model}: {type(failure).__name__}: {failure}") from failure
        return [[float(value) for value in row["embedding"]] for row in rows]


def _litellm_name(model: str, api_base: str | None) -> str:
    """The model's name for litellm: a user's own server speaks OpenAI's protocol."""
    return f"openai/{model}" if api_base and "/" not in model else model


def _access(api_base: str | None, api_key: str | None, *, timeout_s: float) -> dict[str, Any]:
    """The parameters that reach the server but do not change its answers."""
    access: dict[str, Any] = {"timeout": timeout_s, "max_retries": 0}
    if api_base:
        access["api_base"] = api_base
    if api_key or is_loopback(api_base):
        access["api_key"] = api_key or "none"
    return access


def prices(model: str) -> tuple[float, float] | None:
    """USD per input and output token from litellm's local table; None where unknown."""
    try:
        row = _litellm().get_model_info(model)
    except Exception:  # noqa: BLE001 - litellm raises a bare Exception for a model without a price
        return None
    price = row.get("input_cost_per_token"), row.get("output_cost_per_token")
    return None if None in price or price == (0, 0) else (float(price[0]), float(price[1]))


def as_judge(judge: str | Judge | None, **access: Any) -> Judge | None:
    """A judge from a name: `provider/model` for litellm, `http://host:port/v1#model` for any compatible server.

    `access` (api_base, api_key, temperature, ...) is passed on. Without litellm, a model behind an `api_base` is asked
    over HTTP.
    """
    if not isinstance(judge, str):
        if judge is not None and not (hasattr(judge, "id") and callable(getattr(judge, "ask", None))):
            raise ConfigurationError(f"a judge is a model's name or an object with id and ask(), not {judge!r}")
        return judge
    if judge.startswith(("http://", "https://")):
        base, _, model = judge.partition("#")
        return HTTPJudge(base, model or "default", **access)
    if access.get("api_base") and importlib.util.find_spec("litellm") is None:
        base = access.pop("api_base")
        return HTTPJudge(base, judge.rpartition("/")[2], **access)
    return LLMJudge(judge, **access)


def as_embedder(embedder: Any) -> Embedder | None:
    """An embedder from the name of a litellm model, from "wordllama" (offline), or the object itself.

    An object whose `embed` is a plain function is called in a thread.
    """
    if isinstance(embedder, str):
        return OfflineEmbedder() if embedder == OfflineEmbedder.id else LLMEmbedder(embedder)
    if embedder is not None and not callable(getattr(embedder, "embed", None)):
        raise ConfigurationError(f"an embedder is a model's name or an object with embed(texts), not {embedder!r}")
    return embedder if embedder is None or inspect.iscoroutinefunction(embedder.embed) else SyncEmbedder(embedder)
