"""The LLM behind an evaluator: what it must offer, and a scripted one for tests."""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

from pydantic import BaseModel

from ragpulse_evaluators.errors import NoRecording
from ragpulse_evaluators.result import JudgeCall

__all__ = ("Judge", "Message", "ScriptedJudge", "Wrapped", "model_of", "rest", "transcript", "warmed")

Message = Mapping[str, str]
"""One chat message: `role` and `content`."""


@runtime_checkable
class Judge(Protocol):
    """Anything that answers chat messages."""

    @property
    def id(self) -> str:
        """Model and sampling parameters: kept beside the version, a series breaks when it changes."""

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
    """The messages joined for reading, as kept in `JudgeCall.prompt`."""
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages)


def warmed(judge: Judge, temperature: float) -> Judge:
    """The judge at a temperature where samples differ; one that was given its own temperature keeps it."""
    change = getattr(judge, "with_temperature", None)
    if change is None or getattr(judge, "temperature", None) != 0.0:
        return judge
    made: Judge = change(temperature)
    return made


async def rest(judge: Judge | None) -> None:
    """Let a judge drop what it holds open, such as idle connections; it may be asked again."""
    close = getattr(judge, "aclose", None)
    if close is not None:
        await close()


def model_of(judge: Judge) -> str:
    """The model's name, by which it is priced; a judge without one is known by its id."""
    return str(getattr(judge, "model", judge.id))


class Wrapped:
    """A judge around another, whose id, model and sampling it shows as its own; subclasses write `ask`."""

    def __init__(self, judge: Judge | None) -> None:
        self._judge = judge

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # its own, and not there yet: while it is being copied
            raise AttributeError(name)
        return getattr(self._judge, name)

    @property
    def id(self) -> str:
        """The id of the judge inside."""
        return self._asked.id

    @property
    def _asked(self) -> Judge:
        assert self._judge is not None, "only a judge that replays has none inside, and it does not ask"
        return self._judge

    def with_temperature(self, temperature: float) -> Self:
        """The same around the judge at another temperature."""
        copied = copy.copy(self)
        copied._judge = None if self._judge is None else warmed(self._judge, temperature)
        return copied

    async def aclose(self) -> None:
        """Close what the judge inside holds open."""
        await rest(self._judge)


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
