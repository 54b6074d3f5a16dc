"""Chat completions as every OpenAI-compatible server speaks them: makes requests, reads replies and rejections.

`HTTPJudge` and `LLMJudge` differ only in how a request travels. Whatever a server does not accept (structured output,
a sampling parameter, a system message) is left out. The server is remembered once a request without it has succeeded.
"""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

from pydantic import BaseModel

from ragpulse_evaluators.errors import ContextTooLong, JudgeError, JudgeRejected
from ragpulse_evaluators.judges.protocol import Message, Question, SampledJudge, transcript
from ragpulse_evaluators.result import JudgeCall

__all__ = ("ChatJudge", "Rejection", "strict_schema")

_TOO_LONG = re.compile(
    r"context[_ ]?(?:length|size|window)|(?:prompt|input) is too long|too many (?:input )?tokens|reduce the length"
    r"|token count .{0,40}exceeds|maximum prompt length|max_new_tokens` must be|request too large",
    re.IGNORECASE,
)
_WINDOW = re.compile(
    r"(?:context (?:length|size|window)\D{1,20}|prompt length is |tokens allowed \(|must be <= |n_ctx\"?\s*:\s*|>\s*)"
    r"(\d{3,})|(\d{3,}) maximum context",
    re.IGNORECASE,
)
_REPLY_COUNTS = re.compile(r"max_(?:completion_)?tokens|completion|output tokens", re.IGNORECASE)
_FILTERED = re.compile(r"content_?filter|content_?policy|content management policy|ResponsibleAI", re.IGNORECASE)
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|billing|credit balance", re.IGNORECASE)
_AGAIN = re.compile(r"(?:retry|try again) (?:in|after) (?:(\d+)m(?!s))?(?:([\d.]+\d|\d+)(ms|s))?", re.IGNORECASE)
_STRUCTURED = re.compile(r"response_format|json_schema|json_object|structured|grammar|schema", re.IGNORECASE)
_NO_SYSTEM = re.compile(
    r"system (?:role|message)s?\b.*not|role.{0,10}system.*not|only user and assistant", re.IGNORECASE
)
_WAIT = frozenset({408, 409, 425, 429})
"""Client errors that pass: timeouts, conflicts, throttling."""
_ADJUSTABLE = frozenset({400, 415, 422, 501})
_FIXED = frozenset({"model", "messages", "response_format", "n", "logprobs", "top_logprobs"})
"""Keys of a request that are no sampling parameters."""


class Rejection(Exception):
    """A reply other than 200: status, text, and what the server says about waiting (the `Retry-After` header)."""

    def __init__(self, status: int, text: str, retry_after: str | None = None) -> None:
        super().__init__(f"status {status}: {' '.join(text.split())[:200]}")
        self.status, self.text, self.retry_after = status, text, retry_after

    @property
    def filtered(self) -> bool:
        """Whether a content filter refused the question."""
        return self.status in (400, 403, 422) and bool(_FILTERED.search(self.text))

    @property
    def too_long(self) -> bool:
        """Whether the question exceeds the model's window."""
        return self.status in (400, 413, 422, 500) and bool(_TOO_LONG.search(self.text))

    @property
    def window(self) -> int | None:
        """The model's window in tokens, where the text names it."""
        match = _WINDOW.search(self.text)
        return int(match[1] or match[2]) if match else None

    def error(self, where: str) -> JudgeError:
        """The error to raise: final where the same request would fail again."""
        message = f"{where}: {self}"
        if self.too_long:
            return ContextTooLong(message, window=self.window)
        passes = self.status >= 500 or self.status in _WAIT
        wait_s = _seconds(self.retry_after) or _named_wait(self.text)
        if not passes or (self.status == 429 and wait_s is None and _QUOTA.search(self.text)):
            return JudgeRejected(message)
        timed_out = self.status in (408, 504)  # the model may have answered into the void
        return JudgeError(message, retry_after_s=wait_s, maybe_billed=timed_out)


def _named_wait(text: str) -> float | None:
    """Seconds to wait as a message names them: "Please try again in 1m20.5s"."""
    match = _AGAIN.search(text)
    if not match or not (match[1] or match[2]):
        return None
    return 60.0 * int(match[1] or 0) + float(match[2] or 0) * (0.001 if match[3] == "ms" else 1.0)


