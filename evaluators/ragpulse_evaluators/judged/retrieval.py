"""RAGAS' judgements of the retriever: context precision, recall, relevancy; and AdalFlow's retriever relevance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, BeforeValidator, Field, WithJsonSchema

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import MissingField, NothingToScore, Unreadable
from ragpulse_evaluators.grounding.text import split_sentences
from ragpulse_evaluators.judged.base import JudgedEvaluator, judged_entry
from ragpulse_evaluators.judged.session import JudgeSession, Passing, Reason, Reply, VerdictReply, number_in
from ragpulse_evaluators.judges.parsing import is_nothing, read_number
from ragpulse_evaluators.judges.tokens import Words, words_of
from ragpulse_evaluators.result import Outcome


def average_precision(verdicts: Sequence[bool]) -> float:
    """Σ(precision at i · verdict i) / Σ verdicts over ranks; 0 when nothing is relevant."""
    hits, total = 0, 0.0
    for rank, relevant in enumerate(verdicts, start=1):
        if relevant:
            hits += 1
            total += hits / rank
    return total / hits if hits else 0.0


class _PerContext(JudgedEvaluator):
    """One yes or no per context."""

    needs = frozenset({"query", "contexts"})
    parser = "verdict"
    cost_class = "k calls"
    reply_tokens = 80

    @abstractmethod
    def score(self, verdicts: Sequence[bool]) -> float:
        """Score the verdicts in rank order."""

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """Judge every context by itself, then score the verdicts by rank."""
        prompts = [self.render("evaluate", case, context=text) for text in case.texts]
        replies = await session.replies(prompts, VerdictReply)
        verdicts = [reply.verdict for reply in replies]
        reasons = (f"[{rank}] {'+' if v.verdict else '-'} {v.reason}" for rank, v in enumerate(replies, start=1))
        return Outcome(score=self.score(verdicts), explanation="\n".join(reasons), parts={"verdicts": verdicts})

    def calls_for(self, case: Case) -> int:
        """One per context."""
        return len(case.texts)


class ContextPrecision(_PerContext):
    """Are the relevant contexts ranked first? Average precision of the judge's verdicts; the reference helps."""

    name = "context_precision"

    def score(self, verdicts: Sequence[bool]) -> float:
        """Average precision."""
        return average_precision(verdicts)


class RetrieverRelevance(_PerContext):
    """Which share of the retrieved contexts is relevant to the query?"""

    name = "retriever_relevance"

    def score(self, verdicts: Sequence[bool]) -> float:
        """Their share."""
        return fmean(verdicts)


class Attribution(Reply):
    """One statement of the reference, and whether the contexts hold it."""

    statement: str = ""
    reason: Reason = ""
    attributed: Annotated[Passing, Field(validation_alias=AliasChoices("attributed", "verdict"))]


class Attributions(Reply):
    """`{"classifications": [{"statement": "...", "reason": "...", "attributed": "YES"}]}`."""

    form = '{"classifications": [{"statement": "...", "reason": "...", "attributed": "YES" | "NO"}]}'
    classifications: Annotated[
        list[Attribution],
        Field(
            json_schema_extra={
                "minItems": 1
            },  # recorded questions are found by the schema  # recorded questions are found by the schema
            validation_alias=AliasChoices("classifications", "statements", "verdicts"),
        ),
    ]


class ContextRecall(JudgedEvaluator):
    """Which share of the reference's statements can be attributed to the contexts?"""

    name = "context_recall"
    needs = frozenset({"contexts", "reference"})
    parser = "attributions"
    reply_tokens = 400

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """One call: the judge takes the reference apart and attributes each statement."""
        statements = (await session.reply(self.render("evaluate", case), Attributions)).classifications
        if not statements:
            raise NothingToScore("nothing to find: the reference states nothing")
        missing = [item.statement for item in statements if not item.attributed]
        return Outcome(
            score=fmean(item.attributed for item in statements),
            explanation="not attributed: " + "; ".join(missing) if missing else "every statement is attributed",
            parts={"statements": [item.model_dump() for item in statements]},
        )


def _listed(value: Any) -> Any:
    """A list also from a single number or text; "none" and null are no sentence."""
    if is_nothing(value, words_of("en").none):
        return []
    return [value] if isinstance(value, int | str) else value


