"""One evaluator's conversation with its judge about one case: asks, records the calls, reads the replies.

A reply is read by its shape first and by the strict token parser second; an unreadable one is repaired once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, WithJsonSchema

from ragpulse_evaluators.errors import JudgeError, MissingField, NoVerdict, Unreadable
from ragpulse_evaluators.judges.json_reply import Reply, is_json, read_json, read_model
from ragpulse_evaluators.judges.parsing import (
    LANGUAGES,
    Words,
    final_text,
    is_labelled,
    not_applicable,
    read_number,
    read_verdict,
    refuses,
    words_of,
)
from ragpulse_evaluators.judges.protocol import Judge, Message
from ragpulse_evaluators.result import JudgeCall

Model = TypeVar("Model", bound=BaseModel)
Asked = str | Sequence[Message]
"""A prompt: one text, or chat messages."""


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


YesNo = Annotated[bool, BeforeValidator(_yes_or_no), WithJsonSchema({"type": "string", "enum": ["YES", "NO"]})]
"""A bool that judges are asked to write as "YES" or "NO"; 1, 0, true, "否", "sim" are read too."""
Reason = Annotated[
    str,
    BeforeValidator(lambda value: "" if value is None else value),
    Field(
        validation_alias=AliasChoices(
            "reason", "reasoning", "feedback", "justification", "explanation", "comment", "coment"
        )
    ),
]
"""The judge's words; every name that the seeds' judges use for them is accepted."""


def number_in(lo: float, hi: float) -> BeforeValidator:
    """Reads a number in `lo`..`hi` that is written as text: "4", "4/5", "4 out of 5"; true and false are no numbers."""

    def read(value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError(f"{value} is not a number")
        return read_number(value, words_of("en"), lo=lo, hi=hi) if isinstance(value, str) else value

    return BeforeValidator(read)


class Verdict(Reply):
    """`{"reason": "...", "verdict": "YES"}`."""

    reason: Reason = ""
    verdict: Annotated[YesNo, Field(validation_alias=AliasChoices("verdict", "passing", "answer", "score"))]


def reasoning_of(text: str, words: Words) -> str:
    """A plain reply without the line of its verdict: a labelled last line, else the first; all of a single line."""
    lines = text.strip().splitlines()
    if len(lines) > 1:
        del lines[-1 if is_labelled(lines[-1], words) else 0]
    return "\n".join(lines).strip()


def json_or(schema: type[Model], plain: Callable[[str], Model]) -> Callable[[str], Model]:
    """A reader: the schema when the reply holds any JSON object or begins as one, else `plain`."""
    return lambda text: read_model(text, schema) if is_json(text) else plain(text)


def verdict_reader(words: Words) -> Callable[[str], Verdict]:
    """Reads a yes or no with its reason, as JSON or as first word."""
    return json_or(Verdict, lambda text: Verdict(verdict=read_verdict(text, words), reason=reasoning_of(text, words)))


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
        self, prompt: Asked, *, n: int = 1, schema: type[BaseModel] | None = None, logprobs: bool = False
    ) -> list[JudgeCall]:
        """Ask one question `n` times and record the calls."""
        answered = await self._judge.ask(_messages(prompt), n=n, schema=schema, logprobs=logprobs)
        self._calls.extend(answered)
        return answered

    async def read(
        self, prompt: Asked, parse: Callable[[str], Found], *, form: str, schema: type[BaseModel] | None = None
    ) -> Found:
        """Ask, and read the reply; if it cannot be read ask once more showing `form`, then raise `Unreadable`.

        A reply that was cut off, filtered or a refusal raises `NoVerdict` at once, "N/A" raises `MissingField`.
        """
        messages, asked = self._with_canary(prompt, schema)
        call = (await self.ask(messages, schema=asked))[0]
        try:
            return self._parsed(call, parse, marked=schema is not None)
        except NoVerdict:
            raise
        except Unreadable as unreadable:
            if not self._repair:
                raise
            again = self.words.repair.format(problem=unreadable, form=form)
            turn = ({"role": "assistant", "content": call.completion}, {"role": "user", "content": again})
            return self._parsed(await self._repaired([*messages, *turn], unreadable, asked), parse, marked=bool(schema))

    async def samples(
        self, prompt: Asked, parse: Callable[[str], Found], *, n: int, schema: type[BaseModel] | None = None
    ) -> list[Found]:
        """Ask `n` times and read what can be read; raises `Unreadable` where nothing can."""
        messages, asked = self._with_canary(prompt, schema)
        found: list[Found] = []
        problem: Exception | None = None
        for call in await self.ask(messages, n=n, schema=asked):
            try:
                found.append(self._parsed(call, parse, marked=schema is not None))
            except (Unreadable, MissingField) as wrong:
                problem = wrong
        if not found:
            raise Unreadable(f"none of {n} replies can be read: {problem}")
        return found

    def _parsed(self, call: JudgeCall, parse: Callable[[str], Found], *, marked: bool) -> Found:
        text = self._verified(final_text(call), as_json=marked)
        try:
            return parse(text)
        except NoVerdict:
            raise
        except Unreadable as unreadable:
            if not_applicable(text, self.words):
                raise MissingField("anything to judge (the judge replied N/A)") from None
            if refuses(text):
                raise NoVerdict(f"the judge refused to judge: {unreadable}") from None
            raise

    def _with_canary(
        self, prompt: Asked, schema: type[BaseModel] | None
    ) -> tuple[Sequence[Message], type[BaseModel] | None]:
        messages = _messages(prompt)
        if not self._canary:
            return messages, schema
        demand = (self.words.canary if schema else self.words.canary_line).format(mark=self._canary)
        last = {**messages[-1], "content": f"{messages[-1]['content']}\n\n{demand}"}
        return [*messages[:-1], last], None  # no provider would let the canary through a schema that does not name it

    def _verified(self, reply: str, *, as_json: bool) -> str:
        """The reply, if it carries the canary: a verdict copied out of the material cannot."""
        if not self._canary:
            return reply
        first, _, rest = reply.partition("\n")
        carried = read_json(reply).get("canary") == self._canary if as_json else self._canary in first
        if not carried:
            raise Unreadable("the reply does not carry the canary")
        return reply if as_json else rest

    async def _repaired(
        self, turns: Sequence[Message], problem: Unreadable, schema: type[BaseModel] | None
    ) -> JudgeCall:
        try:
            return (await self.ask(turns, schema=schema))[0]
        except JudgeError as silent:
            self._calls.extend(silent.calls)
            # The first reply stays what it was: unreadable. A second try would start from the same words.
            raise Unreadable(f"{problem}; the repair turn failed: {silent}") from silent


def _messages(prompt: Asked) -> Sequence[Message]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
