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
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from pydantic_core import to_json

from ragpulse_evaluators.errors import ConfigurationError, JudgeError, JudgeRejected
from ragpulse_evaluators.judges.addresses import (
    Address,
    environment_address,
    hidden,
    sendable,
    spellings,
    split_judge,
)
from ragpulse_evaluators.judges.chat import ChatJudge
from ragpulse_evaluators.judges.protocol import (
    Embedder,
    Judge,
    JudgeQuestion,
    OfflineEmbedder,
    SyncEmbedder,
    Vectors,
    is_loopback,
)
from ragpulse_evaluators.judges.rejections import Rejection
from ragpulse_evaluators.judges.replies import Fields, JsonObject, Unanswered, joined
from ragpulse_evaluators.result import JudgeCall

if TYPE_CHECKING:
    import ssl

    import httpx


_MAX_BODY = 32 * 1024 * 1024


class HTTPJudge(ChatJudge):
    """Asks `POST <base>/chat/completions`; `base` is e.g. `http://127.0.0.1:8080/v1`, or the full URL of the endpoint.

    Without `api_key`, the key of the environment that belongs to the address is sent, and no other. Prices are unknown
    here, so `cost_usd` stays None. JSON is asked for by schema, then as an object, then in words, as far as the server
    takes it. Raises `JudgeError` for refused connections, status codes other than 200 and bodies that are no chat
    completion. Close it (`async with`, or `aclose`) to drop idle connections.
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
        address = Address.parsed(base)
        super().__init__(model, where=address.where, temperature=temperature, max_tokens=max_tokens, **params)
        key, query = api_key or address.environment_key(), address.parts.query
        self._url = (
            f"{address.endpoint}{'&' if query else '?'}{urlencode(self._query)}" if self._query else address.endpoint
        )
        self._secrets = spellings((key, *self._headers.values(), *self._query.values()))
        if key and "authorization" not in map(str.lower, self._headers):
            self._headers["Authorization"] = f"Bearer {sendable(self.place, 'key', key)}"
            self._headers |= {"api-key": key} if address.provider == "AZURE" else {}
        self._timeout = timeout_s
        self._tls: ssl.SSLContext | None = None
        self._idle: WeakKeyDictionary[asyncio.AbstractEventLoop, list[httpx.AsyncClient]] = WeakKeyDictionary()
        self._closers: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncIterator[None]] = WeakKeyDictionary()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        for client in self._idle.pop(asyncio.get_running_loop(), []):
            await client.aclose()

    async def _send(self, body: JsonObject) -> Fields:
        import httpx

        sent: list[str] = []  # what httpx did with the request: nothing before it has a connection
        try:
            async with asyncio.timeout(self._timeout):
                payload, kind = await self._post(to_json(body), sent)
        except (httpx.HTTPError, OSError) as failure:
            raise self._error(f"{type(failure).__name__}: {failure}", maybe_billed=bool(sent)) from None
        try:
            answer = joined(payload, kind)
        except Unanswered as unanswered:
            raise self._error(str(unanswered), JudgeRejected, maybe_billed=True) from None
        if not answer.get("choices") and (error := answer.get("error")):  # OpenRouter sends it with 200
            code = error.get("code") if isinstance(error, dict) else None
            raise Rejection(code if isinstance(code, int) else 500, to_json(error).decode())
        return answer

    def _error(self, message: str, kind: type[JudgeError] = JudgeError, *, maybe_billed: bool) -> JudgeError:
        return kind(hidden(f"{self.place}: {message}", *self._secrets), maybe_billed=maybe_billed)

    async def _post(self, payload: bytes, sent: list[str]) -> tuple[str, str]:
        async def note(event: str, _: Any) -> None:
            if event.endswith("send_request_headers.started"):
                sent.append(event)

        idle = await self._connections()
        client = idle.pop() if idle else self._new_client()
        try:
            async with client.stream("POST", self._url, content=payload, extensions={"trace": note}) as response:
                body = await self._body_of(response)
        finally:
            idle.append(client)
        text = hidden(body.decode("utf-8-sig", errors="replace"), *self._secrets)  # a server may repeat them
        if response.status_code != 200:
            raise Rejection(response.status_code, text[:4000], response.headers.get("retry-after"))
        return text, response.headers.get("content-type", "")

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

    async def _body_of(self, response: httpx.Response) -> bytearray:
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > _MAX_BODY:
                raise JudgeError(f"{self.place}: the reply is larger than 32 MB", maybe_billed=True)
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
            headers={"Content-Type": "application/json"} | self._headers,
            verify=self._tls,
            timeout=None,
            limits=httpx.Limits(max_connections=1),
            trust_env=not is_loopback(self._url),  # a proxy of the environment cannot reach this machine's servers
        )


_NOT_SET_UP = re.compile(r"missing (?:credentials|\w+ api key)|no module named", re.IGNORECASE)
"""Failures on this machine that no second attempt fixes: a key or a provider's package is missing."""
_NOT_SENT = (
    "ConnectError",
    "ConnectTimeout",
    "PoolTimeout",
    "UnsupportedProtocol",
    "LocalProtocolError",
    "ProxyError",
    "ImportError",
    "ModuleNotFoundError",
    "ClientConnectorError",
    "ConnectionRefusedError",
    "gaierror",
)
"""Failures before a request leaves, of whatever client a provider's package uses."""
_OPENAIS = re.compile(r"(?:chat)?gpt|o[134]")
"""OpenAI's names for models, which litellm takes without their provider."""
_INSTALL = "pip install 'ragpulse[judge]', or name a server as http://host:port/v1#model"
_OTHER_CREDENTIALS = ("bedrock", "sagemaker", "vertex_ai", "watsonx")
"""Providers that sign with what is no API key."""


