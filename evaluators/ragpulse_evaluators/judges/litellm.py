"""The only module that imports litellm, at the first question: litellm takes 294 MB and seconds of import."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from ragpulse_evaluators.errors import ConfigurationError, JudgeError
from ragpulse_evaluators.judges.protocol import Message, SampledJudge, first_token_logprobs, is_loopback, transcript
from ragpulse_evaluators.result import JudgeCall

__all__ = ("LLMEmbedder", "LLMJudge", "prices")

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


class LLMJudge(SampledJudge):
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
        super().__init__(_named(model, api_base), temperature=temperature, max_tokens=max_tokens, **params)
        self._access = _access(api_base, api_key, timeout_s=timeout_s)
        self._structured = True
        self._library: Any = None

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        """Ask for `n` samples in one request; samples that the provider leaves out are requested one by one."""
        answered = await self._complete(messages, n, schema, logprobs)
        missing = n - len(answered)
        if missing > 0:
            more = await asyncio.gather(*(self._complete(messages, 1, schema, logprobs) for _ in range(missing)))
            answered += [call for calls in more for call in calls[:1]]
        if len(answered) < n:
            raise JudgeError(f"{self.model} gave {len(answered)} of {n} answers")
        return answered[:n]

    async def _complete(
        self, messages: Sequence[Message], n: int, schema: type[BaseModel] | None, logprobs: bool
    ) -> list[JudgeCall]:
        if self._library is None:
            self._library = await asyncio.to_thread(_litellm)
        litellm = self._library
        options: dict[str, Any] = dict(self.sampling)
        if n > 1:
            options["n"] = n
        if logprobs:
            options |= {"logprobs": True, "top_logprobs": 20}
        if schema is not None and self._structured and litellm.supports_response_schema(self.model):
            options["response_format"] = schema
        started = time.perf_counter()
        try:
            answer = await self._send(litellm, messages, options)
        except Exception as failed:
            raise JudgeError(f"{self.model}: {type(failed).__name__}: {failed}") from failed
        return self._calls(transcript(messages), answer, time.perf_counter() - started)

    async def _send(self, litellm: Any, messages: Sequence[Message], options: dict[str, Any]) -> Any:
        fixed = {"model": self.model, "messages": [dict(message) for message in messages], "drop_params": True}
        try:
            return await litellm.acompletion(**fixed, **options, **self._access)
        except litellm.BadRequestError:
            if "response_format" not in options:
                raise
            self._structured = False  # the server knows no schemas: replies are read by the strict parser alone
            plain = {key: value for key, value in options.items() if key != "response_format"}
            return await litellm.acompletion(**fixed, **plain, **self._access)

    def _calls(self, prompt: str, answer: Any, elapsed_s: float) -> list[JudgeCall]:
        """One call per choice; tokens and cost of the request are stored with the first, so that sums are right."""
        usage = getattr(answer, "usage", None)
        cost = getattr(answer, "_hidden_params", {}).get("response_cost")  # where litellm documents it
        calls = []
        for index, choice in enumerate(answer.choices):
            first = index == 0
            calls.append(
                JudgeCall(
                    prompt=prompt,
                    completion=choice.message.content or "",
                    model=answer.model or self.model,
                    elapsed_s=elapsed_s,
                    input_tokens=(getattr(usage, "prompt_tokens", None) if first else 0),
                    output_tokens=(getattr(usage, "completion_tokens", None) if first else 0),
                    cost_usd=(cost if first else 0.0),
                    logprobs=first_token_logprobs(choice.model_dump()),
                )
            )
        return calls


class LLMEmbedder:
    """Any embedding model litellm can call; raises `JudgeError` when the provider fails."""

    def __init__(self, model: str, *, api_base: str | None = None, api_key: str | None = None) -> None:
        self.id = self.model = _named(model, api_base)
        self._access = _access(api_base, api_key, timeout_s=60.0)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in order."""
        litellm = await asyncio.to_thread(_litellm)
        try:
            answer = await litellm.aembedding(
                model=self.model, input=list(texts), encoding_format="float", **self._access
            )
            rows = sorted(answer.data, key=lambda row: row["index"])
        except Exception as failed:
            raise JudgeError(f"{self.model}: {type(failed).__name__}: {failed}") from failed
        return [[float(value) for value in row["embedding"]] for row in rows]


def _named(model: str, api_base: str | None) -> str:
    """The model's name for litellm: a server of one's own speaks OpenAI's protocol."""
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
    given = row.get("input_cost_per_token"), row.get("output_cost_per_token")
    return None if None in given or given == (0, 0) else (float(given[0]), float(given[1]))
