"""The LLM behind an evaluator: what a judge offers, and what judges share."""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Protocol, Self, runtime_checkable
from urllib.parse import urlsplit

from pydantic import BaseModel

from ragpulse_evaluators.errors import NoRecording
from ragpulse_evaluators.result import JudgeCall

__all__ = (
    "Judge",
    "JudgeWrapper",
    "Message",
    "SampledJudge",
    "ScriptedJudge",
    "close_judge",
    "first_token_logprobs",
    "for_sampling",
    "is_loopback",
    "model_of",
    "transcript",
)

Message = Mapping[str, str]
"""One chat message: `role` and `content`."""


@runtime_checkable
class Judge(Protocol):
    """Anything that answers chat messages."""

    @property
    def id(self) -> str:
        """Model and sampling parameters: stored beside the version; a series breaks when it changes."""

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        """Answer `n` times; `schema` asks for JSON of this shape; raises `JudgeError` when it cannot."""


def transcript(messages: Sequence[Message]) -> str:
    """The messages joined for reading, as stored in `JudgeCall.prompt`."""
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages)


def first_token_logprobs(choice: Mapping[str, Any]) -> dict[str, float] | None:
    """Candidates of the first completion token with their log-probabilities, from an OpenAI-shaped choice."""
    content = (choice.get("logprobs") or {}).get("content") or []
    if not content:
        return None
    candidates = content[0].get("top_logprobs") or [content[0]]
    return {candidate["token"]: candidate["logprob"] for candidate in candidates}


def is_loopback(url: str | None) -> bool:
    """Whether a URL points to this machine, where neither key nor budget is needed."""
    host = urlsplit(url).hostname if url else None
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:  # a host name
        return False


def for_sampling(judge: Judge, temperature: float) -> Judge:
    """The judge at a temperature where samples differ; a judge configured with its own temperature keeps it."""
    change = getattr(judge, "with_temperature", None)
    if change is None or getattr(judge, "temperature", None) != 0.0:
        return judge
    changed: Judge = change(temperature)
    return changed


async def close_judge(judge: Judge | None) -> None:
    """Close what a judge holds open, such as idle connections; it may be asked again."""
    close = getattr(judge, "aclose", None)
    if close is not None:
        await close()


def model_of(judge: Judge) -> str:
    """The model's name, which its price is looked up by; the id of a judge without a model."""
    return str(getattr(judge, "model", judge.id))


class SampledJudge:
    """A model with sampling parameters, which together are its id: `openai/gpt-5-mini temperature=0.0`."""

    def __init__(self, model: str, **sampling: Any) -> None:
        self.model = model
        self.temperature: float | None = sampling.get("temperature")
        self.sampling = {key: value for key, value in sampling.items() if value is not None}
        self.id = " ".join((model, *(f"{key}={value}" for key, value in sorted(self.sampling.items()))))

    def with_temperature(self, temperature: float) -> Self:
        """The same model sampled at another temperature, over the same connections."""
        changed = copy.copy(self)
        SampledJudge.__init__(changed, self.model, **{**self.sampling, "temperature": temperature})
        return changed


class JudgeWrapper:
    """A judge around another judge, which shows the inner id, model and sampling; subclasses write `ask`."""

    def __init__(self, judge: Judge | None) -> None:
        self._judge = judge

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # an attribute of its own that `copy` has not set yet
            raise AttributeError(name)
        return getattr(self._judge, name)

    @property
    def id(self) -> str:
        """The id of the inner judge."""
        return self._inner.id

    @property
    def _inner(self) -> Judge:
        assert self._judge is not None, "only a judge that replays has no inner judge, and it does not ask"
        return self._judge

    def with_temperature(self, temperature: float) -> Self:
        """The same wrapper around the inner judge at another temperature."""
        changed = copy.copy(self)
        changed._judge = None if self._judge is None else for_sampling(self._judge, temperature)
        return changed

    async def aclose(self) -> None:
        """Close what the inner judge holds open."""
        await close_judge(self._judge)


class ScriptedJudge:
    """A judge for tests: gives the replies in call order; running out is an error.

    A reply is a text, an exception to raise, a mapping of `JudgeCall` fields (`{"completion": ..., "logprobs": ...}`),
    or any other mapping, which is the JSON object of a structured reply.
    """

    def __init__(self, replies: Iterable[str | Mapping[str, Any] | BaseException], *, id: str = "scripted") -> None:
        self.id = id
        self.asked: list[str] = []
        """Every prompt received, in order."""
        self._replies = deque(replies)

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        """Take the next `n` replies."""
        del schema, logprobs
        prompt = transcript(messages)
        return [self._next(prompt) for _ in range(n)]

    def _next(self, prompt: str) -> JudgeCall:
        self.asked.append(prompt)
        if not self._replies:
            raise NoRecording(f"the script of {self.id!r} has no reply number {len(self.asked)}")
        reply = self._replies.popleft()
        if isinstance(reply, BaseException):
            raise reply
        return JudgeCall(**({"prompt": prompt, "model": self.id, "cost_usd": 0.0} | _fields(reply)))


def _fields(reply: str | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(reply, str):
        return {"completion": reply}
    return dict(reply) if "completion" in reply else {"completion": json.dumps(dict(reply), ensure_ascii=False)}