class Relevant(Reply):
    """`{"reason": "...", "relevant": [1, 3]}`: numbers (or texts) of the relevant sentences."""

    form = '{"reason": "...", "relevant": [1, 2]}'
    reason: Reason = ""
    relevant: Annotated[
        list[int | str],
        BeforeValidator(_listed),
        WithJsonSchema({"type": "array", "items": {"type": "integer"}}),
        Field(validation_alias=AliasChoices("relevant", "sentences")),
    ]


class Rating(Reply):
    """`{"reason": "...", "rating": 0 | 1 | 2}`."""

    form = '{"reason": "...", "rating": 0 | 1 | 2}'
    reason: Reason = ""
    rating: Annotated[
        int,
        number_in(0, 2),
        WithJsonSchema({"type": "integer", "enum": [0, 1, 2]}),
        Field(ge=0, le=2, validation_alias=AliasChoices("rating", "score")),
    ]

    @classmethod
    def plain(cls, text: str, words: Words) -> Self:
        """A number from 0 to 2."""
        return cls(rating=int(read_number(text, words, lo=0, hi=2)))


class ContextRelevancy(JudgedEvaluator):
    """How little noise do the contexts hold?

    `mode="sentence"`: relevant sentences over all sentences. `mode="dual"`: two differently worded judges rate 0, 1 or
    2; their mean over 2.
    """

    name = "context_relevancy"
    needs = frozenset({"query", "contexts"})
    parser = "relevant-sentences-or-ratings"
    reply_tokens = 120

    def __init__(self, *, mode: Literal["sentence", "dual"] = "sentence", **options: Any) -> None:
        super().__init__(mode=mode, **options)
        self._dual = mode == "dual"
        self._ask_times(2 if self._dual else 1)

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """Count sentences, or ask two judges."""
        return await (self._rated(case, session) if self._dual else self._counted(case, session))

    async def _counted(self, case: Case, session: JudgeSession) -> Outcome:
        sentences = [sentence.text for text in case.texts for sentence in split_sentences(text)]
        if not sentences:
            raise MissingField("contexts")
        reason, relevant = await session.parse(
            self.render("sentences", case, sentences=sentences),
            lambda text: _numbers(Relevant.of_json(text), sentences),
            form=Relevant.form,
            schema=Relevant,
        )
        parts = {"relevant": [sentences[number - 1] for number in relevant], "sentences": len(sentences)}
        return Outcome(score=len(relevant) / len(sentences), explanation=reason or None, parts=parts)

    async def _rated(self, case: Case, session: JudgeSession) -> Outcome:
        prompts = [self.render(step, case) for step in ("first_rating", "second_rating")]
        ratings = await session.replies(prompts, Rating)
        reasons = "\n".join(rating.reason for rating in ratings if rating.reason)
        marks = [rating.rating for rating in ratings]
        return Outcome(score=fmean(marks) / 2, explanation=reasons or None, parts={"ratings": marks})


def _numbers(reply: Relevant, sentences: Sequence[str]) -> tuple[str, list[int]]:
    """The reason and the distinct numbers of relevant sentences; a sentence that was not shown is unreadable."""
    numbers = {item if isinstance(item, int) else _position(item, sentences) for item in reply.relevant}
    if outside := sorted(number for number in numbers if not 1 <= number <= len(sentences)):
        raise Unreadable(f"sentence {outside[0]} of {len(sentences)}")
    return reply.reason, sorted(numbers)


def _position(text: str, sentences: Sequence[str]) -> int:
    plain = " ".join(text.split()).casefold()
    for number, sentence in enumerate(sentences, start=1):
        if " ".join(sentence.split()).casefold() == plain or text.strip("[] ") == str(number):
            return number
    raise Unreadable(f"{text!r} is no sentence of the contexts")


ENTRIES = (
    judged_entry(ContextPrecision, "RAGAS (arXiv:2309.15217)"),
    judged_entry(ContextRecall, "RAGAS (arXiv:2309.15217)"),
    judged_entry(ContextRelevancy, "RAGAS (arXiv:2309.15217)", 'mode="sentence"'),
    judged_entry(RetrieverRelevance, "ragpulse"),
)