def _litellm() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else litellm fetches its price list at import
    try:
        import litellm
    except ImportError as missing:
        raise ConfigurationError(f"litellm is not installed: {_INSTALL}") from missing
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    return litellm


def _left(failure: BaseException | None) -> bool:
    """Whether a request may have left, by the failure and those that caused it."""
    seen: list[BaseException] = []
    while failure is not None and failure not in seen:
        seen.append(failure)
        failure = failure.__cause__ or failure.__context__
    return not any(type(one).__name__ in _NOT_SENT for one in seen)


class LLMJudge(ChatJudge):
    """Any model litellm can call, fine-tuned judges included; refused where litellm is not installed.

    `temperature` and other sampling parameters are part of `id`. So is the address where it is not the provider's own,
    whether `api_base` or the environment gives it; `api_key` and `timeout_s` are not. A model without provider behind
    an `api_base` is taken as OpenAI-compatible. litellm says what a model that it knows takes. Raises `JudgeError` when
    the provider fails.
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
        if importlib.util.find_spec("litellm") is None:
            raise ConfigurationError(f"the judge {model} needs litellm, which is not installed: {_INSTALL}")
        name, where, self._access = _reached(model, api_base, api_key, timeout_s=timeout_s)
        super().__init__(name, where=where, temperature=temperature, max_tokens=max_tokens, **params)
        key = self._access.get("api_key") or os.environ.get(f"{name.partition('/')[0].upper()}_API_KEY")
        if self._query:
            raise ConfigurationError(f"query: litellm sends none; name the judge {self.place} as https://host/v1#model")
        self._secrets = spellings((sendable(self.place, "key", key or ""), *self._headers.values()))
        self._access |= {"extra_headers": self._headers} if self._headers else {}
        self._own_server = where is not None
        self._library: Any = None

    async def replies_to(self, question: JudgeQuestion) -> list[JudgeCall]:
        """As for every chat model; the first question waits for the library, which may know what the model takes."""
        if self._library is None:
            self._library = await asyncio.to_thread(_litellm)
            if not self._own_server:
                self._ask_library()
        return await super().replies_to(question)

    def _ask_library(self) -> None:
        """Take from litellm what the model takes; where it does not know the model, rejections say it."""
        litellm, known = self._library, self._server.accepted
        if known.formats[1:] and not litellm.supports_response_schema(self.model):  # where no setting says it
            known = replace(known, formats=("",))
        if prices(self.model) is not None:
            takes = litellm.get_supported_openai_params(self.model) or ()
            asked = {*self.sampling, "n", "logprobs", "top_logprobs"} - {"max_tokens"}
            known, self.negotiates = replace(known, without=known.without | asked.difference(takes)), False
            if self._server.takes_brief is None and not litellm.supports_reasoning(self.model):
                self._server.takes_brief = True
        self._server.accepted = known

    async def _send(self, body: JsonObject) -> Fields:
        try:
            answer = await self._library.acompletion(**body, **self._access)
        except Exception as failure:  # noqa: BLE001 - the boundary: litellm raises what providers' packages raise
            raise self._failed(failure) from None
        cost = getattr(answer, "_hidden_params", {}).get("response_cost")  # where litellm documents it
        return {**answer.model_dump(), "cost_usd": None if self._own_server else cost}  # that is the provider's price

    def _failed(self, failure: Exception) -> Exception:
        message = hidden(f"{type(failure).__name__}: {failure}", *self._secrets)
        status: Any = 401 if _NOT_SET_UP.search(message) else getattr(failure, "status_code", None)
        broken = type(failure).__name__ in ("APIConnectionError", "Timeout") or not isinstance(status, int)
        if broken and status != 401:  # litellm gives a broken connection a status, which the server did not send
            return JudgeError(f"{self.place}: {message}", maybe_billed=_left(failure))
        headers = getattr(failure, "litellm_response_headers", None) or {}
        return Rejection(status, message, headers.get("retry-after"))


class LLMEmbedder:
    """Any embedding model litellm can call; raises `JudgeError` when the provider fails."""

    def __init__(self, model: str, *, api_base: str | None = None, api_key: str | None = None) -> None:
        self.model, _, self._access = _reached(model, api_base, api_key, timeout_s=60.0)
        self.id = self.model

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector per text, in order."""
        litellm = await asyncio.to_thread(_litellm)
        try:
            answer = await litellm.aembedding(
                model=self.model, input=list(texts), encoding_format="float", **self._access
            )
            rows = sorted(answer.data, key=lambda row: row["index"])
        except Exception as failure:  # noqa: BLE001 - the boundary: litellm raises what providers' packages raise
            message = hidden(f"{type(failure).__name__}: {failure}", *spellings((self._access.get("api_key"),)))
            raise JudgeError(f"{self.model}: {message}") from None
        return [[float(value) for value in row["embedding"]] for row in rows]


