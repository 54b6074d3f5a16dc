"""A judge for tests whose reply is a function of the prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import BaseModel

from ragpulse_evaluators import JudgeCall
from ragpulse_evaluators.judges.protocol import Message, transcript


class Replying:
    """A judge whose reply is a function of the prompt."""

    def __init__(self, reply: Callable[[str], str]) -> None:
        self.id = "replying"
        self._reply = reply

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        del schema, logprobs
        prompt = transcript(messages)
        return [JudgeCall(prompt=prompt, completion=self._reply(prompt), model=self.id)] * n
