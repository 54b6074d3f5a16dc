"""Judges and embedders by the name of a model. The only module that imports litellm, at the first question.

litellm takes 294 MB and seconds of import.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ragpulse_evaluators.errors import ConfigurationError, JudgeError
from ragpulse_evaluators.judges.chat import ChatJudge, Rejection
from ragpulse_evaluators.judges.http import HTTPJudge
from ragpulse_evaluators.judges.protocol import Embedder, Judge, OfflineEmbedder, Question, SyncEmbedder, is_loopback
from ragpulse_evaluators.result import JudgeCall

__all__ = ("LLMEmbedder", "LLMJudge", "as_embedder", "as_judge", "prices")

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