def _reached(
    model: str, api_base: str | None, api_key: str | None, *, timeout_s: float
) -> tuple[str, str | None, JsonObject]:
    """litellm's name of a model, its address where that is not the provider's own, and what reaches it.

    A model without provider at an `api_base` speaks OpenAI's protocol. To another address than the provider's own,
    litellm would send the provider's key of the environment.
    """
    name = f"openai/{model}" if api_base and "/" not in model else model
    provider = name.partition("/")[0] if "/" in name else "openai" if _OPENAIS.match(name) else ""
    access: JsonObject = {"timeout": timeout_s, "max_retries": 0}
    given = api_base or environment_address(provider)
    address = Address.parsed(given) if given else None
    if api_base and address:
        access["api_base"] = address.base if provider == "openai" else api_base.strip()
        api_key = api_key or address.environment_key() or (None if provider in _OTHER_CREDENTIALS else "none")
    is_own = address is None or address.provider == provider.upper() != "AZURE"
    return name, None if is_own or not address else address.where, access | ({"api_key": api_key} if api_key else {})


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

    `ollama/NAME` is such a server on this computer: no key and no litellm.

    `access` (api_base, api_key, temperature, ...) is passed on. Without litellm, a model behind an `api_base` is asked
    over HTTP. Raises `ConfigurationError` for an address that is none, and where litellm is needed and missing.
    """
    if not isinstance(judge, str):
        if judge is not None and not (hasattr(judge, "id") and callable(getattr(judge, "ask", None))):
            raise ConfigurationError(f"a judge is a model's name or an object with id and ask(), not {judge!r}")
        return judge
    if at_address := split_judge(judge, access.get("api_base")):
        return HTTPJudge(*at_address, **{key: value for key, value in access.items() if key != "api_base"})
    if access.get("api_base") and importlib.util.find_spec("litellm") is None:
        return HTTPJudge(access.pop("api_base"), judge.rpartition("/")[2], **access)
    return LLMJudge(judge.strip(), **access)


def as_embedder(embedder: Any) -> Embedder | None:
    """An embedder from the name of a litellm model, from "wordllama" (offline), or the object itself.

    An object whose `embed` is a plain function is called in a thread.
    """
    if isinstance(embedder, str):
        return OfflineEmbedder() if embedder == OfflineEmbedder.id else LLMEmbedder(embedder)
    if embedder is not None and not callable(getattr(embedder, "embed", None)):
        raise ConfigurationError(f"an embedder is a model's name or an object with embed(texts), not {embedder!r}")
    return embedder if embedder is None or inspect.iscoroutinefunction(embedder.embed) else SyncEmbedder(embedder)