def _seconds(header: str | None) -> float | None:
    """`Retry-After` in seconds: a number or an HTTP date; None where it is neither."""
    if not header:
        return None
    with suppress(ValueError):
        return max(0.0, float(header))
    with suppress(ValueError, TypeError):
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    return None


@dataclass(frozen=True)
class _Accepted:
    """The ways of asking that a server accepts, as far as they are known."""

    formats: tuple[str, ...] = ("json_schema", "json_object", "")
    """Ways to ask for JSON, best first; the first is used, "" sends none."""
    without: frozenset[str] = frozenset()
    """Parameters it does not know."""
    system: bool = True
    """Whether it takes a system message."""
    limit: str = "max_tokens"
    """Its name for the limit of the reply."""
    longest: int | None = None
    """The highest such limit; a server may count it against its window."""

    def after(self, rejection: Rejection, body: Mapping[str, Any]) -> _Accepted | None:
        """The next way to try after a rejection; None where another way would be rejected too."""
        text, adjustable = rejection.text, rejection.status in _ADJUSTABLE
        if rejection.too_long and self.longest is None and rejection.window and _REPLY_COUNTS.search(text):
            return replace(self, longest=max(256, rejection.window // 4))
        if rejection.too_long or rejection.filtered:
            return None
        if adjustable and self.limit == "max_tokens" and "max_completion_tokens" in text:
            return replace(self, limit="max_completion_tokens")
        refused = {key for key in body if key not in _FIXED - {"logprobs"} and re.search(rf"\b{key}\b", text)}
        if adjustable and refused:
            more = {"top_logprobs"} if "logprobs" in refused else set()
            return replace(self, without=self.without | refused | more)
        if self.system and _NO_SYSTEM.search(text):
            return replace(self, system=False)
        if "response_format" in body and (adjustable or (rejection.status != 401 and _STRUCTURED.search(text))):
            return replace(self, formats=self.formats[1:])
        return None


class _Server:
    """A model at an address; shared by all judges that ask it."""

    def __init__(self) -> None:
        self.accepted = _Accepted()


_SERVERS: WeakValueDictionary[str, _Server] = WeakValueDictionary()
"""By model and address, as long as a judge for it exists."""


class ChatJudge(SampledJudge):
    """A model asked by chat completions; subclasses write `answer` and `_send`. `where` is model and address."""

    def __init__(self, model: str, where: str, **sampling: Any) -> None:
        super().__init__(model, **sampling)
        self.where = where
        self._server = _SERVERS.setdefault(where, _Server())

    @abstractmethod
    async def _send(self, body: dict[str, Any]) -> Mapping[str, Any]:
        """Send one request, return the completion; raises `Rejection` and `JudgeError`."""

    async def complete(self, question: Question) -> list[JudgeCall]:
        """One request; a call per choice. Raises `JudgeError`."""
        accepted, started = self._server.accepted, time.perf_counter()
        while True:
            body = self._body(question, accepted)
            try:
                answer = await self._send(body)
            except Rejection as rejection:
                if (adjusted := accepted.after(rejection, body)) is not None:
                    accepted = adjusted
                    continue
                if not rejection.filtered:
                    raise rejection.error(self.where) from None
                answer = _filtered()
            else:
                self._server.accepted = accepted
            return self._calls(question, body, answer, time.perf_counter() - started)

    def _body(self, question: Question, accepted: _Accepted) -> dict[str, Any]:
        messages = question.messages if accepted.system else _without_system(question.messages)
        body: dict[str, Any] = {"model": self.model, "messages": [dict(message) for message in messages]}
        body |= self.sampling | {"max_tokens": min(self.max_tokens, accepted.longest or self.max_tokens)}
        if accepted.limit != "max_tokens":
            body[accepted.limit] = body.pop("max_tokens")
        if question.n > 1:
            body["n"] = question.n
        if question.logprobs:
            body |= {"logprobs": True, "top_logprobs": 20}
        if question.schema is not None and accepted.formats[0]:
            body["response_format"] = _response_format(accepted.formats[0], question.schema)
        return {key: value for key, value in body.items() if key not in accepted.without}

    def _calls(
        self, question: Question, body: Mapping[str, Any], answer: Mapping[str, Any], elapsed_s: float
    ) -> list[JudgeCall]:
        """One call per choice; tokens and cost of the request are stored with the first, so that sums are right."""
        common = {
            "prompt": transcript(question.messages),
            "model": answer.get("model") or self.model,
            "elapsed_s": elapsed_s,
            "sampling": {key: value for key, value in body.items() if key not in _FIXED},
        }
        try:
            choices = [_read_choice(choice) for choice in answer["choices"]]
        except (KeyError, TypeError, AttributeError) as error:
            message = f"{self.where}: no chat completion: {type(error).__name__}: {error}"
            raise JudgeError(message, maybe_billed=True) from error
        if not choices:
            raise JudgeError(f"{self.where}: a chat completion without choices", maybe_billed=True)
        first, *rest = choices
        none = {"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0 if "cost_usd" in answer else None}
        return [
            JudgeCall(**common, **first, **_usage(answer)),
            *(JudgeCall(**common, **choice, **none) for choice in rest),
        ]


def _usage(answer: Mapping[str, Any]) -> dict[str, Any]:
    usage = answer.get("usage") or {}
    details = usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": usage.get("prompt_tokens"),
        "output_tokens": usage.get("completion_tokens"),
        "reasoning_tokens": details.get("reasoning_tokens"),
        "cost_usd": answer.get("cost_usd"),
    }


def _read_choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Text, reason of the end and log-probabilities of a choice; `reasoning_content` is no part of the text."""
    message = choice["message"]
    extra = message.get("provider_specific_fields") or {}  # where litellm puts what only some providers have
    refusal, content = message.get("refusal") or extra.get("refusal"), message.get("content") or ""
    if not isinstance(content, str):  # parts, as some servers send them
        content = "".join(part.get("text", "") for part in content if part.get("type") == "text")
    return {
        "completion": content or refusal or "",
        "finish_reason": "refusal" if refusal and not content else choice.get("finish_reason"),
        "logprobs": _first_token_logprobs(choice),
    }


def _first_token_logprobs(choice: Mapping[str, Any]) -> dict[str, float] | None:
    """Candidates of the first completion token with their log-probabilities."""
    content = (choice.get("logprobs") or {}).get("content") or []
    if not content:
        return None
    candidates = content[0].get("top_logprobs") or [content[0]]
    return {candidate["token"]: candidate["logprob"] for candidate in candidates}


def _filtered() -> dict[str, Any]:
    """A question that a content filter refused, as a reply that it ended."""
    choice = {"message": {"content": ""}, "finish_reason": "content_filter"}
    return {"choices": [choice], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """The system message in front of the first user message, for models whose template knows no system role."""
    head = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    first, *rest = (message for message in messages if message["role"] != "system")
    return [{**first, "content": f"{head}\n\n{first['content']}" if head else first["content"]}, *rest]


def _response_format(kind: str, schema: type[BaseModel]) -> dict[str, Any]:
    if kind == "json_object":
        return {"type": "json_object"}
    return {"type": kind, kind: {"name": schema.__name__, "strict": True, "schema": strict_schema(schema)}}


_STRICT_KEYS = ("type", "enum", "anyOf", "items", "properties", "$ref", "$defs")


@lru_cache(maxsize=256)
def strict_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """A model's JSON schema as strict structured output takes it: every property required, nothing else allowed.

    Defaults, titles and bounds are left out, because strict servers refuse them; replies are checked on reading.
    """
    strict: dict[str, Any] = _strict(schema.model_json_schema())
    return strict


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    strict = {key: node[key] for key in _STRICT_KEYS if key in node}
    for key in ("properties", "$defs"):
        if key in strict:
            strict[key] = {name: _strict(value) for name, value in strict[key].items()}
    strict |= {key: _strict(strict[key]) for key in ("anyOf", "items") if key in strict}
    if "properties" in strict:
        strict |= {"required": list(strict["properties"]), "additionalProperties": False}
    return strict
