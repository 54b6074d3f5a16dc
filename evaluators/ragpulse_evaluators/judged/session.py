"""One evaluator's conversation with its judge about one case: asks, records the calls, reads the replies.

A reply is read by its shape first and by the strict token parser second; an unreadable one is repaired once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field

from ragpulse_evaluators.errors import JudgeError, Unreadable
from ragpulse_evaluators.judges.parsing import (
    LANGUAGES,
    Words,
    json_objects,
    read_json,
    read_model,
    read_verdict,
    words_of,
)
from ragpulse_evaluators.judges.protocol import Judge, Message
from ragpulse_evaluators.result import JudgeCall

__all__ = (
    "Reason",
    "Session",
    "Verdict",
    "YesNo",
    "json_or",
    "reasoning_of",
    "verdict_reader",
)

Model = TypeVar("Model", bound=BaseModel)


def _yes_or_no(value: Any) -> Any:
    """Read a yes or no in any language we have prompts for; leave the rest to the schema."""
    if not isinstance(value, str):
        return value
    for language in LANGUAGES:
        try:
            return read_verdict(value, words_of(language))
        except Unreadable:
            continue
    return value


YesNo = Annotated[bool, BeforeValidator(_yes_or_no)]
"""A bool that judges also write as 1, 0, "YES", "否", "sim"."""
Reason = Annotated[
    str,
    Field(validation_alias=AliasChoices("reason", "reasoning", "feedback", "justification", "explanation", "comment")),
]
"""The judge's words; every name that the seeds' judges use for them is accepted."""


class Verdict(BaseModel):
    """`{"reason": "...", "verdict": "YES"}`."""

    reason: Reason = ""
    verdict: Annotated[YesNo, Field(validation_alias=AliasChoices("verdict", "passing", "answer", "score"))]


def reasoning_of(text: str) -> str:
    """The reasoning of a reply whose first line is the verdict; the whole reply where there is but one line."""
    first, _, rest = text.strip().partition("\n")
    return rest.strip() or first.strip()


def json_or(schema: type[Model], plain: Callable[[str], Model]) -> Callable[[str], Model]:
    """A reader: the schema when the reply holds any JSON object, else `plain`."""
    return lambda text: read_model(text, schema) if json_objects(text) else plain(text)


def verdict_reader(words: Words) -> Callable[[str], Verdict]:
    """Reads a yes or no with its reason, as JSON or as first word."""
    return json_or(Verdict, lambda text: Verdict(verdict=read_verdict(text, words), reason=reasoning_of(text)))


Found = TypeVar("Found")


class Session:
    """Asks and records; made for each case."""

    def __init__(
        self, judge: Judge, calls: list[JudgeCall], words: Words, *, repair: bool = True, canary: str | None = None
    ) -> None:
        self._judge = judge
        self._calls = calls
        self._repair = repair
        self._canary = canary
        self.words = words

    async def ask(
        self,
        prompt: str | Sequence[Message],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        """Ask one question `n` times and record the calls."""
        answered = await self._judge.ask(_messages(prompt), n=n, schema=schema, logprobs=logprobs)
        self._calls.extend(answered)
        return answered

    async def read(
        self,
        prompt: str | Sequence[Message],
        parse: Callable[[str], Found],
        *,
        form: str,
        schema: type[BaseModel] | None = None,
    ) -> Found:
        """Ask, and read the reply; if it cannot be read ask once more showing `form`, then raise `Unreadable`."""
        messages, schema = self._with_canary(prompt, schema)
        reply = (await self.ask(messages, schema=schema))[0].completion
        try:
            return parse(self._verified(reply))
        except Unreadable as unreadable:
            if not self._repair:
                raise
            return parse(self._verified(await self._repair_turn(messages, reply, unreadable, form, schema)))

    async def samples(
        self,
        prompt: str | Sequence[Message],
        parse: Callable[[str], Found],
        *,
        n: int,
        schema: type[BaseModel] | None = None,
    ) -> list[Found]:
        """Ask `n` times and read what can be read; raises `Unreadable` where nothing can."""
        messages, schema = self._with_canary(prompt, schema)
        found = []
        for call in await self.ask(messages, n=n, schema=schema):
            with contextlib.suppress(Unreadable):
                found.append(parse(self._verified(call.completion)))
        if not found:
            raise Unreadable(f"none of {n} replies can be read")
        return found

    def _with_canary(
        self, prompt: str | Sequence[Message], schema: type[BaseModel] | None
    ) -> tuple[Sequence[Message], type[BaseModel] | None]:
        messages = _messages(prompt)
        if not self._canary:
            return messages, schema
        demand = {"role": "user", "content": self.words.canary.format(mark=self._canary)}
        return [*messages, demand], None  # no provider would let the canary through a schema that does not name it

    def _verified(self, reply: str) -> str:
        """The reply, if it carries the canary: an object copied out of the material cannot."""
        if self._canary and read_json(reply).get("canary") != self._canary:
            raise Unreadable("the reply does not carry the canary")
        return reply

    async def _repair_turn(
        self,
        messages: Sequence[Message],
        reply: str,
        problem: Unreadable,
        form: str,
        schema: type[BaseModel] | None,
    ) -> str:
        again = self.words.repair.format(problem=problem, form=form)
        turns = [*messages, {"role": "assistant", "content": reply}, {"role": "user", "content": again}]
        try:
            return (await self.ask(turns, schema=schema))[0].completion
        except JudgeError as silent:
            # The first reply stays what it was: unreadable. A second try would start from the same words.
            raise Unreadable(f"{problem}; the repair turn failed: {silent}") from silent


def _messages(prompt: str | Sequence[Message]) -> Sequence[Message]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
