"""An evaluator's conversation with its judge about one case: asks, records the calls, reads the replies.

A reply is read by its JSON shape first and as plain text second; an unreadable reply is repaired once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from ragpulse_evaluators.errors import (
    JudgeError,
    MissingField,
    NothingToScore,
    NoVerdict,
    Unreadable,
    first_problem,
    unreadable,
)
from ragpulse_evaluators.judges.parsing import (
    final_text,
    not_applicable,
    read_json,
    read_number,
    read_verdict,
    refuses,
)
from ragpulse_evaluators.judges.protocol import Judge, Message, anew, together
from ragpulse_evaluators.judges.replies import JsonObject
from ragpulse_evaluators.judges.tokens import (
    LANGUAGES,
    Words,
    apart,
    folded_key,
    is_json,
    is_labelled,
    unwrapped,
    words_of,
)
from ragpulse_evaluators.result import JudgeCall

Value = TypeVar("Value")
Shape = TypeVar("Shape", bound="Reply")


class Reply(BaseModel):
    """Base of reply shapes: keys are read in any case, also nested, and an object wrapped in another is unwrapped.

    A recorded question is found by its schema, which names the class: a class that is renamed keeps its `title`.
    """

    form: ClassVar[str] = ""
    """The form as a judge is shown it when a reply is repaired."""

    @classmethod
    def of_text(cls, text: str, words: Words) -> Self:
        """Read a reply; raises `Unreadable`, also where the words around an object contradict it."""
        objects = apart(text)[0]
        if not is_json(text) or (objects and not cls._known(objects)):
            return cls.plain(text, words)
        found = said = cls.of_json(text)
        with suppress(Unreadable):
            said = cls.plain(apart(text)[1], words)
        return found if said._verdict == found._verdict else unreadable("one verdict", text)

    @classmethod
    def of_json(cls, text: str) -> Self:
        """Read the object that has a key of the shape; several have to agree. Raises `Unreadable`."""
        objects = apart(text)[0]
        try:
            read = [cls.model_validate(one) for one in cls._known(objects) or objects]
        except ValidationError as error:
            raise Unreadable(first_problem(error)) from None
        if not read or any(one._verdict != read[0]._verdict for one in read):
            unreadable("one JSON object", text)
        return read[-1]

    @classmethod
    def _known(cls, objects: Sequence[JsonObject]) -> list[JsonObject]:
        """The objects with a key of the verdict."""
        keys = _spellings(cls)
        return [one for one in objects if {keys.get(key) for key in unwrapped(one, keys)} - {None, "reason"}]

    @classmethod
    def plain(cls, text: str, words: Words) -> Self:
        """Read a reply that is no JSON; a shape without a plain form raises `Unreadable`."""
        del words
        return cls.of_json(text)

    @property
    def _verdict(self) -> dict[str, Any]:
        return self.model_dump(exclude={"reason"})

    @model_validator(mode="before")
    @classmethod
    def _spelt(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        spellings = _spellings(cls)
        return {spellings.get(key, key): value for key, value in unwrapped(data, spellings).items()}


@cache
def _spellings(schema: type[BaseModel]) -> dict[str, str]:
    """Folded key to the key that the schema reads: field names and aliases."""
    spellings: dict[str, str] = {}
    for name, field in schema.model_fields.items():
        alias = field.validation_alias
        keys = getattr(alias, "choices", [alias] if isinstance(alias, str) else [name])
        spellings |= {folded_key(str(key)): str(key) for key in keys}
    return spellings


def _yes_or_no(value: Any, *, as_it_should: bool) -> Any:
    """Read a yes or no in any language we have prompts for; leave the rest to the schema."""
    if not isinstance(value, str):
        return value
    for language in LANGUAGES:
        with suppress(Unreadable):
            return read_verdict(value, words_of(language), as_it_should=as_it_should)
    return value


_AS_WORD = WithJsonSchema({"type": "string", "enum": ["YES", "NO"]})
YesNo = Annotated[bool, BeforeValidator(partial(_yes_or_no, as_it_should=False)), _AS_WORD]
"""A bool that judges are asked to write as "YES" or "NO"; 1, 0, true, "否", "sim" are read too."""
Passing = Annotated[bool, BeforeValidator(partial(_yes_or_no, as_it_should=True)), _AS_WORD]
"""The same where a yes says that something is as it should be: "PASS", "not supported" are read too."""
Reason = Annotated[
    str,
    BeforeValidator(lambda value: value if isinstance(value, str) else "" if value is None else f"{value}"),
    Field(
        validation_alias=AliasChoices(
            "reason", "reasoning", "feedback", "justification", "explanation", "comment", "coment"
        )
    ),
]
"""The judge's words; every name that the seeds' judges use for them is accepted."""


def number_in(lo: float, hi: float) -> BeforeValidator:
    """Reads a number in `lo`..`hi` that is written as text: "4", "4/5", "4 out of 5"; true and false are no numbers."""

    def number_of(value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError(f"{value} is not a number")
        return read_number(value, words_of("en"), lo=lo, hi=hi) if isinstance(value, str) else value

    return BeforeValidator(number_of)


_VERDICT = ("verdict", "passing", "answer", "score", "result", "decision", "supported", "is_supported", "passed")


class VerdictReply(Reply, title="Verdict"):
    """`{"reason": "...", "verdict": "YES"}`."""

    form = '{"reason": "...", "verdict": "YES" | "NO"}'
    reason: Reason = ""
    verdict: Annotated[Passing, Field(validation_alias=AliasChoices(*_VERDICT))]

    @classmethod
    def plain(cls, text: str, words: Words) -> Self:
        """A yes or no as first word, or after a label on the last line."""
        return cls(verdict=read_verdict(text, words, as_it_should=True), reason=reasoning_of(text, words))


def reasoning_of(text: str, words: Words) -> str:
    """A plain reply without the line of its verdict: a labelled last line, else the first; all of a single line."""
    lines = text.strip().splitlines()
    if len(lines) > 1:
        del lines[-1 if is_labelled(lines[-1], words) else 0]
    return "\n".join(lines).strip()


async def attempt(talk: Awaitable[Value]) -> tuple[Value | None, Unreadable | MissingField | None]:
    """What a conversation says, or why it brought no verdict."""
    try:
        return await talk, None
    except (Unreadable, MissingField) as problem:
        return None, problem


@dataclass
class JudgeSession:
    """Asks and records; made for each case."""

    _judge: Judge
    _calls: list[JudgeCall]
    words: Words
    repair: bool = True
    canary: str | None = None

    async def ask(
        self, messages: Sequence[Message], *, n: int = 1, schema: type[BaseModel] | None = None, logprobs: bool = False
    ) -> list[JudgeCall]:
        """Ask one question `n` times and record the calls, also those of a failure."""
        try:
            calls = await self._judge.ask(messages, n=n, schema=schema, logprobs=logprobs)
        except JudgeError as failure:
            self._calls.extend(failure.calls)
            failure.calls = ()
            raise
        self._calls.extend(calls)
        return calls

    async def reply(self, messages: Sequence[Message], shape: type[Shape]) -> Shape:
        """Ask, and read the reply in its shape; raises as `parse` does."""
        return await self.parse(messages, lambda text: shape.of_text(text, self.words), form=shape.form, schema=shape)

    async def replies(self, prompts: Iterable[Sequence[Message]], shape: type[Shape]) -> list[Shape]:
        """Ask several questions at the same time, and read each reply in the shape."""
        return await together(self.reply(prompt, shape) for prompt in prompts)

    async def parse(
        self,
        messages: Sequence[Message],
        parse: Callable[[str], Value],
        *,
        form: str,
        schema: type[BaseModel] | None = None,
    ) -> Value:
        """Ask, and read the reply; if it cannot be read ask once more showing `form`, then raise `Unreadable`.

        A reply that was cut off, filtered or a refusal raises `NoVerdict` at once, "N/A" raises `MissingField`.
        """
        messages, sent_schema = self._with_canary(messages, schema)

        async def talk(session: JudgeSession) -> Value:
            call = (await session.ask(messages, schema=sent_schema))[0]
            try:
                return self._parsed(call, parse, as_json=schema is not None)
            except NoVerdict:
                raise
            except Unreadable as unreadable:
                if not self.repair:
                    raise
                demand = self.words.repair.format(problem=unreadable, form=form)
                turn = ({"role": "assistant", "content": call.completion}, {"role": "user", "content": demand})
                call = await session._repaired([*messages, *turn], unreadable, sent_schema)
                return self._parsed(call, parse, as_json=schema is not None)

        return await self.held(talk)

    async def held(self, talk: Callable[[JudgeSession], Awaitable[Value]]) -> Value:
        """Hold a conversation; once more without the records where recorded replies left it without a verdict."""
        calls: list[JudgeCall] = []
        try:
            return await talk(replace(self, _calls=calls))
        except Unreadable:
            if not any(call.cached for call in calls):
                raise
            return await talk(replace(self, _judge=anew(self._judge), _calls=calls))
        finally:
            self._calls.extend(calls)

    async def samples(self, messages: Sequence[Message], shape: type[Shape], *, n: int) -> list[Shape]:
        """Ask `n` times and read what can be read; raises `Unreadable` where nothing can. A single one is repaired."""
        if n == 1:
            return [await self.reply(messages, shape)]
        messages, sent_schema = self._with_canary(messages, shape)

        def read(call: JudgeCall) -> Shape:
            return self._parsed(call, lambda text: shape.of_text(text, self.words), as_json=True)

        return await self.readable(messages, read, n=n, schema=sent_schema)

    async def readable(
        self, messages: Sequence[Message], read: Callable[[JudgeCall], Value], *, n: int, **options: Any
    ) -> list[Value]:
        """Ask `n` times and read what can be read; raises `Unreadable` where nothing can."""

        async def talk(session: JudgeSession) -> list[Value]:
            found, problem = list[Value](), None
            for call in await session.ask(messages, n=n, **options):
                try:
                    found.append(read(call))
                except (Unreadable, MissingField) as failure:
                    problem = failure
            if not found:
                raise Unreadable(f"none of {n} replies can be read: {problem}")
            return found

        return await self.held(talk)

    def _parsed(self, call: JudgeCall, parse: Callable[[str], Value], *, as_json: bool) -> Value:
        text = self._verified(final_text(call), as_json=as_json)
        try:
            return parse(text)
        except NoVerdict:
            raise
        except Unreadable as unreadable:
            if not_applicable(text, self.words):
                raise NothingToScore("nothing to judge: the judge replied N/A") from None
            if refuses(text):
                raise NoVerdict(f"the judge refused to judge: {unreadable}") from None
            raise

    def _with_canary(
        self, messages: Sequence[Message], schema: type[BaseModel] | None
    ) -> tuple[Sequence[Message], type[BaseModel] | None]:
        if not self.canary:
            return messages, schema
        demand = (self.words.canary if schema else self.words.canary_line).format(mark=self.canary)
        last = {**messages[-1], "content": f"{messages[-1]['content']}\n\n{demand}"}
        return [*messages[:-1], last], None  # no provider would let the canary through a schema that does not name it

    def _verified(self, reply: str, *, as_json: bool) -> str:
        """The reply, if it carries the canary: a verdict copied out of the material cannot."""
        if not self.canary:
            return reply
        first, _, rest = reply.partition("\n")
        carried = read_json(reply).get("canary") == self.canary if as_json else self.canary in first
        if not carried:
            raise Unreadable("the reply does not carry the canary")
        return reply if as_json else rest

    async def _repaired(
        self, messages: Sequence[Message], problem: Unreadable, schema: type[BaseModel] | None
    ) -> JudgeCall:
        try:
            return (await self.ask(messages, schema=schema))[0]
        except JudgeError as failure:
            # The first reply stays what it was: unreadable. A second try would start from the same words.
            raise Unreadable(f"{problem}; the repair turn failed: {failure}") from failure
